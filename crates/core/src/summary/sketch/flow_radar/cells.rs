//! The cells in memory.
//!
//! What every packet changes is a word of its own, apart from what only a flow's first packet
//! changes: eight cells share a cache line, and none is in two.

use bytemuck::{Pod, Zeroable, bytes_of};
use flowgauge_kernel::{Zeroed, prefetch};

use super::super::super::{BuildError, Memory};
use super::cell::{Cell, mix};
use crate::batch::BATCH_PACKETS;
use crate::key::FlowKey;
use crate::terms::Size;

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
