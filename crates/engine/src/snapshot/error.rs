//! Why bytes are no snapshot, and why snapshots do not add up.

use flowgauge_core::key::KeyError;
use flowgauge_core::summary::BuildError;
use flowgauge_core::summary::codec::{DecodeError, DecodeErrorKind};
use flowgauge_filter::FilterError;

/// Why bytes are no snapshot.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// The bytes do not begin as a snapshot does.
    #[error("not a snapshot")]
    Magic,
    /// A field is cut or wrong.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// The key is none that this version knows.
    #[error("the snapshot's key: {0}")]
    Key(#[from] KeyError),
    /// The filter cannot be compiled.
    #[error("the snapshot's filter: {0}")]
    Filter(#[from] FilterError),
    /// The algorithm is none that this version knows.
    #[error("the snapshot's algorithm: {0}")]
    Build(#[from] BuildError),
    /// A field has a value that it cannot have.
    #[error("the snapshot's {field} is {value}, which this version does not know")]
    Unknown {
        /// The field.
        field: &'static str,
        /// Its value.
        value: u64,
    },
}

impl SnapshotError {
    /// Whether bytes of a snapshot were damaged or cut, as opposed to what could be read elsewhere, by
    /// another version, with another seed file or with more memory.
    pub fn is_damage(&self) -> bool {
        let Self::Decode(error) = self else { return false };
        matches!(error.kind(), DecodeErrorKind::Cut { .. } | DecodeErrorKind::Invalid { .. })
    }
}

/// Why two snapshots are not merged.
#[derive(Debug, thiserror::Error)]
pub enum MergeError {
    /// They measured different things.
    #[error("the snapshots differ in {field}: {one} and {other}")]
    Differs {
        /// What differs.
        field: &'static str,
        /// One value.
        one: String,
        /// The other.
        other: String,
    },
    /// Both cover the same epoch of the same run, whose packets would count twice.
    #[error("both snapshots cover epoch {epoch} of one run on '{host}'; merge each epoch once")]
    Overlap {
        /// Its number.
        epoch: u64,
        /// The host.
        host: String,
    },
    /// Two hosts measured at different times.
    #[error(
        "'{}' covers {} and '{}' covers {}; merge equal intervals, or give --align the most by which \
         they may differ",
        hosts[0], intervals[0], hosts[1], intervals[1]
    )]
    Misaligned {
        /// The hosts.
        hosts: [String; 2],
        /// What each covers: the first interval that differs, or how many there are.
        intervals: [String; 2],
    },
    /// Together they cover more epochs than a snapshot can name, or count more than a number holds.
    #[error("the merged snapshot would have more {0} than a snapshot holds")]
    TooMany(&'static str),
    /// The algorithm's summaries do not add up.
    #[error("{0}")]
    Summaries(String),
}
