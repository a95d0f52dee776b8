//! What of a shared state is a key's own.

use bytemuck::Zeroable;
use flowgauge_kernel::Digester;

use super::super::Counter;
use super::super::heavy::HeavyKeys;
use super::super::share::Share;
use super::super::state::{Distinct, Ewma, Past, State};
use crate::key::FlowKey;

/// A state that the keys of a column share.
pub(super) trait Shared: State {
    /// Whether it counts more than `limit`: distinct elements, or packets or bytes as `C` does.
    fn exceeds<C: Counter>(&self, limit: u64) -> bool;
    /// A key's own part of it.
    type Own: Share;
    /// Takes packets into a key's own part.
    fn add_own(own: &mut Self::Own, packets: u32, bytes: u64);
    /// Begins an epoch after one with this `past`.
    fn next_own(own: &mut Self::Own, past: &Past);
    /// The state of a key's own part alone.
    fn alone(own: &Self::Own) -> Self;
    /// What is left without another key's own part.
    fn without(&self, own: &Self::Own) -> Self;
}

/// A union: whose an element is cannot be told.
impl Shared for Distinct {
    type Own = ();

    #[inline(always)]
    fn exceeds<C: Counter>(&self, limit: u64) -> bool {
        Distinct::exceeds(self, limit)
    }

    #[inline(always)]
    fn add_own((): &mut (), _: u32, _: u64) {}

    fn next_own((): &mut (), _: &Past) {}

    fn alone((): &()) -> Self {
        Self::zeroed()
    }

    fn without(&self, (): &()) -> Self {
        *self
    }
}

/// A sum.
impl Shared for Ewma {
    type Own = Self;

    #[inline(always)]
    fn exceeds<C: Counter>(&self, limit: u64) -> bool {
        self.size().by(C::MEASURE) > limit
    }

    #[inline(always)]
    fn add_own(own: &mut Self, packets: u32, bytes: u64) {
        // What it has no room for, the column has none for either.
        let _ = own.add(packets, bytes, 0);
    }

    fn next_own(own: &mut Self, past: &Past) {
        own.next_epoch(past);
    }

    fn alone(own: &Self) -> Self {
        *own
    }

    fn without(&self, own: &Self) -> Self {
        self.minus(own)
    }
}

/// What is known of a key.
pub(super) struct Known<S> {
    pub(super) column: S,
    /// What of its column is not others' own.
    pub(super) most: S,
    /// What was counted of it apart.
    pub(super) own: S,
}

/// Reads it from the states of all columns and the keys that are counted apart.
pub(super) fn known<K: FlowKey, S: Shared>(
    states: &[S],
    heavy: &HeavyKeys<K, S::Own>,
    digester: &Digester,
    key: K,
) -> Known<S> {
    let (digest, columns) = (key.digest(digester), states.len());
    let column = states[digest as usize & (columns - 1)];
    let (mut most, mut own) = (column, S::zeroed());
    for (member, share) in heavy.of_column(digest, columns, digester) {
        if member == key {
            own = S::alone(share);
        } else {
            most = most.without(share);
        }
    }
    Known { column, most, own }
}
