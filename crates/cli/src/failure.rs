//! Failures: each has an exit code and a line on standard error.

use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;

use flowgauge_core::summary::BuildErrorKind;
use flowgauge_engine::EngineError;
use flowgauge_engine::sink::{SinkError, visible};

/// Success.
pub(crate) const FINE: u8 = 0;
/// Something failed.
pub(crate) const FAILED: u8 = 1;
/// The command line is wrong.
pub(crate) const USAGE: u8 = 2;
/// The input was damaged or cut short.
pub(crate) const DAMAGED: u8 = 3;

/// Why a command ends early.
pub(crate) enum Failure {
    /// The command line names something unknown or contradicts itself.
    Usage(String),
    /// Something failed at run time.
    Failed(String),
    /// The input is damaged or cut short.
    Damaged(String),
    /// The reader of the output has closed it, as in `| head`.
    Closed,
}

impl Failure {
    /// The output `name` cannot be written.
    pub(crate) fn output(name: &str, error: &io::Error) -> Self {
        match error.kind() {
            ErrorKind::BrokenPipe => Self::Closed,
            _ => Self::Failed(format!("cannot write to {name}: {error}")),
        }
    }

    /// The reason.
    pub(crate) fn message(self) -> String {
        match self {
            Self::Usage(message) | Self::Failed(message) | Self::Damaged(message) => message,
            Self::Closed => "its reader closed it".to_owned(),
        }
    }

    /// Prints the reason on standard error; returns the exit code.
    pub(crate) fn report(self) -> ExitCode {
        let (message, code) = match self {
            Self::Usage(message) => (message, USAGE),
            Self::Failed(message) => (message, FAILED),
            Self::Damaged(message) => (message, DAMAGED),
            Self::Closed => return FINE.into(),
        };
        complain(&message);
        code.into()
    }
}

impl From<EngineError> for Failure {
    fn from(error: EngineError) -> Self {
        match &error {
            EngineError::Sink(SinkError::Closed { .. }) => Self::Closed,
            EngineError::Sink(error) => Self::Failed(error.to_string()),
            EngineError::Refused(_) | EngineError::Thread(_) | EngineError::Panicked { .. } => {
                Self::Failed(error.to_string())
            }
            EngineError::Updates { updates, epoch } => {
                Self::Usage(format!("--updates {updates} must be shorter than --epoch {epoch}"))
            }
            EngineError::Build(build) if matches!(build.kind(), BuildErrorKind::Refused { .. }) => {
                Self::Failed(error.to_string())
            }
            _ => Self::Usage(error.to_string()),
        }
    }
}

/// Prints one line on standard error, with special characters escaped.
pub(crate) fn complain(message: &str) {
    // If standard error cannot be written, there is no place for the message.
    let _ = writeln!(io::stderr(), "flowgauge: {}", visible(message));
}

/// The failure for a command line that clap refuses.
pub(crate) fn refused(error: &clap::Error) -> Failure {
    let message = flowgauge_options::sentence(error);
    Failure::Usage(if message.ends_with('?') {
        format!("{message} See --help")
    } else {
        format!("{message}; see --help")
    })
}
