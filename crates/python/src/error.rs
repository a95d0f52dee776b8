//! Exceptions, with the texts of the command.

use flowgauge_core::summary::BuildErrorKind;
use flowgauge_engine::EngineError;
use flowgauge_options::Refusal;
use pyo3::PyErr;

/// The exception classes, defined in Python.
mod exceptions {

    pyo3::import_exception!(flowgauge.errors, FlowgaugeError);
    pyo3::import_exception!(flowgauge.errors, OptionError);
    pyo3::import_exception!(flowgauge.errors, CaptureError);
    pyo3::import_exception!(flowgauge.errors, SnapshotError);
    pyo3::import_exception!(flowgauge.errors, CaptureWarning);
}

pub(crate) use exceptions::CaptureWarning;

/// Why a call fails. The text is that of the command.
pub(crate) enum Problem {
    /// An option is invalid.
    Option(String),
    /// A file cannot be read.
    Unreadable(String),
    /// A snapshot is damaged, or does not match another one.
    Snapshot(String),
    /// Another failure.
    Failed(String),
}

impl From<Problem> for PyErr {
    fn from(problem: Problem) -> Self {
        match problem {
            Problem::Option(text) => exceptions::OptionError::new_err(text),
            Problem::Unreadable(text) => exceptions::CaptureError::new_err(text),
            Problem::Snapshot(text) => exceptions::SnapshotError::new_err(text),
            Problem::Failed(text) => exceptions::FlowgaugeError::new_err(text),
        }
    }
}

impl From<EngineError> for Problem {
    fn from(error: EngineError) -> Self {
        match &error {
            EngineError::Sink(_)
            | EngineError::Refused(_)
            | EngineError::Thread(_)
            | EngineError::Seed(_)
            | EngineError::Panicked { .. } => Self::Failed(error.to_string()),
            EngineError::Build(build) if matches!(build.kind(), BuildErrorKind::Refused { .. }) => {
                Self::Failed(error.to_string())
            }
            _ => Self::Option(error.to_string()),
        }
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Usage(text) => Self::Option(text),
            Refusal::Unreadable(text) => Self::Unreadable(text),
        }
    }
}
