//! The largest items, by value and then by key, in a bounded heap.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use super::{ChangeItem, SizeItem, SpreadItem};
use crate::key::CanonicalKey;

/// An item that ties are broken by the key of.
pub(super) trait Keyed {
    fn key(&self) -> &CanonicalKey;
}

impl Keyed for SizeItem {
    fn key(&self) -> &CanonicalKey {
        &self.key
    }
}

impl Keyed for SpreadItem {
    fn key(&self) -> &CanonicalKey {
        &self.address
    }
}

impl Keyed for ChangeItem {
    fn key(&self) -> &CanonicalKey {
        &self.key
    }
}

/// At most `limit` items: those of the largest values, and of equal ones those of the first keys.
///
/// Memory: that of its items, so at most `limit` of them.
pub(super) struct Largest<T> {
    limit: usize,
    heap: BinaryHeap<Ranked<T>>,
}

impl<T: Keyed> Largest<T> {
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, heap: BinaryHeap::new() }
    }

    /// Whether an item of this value and key would stay: cheap, so that most items are never made.
    #[inline]
    pub(super) fn admits(&self, value: f64, key: &[u8]) -> bool {
        if self.heap.len() < self.limit {
            return true;
        }
        self.heap.peek().is_some_and(|last| match value.total_cmp(&last.value) {
            Ordering::Greater => true,
            Ordering::Equal => CanonicalKey::new(key) < *last.item.key(),
            Ordering::Less => false,
        })
    }

    /// Takes an item that is admitted, in the place of the last one if there is no other.
    pub(super) fn push(&mut self, value: f64, item: T) {
        let ranked = Ranked { value, item };
        if self.heap.len() < self.limit {
            self.heap.push(ranked);
        } else if let Some(mut last) = self.heap.peek_mut() {
            *last = ranked;
        }
    }

    /// The items by value, then by key.
    pub(super) fn into_sorted(self) -> Vec<T> {
        let mut items = self.heap.into_vec();
        items.sort_unstable();
        items.into_iter().map(|ranked| ranked.item).collect()
    }
}

/// An item that is less the further ahead it stands, so that the heap's top is the last.
struct Ranked<T> {
    value: f64,
    item: T,
}

impl<T: Keyed> Ord for Ranked<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        other.value.total_cmp(&self.value).then_with(|| self.item.key().cmp(other.item.key()))
    }
}

impl<T: Keyed> PartialOrd for Ranked<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T: Keyed> PartialEq for Ranked<T> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl<T: Keyed> Eq for Ranked<T> {}
