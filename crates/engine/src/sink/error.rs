//! Why a sink did not take a report.

use std::io::{self, ErrorKind};

/// Why a sink did not take a report.
#[derive(Debug, thiserror::Error)]
pub enum SinkError {
    /// Its reader has gone for good, as behind `| head`.
    #[error("cannot write to {output}: its reader closed it")]
    Closed {
        /// The output.
        output: String,
    },
    /// A later attempt may succeed.
    #[error("cannot write to {output}: {error}")]
    Write {
        /// The output.
        output: String,
        /// The operating system's reason.
        error: io::Error,
    },
    /// It takes other items, but never this one, such as a message that is too large.
    #[error("{output} refuses an item: {error}")]
    Refused {
        /// The output.
        output: String,
        /// The output's reason.
        error: io::Error,
    },
    /// Its thread ended before its work: a defect.
    #[error("the thread of a sink failed; please report this bug")]
    Panicked,
}

impl SinkError {
    /// The error of a pipe that cannot be opened again, or of another output.
    pub fn new(output: &str, error: io::Error) -> Self {
        let output = output.to_owned();
        match error.kind() {
            ErrorKind::BrokenPipe => Self::Closed { output },
            _ => Self::Write { output, error },
        }
    }
}

impl From<io::Error> for SinkError {
    fn from(error: io::Error) -> Self {
        Self::new("the report", error)
    }
}
