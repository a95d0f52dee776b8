//! Why a snapshot is not merged.

use flowgauge_core::summary::codec::DecodeErrorKind;
use flowgauge_engine::snapshot::{MergeError, SnapshotError};

/// The field that prevents a merge, and what is wrong with it.
#[derive(Clone, Debug)]
pub(super) struct Refusal {
    pub(super) field: &'static str,
    pub(super) reason: String,
}

impl Refusal {
    pub(super) fn new(field: &'static str, reason: impl Into<String>) -> Self {
        Self { field, reason: reason.into() }
    }
}

impl From<SnapshotError> for Refusal {
    fn from(error: SnapshotError) -> Self {
        let field = match &error {
            SnapshotError::Magic => "bytes",
            SnapshotError::Key(_) => "key",
            SnapshotError::Filter(_) => "filter",
            SnapshotError::Build(_) => "algorithm",
            SnapshotError::Unknown { field, .. } => field,
            SnapshotError::Decode(error) => match error.kind() {
                DecodeErrorKind::SeedFile { .. } => "seed",
                DecodeErrorKind::Build(_) => "parameters",
                DecodeErrorKind::Cut { .. } | DecodeErrorKind::Invalid { .. } => "bytes",
            },
        };
        Self::new(field, error.to_string())
    }
}

impl From<MergeError> for Refusal {
    fn from(error: MergeError) -> Self {
        let field = match &error {
            MergeError::Differs { field, one, other } => {
                return Self::new(field, format!("it has {other}, but most agents have {one}"));
            }
            MergeError::Overlap { .. } => "epoch",
            MergeError::Misaligned { .. } => "time",
            MergeError::TooMany(field) => field,
            MergeError::Summaries(_) => "algorithm",
        };
        Self::new(field, error.to_string())
    }
}
