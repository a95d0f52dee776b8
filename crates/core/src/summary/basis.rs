//! What two summaries must have in common to be merged.

use flowgauge_kernel::{Digester, Seed};

use super::{Incompatible, Ingest, Measure};
use crate::key::FlowKey;
use crate::task::Threshold;

/// What the contents of a summary depend on, besides its parameters and the packets; `None` where
/// they do not.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Basis {
    pub(crate) seed: Seed,
    pub(crate) key_bytes: usize,
    pub(crate) by: Option<Measure>,
    pub(crate) threshold: Option<Threshold>,
    pub(crate) spread: Option<u64>,
}

impl Basis {
    /// Of a summary that depends on its digests alone.
    pub(crate) fn of(digester: &Digester) -> Self {
        let (seed, key_bytes) = (*digester.seed(), digester.key_bytes());
        Self { seed, key_bytes, by: None, threshold: None, spread: None }
    }
}

/// The other summary as one of the same type, if it is of the same basis and parameters.
///
/// # Errors
/// When it differs, with what does.
pub(crate) fn twin<'a, K: FlowKey, S: Ingest<K> + 'static>(
    own: &S,
    other: &'a dyn Ingest<K>,
    basis: impl Fn(&S) -> Basis,
) -> Result<&'a S, Incompatible> {
    let other = other.as_any().downcast_ref::<S>().ok_or(Incompatible("types differ"))?;
    let (own_basis, other_basis) = (basis(own), basis(other));
    let same = [
        (own_basis.seed == other_basis.seed, "seeds differ"),
        (own_basis.key_bytes == other_basis.key_bytes, "lengths of keys differ"),
        (own_basis.by == other_basis.by, "measures differ"),
        (own_basis.threshold == other_basis.threshold, "thresholds differ"),
        (own_basis.spread == other_basis.spread, "spreads differ"),
        (own.parameters() == other.parameters(), "parameters differ"),
    ];
    match same.into_iter().find(|(same, _)| !same) {
        Some((_, what)) => Err(Incompatible(what)),
        None => Ok(other),
    }
}
