//! Captures from readers, which can be read once.

use std::io::Read;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};

use flowgauge_engine::source::{Chunks, Inputs, Piece};

use crate::captures::Captures;
use crate::input::Origin;

/// A reader, and the name that stands for it in messages.
type Named = (String, Box<dyn Read + Send>);

/// Captures from readers, for one run: they are read once, one after another.
pub struct Streams {
    readers: Mutex<Vec<Named>>,
    stop: Arc<AtomicBool>,
}

impl Streams {
    /// Readers with the names that stand for them in messages. They are read to their ends, or until `stop` is
    /// set.
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
}
