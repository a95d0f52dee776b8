//! A monitor whose least entry is found by sweeping over all of them, for packets.
//!
//! Entries of the least count are taken over in the order of their numbers, and count more from then
//! on. So one sweep over all entries finds every one of the least count, and only after its end is
//! the least count a larger one. It is at most the packets over the entries, and so is the number of
//! sweeps: an entry is passed once a packet at most, whatever comes. A sweep looks at blocks of 64
//! entries: at the counts of those whose floor, which no count of the block is below, is the least
//! count, and only at the floor of the others.
//!
//! Which packets have an entry cannot be foreseen, and a branch mispredicted costs as much as all
//! else. So the usual packet, whether its key has an entry or takes one over, takes the same steps,
//! where selections decide what is written; what is rare ends the loop.

use std::cell::OnceCell;
use std::hint::{black_box, select_unpredictable};

use flowgauge_kernel::{Digester, Zeroed, equal_in_group};

use super::super::{BuildError, Counter, Memory};
use super::index::Index;
use super::monitor::{Entry, Monitor};
use super::steps::Steps;
use crate::key::FlowKey;

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
    /// Of each block, a number that no count is below. In use, as is all below, while all entries
    /// are taken.
    floors: Zeroed<u32>,
    /// No count is below it.
    least: u32,
    /// Where the block begins that the sweep is at.
    start: usize,
    /// The entries of the block that had the least count and may still have it.
    pending: u64,
    /// The least count, where it was asked for since it changed.
    unheld: OnceCell<u32>,
}

impl<K: FlowKey> Sweep<K> {
    #[inline(always)]
    fn find(&self, key: K, digest: u64) -> Option<usize> {
        let keys = &*self.keys;
        self.index.find(digest, |entry| keys[entry] == key)
    }

    /// The counts of the block that begins at `start`.
    fn block(&self, start: usize) -> &[u32] {
        &self.counts[start..self.counts.len().min(start + BLOCK)]
    }

    fn floor(&self, start: usize) -> u32 {
        self.block(start).iter().copied().min().unwrap_or(u32::MAX)
    }

    /// The entry of the least count, the first of several: where the sweep has come to, or goes on
    /// to.
    fn sweep(&mut self) -> usize {
        loop {
            while self.pending != 0 {
                let entry = self.start + self.pending.trailing_zeros() as usize;
                if self.counts[entry] == self.least {
                    return entry;
                }
                self.pending &= self.pending - 1;
            }
            let block = self.start / BLOCK;
            self.floors[block] = self.floor(self.start);
            let next =
                |from: usize| self.floors[from..].iter().position(|&floor| floor == self.least);
            let next = if let Some(next) = next(block) {
                block + next
            } else {
                self.least = self.floors.iter().copied().min().unwrap_or(0);
                self.floors.iter().position(|&floor| floor == self.least).unwrap_or(0)
            };
            self.start = next * BLOCK;
            self.pending = equal(self.block(self.start), self.least);
        }
    }

    /// Begins a sweep, now that all entries are taken.
    fn begin(&mut self) {
        for block in 0..self.floors.len() {
            self.floors[block] = self.floor(block * BLOCK);
        }
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

/// Which of the counts equal `count`, one bit each.
fn equal(counts: &[u32], count: u32) -> u64 {
    let (groups, rest) = counts.as_chunks();
    let bits = rest.iter().rev().fold(0, |bits, &other| bits << 1 | u64::from(other == count));
    let group = |bits: u64, group| bits << 8 | u64::from(equal_in_group(group, u32::MAX, count));
    groups.iter().rev().fold(bits, group)
}

impl<K: FlowKey> Steps<K, u32> for Sweep<K> {
    #[inline(always)]
    fn index(&self) -> &Index {
        &self.index
    }

    #[inline(always)]
    #[expect(clippy::needless_bitwise_bool, reason = "a branch is what this is to avoid")]
    fn add_usual<const WIDE: bool>(
        &mut self,
        keys: &[K],
        digests: &[u64],
        weights: &[u32],
    ) -> usize {
        let most = self.keys.len();
        // Counts that are full stay the least.
        if self.taken < most || self.least == u32::MAX {
            return 0;
        }
        let (held, counts) = (&mut self.keys[..most], &mut self.counts[..most]);
        let (errors, mut lines) = (&mut self.errors[..most], self.index.lines::<WIDE>());
        let (start, least, mut pending) = (self.start, self.least, self.pending);
        let mut done = keys.len();
        for (i, ((&key, &digest), &weight)) in keys.iter().zip(digests).zip(weights).enumerate() {
            let look = lines.look(digest);
            let first = lines.first(&look);
            let next = start + pending.trailing_zeros() as usize;
            if first >= most || next >= most {
                done = i;
                break;
            }
            let has = (held[first] == key) & look.is_there();
            let free = (counts[next] == least) & lines.can_take(next) & look.is_all();
            let entry = select_unpredictable(has, first, next);
            let (sum, over) = counts[entry].overflowing_add(weight);
            // Hidden from the compiler, which would make a branch of `has`.
            if !black_box((has | free) & !over) {
                done = i;
                break;
            }
            lines.take(entry, has);
            lines.give(&look, entry, has);
            held[entry] = key;
            errors[entry] = select_unpredictable(has, errors[entry], counts[entry]);
            counts[entry] = sum;
            pending = select_unpredictable(has, pending, pending & pending.wrapping_sub(1));
        }
        self.pending = pending;
        done
    }

    #[inline(always)]
    fn add_one(&mut self, key: K, digest: u64, weight: u32) {
        self.add(key, digest, weight);
    }
}

impl<K: FlowKey> Monitor<K, u32> for Sweep<K> {
    fn bytes(entries: usize) -> usize {
        entries * (size_of::<K>() + 2 * size_of::<u32>())
            + entries.div_ceil(BLOCK) * size_of::<u32>()
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
            floors: memory.zeroed(entries.div_ceil(BLOCK))?,
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
            None => self.take_over(key, digest, weight),
        }
    }

    #[inline(always)]
    fn add_all(&mut self, keys: &[K], digests: &[u64], weights: &[u32]) {
        self.change();
        self.add_in_steps(keys, digests, weights);
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
