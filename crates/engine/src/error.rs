//! The reason why a run cannot begin or continue.

use std::{fmt, io};

use flowgauge_core::key::{KeyError, KeySpec};
use flowgauge_core::summary::BuildError;
use flowgauge_core::task::Unsupported;
use flowgauge_core::unknown::Unknown;

use crate::config::EpochLength;
use crate::sink::{SinkError, visible};

/// The reason why a run cannot begin or continue.
///
/// ```
/// use flowgauge_engine::{Config, EngineError, Plan};
///
/// let config = Config {
///     algorithm: "hyperloglog".to_owned(),
///     tasks: Some(vec!["heavy-hitters".to_owned()]),
///     ..Config::default()
/// };
/// let refused = Plan::new(config).err();
/// assert!(matches!(refused, Some(EngineError::Task { task: "heavy-hitters", .. })));
/// ```
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The algorithm cannot be built with these options or in this memory.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// No task has this name.
    #[error(transparent)]
    UnknownTask(#[from] Unknown),
    /// A measurement may not have this name.
    #[error("invalid name '{}'; use letters, digits, '-', '_' and '.'", visible(.0))]
    Name(String),
    /// A number of the configuration is out of range.
    #[error("{what} must be {range} (got {value})")]
    OutOfRange {
        /// Name of the number.
        what: &'static str,
        /// The allowed range.
        range: &'static str,
        /// The value.
        value: i128,
    },
    /// Updates that do not come within an epoch.
    #[error("the interval between updates ({updates}) must be shorter than an epoch ({epoch})")]
    Updates {
        /// The interval between updates.
        updates: EpochLength,
        /// The length of an epoch.
        epoch: EpochLength,
    },
    /// A task of the configuration cannot be answered.
    #[error("cannot answer {task}: {reason}{able}")]
    Task {
        /// Its name.
        task: &'static str,
        /// Why it cannot.
        reason: Unsupported,
        /// The algorithms that can.
        able: Able,
    },
    /// An audit of an algorithm that does not estimate the sizes of single flows.
    #[error(
        "cannot audit {algorithm}: it does not estimate the sizes of flows; leave out --audit{able}"
    )]
    Audit {
        /// The algorithm.
        algorithm: &'static str,
        /// The algorithms that do.
        able: Able,
    },
    /// None of the default tasks can be answered.
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
        /// The closest candidate.
        nearest: String,
    },
    /// The operating system refused memory for the tasks.
    #[error("the operating system refused memory for the tasks: {0}")]
    Refused(io::Error),
    /// A key cannot be derived from another one.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// A summary cannot answer for a coarser key.
    #[error("cannot sum keys by {to} from keys by {from}: {reason}")]
    Coarser {
        /// The key that was measured.
        from: KeySpec,
        /// The requested key.
        to: KeySpec,
        /// The reason.
        reason: String,
    },
    /// The measurements cannot be combined.
    #[error("measurements: {0}")]
    Measurements(String),
    /// The operating system gave no random bits.
    #[error("the operating system gave no random bits for the seed: {0}")]
    Seed(io::Error),
    /// A sampler before headers does not support an option.
    #[error("before=headers {0}, or use before=summary")]
    Sampling(String),
    /// Several workers cannot measure this.
    #[error("{0}")]
    Workers(String),
    /// The operating system refused a thread, or a core for one.
    #[error("the operating system refused to start or pin a thread: {0}")]
    Thread(io::Error),
    /// A thread panicked. This is a bug.
    #[error("the thread '{thread}' failed: {message}; please report this bug")]
    Panicked {
        /// Its name.
        thread: String,
        /// The panic message, if known.
        message: String,
    },
    /// A sink did not take a report.
    #[error(transparent)]
    Sink(#[from] SinkError),
}

/// The algorithms that answer a task in an otherwise equal run.
#[derive(Debug, Default)]
pub struct Able {
    /// Algorithms in the form of `--algorithm`, each with the parameters that it needs.
    pub algorithms: Vec<String>,
    /// Whether they do so only without the configured accelerators.
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
