//! A format and a writer as a sink.

use std::io::Write;

use super::{Format, Item, Sink, SinkError, Takes};

/// Writes the format's header and items in it, and flushes the writer behind each.
pub struct Written<F, W> {
    format: F,
    out: W,
    headed: bool,
}

impl<F: Format, W: Write + Send> Written<F, W> {
    /// Writes to `out`.
    pub fn new(format: F, out: W) -> Self {
        Self { format, out, headed: false }
    }
}

impl<F: Format, W: Write + Send> Sink for Written<F, W> {
    fn takes(&self) -> Takes {
        Takes::Reports
    }

    fn deliver(&mut self, item: &Item) -> Result<(), SinkError> {
        if !self.headed {
            self.format.header(&mut self.out)?;
            self.headed = true;
        }
        self.format.item(item, &mut self.out)?;
        Ok(self.out.flush()?)
    }
}
