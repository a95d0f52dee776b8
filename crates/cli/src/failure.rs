//! What ends a command early, with its exit code and its line on standard error.

use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;

use flowgauge_core::summary::BuildErrorKind;
use flowgauge_engine::EngineError;
use flowgauge_engine::sink::{SinkError, visible};

/// Everything is fine.
pub(crate) const FINE: u8 = 0;
/// Something failed.
pub(crate) const FAILED: u8 = 1;
/// The command line is wrong.
pub(crate) const USAGE: u8 = 2;
/// The input was damaged or cut short.
pub(crate) const DAMAGED: u8 = 3;

/// Why a command ends before its end.
pub(crate) enum Failure {
    /// The command line asks for what is not there or makes no sense.
    Usage(String),
    /// Something failed on the way.
    Failed(String),
    /// The input is damaged or cut short.
    Damaged(String),
    /// Nobody reads the output any more, as behind `| head`.
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

    /// Says why on standard error.
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
            EngineError::Build(build) if matches!(build.kind(), BuildErrorKind::Refused { .. }) => {
                Self::Failed(error.to_string())
            }
            _ => Self::Usage(error.to_string()),
        }
    }
}

/// One line on standard error, whatever the text has in it.
pub(crate) fn complain(message: &str) {
    // Where not even this can be written, there is nothing left to say.
    let _ = writeln!(io::stderr(), "flowgauge: {}", visible(message));
}

/// The line for a command line that clap refuses.
pub(crate) fn refused(error: &clap::Error) -> Failure {
    let message = flowgauge_options::sentence(error);
    Failure::Usage(if message.ends_with('?') {
        format!("{message} See --help")
    } else {
        format!("{message}; see --help")
    })
}
