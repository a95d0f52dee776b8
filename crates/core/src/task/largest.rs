//! The largest items of a list, in a bounded heap.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use super::{AddressItem, ChangeItem, HierarchyItem, SizeItem, SpreadItem};
use crate::key::CanonicalKey;

/// An item of a list.
pub(super) trait Listed {
    /// The key that orders items of equal value.
    type Key: Ord;

    fn key(&self) -> Self::Key;
}

impl Listed for SizeItem {
    type Key = CanonicalKey;

    fn key(&self) -> CanonicalKey {
        self.key
    }
}

impl Listed for AddressItem {
    type Key = CanonicalKey;

    fn key(&self) -> CanonicalKey {
        self.address
    }
}

impl Listed for SpreadItem {
    type Key = CanonicalKey;

    fn key(&self) -> CanonicalKey {
        self.address
    }
}

impl Listed for ChangeItem {
    type Key = CanonicalKey;

    fn key(&self) -> CanonicalKey {
        self.key
    }
}

impl Listed for HierarchyItem {
    type Key = (CanonicalKey, u8, Option<(CanonicalKey, u8)>);

    fn key(&self) -> Self::Key {
        (self.source, self.source_bits, self.destination)
    }
}

/// The items with the largest values; among equal values, those with the lowest keys. At most as
/// many as wanted, and as a report may list.
///
/// Memory: see [`memory_bytes`].
pub(super) struct Largest<T> {
    wanted: usize,
    limit: usize,
    heap: BinaryHeap<Ranked<T>>,
    /// Number of items so far.
    offered: u64,
}

/// Memory in bytes of a list of so many items while it is made. A growing vector has up to twice
/// the needed room.
pub(super) fn memory_bytes<T>(items: usize) -> usize {
    items.saturating_mul(2 * size_of::<Ranked<T>>())
}

impl<T: Listed> Largest<T> {
    pub(super) fn new(wanted: usize, limit: usize) -> Self {
        let limit = limit.min(wanted);
        Self { wanted, limit, heap: BinaryHeap::new(), offered: 0 }
    }

    /// Counts an item, and returns whether it would be kept. Cheap, so that most items need not be
    /// built.
    #[inline]
    pub(super) fn admits(&mut self, value: f64, key: impl FnOnce() -> T::Key) -> bool {
        self.offered += 1;
        if self.heap.len() < self.limit {
            return true;
        }
        self.heap.peek().is_some_and(|last| match value.total_cmp(&last.value) {
            Ordering::Greater => true,
            Ordering::Equal => key() < last.item.key(),
            Ordering::Less => false,
        })
    }

    /// Takes an admitted item. If there is no room, it replaces the last item, which is returned.
    pub(super) fn push(&mut self, value: f64, item: T) -> Option<T> {
        let ranked = Ranked { value, item };
        if self.heap.len() < self.limit {
            self.heap.push(ranked);
            return None;
        }
        let mut last = self.heap.peek_mut()?;
        Some(std::mem::replace(&mut *last, ranked).item)
    }

    /// Takes an item if it is admitted.
    pub(super) fn offer(&mut self, value: f64, item: T) {
        if self.admits(value, || item.key()) {
            self.push(value, item);
        }
    }

    /// The items by value, then by key, and the number of wanted items that the limit left out.
    pub(super) fn into_list(self) -> (Vec<T>, u64) {
        let items = self.heap.into_sorted_vec();
        let truncated = self.offered.min(self.wanted as u64) - items.len() as u64;
        // The vector keeps the heap's room, up to twice of what a report in a queue needs.
        let mut items: Vec<_> = items.into_iter().map(|ranked| ranked.item).collect();
        items.shrink_to_fit();
        (items, truncated)
    }
}

/// An item in reverse order, so that the heap's top is the last item.
struct Ranked<T> {
    value: f64,
    item: T,
}

impl<T: Listed> Ord for Ranked<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        other.value.total_cmp(&self.value).then_with(|| self.item.key().cmp(&other.item.key()))
    }
}

impl<T: Listed> PartialOrd for Ranked<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T: Listed> PartialEq for Ranked<T> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl<T: Listed> Eq for Ranked<T> {}
