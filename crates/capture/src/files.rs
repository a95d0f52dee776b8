//! Capture files for one reader or several.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use flowgauge_engine::source::{Chunks, Inputs, Piece};

use crate::captures::Captures;
use crate::cut::{Whole, cut};

/// Capture files by their names, of which `-` is standard input.
///
/// Several readers get parts of each file that [`cut()`] can cut. Every other file goes to one of
/// them by turns. The division depends only on the files and the number of readers, so that a run
/// can be repeated. Files that cannot be read a second time are not divided.
#[derive(Clone, Debug)]
pub struct Files {
    paths: Vec<PathBuf>,
    stop: Arc<AtomicBool>,
}

impl Files {
    /// Files that are read to their ends.
    pub fn new(paths: Vec<PathBuf>) -> Self {
        Self { paths, stop: Arc::default() }
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
        Box::new(self.until_stopped(Captures::open(&self.paths)))
    }

    fn divide(&self, readers: usize) -> Option<Vec<Vec<Piece>>> {
        let mut shares: Vec<Vec<Piece>> = (0..readers).map(|_| Vec::new()).collect();
        let mut turn = 0;
        for (input, file) in self.paths.iter().enumerate() {
            match cut(file, readers) {
                Ok(parts) => {
                    for (share, part) in shares.iter_mut().zip(parts) {
                        let source = Box::new(self.until_stopped(part.open()));
                        share.push(Piece { input, source });
                    }
                }
                Err(Whole::NoFile | Whole::Unreadable(_)) => return None,
                Err(_) => {
                    let source = Box::new(self.until_stopped(Captures::open([file])));
                    shares[turn % readers].push(Piece { input, source });
                    turn += 1;
                }
            }
        }
        (shares.iter().filter(|share| !share.is_empty()).count() > 1).then_some(shares)
    }
}
