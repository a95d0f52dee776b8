//! Captures as inputs of a run: files for one reader or several, and streams.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use flowgauge_engine::source::{Burst, Chunks, Columns, Inputs, Piece, Source};

use crate::captures::Captures;
use crate::cut::{Whole, cut};
use crate::input::{Origin, Part};

/// A capture file, or a part of one.
///
/// ```
/// use flowgauge_capture::{Capture, Files};
/// use flowgauge_engine::source::{Chunk, Inputs};
///
/// let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/tcpdump");
/// let files = Files::of(vec![Capture::Path(format!("{folder}/isup.pcap").into())]);
/// let mut chunk = Chunk::default();
/// assert!(files.chain().read(&mut chunk)? && chunk.len() > 0);
/// # Ok::<(), flowgauge_engine::source::SourceError>(())
/// ```
#[derive(Clone, Debug)]
pub enum Capture {
    /// A file by name; `-` is standard input.
    Path(PathBuf),
    /// A part of a file.
    Part(Part),
}

impl Capture {
    fn origin(&self) -> Origin {
        match self {
            Self::Path(path) if path == Path::new("-") => Origin::StandardInput,
            Self::Path(path) => Origin::Path(path.clone()),
            Self::Part(part) => Origin::Part(part.clone()),
        }
    }
}

/// Capture files, for one reader or several.
///
/// With several readers, each gets a part of each file that [`cut()`] can cut; the other files go
/// to the readers in turn. The division depends only on the files and the number of readers, so a
/// run can be repeated. Files that can be read only once are not divided.
///
/// ```
/// use flowgauge_capture::Files;
/// use flowgauge_engine::source::{Chunk, Inputs};
///
/// let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/tcpdump");
/// let paths = ["isup.pcap", "pptp.pcap"].map(|name| format!("{folder}/{name}").into());
/// let files = Files::new(paths.to_vec());
/// // One stream, or one file for each of two readers, because small files are not cut.
/// let mut chunk = Chunk::default();
/// assert!(files.chain().read(&mut chunk)? && chunk.len() > 0);
/// assert_eq!(files.divide(2).map(|readers| readers.len()), Some(2));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Files {
    files: Vec<Capture>,
    stop: Arc<AtomicBool>,
}

impl Files {
    /// Files, each read to its end.
    pub fn new(paths: Vec<PathBuf>) -> Self {
        Self::of(paths.into_iter().map(Capture::Path).collect())
    }

    /// Files and parts of files, each read to its end.
    pub fn of(files: Vec<Capture>) -> Self {
        Self { files, stop: Arc::default() }
    }

    /// Ends reading when `stop` is set; see [`Captures::until`].
    #[must_use]
    pub fn until(self, stop: Arc<AtomicBool>) -> Self {
        Self { stop, ..self }
    }

    fn until_stopped(&self, captures: Captures) -> Captures {
        captures.until(Arc::clone(&self.stop))
    }
}

impl Inputs for Files {
    fn chain(&self) -> Box<dyn Chunks + Send> {
        Box::new(self.until_stopped(Captures::new(self.files.iter().map(Capture::origin))))
    }

    fn divide(&self, readers: usize) -> Option<Vec<Vec<Piece>>> {
        let mut pieces: Vec<Vec<Piece>> = (0..readers).map(|_| Vec::new()).collect();
        let mut turn = 0;
        for (input, file) in self.files.iter().enumerate() {
            let parts = match file {
                Capture::Path(path) => cut(path, readers),
                // A part is not cut again.
                Capture::Part(_) => Err(Whole::Small),
            };
            match parts {
                Ok(parts) => {
                    for (pieces, part) in pieces.iter_mut().zip(parts) {
                        let source = Box::new(self.until_stopped(part.open()));
                        pieces.push(Piece { input, source });
                    }
                }
                Err(Whole::NoFile | Whole::Unreadable(_)) => return None,
                Err(_) => {
                    let source = Box::new(self.until_stopped(Captures::new([file.origin()])));
                    pieces[turn % readers].push(Piece { input, source });
                    turn += 1;
                }
            }
        }
        (pieces.iter().filter(|pieces| !pieces.is_empty()).count() > 1).then_some(pieces)
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// A reader, and its name in messages.
type Named = (String, Box<dyn Read + Send>);

/// Captures from readers, which are read once, one after another. They serve one run.
///
/// ```
/// use flowgauge_capture::Streams;
/// use flowgauge_engine::source::{Chunk, Inputs};
///
/// let capture = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/tcpdump/isup.pcap"));
/// let reader = Box::new(&capture[..]);
/// let streams = Streams::new(vec![("isup".to_owned(), reader)], Default::default());
/// let mut chunk = Chunk::default();
/// assert!(streams.chain().read(&mut chunk)? && chunk.len() > 0);
/// # Ok::<(), flowgauge_engine::source::SourceError>(())
/// ```
pub struct Streams {
    readers: Mutex<Vec<Named>>,
    stop: Arc<AtomicBool>,
}

impl Streams {
    /// Readers with their names in messages. Each is read to its end, or until `stop` is set.
    pub fn new(readers: Vec<Named>, stop: Arc<AtomicBool>) -> Self {
        Self { readers: Mutex::new(readers), stop }
    }
}

impl Inputs for Streams {
    fn chain(&self) -> Box<dyn Chunks + Send> {
        let readers =
            std::mem::take(&mut *self.readers.lock().unwrap_or_else(PoisonError::into_inner));
        let origins = readers.into_iter().map(|(name, reader)| Origin::Reader(name, reader));
        Box::new(Captures::new(origins).until(Arc::clone(&self.stop)))
    }

    fn divide(&self, _: usize) -> Option<Vec<Vec<Piece>>> {
        None
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// Sorts several captures by the time of their first packet. Captures that are empty or cannot be
/// read come last. Sorts nothing if one of them can be read only once.
pub fn in_order(files: &mut [PathBuf]) {
    let regular = |file: &PathBuf| file.metadata().is_ok_and(|metadata| metadata.is_file());
    if files.len() > 1 && files.iter().all(regular) {
        files.sort_by_cached_key(|file| first_ns(file).unwrap_or(i64::MAX));
    }
}

/// The time of the first packet of a capture.
fn first_ns(file: &Path) -> Option<i64> {
    let (mut capture, mut columns) = (Captures::open([file]), Columns::default());
    let mut burst = Burst::new(&mut columns);
    capture.poll(&mut burst).ok()?;
    burst.frames().iter().next().map(|frame| frame.time_ns)
}
