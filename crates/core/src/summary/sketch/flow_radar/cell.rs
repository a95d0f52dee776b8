//! What a cell of the invertible lookup table says, and which cells a flow has.

use std::slice;

use bytemuck::{cast_slice, cast_slice_mut};

use super::super::super::remix::remix;
use crate::key::FlowKey;
use crate::terms::Size;

/// Hashes at most: the cells of a flow, and its bits in the filter.
pub(super) const MOST_HASHES: usize = 5;

/// The word of a digest that the filter takes: no cell depends on it.
pub(super) const FILTER_WORD: u64 = MOST_HASHES as u64;

/// Flows that a cell can count.
pub(super) const MOST_FLOWS: u64 = u16::MAX as u64;
/// Bytes that a cell can count: 48 bits, 256 TiB.
pub(super) const MOST_BYTES: u64 = (1 << 48) - 1;

/// The sum of its flows.
#[derive(Clone, Copy)]
pub(super) struct Cell<K> {
    /// Exclusive or of the keys.
    pub(super) key: K,
    pub(super) packets: u32,
    /// The number of flows in the high 16 bits, bytes in the low 48.
    pub(super) tally: u64,
}

/// Exclusive or, in place.
#[inline(always)]
pub(super) fn mix<K: FlowKey>(key: &mut K, other: &K) {
    // Keys are whole words.
    let words: &mut [u32] = cast_slice_mut(slice::from_mut(key));
    for (word, other) in words.iter_mut().zip(cast_slice::<K, u32>(slice::from_ref(other))) {
        *word ^= other;
    }
}

impl<K: FlowKey> Cell<K> {
    pub(super) fn flows(&self) -> u64 {
        self.tally >> 48
    }

    pub(super) fn bytes(&self) -> u64 {
        self.tally & MOST_BYTES
    }

    pub(super) fn size(&self) -> Size {
        Size { packets: u64::from(self.packets), bytes: self.bytes() }
    }

    /// Counts a packet, or several; there is room.
    pub(super) fn count(&mut self, packets: u32, bytes: u64) {
        self.packets = self.packets.wrapping_add(packets);
        self.tally = self.tally.wrapping_add(bytes);
    }

    /// Whether [`Self::count`] would overflow.
    pub(super) fn has_room(&self, packets: u32, bytes: u64) -> bool {
        self.packets.checked_add(packets).is_some()
            && self.bytes().checked_add(bytes).is_some_and(|sum| sum <= MOST_BYTES)
    }

    /// Takes a key out again, and leaves its packets.
    pub(super) fn leave(&mut self, key: &K) {
        mix(&mut self.key, key);
        self.tally = self.tally.saturating_sub(1 << 48).max(self.bytes());
    }

    /// Takes a size out, which wraps where an error had made it too large.
    pub(super) fn discount(&mut self, size: Size) {
        self.packets = self.packets.wrapping_sub(size.packets as u32);
        let bytes = self.bytes().wrapping_sub(size.bytes) & MOST_BYTES;
        self.tally = self.tally & !MOST_BYTES | bytes;
    }

    /// Whether the sums of two cells fit into one.
    pub(super) fn takes(&self, other: &Self) -> bool {
        self.has_room(other.packets, other.bytes()) && self.flows() + other.flows() <= MOST_FLOWS
    }

    /// Adds another cell, which it [takes](Self::takes).
    pub(super) fn add(&mut self, other: &Self) {
        mix(&mut self.key, &other.key);
        self.count(other.packets, other.tally);
    }

    /// Whether nothing is in it.
    pub(super) fn is_zero(&self) -> bool {
        self.packets == 0 && self.tally == 0 && self.key == K::zeroed()
    }
}

/// Each hash has a part of the cells to itself, so that the cells of a flow are distinct.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) hashes: usize,
    /// Cells of each hash.
    pub(super) part: usize,
}

impl Shape {
    pub(super) fn cells(self) -> usize {
        self.hashes * self.part
    }

    /// The cell of a flow in part number `hash`.
    #[inline(always)]
    pub(super) fn cell(self, digest: u64, hash: usize) -> usize {
        self.place(remix(digest, hash as u64 / 2), hash)
    }

    /// The cell in part number `hash` of a flow whose word for this hash, and for the one beside
    /// it, is `word`.
    #[inline(always)]
    pub(super) fn place(self, word: u64, hash: usize) -> usize {
        let half = if hash.is_multiple_of(2) { word >> 32 } else { word & 0xffff_ffff };
        hash * self.part + ((half * u64::from(self.part as u32)) >> 32) as usize
    }

    /// The cells of a flow.
    #[inline(always)]
    pub(super) fn cells_of(self, digest: u64) -> impl Iterator<Item = usize> + Clone {
        (0..self.hashes).map(move |hash| self.cell(digest, hash))
    }

    /// What the filter knows a flow by.
    #[inline(always)]
    pub(super) fn filter_word(digest: u64) -> u64 {
        remix(digest, FILTER_WORD)
    }
}
