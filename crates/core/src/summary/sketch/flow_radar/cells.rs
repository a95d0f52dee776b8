//! The invertible lookup table, and the Bloom filter in front of it.
//!
//! In memory, the part of a cell that every packet changes is a word of its own, apart from the
//! part that only a flow's first packet changes. Eight cells share a cache line, and none spans
//! two.
//!
//! The filter's bits of a key are in one cache line (Putze, Sanders, Singler, "Cache-, hash- and
//! space-efficient Bloom filters", WEA 2007, §3). With 57 bits per key and 4 hashes, its rate of
//! false positives is 1 in 28,000, 1.7 times that of a filter with bits anywhere.

use std::slice;

use bytemuck::{Pod, Zeroable, bytes_of, cast_slice, cast_slice_mut};
use flowgauge_kernel::{Zeroed, prefetch};

use crate::batch::BATCH_PACKETS;
use crate::key::FlowKey;
use crate::summary::codec::{DecodeError, Reader, Writer};
use crate::summary::remix::remix;
use crate::summary::{BuildError, Memory};
use crate::terms::Size;

/// Largest number of hashes: the cells of a flow, and its bits in the filter.
pub(super) const MOST_HASHES: usize = 5;

/// The word of a digest that selects bits of the filter. No cell depends on it.
pub(super) const FILTER_WORD: u64 = MOST_HASHES as u64;

/// Largest number of flows in a cell.
pub(super) const MOST_FLOWS: u64 = u16::MAX as u64;
/// Largest number of bytes in a cell: 48 bits, 256 TiB.
pub(super) const MOST_BYTES: u64 = (1 << 48) - 1;

/// A cell: the sum of its flows.
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
pub(super) fn xor<K: FlowKey>(key: &mut K, other: &K) {
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

    /// Adds packets, for which there must be room.
    pub(super) fn count(&mut self, packets: u32, bytes: u64) {
        self.packets = self.packets.wrapping_add(packets);
        self.tally = self.tally.wrapping_add(bytes);
    }

    /// Whether [`Self::count`] would overflow.
    pub(super) fn has_room(&self, packets: u32, bytes: u64) -> bool {
        self.packets.checked_add(packets).is_some()
            && self.bytes().checked_add(bytes).is_some_and(|sum| sum <= MOST_BYTES)
    }

    /// Removes a key, but not its packets.
    pub(super) fn remove_key(&mut self, key: &K) {
        xor(&mut self.key, key);
        self.tally = self.tally.saturating_sub(1 << 48).max(self.bytes());
    }

    /// Subtracts a size, and wraps if an error made the size too large.
    pub(super) fn remove_size(&mut self, size: Size) {
        self.packets = self.packets.wrapping_sub(size.packets as u32);
        let bytes = self.bytes().wrapping_sub(size.bytes) & MOST_BYTES;
        self.tally = self.tally & !MOST_BYTES | bytes;
    }

    /// Whether the sum of two cells fits into one.
    pub(super) fn has_room_for(&self, other: &Self) -> bool {
        self.has_room(other.packets, other.bytes()) && self.flows() + other.flows() <= MOST_FLOWS
    }

    /// Adds another cell that it [has room for](Self::has_room_for).
    pub(super) fn add(&mut self, other: &Self) {
        xor(&mut self.key, &other.key);
        self.count(other.packets, other.tally);
    }

    /// Whether the cell is empty.
    pub(super) fn is_zero(&self) -> bool {
        self.packets == 0 && self.tally == 0 && self.key == K::zeroed()
    }
}

/// The cells of a flow: one in the part of each hash, so that they are distinct.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) hashes: usize,
    /// Number of cells per hash.
    pub(super) part: usize,
}

impl Shape {
    pub(super) fn cells(self) -> usize {
        self.hashes * self.part
    }

    /// The cell of a flow in the part of `hash`.
    #[inline(always)]
    pub(super) fn cell(self, digest: u64, hash: usize) -> usize {
        self.place(remix(digest, hash as u64 / 2), hash)
    }

    /// The cell in the part of `hash` of a flow, where `word` is the flow's word for this hash and
    /// the neighbouring one.
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

    /// The word of a flow in the filter.
    #[inline(always)]
    pub(super) fn filter_word(digest: u64) -> u64 {
        remix(digest, FILTER_WORD)
    }
}

/// The part of a cell that only the first packet of a flow changes, but for carries.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, packed)]
struct Entered<K> {
    /// Exclusive or of the keys.
    key: K,
    /// The number of flows in the high 16 bits, and the bytes that exceed [`Cells::counts`] in the
    /// low ones.
    tally: u32,
}

/// The cells in memory.
pub(super) struct Cells<K> {
    /// The low 32 bits of the bytes in the high half, packets in the low half.
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

    /// The first `bytes` bytes of the sum of keys.
    pub(super) fn canonical(&self, at: usize, bytes: usize) -> &[u8] {
        &bytes_of(&self.entered[at])[..bytes]
    }

    /// Prefetches what [`Self::count`] changes.
    #[inline(always)]
    pub(super) fn prefetch_counts(&self, at: usize) {
        prefetch(&self.counts, at);
    }

    /// Prefetches what [`Self::enter`] changes.
    #[inline(always)]
    pub(super) fn prefetch_entered(&self, at: usize) {
        prefetch(&self.entered, at);
    }

    /// Adds packets and bytes, fewer than 2³² per row, to the cells in `places`, which has one for
    /// each hash and row. There must be room.
    #[inline(always)]
    pub(super) fn count<const HASHES: usize>(
        &mut self,
        places: &[[u32; BATCH_PACKETS]; HASHES],
        packets: &[u32],
        bytes: &[u64],
    ) {
        let (counts, entered) = (&mut self.counts[..], &mut self.entered[..]);
        // A bound that the compiler sees for all columns at once.
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

    /// Adds the key of a new flow, for which there must be room; returns the number of flows.
    #[inline(always)]
    pub(super) fn enter(&mut self, at: usize, key: &K) -> u32 {
        let mut cell = self.entered[at];
        let mut sum = cell.key;
        xor(&mut sum, key);
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

/// A blocked Bloom filter. A key is a word of its digest: the high bits select the line, 9 low bits
/// per hash select a bit of it.
pub(super) struct BlockedBloom {
    lines: Zeroed<Line>,
    hashes: usize,
}

/// Index and mask of the bit for hash number `hash`.
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

    /// Prefetches a line.
    #[inline(always)]
    pub(super) fn prefetch(&self, line: usize) {
        prefetch(&self.lines, line);
    }

    /// [`Self::holds`] for a key with a known line, and with the number of hashes as a constant.
    #[inline(always)]
    pub(super) fn line_seems_to_hold<const HASHES: usize>(&self, line: usize, word: u64) -> bool {
        let line = &self.lines[line];
        // Reads all bits: an early exit could not be predicted.
        let held = |held: u64, hash| {
            let bits = word >> (9 * hash);
            held & line[(bits >> 6) as usize & 7] >> (bits & 63)
        };
        (0..HASHES).fold(1, held) != 0
    }

    /// Whether the key is in the set, or is a false positive.
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

    /// The rate of false positives.
    pub(super) fn false_positive_rate(&self) -> f64 {
        let lines = self.lines.iter().map(|line| {
            let ones: u32 = line.iter().map(|word| word.count_ones()).sum();
            (f64::from(ones) / 512.0).powf(self.hashes as f64)
        });
        lines.sum::<f64>() / self.lines.len() as f64
    }

    /// Number of bits of the filter.
    pub(super) fn bits(&self) -> usize {
        self.lines.len() * 512
    }

    /// Adds the keys of another filter of the same size.
    pub(super) fn merge(&mut self, other: &Self) {
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
