//! Several captures, read as one stream.

use std::{
    collections::VecDeque,
    io::{Cursor, Read},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use flowgauge_engine::source::{
    Ahead, Burst, Chunk, Chunks, Counter, CounterKind, Progress, Skipped, Source, SourceError,
};

use crate::{damage::CaptureError, input::Origin, reader::CaptureReader};

/// Captures that are read one after another, each to its end or to damage.
///
/// A capture is classic pcap (either byte order, microseconds or nanoseconds, versions 2.0 to 2.4,
/// Kuznetzov's variant) or pcapng, plain or compressed with gzip or zstd. A damaged capture, or a
/// file that is not a capture, returns its error once; the next [`poll`](Source::poll) continues
/// with the next file.
///
/// Memory: a buffer of 256 KiB, up to 16 MiB for a pcapng block of that size, and up to 33 MiB for
/// decompression.
///
/// ```
/// use flowgauge_capture::Captures;
/// use flowgauge_engine::source::{Burst, Columns, Source};
///
/// let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/tcpdump");
/// let names = ["isup.pcap", "bgp-role.pcapng"];
/// let mut captures = Captures::open(names.map(|name| format!("{folder}/{name}")));
/// let (mut packets, mut columns) = (0, Columns::default());
/// loop {
///     let mut burst = Burst::new(&mut columns);
///     if !captures.poll(&mut burst)? {
///         break;
///     }
///     packets += burst.frames().len();
/// }
/// assert_eq!(packets, 15);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Captures {
    waiting: VecDeque<Origin>,
    reader: Option<CaptureReader>,
    /// The names of the files begun.
    names: Vec<String>,
    counters: [Counter; 2],
    /// Bytes of all files; `None` if unknown.
    bytes: Option<u64>,
    /// Bytes of the finished files.
    bytes_behind: u64,
    /// Bytes of the current file; `None` if unknown.
    bytes_here: Option<u64>,
    /// Irregular records of the finished files.
    irregular_behind: u64,
    /// Ends reading early.
    stop: Arc<AtomicBool>,
}

/// Indices of the counters.
const RECEIVED: usize = 0;
const IRREGULAR: usize = 1;

impl Captures {
    /// Captures by name; `-` is standard input. Each file is opened when its turn comes, so a file
    /// that cannot be opened does not hide the others.
    pub fn open<P: AsRef<Path>>(paths: impl IntoIterator<Item = P>) -> Self {
        Self::new(paths.into_iter().map(|path| match path.as_ref() {
            path if path == Path::new("-") => Origin::StandardInput,
            path => Origin::Path(path.to_owned()),
        }))
    }

    /// Ends reading when `stop` is set: before the next burst, or while it waits for a pipe. The
    /// early end itself causes no error.
    #[must_use]
    pub fn until(mut self, stop: Arc<AtomicBool>) -> Self {
        self.stop = stop;
        self
    }

    /// One capture from `reader`, called `name` in messages.
    pub fn from_reader(name: &str, reader: impl Read + Send + 'static) -> Self {
        Self::new([Origin::Reader(name.to_owned(), Box::new(reader))])
    }

    /// One capture in memory, called `name` in messages.
    pub fn from_bytes(name: &str, bytes: Vec<u8>) -> Self {
        let all = Some(bytes.len() as u64);
        Self { bytes: all, ..Self::from_reader(name, Cursor::new(bytes)) }
    }

    pub(crate) fn new(origins: impl IntoIterator<Item = Origin>) -> Self {
        let waiting: VecDeque<Origin> = origins.into_iter().collect();
        let bytes = waiting.iter().map(Origin::bytes).sum();
        let counters = [
            Counter::new("received", CounterKind::Other),
            Counter::new("irregular", CounterKind::Irregular),
        ];
        Self {
            waiting,
            reader: None,
            names: Vec::new(),
            counters,
            bytes,
            bytes_behind: 0,
            bytes_here: Some(0),
            irregular_behind: 0,
            stop: Arc::default(),
        }
    }

    /// Lets `look` find packets in the first file that has some left; `false` at the end.
    fn seek(
        &mut self,
        mut look: impl FnMut(&mut CaptureReader) -> Result<bool, CaptureError>,
    ) -> Result<bool, SourceError> {
        if self.is_stopped() {
            return Ok(false);
        }
        match self.seek_file(&mut look) {
            Err(_) if self.is_stopped() => Ok(false),
            more => Ok(more?),
        }
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn seek_file(
        &mut self,
        look: &mut dyn FnMut(&mut CaptureReader) -> Result<bool, CaptureError>,
    ) -> Result<bool, CaptureError> {
        loop {
            let reader = if let Some(reader) = &mut self.reader {
                reader
            } else {
                let Some(origin) = self.waiting.pop_front() else { return Ok(false) };
                self.names.push(origin.name());
                self.bytes_here = origin.bytes();
                match origin.open(&self.stop) {
                    Ok(input) => self.reader.insert(CaptureReader::new(input)),
                    Err(error) => {
                        self.leave();
                        return Err(error);
                    }
                }
            };
            match look(reader) {
                Ok(true) => return Ok(true),
                Ok(false) => self.leave(),
                Err(error) => {
                    self.leave();
                    return Err(error);
                }
            }
        }
    }

    /// Finishes the current file.
    fn leave(&mut self) {
        let reader = self.reader.take();
        let read = reader.as_ref().map_or(0, CaptureReader::bytes_read);
        self.bytes_behind += self.bytes_here.unwrap_or(read);
        self.irregular_behind += reader.map_or(0, |reader| reader.irregular());
        self.counters[IRREGULAR].count = self.irregular_behind;
    }
}

impl Source for Captures {
    fn poll<'a>(&'a mut self, burst: &mut Burst<'a>) -> Result<bool, SourceError> {
        let more = self.seek(CaptureReader::seek)?;
        if more && let Some(reader) = &mut self.reader {
            self.counters[IRREGULAR].count = self.irregular_behind + reader.walk(burst);
            self.counters[RECEIVED].count += burst.len() as u64;
        }
        Ok(more)
    }

    fn skip(&mut self, ahead: &Ahead) -> Skipped {
        let Some(reader) = &mut self.reader else { return Skipped::none(ahead) };
        let skipped = reader.skip(ahead);
        self.counters[IRREGULAR].count = self.irregular_behind + reader.irregular();
        self.counters[RECEIVED].count += skipped.packets;
        skipped
    }

    fn inputs(&self) -> &[String] {
        &self.names
    }

    fn counters(&self) -> &[Counter] {
        &self.counters
    }

    fn progress(&self) -> Progress {
        let here = self.reader.as_ref().map_or(0, CaptureReader::bytes_read);
        Progress { read: self.bytes_behind + here, total: self.bytes }
    }
}

impl Chunks for Captures {
    fn read(&mut self, chunk: &mut Chunk) -> Result<bool, SourceError> {
        chunk.clear();
        let more = self.seek(|reader| reader.read(chunk))?;
        if let Some(reader) = &self.reader {
            self.counters[IRREGULAR].count = self.irregular_behind + reader.irregular();
            self.counters[RECEIVED].count += chunk.len() as u64;
        }
        Ok(more)
    }
}
