//! Errors of the lab.

use std::fmt::Display;
use std::io;

use flowgauge_core::summary::BuildError;
use flowgauge_core::unknown::Unknown;
use flowgauge_engine::EngineError;
use flowgauge_synthetic::ConfigError;

/// An error that ends the lab.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// A file cannot be read or written.
    #[error("{name}: {error}")]
    File {
        /// Its name.
        name: String,
        /// The error of the operating system.
        error: io::Error,
    },
    /// A line of a table is not a row.
    #[error("{name}, line {line}: {reason}; write the table anew with 'make accuracy'")]
    Table {
        /// The file.
        name: String,
        /// The line number, from 1.
        line: usize,
        /// The problem.
        reason: String,
    },
    /// The files of an experiment were not written by a run.
    #[error("{name}: {reason}; measure it anew with 'flowgauge-lab run'")]
    Page {
        /// The file.
        name: String,
        /// The problem.
        reason: &'static str,
    },
    /// A summary cannot be built.
    #[error("{algorithm} ({asked}): {error}")]
    Build {
        /// The algorithm.
        algorithm: &'static str,
        /// The requested parameters and memory.
        asked: String,
        /// The reason.
        error: BuildError,
    },
    /// The traffic cannot be generated.
    #[error("the traffic: {0}")]
    Traffic(#[from] ConfigError),
    /// A trace does not fit an experiment.
    #[error("{name}: {reason}")]
    Trace {
        /// Its name.
        name: String,
        /// The problem.
        reason: String,
    },
    /// The engine cannot run the configuration.
    #[error("the run: {0}")]
    Run(#[from] EngineError),
    /// No experiment has this name.
    #[error(transparent)]
    Unknown(#[from] Unknown),
    /// DPDK does not start, or refuses a structure or a port.
    #[cfg(feature = "dpdk")]
    #[error("DPDK: {0}; it wants 512 MiB of memory, and no second process of DPDK here")]
    Dpdk(String),
    /// Summaries of one kind cannot be merged.
    #[error("merging: {0}")]
    Merge(String),
    /// The switch ended, or failed a request.
    #[error("the switch: {0}")]
    Switch(String),
    /// Something that an experiment needs is missing; the text says what to do.
    #[error("skipped: {0}")]
    Skipped(String),
    /// The operating system refused memory for a task.
    #[error("memory for the task {task}: {error}")]
    Task {
        /// The task.
        task: &'static str,
        /// The error of the operating system.
        error: io::Error,
    },
}

impl Failure {
    /// Converts I/O errors of the named file.
    pub(crate) fn of(name: impl Display) -> impl Fn(io::Error) -> Self {
        move |error| Self::File { name: name.to_string(), error }
    }
}
