//! A live output that says on standard error when it fails, and when it works again.

use flowgauge_engine::sink::{Item, Sink, SinkError, Takes};

use crate::failure::complain;

/// A sink of a live run.
pub(crate) struct Retried {
    sink: Box<dyn Sink>,
    /// What could not be written, which has been said.
    failed: Option<String>,
}

impl Retried {
    pub(crate) fn new(sink: Box<dyn Sink>) -> Self {
        Self { sink, failed: None }
    }
}

impl Sink for Retried {
    fn takes(&self) -> Takes {
        self.sink.takes()
    }

    fn deliver(&mut self, item: &Item) -> Result<(), SinkError> {
        let delivered = self.sink.deliver(item);
        match &delivered {
            Ok(()) => {
                if let Some(output) = self.failed.take() {
                    complain(&format!("{output} can be written again"));
                }
            }
            Err(error @ SinkError::Write { output, .. }) if self.failed.is_none() => {
                complain(&format!("{error}; retrying"));
                self.failed = Some(output.clone());
            }
            Err(_) => {}
        }
        delivered
    }

    fn finish(&mut self) -> Result<(), SinkError> {
        self.sink.finish()
    }
}
