//! Why the lab cannot go on.

use std::fmt::Display;
use std::io;

use flowgauge_core::summary::BuildError;
use flowgauge_core::unknown::Unknown;
use flowgauge_engine::EngineError;
use flowgauge_synthetic::ConfigError;

/// Why the lab cannot go on.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// A file cannot be read or written.
    #[error("{name}: {error}")]
    File {
        /// Its name.
        name: String,
        /// What the operating system says.
        error: io::Error,
    },
    /// A line of a table is not a row.
    #[error("{name}, line {line}: {reason}; write the table anew with 'make accuracy'")]
    Table {
        /// The file.
        name: String,
        /// The line, counted from 1.
        line: usize,
        /// What is wrong with it.
        reason: String,
    },
    /// The files of an experiment are not what a run wrote.
    #[error("{name}: {reason}; measure it anew with 'flowgauge-lab run'")]
    Page {
        /// The file.
        name: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// A summary that the lab asks for cannot be built.
    #[error("{algorithm} ({asked}): {error}")]
    Build {
        /// The algorithm.
        algorithm: &'static str,
        /// The parameters and the memory that it was asked for.
        asked: String,
        /// Why not.
        error: BuildError,
    },
    /// The traffic cannot be generated.
    #[error("the traffic: {0}")]
    Traffic(#[from] ConfigError),
    /// A trace is not what an experiment needs.
    #[error("{name}: {reason}")]
    Trace {
        /// Its name.
        name: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The engine cannot run what the lab asks for.
    #[error("the run: {0}")]
    Run(#[from] EngineError),
    /// No experiment has this name.
    #[error(transparent)]
    Unknown(#[from] Unknown),
    /// DPDK does not start, or refuses a structure or a port.
    #[cfg(feature = "dpdk")]
    #[error("DPDK: {0}; it wants 512 MiB of memory, and no second process of DPDK here")]
    Dpdk(String),
    /// Summaries of one kind do not add up.
    #[error("merging: {0}")]
    Merge(String),
    /// The switch ends, or does not do what it is asked for.
    #[error("the switch: {0}")]
    Switch(String),
    /// What an experiment needs is not there; what to do.
    #[error("skipped: {0}")]
    Skipped(String),
    /// The operating system refused memory for a task.
    #[error("memory for the task {task}: {error}")]
    Task {
        /// The task.
        task: &'static str,
        /// What the operating system says.
        error: io::Error,
    },
}

impl Failure {
    /// Makes failures of the file of this name.
    pub(crate) fn of(name: impl Display) -> impl Fn(io::Error) -> Self {
        move |error| Self::File { name: name.to_string(), error }
    }
}
