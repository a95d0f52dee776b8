//! Errors that end an agent, with exit codes.

/// Why an agent does not start, or stops.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The file or an option is invalid.
    #[error("{0}")]
    Usage(String),
    /// Something failed.
    #[error("{0}")]
    Failed(String),
    /// A source cannot be opened at the start.
    #[error("{0}")]
    Source(String),
    /// An output cannot be written at the start.
    #[error("{0}")]
    Output(String),
}

impl Failure {
    /// The exit code: 1 for a failure, 2 for wrong usage, 4 for a source that cannot be opened, 5
    /// for an output that cannot be written.
    pub fn code(&self) -> u8 {
        match self {
            Self::Failed(_) => 1,
            Self::Usage(_) => 2,
            Self::Source(_) => 4,
            Self::Output(_) => 5,
        }
    }
}
