//! Capture files for one reader or several.

use std::path::PathBuf;

use flowgauge_engine::source::{Inputs, Piece, Source};

use crate::captures::Captures;
use crate::cut::{Whole, cut};

/// Capture files by their names, of which `-` is standard input.
///
/// Several readers get parts of each file that [`cut()`] can cut. Every other file goes to one of
/// them by turns. The division depends only on the files and the number of readers, so that a run
/// can be repeated. Files that cannot be read a second time are not divided.
#[derive(Clone, Debug)]
pub struct Files(pub Vec<PathBuf>);

impl Inputs for Files {
    fn chain(&self) -> Box<dyn Source> {
        Box::new(Captures::open(&self.0))
    }

    fn divide(&self, readers: usize) -> Option<Vec<Vec<Piece>>> {
        let mut shares: Vec<Vec<Piece>> = (0..readers).map(|_| Vec::new()).collect();
        let mut turn = 0;
        for (input, file) in self.0.iter().enumerate() {
            match cut(file, readers) {
                Ok(parts) => {
                    for (share, part) in shares.iter_mut().zip(parts) {
                        share.push(Piece { input, source: Box::new(part.open()) });
                    }
                }
                Err(Whole::NoFile | Whole::Unreadable(_)) => return None,
                Err(_) => {
                    let source = Box::new(Captures::open([file]));
                    shares[turn % readers].push(Piece { input, source });
                    turn += 1;
                }
            }
        }
        (shares.iter().filter(|share| !share.is_empty()).count() > 1).then_some(shares)
    }
}
