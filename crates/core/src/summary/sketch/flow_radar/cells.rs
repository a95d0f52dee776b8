//! The invertible lookup table, and the Bloom filter before it.
//!
//! What every packet changes is a word of its own, apart from what only a flow's first packet
//! changes: eight cells share a cache line, and none is in two.
//!
//! Idea: Putze, Sanders, Singler, "Cache-, hash- and space-efficient Bloom filters" (WEA 2007), §3.
//! With 57 bits a key and 4 hashes, a key in 28,000 is taken for one that was there, 1.7 times as
//! many as with bits all over the filter.

use std::slice;

use bytemuck::{Pod, Zeroable, bytes_of, cast_slice, cast_slice_mut};
use flowgauge_kernel::{Zeroed, prefetch};

use crate::batch::BATCH_PACKETS;
use crate::key::FlowKey;
use crate::summary::codec::{DecodeError, Reader, Writer};
use crate::summary::remix::remix;
use crate::summary::{BuildError, Memory};
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

/// What the first packet of a flow changes.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, packed)]
struct Entered<K> {
    /// Exclusive or of the keys.
    key: K,
    /// The number of flows in the high 16 bits; in the low ones, what bytes did not fit into
    /// [`Cells::counts`].
    tally: u32,
}

/// Cells by their numbers.
pub(super) struct Cells<K> {
    /// The low 32 bits of the number of bytes in the high half, packets in the low half.
    counts: Zeroed<u64>,
    entered: Zeroed<Entered<K>>,
}

impl<K: FlowKey> Cells<K> {
    /// Bytes of a cell.
    pub(super) const CELL_BYTES: usize = size_of::<u64>() + size_of::<Entered<K>>();

    pub(super) fn new(len: usize, memory: &Memory) -> Result<Self, BuildError> {
        Ok(Self { counts: memory.zeroed(len)?, entered: memory.zeroed(len)? })
    }

    pub(super) fn len(&self) -> usize {
        self.counts.len()
    }

    #[inline(always)]
    pub(super) fn get(&self, at: usize) -> Cell<K> {
        let (counts, Entered { key, tally }) = (self.counts[at], self.entered[at]);
        let (flows, high) = (u64::from(tally >> 16), u64::from(tally & 0xffff));
        Cell { key, packets: counts as u32, tally: flows << 48 | high << 32 | counts >> 32 }
    }

    #[inline(always)]
    pub(super) fn set(&mut self, at: usize, cell: &Cell<K>) {
        self.counts[at] = cell.tally << 32 | u64::from(cell.packets);
        let tally = (cell.tally >> 32) as u32;
        self.entered[at] = Entered { key: cell.key, tally };
    }

    /// Changes a cell.
    pub(super) fn change(&mut self, at: usize, change: impl FnOnce(&mut Cell<K>)) {
        let mut cell = self.get(at);
        change(&mut cell);
        self.set(at, &cell);
    }

    /// All cells in their order.
    pub(super) fn iter(&self) -> impl Iterator<Item = Cell<K>> {
        (0..self.len()).map(|at| self.get(at))
    }

    pub(super) fn size(&self, at: usize) -> Size {
        self.get(at).size()
    }

    pub(super) fn flows(&self, at: usize) -> u64 {
        u64::from(self.entered[at].tally >> 16)
    }

    /// The first `bytes` bytes of the keys' sum.
    pub(super) fn canonical(&self, at: usize, bytes: usize) -> &[u8] {
        &bytes_of(&self.entered[at])[..bytes]
    }

    /// Asks for what [`Self::count`] changes.
    #[inline(always)]
    pub(super) fn prefetch_counts(&self, at: usize) {
        prefetch(&self.counts, at);
    }

    /// Asks for what [`Self::enter`] changes.
    #[inline(always)]
    pub(super) fn prefetch_entered(&self, at: usize) {
        prefetch(&self.entered, at);
    }

    /// Counts rows of packets and of bytes, fewer than 2³² in a row, in their places, of which each
    /// hash says one for each row. There is room.
    #[inline(always)]
    pub(super) fn count<const HASHES: usize>(
        &mut self,
        places: &[[u32; BATCH_PACKETS]; HASHES],
        packets: &[u32],
        bytes: &[u64],
    ) {
        let (counts, entered) = (&mut self.counts[..], &mut self.entered[..]);
        // A bound that the compiler sees, for all columns at once.
        for i in 0..packets.len().min(bytes.len()).min(BATCH_PACKETS) {
            let size = bytes[i] << 32 | u64::from(packets[i]);
            for places in places {
                let place = places[i] as usize;
                let (sum, carry) = counts[place].overflowing_add(size);
                counts[place] = sum;
                if carry {
                    let tally = entered[place].tally;
                    entered[place].tally = tally.wrapping_add(1);
                }
            }
        }
    }

    /// Adds the key of a new flow where there is room; returns the number of flows.
    #[inline(always)]
    pub(super) fn enter(&mut self, at: usize, key: &K) -> u32 {
        let mut cell = self.entered[at];
        let mut sum = cell.key;
        mix(&mut sum, key);
        cell.key = sum;
        cell.tally = cell.tally.wrapping_add(1 << 16);
        self.entered[at] = cell;
        cell.tally >> 16
    }

    pub(super) fn copy_from(&mut self, other: &Self) {
        self.counts.copy_from_slice(&other.counts);
        self.entered.copy_from_slice(&other.entered);
    }

    pub(super) fn clear(&mut self) {
        self.counts.fill(0);
        self.entered.fill(Entered::zeroed());
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.counts.memory_bytes() + self.entered.memory_bytes()
    }
}

/// 512 bits.
type Line = [u64; 8];

/// Bytes of a line.
pub(super) const LINE_BYTES: usize = size_of::<Line>();

/// A set of keys that never forgets one, and sometimes takes a key for another. Each key is a word
/// of its digest: the high bits say the line, 9 low bits for each hash a bit of it.
pub(super) struct BlockedBloom {
    lines: Zeroed<Line>,
    hashes: usize,
}

/// Word and mask of the bit that hash number `hash` means.
#[inline(always)]
fn bit(word: u64, hash: usize) -> (usize, u64) {
    let bits = word >> (9 * hash);
    ((bits >> 6) as usize & 7, 1 << (bits & 63))
}

impl BlockedBloom {
    /// Reserves `lines` lines, at least one, for at most 5 hashes.
    pub(super) fn new(lines: usize, hashes: usize, memory: &Memory) -> Result<Self, BuildError> {
        debug_assert!(lines > 0 && hashes <= 5);
        Ok(Self { lines: memory.zeroed(lines)?, hashes })
    }

    /// The line of a key.
    #[inline(always)]
    pub(super) fn line(&self, word: u64) -> usize {
        ((u128::from(word) * self.lines.len() as u128) >> 64) as usize
    }

    /// Asks for a line.
    #[inline(always)]
    pub(super) fn prefetch(&self, line: usize) {
        prefetch(&self.lines, line);
    }

    /// [`Self::holds`] a key whose line is known, and with as many hashes as the filter was made
    /// for.
    #[inline(always)]
    pub(super) fn line_seems_to_hold<const HASHES: usize>(&self, line: usize, word: u64) -> bool {
        let line = &self.lines[line];
        // All bits are looked at: where a search ends cannot be predicted.
        let held = |held: u64, hash| {
            let bits = word >> (9 * hash);
            held & line[(bits >> 6) as usize & 7] >> (bits & 63)
        };
        (0..HASHES).fold(1, held) != 0
    }

    /// Whether the key is there, or seems to be.
    pub(super) fn holds(&self, word: u64) -> bool {
        let line = &self.lines[self.line(word)];
        (0..self.hashes).all(|hash| {
            let (at, mask) = bit(word, hash);
            line[at] & mask != 0
        })
    }

    /// Adds the key.
    #[inline(always)]
    pub(super) fn insert(&mut self, word: u64) {
        let line = self.line(word);
        let line = &mut self.lines[line];
        for hash in 0..self.hashes {
            let (at, mask) = bit(word, hash);
            line[at] |= mask;
        }
    }

    /// The chance that a key which is not there seems to be.
    pub(super) fn false_positive_rate(&self) -> f64 {
        let lines = self.lines.iter().map(|line| {
            let ones: u32 = line.iter().map(|word| word.count_ones()).sum();
            (f64::from(ones) / 512.0).powf(self.hashes as f64)
        });
        lines.sum::<f64>() / self.lines.len() as f64
    }

    /// Bits of the filter.
    pub(super) fn bits(&self) -> usize {
        self.lines.len() * 512
    }

    /// The filter of the keys of both; they have one size.
    pub(super) fn unite(&mut self, other: &Self) {
        for (line, other) in self.lines.iter_mut().zip(other.lines.iter()) {
            for (word, other) in line.iter_mut().zip(other) {
                *word |= other;
            }
        }
    }

    pub(super) fn clear(&mut self) {
        self.lines.fill([0; 8]);
    }

    pub(super) fn save(&self, out: &mut Writer) {
        self.lines.iter().for_each(|line| out.numbers(line));
    }

    pub(super) fn load(&mut self, from: &mut Reader<'_>) -> Result<(), DecodeError> {
        self.lines.iter_mut().try_for_each(|line| from.numbers("Bloom filter", line))
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.lines.memory_bytes()
    }
}
