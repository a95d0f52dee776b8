//! What two summaries must have in common to be merged.

use flowgauge_kernel::{Digester, Seed};

use super::{Incompatible, Summary};
use crate::key::FlowKey;
use crate::terms::{Measure, Threshold};

/// What the contents of a summary depend on, besides its parameters and the packets; `None` where
/// they do not.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Basis<'a> {
    pub(crate) seed: &'a Seed,
    pub(crate) key_bytes: usize,
    pub(crate) by: Option<Measure>,
    pub(crate) threshold: Option<Threshold>,
    pub(crate) spread: Option<u64>,
}

impl<'a> Basis<'a> {
    /// Of a summary that depends on its digests alone.
    pub(crate) fn of(digester: &'a Digester) -> Self {
        let (seed, key_bytes) = (digester.seed(), digester.key_bytes());
        Self { seed, key_bytes, by: None, threshold: None, spread: None }
    }

    /// The first part in which two differ.
    #[inline(never)]
    fn difference(&self, other: &Self) -> Option<&'static str> {
        let same = [
            (self.seed == other.seed, "seeds differ"),
            (self.key_bytes == other.key_bytes, "lengths of keys differ"),
            (self.by == other.by, "measures differ"),
            (self.threshold == other.threshold, "thresholds differ"),
            (self.spread == other.spread, "spreads differ"),
        ];
        same.into_iter().find(|(same, _)| !same).map(|(_, what)| what)
    }
}

/// The other summary as one of the same type, if it is of the same basis and parameters.
///
/// # Errors
/// When it differs, with what does.
pub(crate) fn twin<'a, K: FlowKey, S: Summary<K> + 'static>(
    own: &S,
    other: &'a dyn Summary<K>,
    basis: impl Fn(&S) -> Basis<'_>,
) -> Result<&'a S, Incompatible> {
    let other = other.downcast_ref::<S>().ok_or(Incompatible("types differ"))?;
    match basis(own).difference(&basis(other)) {
        Some(what) => Err(Incompatible(what)),
        None => same_parameters(own, other).map(|()| other),
    }
}

/// Compiled once for all summaries of a key.
#[inline(never)]
fn same_parameters<K: FlowKey>(
    own: &dyn Summary<K>,
    other: &dyn Summary<K>,
) -> Result<(), Incompatible> {
    let same = own.parameters() == other.parameters();
    same.then_some(()).ok_or(Incompatible("parameters differ"))
}
