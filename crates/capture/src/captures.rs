//! Several captures as one stream.

use std::{
    collections::VecDeque,
    io::{Cursor, Read},
    path::Path,
};

use crate::{
    damage::CaptureError,
    frames::{FileCounts, Frames, Progress, Source},
    input::Origin,
    reader::Reader,
};

/// Captures that are read one after another, each as far as it goes.
///
/// A capture is classic pcap (either byte order, microseconds or nanoseconds, versions 2.0 to 2.4,
/// Kuznetzov's variant) or pcapng, plain or compressed with gzip or zstd. A capture that is
/// damaged, or none, gives its error once; the next [`poll`](Source::poll) goes on with the next.
///
/// Memory: 256 KiB of buffer and 8 KiB of frames for the capture that is being read, up to 16 MiB
/// if a pcapng block is so large, and up to 33 MiB for decompression.
///
/// ```no_run
/// use flowgauge_capture::{Captures, Source};
///
/// let mut captures = Captures::open(["morning.pcap.gz", "evening.pcapng"]);
/// loop {
///     match captures.poll() {
///         Ok(Some(frames)) => {
///             for frame in frames.frames {
///                 println!("{} {}", frame.time_ns, frames.captured(frame).len());
///             }
///         }
///         Ok(None) => break,
///         Err(error) => eprintln!("{error}"),
///     }
/// }
/// ```
pub struct Captures {
    waiting: VecDeque<Origin>,
    reader: Option<Reader>,
    files: Vec<FileCounts>,
    /// Bytes of all files, of those behind, and of the one that is being read.
    bytes: Option<u64>,
    bytes_behind: u64,
    bytes_here: Option<u64>,
}

impl Captures {
    /// Captures by their names, of which `-` is standard input. Each is opened when its turn
    /// comes, so that one that cannot be opened does not hide the others.
    pub fn open<P: AsRef<Path>>(paths: impl IntoIterator<Item = P>) -> Self {
        Self::new(paths.into_iter().map(|path| match path.as_ref() {
            path if path == Path::new("-") => Origin::StandardInput,
            path => Origin::Path(path.to_owned()),
        }))
    }

    /// One capture that comes from `reader`; `name` stands for it in messages.
    pub fn from_reader(name: &str, reader: impl Read + Send + 'static) -> Self {
        Self::new([Origin::Reader(name.to_owned(), Box::new(reader))])
    }

    /// One capture that is in memory as a whole; `name` stands for it in messages.
    pub fn from_bytes(name: &str, bytes: Vec<u8>) -> Self {
        let all = Some(bytes.len() as u64);
        Self { bytes: all, ..Self::from_reader(name, Cursor::new(bytes)) }
    }

    pub(crate) fn new(origins: impl IntoIterator<Item = Origin>) -> Self {
        let waiting: VecDeque<Origin> = origins.into_iter().collect();
        let bytes = waiting.iter().map(Origin::bytes).sum();
        let (files, bytes_behind, bytes_here) = (Vec::new(), 0, Some(0));
        Self { waiting, reader: None, files, bytes, bytes_behind, bytes_here }
    }

    /// Reads some frames of the first file that still has some.
    fn advance(&mut self) -> Result<bool, CaptureError> {
        loop {
            let reader = if let Some(reader) = &mut self.reader {
                reader
            } else {
                let Some(origin) = self.waiting.pop_front() else { return Ok(false) };
                self.files.push(FileCounts { file: origin.name(), frames: 0, irregular: 0 });
                self.bytes_here = origin.bytes();
                match origin.open() {
                    Ok(input) => self.reader.insert(Reader::new(input)),
                    Err(error) => {
                        self.leave();
                        return Err(error);
                    }
                }
            };
            let advanced = reader.advance();
            if let Some(file) = self.files.last_mut() {
                file.frames += reader.frames().frames.len() as u64;
                file.irregular = reader.irregular();
            }
            match advanced {
                Ok(true) => return Ok(true),
                Ok(false) => self.leave(),
                Err(error) => {
                    self.leave();
                    return Err(error);
                }
            }
        }
    }

    /// Has done with the file that is being read.
    fn leave(&mut self) {
        let read = self.reader.take().map_or(0, |reader| reader.bytes_read());
        self.bytes_behind += self.bytes_here.unwrap_or(read);
    }
}

impl Source for Captures {
    type Error = CaptureError;

    fn poll(&mut self) -> Result<Option<Frames<'_>>, CaptureError> {
        let advanced = self.advance()?;
        Ok(self.reader.as_ref().filter(|_| advanced).map(Reader::frames))
    }

    fn progress(&self) -> Progress {
        let here = self.reader.as_ref().map_or(0, Reader::bytes_read);
        Progress { read: self.bytes_behind + here, total: self.bytes }
    }

    fn files(&self) -> &[FileCounts] {
        &self.files
    }
}
