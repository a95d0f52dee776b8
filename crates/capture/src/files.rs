//! Capture files for one reader or several.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use flowgauge_engine::source::{Chunks, Inputs, Piece};

use crate::captures::Captures;
use crate::cut::{Part, Whole, cut};
use crate::input::Origin;

/// A capture, or a part of one.
#[derive(Clone, Debug)]
pub enum Capture {
    /// A file by its name, of which `-` is standard input.
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
/// Several readers get parts of each file that [`cut()`] can cut. Every other file goes to one of
/// them by turns. The division depends only on the files and the number of readers, so that a run
/// can be repeated. Files that cannot be read a second time are not divided.
#[derive(Clone, Debug)]
pub struct Files {
    files: Vec<Capture>,
    stop: Arc<AtomicBool>,
}

impl Files {
    /// Files that are read to their ends.
    pub fn new(paths: Vec<PathBuf>) -> Self {
        Self::of(paths.into_iter().map(Capture::Path).collect())
    }

    /// Files, and parts of files, that are read to their ends.
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
        let mut shares: Vec<Vec<Piece>> = (0..readers).map(|_| Vec::new()).collect();
        let mut turn = 0;
        for (input, file) in self.files.iter().enumerate() {
            let parts = match file {
                Capture::Path(path) => cut(path, readers),
                // It is a share of the file already.
                Capture::Part(_) => Err(Whole::Small),
            };
            match parts {
                Ok(parts) => {
                    for (share, part) in shares.iter_mut().zip(parts) {
                        let source = Box::new(self.until_stopped(part.open()));
                        share.push(Piece { input, source });
                    }
                }
                Err(Whole::NoFile | Whole::Unreadable(_)) => return None,
                Err(_) => {
                    let source = Box::new(self.until_stopped(Captures::new([file.origin()])));
                    shares[turn % readers].push(Piece { input, source });
                    turn += 1;
                }
            }
        }
        (shares.iter().filter(|share| !share.is_empty()).count() > 1).then_some(shares)
    }
}
