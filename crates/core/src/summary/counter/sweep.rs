//! A monitor whose least entry is found by sweeping over all of them, for packets.
//!
//! Entries of the least count are taken over in the order of their numbers, and count more from then
//! on. So one sweep over all entries finds every one of the least count, and only after its end is
//! the least count a larger one. A sweep looks at blocks of 64 entries, two at a time: at the counts of
//! those whose floor, which no count of the block is below, is the least count, and only at the floor
//! of the others. By packets one by one, the least count is at most the packets over the entries, and so is
//! the number of sweeps: an entry is passed once a packet at most, whatever comes. By sums of packets
//! it grows in steps: for each of them two blocks are looked at, at most, and a few groups of floors.

mod floors;
mod packets;
mod sums;

use std::cell::OnceCell;

use flowgauge_kernel::{Digester, Zeroed, equal_in_group};

use super::super::{BuildError, Counter, Memory};
use super::index::Index;
use super::monitor::{Entry, Monitor};
use super::steps::Steps as _;
use crate::key::FlowKey;
use floors::Floors;

/// Entries of a block, one bit each.
const BLOCK: usize = 64;

/// Entries in columns behind an index.
///
/// Cost: a line of the index and an entry a packet, and one more entry passed by the sweep; see the
/// module. Memory in bytes: see [`Monitor::bytes`].
pub(in crate::summary) struct Sweep<K> {
    digester: Digester,
    keys: Zeroed<K>,
    counts: Zeroed<u32>,
    errors: Zeroed<u32>,
    index: Index,
    taken: usize,
    excess: u64,
    /// Of each block, a number that no count is below but those of the pending entries. In use, as is
    /// all below, while all entries are taken.
    floors: Floors,
    /// No count is below it.
    least: u32,
    /// Where the two blocks begin that the sweep is at.
    start: usize,
    /// The entries of these blocks that had the least count and may still have it.
    pending: u128,
    /// The least count, where it was asked for since it changed.
    unheld: OnceCell<u32>,
}

impl<K: FlowKey> Sweep<K> {
    #[inline(always)]
    fn find(&self, key: K, digest: u64) -> Option<usize> {
        let keys = &*self.keys;
        self.index.find(digest, |entry| keys[entry] == key)
    }

    fn blocks(&self) -> usize {
        self.counts.len().div_ceil(BLOCK)
    }

    /// The first of the pending entries, if it has the least count still.
    #[inline(always)]
    fn next(&self) -> Option<usize> {
        let next = self.start + self.pending.trailing_zeros() as usize;
        (self.pending != 0 && self.counts[next] == self.least).then_some(next)
    }

    /// The entry of the least count, the first of several: where the sweep has come to, or goes on
    /// to.
    fn sweep(&mut self) -> usize {
        loop {
            if let Some(next) = self.next() {
                return next;
            }
            if self.pending == 0 {
                self.go_on();
            } else {
                self.pending &= self.pending - 1;
            }
        }
    }

    /// Goes on to the next blocks that may have the least count, or the next larger one.
    fn go_on(&mut self) {
        let (blocks, mut block) = (self.blocks(), self.start / BLOCK);
        let next = loop {
            if let Some(next) = self.floors.next(blocks, block, self.least) {
                break next;
            }
            (block, self.least) = (0, self.floors.least(blocks));
        };
        self.start = next * BLOCK;
        self.pending = u128::from(self.visit(next)) | u128::from(self.visit(next + 1)) << BLOCK;
    }

    /// The entries of a block, if there is one, that have the least count, and are pending from then
    /// on.
    fn visit(&mut self, block: usize) -> u64 {
        if block >= self.blocks() || self.floors.get(block) != self.least {
            return 0;
        }
        let start = block * BLOCK;
        let pending = equal(block_of(&self.counts, start), self.least);
        // The next larger count is mostly there, so that the least of all is seldom looked for.
        let above = self.least.saturating_add(1);
        self.floors.raise(block, if pending == 0 { floor(&self.counts, start) } else { above });
        pending
    }

    /// Whether there is a least entry to sweep for: counts that are full stay the least.
    #[inline(always)]
    fn sweeps(&self) -> bool {
        self.taken == self.keys.len() && self.least < u32::MAX
    }

    /// Sweeps, and adds packets from the one of a number on, which returns how many were added before
    /// the sweep has to go on, or before one that is not usual; returns of how many.
    #[inline(always)]
    fn while_swept(
        &mut self,
        packets: usize,
        mut add: impl FnMut(&mut Self, usize) -> usize,
    ) -> usize {
        let mut at = 0;
        while self.sweeps() {
            self.sweep();
            at += add(self, at);
            if at == packets || self.next().is_some() {
                break;
            }
        }
        at
    }

    /// Begins a sweep, now that all entries are taken.
    fn begin(&mut self) {
        let (blocks, counts) = (self.blocks(), &self.counts[..]);
        self.floors.begin(blocks, |block| floor(counts, block * BLOCK));
        (self.least, self.start, self.pending) = (0, 0, 0);
    }

    /// Puts a key into the entry of the least count.
    fn take_over(&mut self, key: K, digest: u64, weight: u32) {
        if self.taken < self.keys.len() {
            return self.append(Entry { key, count: weight, error: 0 }, digest);
        }
        let entry = self.sweep();
        let before = self.keys[entry];
        self.index.remove(entry, || before.digest(&self.digester));
        self.index.insert(digest, entry);
        self.keys[entry] = key;
        self.errors[entry] = self.counts[entry];
        self.excess = self.excess.saturating_add(self.counts[entry].add(weight));
        if self.counts[entry] != self.least {
            self.pending &= self.pending - 1;
        }
    }
}

/// The counts of the block that begins at `start`.
fn block_of(counts: &[u32], start: usize) -> &[u32] {
    &counts[start..counts.len().min(start + BLOCK)]
}

/// The least of these.
fn floor(counts: &[u32], start: usize) -> u32 {
    block_of(counts, start).iter().copied().min().unwrap_or(u32::MAX)
}

/// Which of the counts equal `count`, one bit each.
fn equal(counts: &[u32], count: u32) -> u64 {
    let (groups, rest) = counts.as_chunks();
    let bits = rest.iter().rev().fold(0, |bits, &other| bits << 1 | u64::from(other == count));
    let group = |bits: u64, group| bits << 8 | u64::from(equal_in_group(group, u32::MAX, count));
    groups.iter().rev().fold(bits, group)
}

impl<K: FlowKey> Monitor<K, u32> for Sweep<K> {
    fn bytes(entries: usize) -> usize {
        entries * (size_of::<K>() + 2 * size_of::<u32>())
            + Floors::memory_bytes(entries.div_ceil(BLOCK))
            + Index::memory_bytes(entries)
    }

    fn new(entries: usize, digester: Digester, memory: &Memory) -> Result<Self, BuildError> {
        Ok(Self {
            digester,
            keys: memory.zeroed(entries)?,
            counts: memory.zeroed(entries)?,
            errors: memory.zeroed(entries)?,
            index: Index::new(entries, memory)?,
            taken: 0,
            excess: 0,
            floors: Floors::new(entries.div_ceil(BLOCK), memory)?,
            least: 0,
            start: 0,
            pending: 0,
            unheld: OnceCell::new(),
        })
    }

    fn digester(&self) -> &Digester {
        &self.digester
    }

    fn most(&self) -> usize {
        self.keys.len()
    }

    #[inline(always)]
    fn index(&self) -> &Index {
        &self.index
    }

    fn index_mut(&mut self) -> &mut Index {
        &mut self.index
    }

    #[inline(always)]
    fn change(&mut self) {
        self.unheld.take();
    }

    #[inline(always)]
    fn add(&mut self, key: K, digest: u64, weight: u32) {
        match self.find(key, digest) {
            Some(entry) => {
                let excess = self.counts[entry].add(weight);
                self.excess = self.excess.saturating_add(excess);
            }
            None if self.index.has_room(digest) => self.take_over(key, digest, weight),
            None => self.index.refuse(weight.into()),
        }
    }

    #[inline(always)]
    fn add_all(&mut self, keys: &[K], digests: &[u64], weights: &[u32]) {
        self.change();
        self.add_in_steps(keys, digests, weights);
    }

    fn add_sums(&mut self, keys: &[K], digests: &[u64], weights: &[u32]) {
        self.change();
        self.add_summed(keys, digests, weights);
    }

    fn append(&mut self, Entry { key, count, error }: Entry<K, u32>, digest: u64) {
        self.change();
        let entry = self.taken;
        (self.keys[entry], self.counts[entry], self.errors[entry]) = (key, count, error);
        self.index.insert(digest, entry);
        self.taken += 1;
        if self.taken == self.keys.len() {
            self.begin();
        }
    }

    fn entries(&self) -> impl Iterator<Item = Entry<K, u32>> {
        (0..self.taken).map(|entry| Entry {
            key: self.keys[entry],
            count: self.counts[entry],
            error: self.errors[entry],
        })
    }

    fn entry(&self, key: K) -> Option<Entry<K, u32>> {
        let entry = self.find(key, key.digest(&self.digester))?;
        Some(Entry { key, count: self.counts[entry], error: self.errors[entry] })
    }

    fn unheld(&self) -> u32 {
        if self.taken < self.keys.len() {
            return 0;
        }
        *self.unheld.get_or_init(|| self.counts.iter().copied().min().unwrap_or(0))
    }

    fn excess(&self) -> u64 {
        self.excess
    }

    fn set_excess(&mut self, excess: u64) {
        self.excess = excess;
    }

    fn clear(&mut self) {
        self.index.clear();
        (self.taken, self.excess) = (0, 0);
    }
}
