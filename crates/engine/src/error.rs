//! Why a run cannot begin, or not go on.

use std::{fmt, io};

use flowgauge_core::key::{KeyError, KeySpec};
use flowgauge_core::summary::BuildError;
use flowgauge_core::task::Unsupported;
use flowgauge_core::unknown::Unknown;

use crate::sink::SinkError;

/// Why a run cannot begin, or not go on.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The algorithm cannot be built as asked, or not in this memory.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// No task has this name.
    #[error(transparent)]
    UnknownTask(#[from] Unknown),
    /// A number of the configuration is out of range.
    #[error("{what} must be {range} (got {value})")]
    OutOfRange {
        /// What the number is.
        what: &'static str,
        /// What it may be.
        range: &'static str,
        /// What it is.
        value: i128,
    },
    /// A task asked for by name cannot be answered.
    #[error("cannot answer {task}: {reason}{able}")]
    Task {
        /// Its name.
        task: &'static str,
        /// Why, and what could.
        reason: Unsupported,
        /// What can.
        able: Able,
    },
    /// An algorithm whose error cannot be seen flow by flow.
    #[error(
        "cannot audit {algorithm}: it does not estimate the sizes of flows; leave out --audit{able}"
    )]
    Audit {
        /// The algorithm.
        algorithm: &'static str,
        /// What does.
        able: Able,
    },
    /// None of the tasks that run by default is answered.
    #[error("{algorithm} answers none of the default tasks; use --task {able}")]
    Nothing {
        /// The algorithm.
        algorithm: String,
        /// The tasks that it answers.
        able: String,
    },
    /// `auto` found nothing to choose.
    #[error("--algorithm auto found no algorithm: {nearest}")]
    NoChoice {
        /// What comes nearest.
        nearest: String,
    },
    /// The operating system refused memory for the tasks.
    #[error("the operating system refused memory for the tasks: {0}")]
    Refused(io::Error),
    /// A key cannot be made of another one.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// A summary does not answer for a coarser key.
    #[error("cannot sum keys by {to} from keys by {from}: {reason}")]
    Coarser {
        /// The key that was measured.
        from: KeySpec,
        /// The key that was asked for.
        to: KeySpec,
        /// Why not.
        reason: String,
    },
    /// Measurements that do not go together.
    #[error("measurements: {0}")]
    Measurements(String),
    /// The operating system gave no random bits.
    #[error("the operating system gave no random bits for the seed: {0}")]
    Seed(io::Error),
    /// What a sampler before the headers does not go with.
    #[error("before=headers {0}, or use before=summary")]
    Sampling(String),
    /// Several workers cannot measure this.
    #[error("{0}")]
    Workers(String),
    /// The operating system refused a thread, or a core for one.
    #[error("the operating system refused to start or pin a thread: {0}")]
    Thread(io::Error),
    /// A thread ended before its work: a defect.
    #[error("the thread '{thread}' failed: {message}; please report this bug")]
    Panicked {
        /// Its name.
        thread: String,
        /// Why, as far as it is known.
        message: String,
    },
    /// A sink did not take a report.
    #[error(transparent)]
    Sink(#[from] SinkError),
}

/// What answers a task in a run that is otherwise the same.
#[derive(Debug, Default)]
pub struct Able {
    /// Algorithms, as `--algorithm` takes them: each with the parameters that it needs.
    pub algorithms: Vec<String>,
    /// Whether they do so only without the accelerators that were asked for.
    pub alone: bool,
}

impl fmt::Display for Able {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { algorithms, alone } = self;
        match algorithms.join(", ") {
            names if names.is_empty() => Ok(()),
            names if *alone => write!(f, " (without --accelerator: {names})"),
            names => write!(f, " (available: {names})"),
        }
    }
}
