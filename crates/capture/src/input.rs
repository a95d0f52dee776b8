//! The bytes of a capture: from a file, standard input or any reader, decompressed if their first
//! bytes (not the file name) show a compressed format.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, BufRead, BufReader, Cursor, ErrorKind, Read, Seek, SeekFrom},
    ops::Range,
    os::{fd::AsFd, unix::fs::OpenOptionsExt},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use flate2::{Decompress, FlushDecompress, Status};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use rustix::io::Errno;
#[cfg(target_os = "linux")]
use rustix::pipe::{fcntl_getpipe_size, fcntl_setpipe_size};
use zstd::stream::read::Decoder as ZstdDecoder;

use crate::damage::{CaptureError, Refusal, shown};
use crate::format::Format;

/// Compressed data that expand by more than this factor, and to more than [`BOMB_BYTES`], are
/// refused as a decompression bomb.
const BOMB_RATIO: u64 = 256;
const BOMB_BYTES: u64 = 16 << 20;

/// The largest window of a zstd stream: 2²⁵ bytes, as level 20 uses. Most of the memory of
/// decompression is this window.
const ZSTD_WINDOW_LOG: u32 = 25;

/// The decoder of zstd loses the output of the piece of input in which it finds damage. Pieces of
/// this size lose little, and their calls cost almost nothing.
const ZSTD_PIECE_BYTES: usize = 512;

/// The size to which the buffer of a pipe is enlarged: the largest that Linux allows every user.
#[cfg(target_os = "linux")]
const PIPE_BYTES: usize = 1 << 20;

/// An input that is not opened yet.
pub(crate) enum Origin {
    Path(PathBuf),
    Part(Part),
    StandardInput,
    Reader(String, Box<dyn Read + Send>),
}

/// A part of a capture: a range of whole records.
///
/// If every part is read without error, the parts in order give the packets of the whole file. The
/// first part begins where the file does, or after its header. A part that ends exactly where the
/// next one begins, with the same interfaces, proves that the next one begins at a record. If a
/// part returns an error, discard the packets of all later parts: reading the whole file would have
/// ended there.
#[derive(Clone, Debug)]
pub struct Part {
    pub(crate) path: PathBuf,
    /// Its place in the file. The last part extends to the end of the file, even if the file has
    /// grown.
    pub(crate) bytes: Range<u64>,
    /// The state of the format at the start of the part.
    pub(crate) format: Format,
    /// The state that the next part assumes; `None` for the last part.
    pub(crate) next: Option<Format>,
}

impl Part {
    /// Its place in the file.
    pub fn bytes(&self) -> Range<u64> {
        self.bytes.clone()
    }

    /// Its bytes.
    pub(crate) fn reader(&self) -> io::Result<impl Read + Send + use<>> {
        let mut file = File::open(&self.path)?;
        file.seek(SeekFrom::Start(self.bytes.start))?;
        let bytes = if self.next.is_none() { u64::MAX } else { self.bytes.end - self.bytes.start };
        Ok(file.take(bytes))
    }
}

/// An opened input.
pub(crate) struct Input {
    pub(crate) file: String,
    pub(crate) compressed: bool,
    pub(crate) bytes: Box<dyn Read + Send>,
    /// Bytes read so far, before decompression.
    pub(crate) meter: Arc<AtomicU64>,
    /// The part of the capture that `bytes` holds; `None` for the whole capture.
    pub(crate) part: Option<Part>,
}

impl Origin {
    /// The name as the user gave it.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Path(path) | Self::Part(Part { path, .. }) => path.display().to_string(),
            Self::StandardInput => "standard input".to_owned(),
            Self::Reader(name, _) => name.clone(),
        }
    }

    /// The number of bytes to read, if known; 0 for a file that cannot be opened.
    pub(crate) fn bytes(&self) -> Option<u64> {
        match self {
            Self::Path(path) => match fs::metadata(path) {
                Ok(metadata) if metadata.is_file() => Some(metadata.len()),
                Ok(metadata) if !metadata.is_dir() => None,
                Ok(_) | Err(_) => Some(0),
            },
            Self::Part(part) => Some(part.bytes.end - part.bytes.start),
            Self::StandardInput | Self::Reader(..) => None,
        }
    }

    /// Opens the input and reads its first bytes. A pipe ends when `stop` is set.
    pub(crate) fn open(self, stop: &Arc<AtomicBool>) -> Result<Input, CaptureError> {
        let file = shown(&self.name());
        let unreadable = |refusal| CaptureError::Unreadable { file: file.clone(), refusal };
        let source: Box<dyn Read + Send> = match self {
            Self::Part(part) => {
                let meter = Arc::default();
                let source = part.reader().map_err(|error| unreadable(Refusal::Open(error)))?;
                let bytes = Box::new(Metered { inner: source, meter: Arc::clone(&meter) });
                return Ok(Input { file, compressed: false, bytes, meter, part: Some(part) });
            }
            Self::Path(path) if path.is_dir() => return Err(unreadable(Refusal::Directory)),
            Self::Path(path) => match open_at_once(&path) {
                Ok(file) => until(file, stop),
                Err(error) => return Err(unreadable(Refusal::Open(error))),
            },
            Self::StandardInput => match io::stdin().as_fd().try_clone_to_owned() {
                Ok(file) => until(file.into(), stop),
                Err(error) => return Err(unreadable(Refusal::Open(error))),
            },
            Self::Reader(_, reader) => reader,
        };
        let meter = Arc::default();
        match decompress(source, Arc::clone(&meter)) {
            Ok((bytes, compressed)) => Ok(Input { file, compressed, bytes, meter, part: None }),
            Err(error) => Err(unreadable(Refusal::Open(error))),
        }
    }
}

/// Opens a file. A named pipe does not wait for its writer here, where nothing would end the wait.
fn open_at_once(path: &Path) -> io::Result<File> {
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    OpenOptions::new().read(true).custom_flags(flags).open(path)
}

/// Makes reading end when `stop` is set, if the file is one that a reader may wait for.
fn until(file: File, stop: &Arc<AtomicBool>) -> Box<dyn Read + Send> {
    if file.metadata().is_ok_and(|metadata| metadata.is_file()) {
        return Box::new(file);
    }
    enlarge(&file);
    Box::new(Waiting { file, stop: Arc::clone(stop) })
}

/// Enlarges the buffer of a pipe, so that its writer and its reader wake each other less often. Has
/// no effect on other files, or if the system refuses.
fn enlarge(file: &File) {
    #[cfg(target_os = "linux")]
    if fcntl_getpipe_size(file).is_ok_and(|bytes| bytes < PIPE_BYTES) {
        let _ = fcntl_setpipe_size(file, PIPE_BYTES);
    }
    #[cfg(not(target_os = "linux"))]
    let _ = file;
}

/// Adds a decoder to a compressed source. The flag says whether the source is compressed.
fn decompress(
    mut source: Box<dyn Read + Send>,
    meter: Arc<AtomicU64>,
) -> io::Result<(Box<dyn Read + Send>, bool)> {
    let mut magic = Vec::with_capacity(4);
    source.by_ref().take(4).read_to_end(&mut magic)?;
    let codec = Codec::of(&magic);
    let source = Cursor::new(magic).chain(source);
    let Some(codec) = codec else {
        return Ok((Box::new(Metered { inner: source, meter }), false));
    };
    let source = Metered { inner: BufReader::with_capacity(64 << 10, source), meter };
    let meter = Arc::clone(&source.meter);
    let decoder: Box<dyn Read + Send> = match codec {
        Codec::Gzip => Box::new(Gzip::new(source)),
        Codec::Zstd => {
            let mut decoder = ZstdDecoder::with_buffer(Pieces(source))?;
            decoder.window_log_max(ZSTD_WINDOW_LOG)?;
            Box::new(decoder)
        }
    };
    Ok((Box::new(Decompressed { decoder, bytes: 0, meter }), true))
}

/// A compression format.
pub(crate) enum Codec {
    Gzip,
    Zstd,
}

impl Codec {
    /// The format of a file that begins with `magic`.
    pub(crate) fn of(magic: &[u8]) -> Option<Self> {
        match magic {
            [0x1f, 0x8b, ..] => Some(Self::Gzip),
            // The second is a skippable frame; parallel compressors begin with one.
            [0x28, 0xb5, 0x2f, 0xfd] | [0x50..=0x5f, 0x2a, 0x4d, 0x18] => Some(Self::Zstd),
            _ => None,
        }
    }
}

/// Counts the bytes read from a reader.
struct Metered<R> {
    inner: R,
    meter: Arc<AtomicU64>,
}

impl<R: Read> Read for Metered<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.meter.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}

impl<R: BufRead> BufRead for Metered<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.inner.fill_buf()
    }

    fn consume(&mut self, bytes: usize) {
        self.inner.consume(bytes);
        self.meter.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

/// Yields its bytes in pieces of [`ZSTD_PIECE_BYTES`].
struct Pieces<R>(R);

impl<R: BufRead> BufRead for Pieces<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        let bytes = self.0.fill_buf()?;
        Ok(&bytes[..bytes.len().min(ZSTD_PIECE_BYTES)])
    }

    fn consume(&mut self, bytes: usize) {
        self.0.consume(bytes);
    }
}

impl<R: BufRead> Read for Pieces<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }
}

/// Decompressed bytes, until they look like a decompression bomb. The error texts complete the
/// sentence of [`Damage::Compressed`](crate::Damage::Compressed).
struct Decompressed {
    decoder: Box<dyn Read + Send>,
    bytes: u64,
    meter: Arc<AtomicU64>,
}

impl Read for Decompressed {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.decoder.read(buffer).map_err(|error| match error.kind() {
            ErrorKind::Interrupted => error,
            ErrorKind::UnexpectedEof => io::Error::other("is cut short"),
            // zstd reports its reasons only as text.
            _ if error.to_string().contains("too much memory") => io::Error::other(
                "needs a window over 32 MiB; decompress the file with zstd --long=31 first",
            ),
            _ => io::Error::other(format!("is damaged: {error}")),
        })?;
        self.bytes += read as u64;
        let compressed = self.meter.load(Ordering::Relaxed);
        if self.bytes > BOMB_BYTES && self.bytes / BOMB_RATIO > compressed {
            return Err(io::Error::other(
                "expands more than 256 times; if you trust the file, decompress it first",
            ));
        }
        Ok(read)
    }
}

/// Interval between looks at the flag; a signal to this thread ends the wait early.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// A file, such as a pipe, that ends when a flag is set, even while there is nothing to read.
struct Waiting {
    file: File,
    stop: Arc<AtomicBool>,
}

impl Read for Waiting {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while !self.stop.load(Ordering::Relaxed) {
            let mut file = [PollFd::new(&self.file, PollFlags::IN)];
            match poll(&mut file, Some(&LOOK)) {
                Ok(0) | Err(Errno::INTR) => {}
                Ok(_) => match self.file.read(buffer) {
                    // Another reader of the pipe was faster.
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    read => return read,
                },
                Err(error) => return Err(error.into()),
            }
        }
        Ok(0)
    }
}

/// The window of gzip files, also the largest of deflate.
const WINDOW_BITS: u8 = 15;

/// Inflates one gzip member or several.
///
/// Unlike the readers of flate2, it returns all bytes inflated before damage: flate2 drops the
/// output of the call that finds the damage.
struct Gzip<R> {
    source: R,
    inflate: Decompress,
    /// Between two members, where the source may end.
    between: bool,
    failed: Option<io::Error>,
}

impl<R: BufRead> Gzip<R> {
    fn new(source: R) -> Self {
        let inflate = Decompress::new_gzip(WINDOW_BITS);
        Self { source, inflate, between: true, failed: None }
    }

    /// Whether no member follows. Zeros, which fill up blocks of tapes, are passed over, as gzip does.
    fn ends(&mut self) -> io::Result<bool> {
        loop {
            let input = self.source.fill_buf()?;
            let zeros = input.iter().take_while(|byte| **byte == 0).count();
            if zeros == 0 {
                return Ok(input.is_empty());
            }
            self.source.consume(zeros);
        }
    }

    /// Inflates some bytes; 0 if it needs more input or the member is complete.
    fn step(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let input = self.source.fill_buf()?;
        if input.is_empty() && !self.between {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        let (read, written) = (self.inflate.total_in(), self.inflate.total_out());
        let status = self.inflate.decompress(input, buffer, FlushDecompress::None);
        let read = (self.inflate.total_in() - read) as usize;
        let written = (self.inflate.total_out() - written) as usize;
        self.source.consume(read);
        self.between = false;
        match status {
            Ok(Status::StreamEnd) => {
                self.inflate = Decompress::new_gzip(WINDOW_BITS);
                self.between = true;
            }
            Ok(Status::Ok | Status::BufError) => {}
            Err(error) => self.failed = Some(io::Error::new(ErrorKind::InvalidData, error)),
        }
        Ok(written)
    }
}

impl<R: BufRead> Read for Gzip<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        loop {
            if let Some(error) = self.failed.take() {
                return Err(error);
            }
            if self.between && self.ends()? {
                return Ok(0);
            }
            let written = self.step(buffer)?;
            if written > 0 {
                return Ok(written);
            }
        }
    }
}
