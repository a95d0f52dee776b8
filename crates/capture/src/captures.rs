//! Several captures as one stream.

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

use crate::{damage::CaptureError, input::Origin, reader::Reader};

/// Captures that are read one after another, each as far as it goes.
///
/// A capture is classic pcap (either byte order, microseconds or nanoseconds, versions 2.0 to 2.4,
/// Kuznetzov's variant) or pcapng, plain or compressed with gzip or zstd. A capture that is
/// damaged, or no capture at all, gives its error once; the next [`poll`](Source::poll) goes on with the next.
///
/// Memory: 256 KiB of buffer for the capture that is being read, up to 16 MiB
/// if a pcapng block is so large, and up to 33 MiB for decompression.
///
/// ```no_run
/// use flowgauge_capture::Captures;
/// use flowgauge_engine::source::{Burst, Columns, Source};
///
/// let mut captures = Captures::open(["morning.pcap.gz", "evening.pcapng"]);
/// let mut columns = Columns::default();
/// loop {
///     let mut burst = Burst::new(&mut columns);
///     match captures.poll(&mut burst) {
///         Ok(true) => {
///             for frame in burst.frames().iter() {
///                 println!("{} {}", frame.time_ns, frame.bytes.len());
///             }
///         }
///         Ok(false) => break,
///         Err(error) => eprintln!("{error}"),
///     }
/// }
/// ```
pub struct Captures {
    waiting: VecDeque<Origin>,
    reader: Option<Reader>,
    /// The names of the files begun.
    names: Vec<String>,
    counters: [Counter; 2],
    /// Bytes of all files, of those behind, and of the one that is being read.
    bytes: Option<u64>,
    bytes_behind: u64,
    bytes_here: Option<u64>,
    /// Irregular records of the files behind.
    irregular_behind: u64,
    /// Set where reading is to end early.
    stop: Arc<AtomicBool>,
}

/// Places of the counters.
const RECEIVED: usize = 0;
const IRREGULAR: usize = 1;

impl Captures {
    /// Captures by their names, of which `-` is standard input. Each is opened when its turn
    /// comes, so that one that cannot be opened does not hide the others.
    pub fn open<P: AsRef<Path>>(paths: impl IntoIterator<Item = P>) -> Self {
        Self::new(paths.into_iter().map(|path| match path.as_ref() {
            path if path == Path::new("-") => Origin::StandardInput,
            path => Origin::Path(path.to_owned()),
        }))
    }

    /// Ends when `stop` is set: before the next burst, or while it waits for a pipe. Damage that only
    /// the early end causes is no error.
    #[must_use]
    pub fn until(mut self, stop: Arc<AtomicBool>) -> Self {
        self.stop = stop;
        self
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

    /// Lets `look` find packets in the first file that still has one; `false` at the end.
    fn seek(
        &mut self,
        mut look: impl FnMut(&mut Reader) -> Result<bool, CaptureError>,
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
        look: &mut dyn FnMut(&mut Reader) -> Result<bool, CaptureError>,
    ) -> Result<bool, CaptureError> {
        loop {
            let reader = if let Some(reader) = &mut self.reader {
                reader
            } else {
                let Some(origin) = self.waiting.pop_front() else { return Ok(false) };
                self.names.push(origin.name());
                self.bytes_here = origin.bytes();
                match origin.open(&self.stop) {
                    Ok(input) => self.reader.insert(Reader::new(input)),
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

    /// Has done with the file that is being read.
    fn leave(&mut self) {
        let reader = self.reader.take();
        let read = reader.as_ref().map_or(0, Reader::bytes_read);
        self.bytes_behind += self.bytes_here.unwrap_or(read);
        self.irregular_behind += reader.map_or(0, |reader| reader.irregular());
        self.counters[IRREGULAR].count = self.irregular_behind;
    }
}

impl Source for Captures {
    fn poll<'a>(&'a mut self, burst: &mut Burst<'a>) -> Result<bool, SourceError> {
        let more = self.seek(Reader::seek)?;
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
        let here = self.reader.as_ref().map_or(0, Reader::bytes_read);
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
