//! A format and a writer as a sink.

use std::io::Write;

use super::{Format, Item, Sink, SinkError, Takes};

/// Writes items in a format, and flushes the writer behind each.
pub struct Written<F, W> {
    format: F,
    out: W,
}

impl<F: Format, W: Write + Send> Written<F, W> {
    /// Writes to `out`.
    pub fn new(format: F, out: W) -> Self {
        Self { format, out }
    }
}

impl<F: Format, W: Write + Send> Sink for Written<F, W> {
    fn takes(&self) -> Takes {
        Takes::Reports
    }

    fn deliver(&mut self, item: &Item) -> Result<(), SinkError> {
        self.format.item(item, &mut self.out)?;
        Ok(self.out.flush()?)
    }
}
