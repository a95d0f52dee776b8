//! Where bytes come from: a file, standard input or any reader, decompressed where they are
//! compressed, which their first bytes tell and not their name.

use std::{
    fs::{self, File},
    io::{self, BufRead, BufReader, Cursor, ErrorKind, Read},
    os::fd::AsFd,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

#[cfg(target_os = "linux")]
use rustix::pipe::{fcntl_getpipe_size, fcntl_setpipe_size};
use zstd::stream::read::Decoder as ZstdDecoder;

use crate::cut::Part;
use crate::damage::{CaptureError, Refusal, shown};
use crate::gzip::Gzip;
use crate::waiting::Waiting;

/// A bomb is what grows by more than this factor once it has grown to more than this.
const BOMB_RATIO: u64 = 256;
const BOMB_BYTES: u64 = 16 << 20;

/// The largest window that a zstd stream may ask for: 2²⁵ bytes, what level 20 uses. It is the
/// greater part of the memory that decompression takes.
const ZSTD_WINDOW_LOG: u32 = 25;

/// zstd's decoder loses what it made of the piece of input in which it meets damage: the pieces
/// are so small that little is lost, and large enough that the calls cost next to nothing.
const ZSTD_PIECE_BYTES: usize = 512;

/// What a pipe may hold at least: as much as Linux allows every user.
#[cfg(target_os = "linux")]
const PIPE_BYTES: usize = 1 << 20;

/// Something to read, not opened yet.
pub(crate) enum Origin {
    Path(PathBuf),
    Part(Part),
    StandardInput,
    Reader(String, Box<dyn Read + Send>),
}

/// Something opened: its bytes are those of a capture.
pub(crate) struct Input {
    pub(crate) file: String,
    pub(crate) compressed: bool,
    pub(crate) bytes: Box<dyn Read + Send>,
    /// Bytes taken from it so far, compressed as they stand.
    pub(crate) meter: Arc<AtomicU64>,
    /// The part of a capture that `bytes` are, where they are not all of it.
    pub(crate) part: Option<Part>,
}

impl Origin {
    /// The name as it was given.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Path(path) | Self::Part(Part { path, .. }) => path.display().to_string(),
            Self::StandardInput => "standard input".to_owned(),
            Self::Reader(name, _) => name.clone(),
        }
    }

    /// Bytes to be read, where that is known; what cannot be opened has none.
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

    /// Opens it and looks at its first bytes. What has to be waited for ends when `stop` is set.
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
            Self::Path(path) => match File::open(path) {
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

/// The file, so that a reader that waits for it ends when `stop` is set.
fn until(file: File, stop: &Arc<AtomicBool>) -> Box<dyn Read + Send> {
    if file.metadata().is_ok_and(|metadata| metadata.is_file()) {
        return Box::new(file);
    }
    enlarge(&file);
    Box::new(Waiting { file, stop: Arc::clone(stop) })
}

/// Enlarges the buffer of a pipe, so that its writer and its reader wake each other less often. Does
/// nothing to other files, or where the system refuses.
fn enlarge(file: &File) {
    #[cfg(target_os = "linux")]
    if fcntl_getpipe_size(file).is_ok_and(|bytes| bytes < PIPE_BYTES) {
        let _ = fcntl_setpipe_size(file, PIPE_BYTES);
    }
    #[cfg(not(target_os = "linux"))]
    let _ = file;
}

/// Puts a decoder in front of a source that is compressed, and says whether it did.
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

/// What a file is compressed with.
pub(crate) enum Codec {
    Gzip,
    Zstd,
}

impl Codec {
    /// What `magic`, the first bytes of a file, say.
    pub(crate) fn of(magic: &[u8]) -> Option<Self> {
        match magic {
            [0x1f, 0x8b, ..] => Some(Self::Gzip),
            // The second is a frame to be skipped, which parallel compressors put first.
            [0x28, 0xb5, 0x2f, 0xfd] | [0x50..=0x5f, 0x2a, 0x4d, 0x18] => Some(Self::Zstd),
            _ => None,
        }
    }
}

/// Counts the bytes that are taken out of a reader.
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

/// Shows its bytes in pieces of [`ZSTD_PIECE_BYTES`].
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

/// Decompressed bytes, up to where they look like a bomb. Its errors complete the sentence of
/// [`Damage::Compressed`](crate::Damage::Compressed).
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
            // zstd gives its reasons as text only.
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
