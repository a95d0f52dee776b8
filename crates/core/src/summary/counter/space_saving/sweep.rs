//! A monitor that finds the minimum count by sweeping over all entries, for packets.
//!
//! Entries with the minimum count are replaced in the order of their numbers, and their counts
//! grow. So one sweep over all entries finds every entry with the minimum count, and the minimum
//! grows only at the end of a sweep. A sweep visits blocks of 64 entries, two at a time. Each block
//! has a floor, a lower bound of its counts; the sweep reads the counts of a block only if its
//! floor is the minimum. With single packets the minimum count, and so the number of sweeps, is at
//! most the packets divided by the entries: at most one entry is passed per packet, for any
//! traffic. With weighted updates the minimum grows in steps, each of which visits at most two
//! blocks and a few groups of floors.

use std::cell::OnceCell;
use std::hint::{black_box, select_unpredictable};
use std::ops::Range;

use flowgauge_kernel::{Digester, Zeroed, equal_in_group};

use super::index::{BranchFree, Index};
use super::{Entry, Monitor};
use crate::key::FlowKey;
use crate::summary::{BuildError, Counter, Memory};

/// Entries in a block, one bit each.
const BLOCK: usize = 64;

/// The entries of a sweep, in columns behind an index.
///
/// Cost per packet: one line of the index, one entry, and at most one entry passed by the
/// sweep. Memory in bytes: see [`Monitor::bytes`].
pub(in crate::summary) struct Sweep<K> {
    pub(super) digester: Digester,
    pub(super) keys: Zeroed<K>,
    pub(super) counts: Zeroed<u32>,
    pub(super) errors: Zeroed<u32>,
    pub(super) index: Index,
    /// Entries in use. The fields below are valid while all entries are in use.
    pub(super) len: usize,
    pub(super) saturated: u64,
    /// Of each block, a lower bound of its counts except those of pending entries.
    floors: Floors,
    /// A lower bound of all counts; the minimum while entries are pending.
    pub(super) min: u32,
    /// First entry of the two blocks that the sweep has reached.
    pub(super) start: usize,
    /// The entries of these two blocks that had the minimum count and may still have it.
    pub(super) pending: u128,
    /// The minimum count, if it was computed since the last change.
    min_count: OnceCell<u32>,
}

impl<K: FlowKey> Sweep<K> {
    #[inline(always)]
    pub(super) fn find(&self, key: K, digest: u64) -> Option<usize> {
        let keys = &*self.keys;
        self.index.find(digest, |entry| keys[entry] == key)
    }

    fn blocks(&self) -> usize {
        self.counts.len().div_ceil(BLOCK)
    }

    /// The first pending entry, if it still has the minimum count.
    #[inline(always)]
    fn next(&self) -> Option<usize> {
        let next = self.start + self.pending.trailing_zeros() as usize;
        (self.pending != 0 && self.counts[next] == self.min).then_some(next)
    }

    /// The next entry with the minimum count, which the sweep may have to advance to.
    fn find_min(&mut self) -> usize {
        loop {
            if let Some(next) = self.next() {
                return next;
            }
            if self.pending == 0 {
                self.advance();
            } else {
                self.pending &= self.pending - 1;
            }
        }
    }

    /// Advances to the next blocks that may hold the minimum count; after the last one, starts a
    /// new sweep for a larger minimum.
    fn advance(&mut self) {
        let (blocks, mut block) = (self.blocks(), self.start / BLOCK);
        let next = loop {
            if let Some(next) = self.floors.next(blocks, block, self.min) {
                break next;
            }
            (block, self.min) = (0, self.floors.min(blocks));
        };
        self.start = next * BLOCK;
        self.pending = u128::from(self.visit(next)) | u128::from(self.visit(next + 1)) << BLOCK;
    }

    /// The entries of a block, if it exists, that have the minimum count. They become pending.
    fn visit(&mut self, block: usize) -> u64 {
        if block >= self.blocks() || self.floors.get(block) != self.min {
            return 0;
        }
        let start = block * BLOCK;
        let pending = equal(block_of(&self.counts, start), self.min);
        // Most blocks hold the next larger count, so their exact minimum is seldom needed.
        let above = self.min.saturating_add(1);
        self.floors.raise(block, if pending == 0 { floor(&self.counts, start) } else { above });
        pending
    }

    /// Whether all entries are in use and the minimum can still grow.
    #[inline(always)]
    pub(super) fn sweeps(&self) -> bool {
        self.len == self.keys.len() && self.min < u32::MAX
    }

    /// Alternates between advancing the sweep and calling `add` with the next row to add. `add`
    /// returns how many rows it added until the sweep had to advance or a row needed a branch.
    /// Returns the number of rows added in total.
    #[inline(always)]
    pub(super) fn add_while_sweeping(
        &mut self,
        rows: usize,
        mut add: impl FnMut(&mut Self, usize) -> usize,
    ) -> usize {
        let mut at = 0;
        while self.sweeps() {
            self.find_min();
            at += add(self, at);
            if at == rows || self.next().is_some() {
                break;
            }
        }
        at
    }

    /// Starts the first sweep, once all entries are in use.
    fn begin(&mut self) {
        let (blocks, counts) = (self.blocks(), &self.counts[..]);
        self.floors.begin(blocks, |block| floor(counts, block * BLOCK));
        (self.min, self.start, self.pending) = (0, 0, 0);
    }

    /// Puts a key into a free entry, or replaces the key with the minimum count.
    fn replace_min(&mut self, key: K, digest: u64, weight: u32) {
        if self.len < self.keys.len() {
            return self.append(Entry { key, count: weight, error: 0 }, digest);
        }
        let entry = self.find_min();
        let before = self.keys[entry];
        self.index.remove(entry, || before.digest(&self.digester));
        self.index.insert(digest, entry);
        self.keys[entry] = key;
        self.errors[entry] = self.counts[entry];
        self.saturated = self.saturated.saturating_add(self.counts[entry].add(weight));
        if self.counts[entry] != self.min {
            self.pending &= self.pending - 1;
        }
    }
}

/// The counts of the block that starts at entry `start`.
fn block_of(counts: &[u32], start: usize) -> &[u32] {
    &counts[start..counts.len().min(start + BLOCK)]
}

/// The minimum count of the block that starts at entry `start`.
fn floor(counts: &[u32], start: usize) -> u32 {
    block_of(counts, start).iter().copied().min().unwrap_or(u32::MAX)
}

/// A bit mask of the counts that equal `count`.
fn equal(counts: &[u32], count: u32) -> u64 {
    let (groups, rest) = counts.as_chunks::<8>();
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
            len: 0,
            saturated: 0,
            floors: Floors::new(entries.div_ceil(BLOCK), memory)?,
            min: 0,
            start: 0,
            pending: 0,
            min_count: OnceCell::new(),
        })
    }

    fn digester(&self) -> &Digester {
        &self.digester
    }

    fn capacity(&self) -> usize {
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
    fn invalidate(&mut self) {
        self.min_count.take();
    }

    #[inline(always)]
    fn add(&mut self, key: K, digest: u64, weight: u32) {
        match self.find(key, digest) {
            Some(entry) => {
                let lost = self.counts[entry].add(weight);
                self.saturated = self.saturated.saturating_add(lost);
            }
            None if self.index.has_room(digest) => self.replace_min(key, digest, weight),
            None => self.index.add_untracked(weight.into()),
        }
    }

    #[inline(always)]
    fn add_packets(&mut self, keys: &[K], digests: &[u64], weights: &[u32]) {
        self.invalidate();
        self.add_rows(keys, digests, weights);
    }

    fn add_weighted(&mut self, keys: &[K], digests: &[u64], weights: &[u32]) {
        self.invalidate();
        self.add_weighted_rows(keys, digests, weights);
    }

    fn append(&mut self, Entry { key, count, error }: Entry<K, u32>, digest: u64) {
        self.invalidate();
        let entry = self.len;
        (self.keys[entry], self.counts[entry], self.errors[entry]) = (key, count, error);
        self.index.insert(digest, entry);
        self.len += 1;
        if self.len == self.keys.len() {
            self.begin();
        }
    }

    fn entries(&self) -> impl Iterator<Item = Entry<K, u32>> {
        (0..self.len).map(|entry| Entry {
            key: self.keys[entry],
            count: self.counts[entry],
            error: self.errors[entry],
        })
    }

    fn entry(&self, key: K) -> Option<Entry<K, u32>> {
        let entry = self.find(key, key.digest(&self.digester))?;
        Some(Entry { key, count: self.counts[entry], error: self.errors[entry] })
    }

    fn min_count(&self) -> u32 {
        if self.len < self.keys.len() {
            return 0;
        }
        *self.min_count.get_or_init(|| self.counts.iter().copied().min().unwrap_or(0))
    }

    fn saturated(&self) -> u64 {
        self.saturated
    }

    fn set_saturated(&mut self, saturated: u64) {
        self.saturated = saturated;
    }

    fn clear(&mut self) {
        self.index.clear();
        (self.len, self.saturated) = (0, 0);
    }
}

/// Whether a packet's key has an entry is unpredictable, and a mispredicted branch costs as much as
/// all other work on the packet. So the common packet takes the same steps whether its key has an
/// entry or replaces another, and selections decide what is written. Rare cases end the loop.
impl<K: FlowKey> Sweep<K> {
    /// Adds the weights of the rows without branches until the sweep must advance; returns the
    /// number of rows added.
    #[inline(always)]
    #[expect(clippy::needless_bitwise_bool, reason = "avoids a branch")]
    fn add_without_branches<const WIDE: bool>(
        &mut self,
        keys: &[K],
        digests: &[u64],
        weights: &[u32],
    ) -> usize {
        let capacity = self.keys.len();
        let (held, counts) = (&mut self.keys[..capacity], &mut self.counts[..capacity]);
        let (errors, mut lines) = (&mut self.errors[..capacity], self.index.lines::<WIDE>());
        let (start, min, mut pending) = (self.start, self.min, self.pending);
        let mut done = keys.len();
        for (i, ((&key, &digest), &weight)) in keys.iter().zip(digests).zip(weights).enumerate() {
            let probe = lines.probe(digest);
            let first = lines.first(&probe);
            let next = start + pending.trailing_zeros() as usize;
            if first >= capacity || next >= capacity {
                done = i;
                break;
            }
            let has = (held[first] == key) & probe.is_match();
            let free = (counts[next] == min) & lines.can_release(next) & probe.is_decided();
            let entry = select_unpredictable(has, first, next);
            let (sum, over) = counts[entry].overflowing_add(weight);
            // Hides `has` from the compiler, which would branch on it.
            if !black_box((has | free) & !over) {
                done = i;
                break;
            }
            lines.release(entry, has);
            lines.assign(&probe, entry, has);
            held[entry] = key;
            errors[entry] = select_unpredictable(has, errors[entry], counts[entry]);
            counts[entry] = sum;
            pending = select_unpredictable(has, pending, pending & pending.wrapping_sub(1));
        }
        self.pending = pending;
        done
    }
}

impl<K: FlowKey> BranchFree<K, u32> for Sweep<K> {
    #[inline(always)]
    fn index(&self) -> &Index {
        &self.index
    }

    #[inline(always)]
    fn add_common<const WIDE: bool>(
        &mut self,
        keys: &[K],
        digests: &[u64],
        weights: &[u32],
    ) -> usize {
        self.add_while_sweeping(keys.len(), |sweep, at| {
            sweep.add_without_branches::<WIDE>(&keys[at..], &digests[at..], &weights[at..])
        })
    }

    #[inline(always)]
    fn add_one(&mut self, key: K, digest: u64, weight: u32) {
        self.add(key, digest, weight);
    }
}

/// Numbers in a group.
const GROUP: usize = 64;

/// The largest level without a level above it: the floors of 16,384 entries.
const TOP: usize = 256;

/// The position of a level in the array of all levels.
#[derive(Clone, Copy)]
struct Level {
    start: usize,
    len: usize,
}

impl Level {
    /// The lowest level: one number per block.
    const fn of(blocks: usize) -> Self {
        Self { start: 0, len: blocks }
    }

    /// The level above, if this one is too large to scan.
    const fn above(self) -> Option<Self> {
        if self.len <= TOP {
            return None;
        }
        Some(Self { start: self.start + self.len, len: self.len.div_ceil(GROUP) })
    }

    #[inline(always)]
    const fn top(self) -> Self {
        let mut top = self;
        while let Some(above) = top.above() {
            top = above;
        }
        top
    }

    /// The range from `from` to `to`, or to the end of the level.
    fn range(self, from: usize, to: usize) -> Range<usize> {
        self.start + from..self.start + to.min(self.len)
    }

    /// The group that number `group` of the level above covers.
    fn group(self, group: usize) -> Range<usize> {
        self.range(GROUP * group, GROUP * (group + 1))
    }
}

/// The floors of all blocks, and the levels above them.
///
/// Many floors form levels, as in a tree: each number of a level is a lower bound of a group of 64
/// numbers of the level below. The next block with the minimum floor is found by reading one or two
/// groups of each level. Floors only grow. A number of an upper level is raised once its group has
/// no number as small as the minimum.
struct Floors(Zeroed<u32>);

impl Floors {
    const fn memory_bytes(blocks: usize) -> usize {
        let top = Level::of(blocks).top();
        (top.start + top.len) * size_of::<u32>()
    }

    fn new(blocks: usize, memory: &Memory) -> Result<Self, BuildError> {
        Ok(Self(memory.zeroed(Self::memory_bytes(blocks) / size_of::<u32>())?))
    }

    /// Sets the floors of all blocks.
    fn begin(&mut self, blocks: usize, floor: impl Fn(usize) -> u32) {
        let mut level = Level::of(blocks);
        for block in 0..blocks {
            self.0[block] = floor(block);
        }
        while let Some(above) = level.above() {
            for group in 0..above.len {
                self.0[above.start + group] = min(&self.0[level.group(group)]);
            }
            level = above;
        }
    }

    #[inline(always)]
    fn get(&self, block: usize) -> u32 {
        self.0[block]
    }

    /// Raises the floor of a block.
    #[inline(always)]
    fn raise(&mut self, block: usize, floor: u32) {
        self.0[block] = floor;
    }

    /// A lower bound of all floors, nearly always their minimum.
    fn min(&self, blocks: usize) -> u32 {
        let top = Level::of(blocks).top();
        min(&self.0[top.range(0, top.len)])
    }

    /// The first block from `from` on whose floor is `floor`, which must be a lower bound of all
    /// floors.
    #[inline(always)]
    fn next(&mut self, blocks: usize, from: usize, floor: u32) -> Option<usize> {
        self.next_in(Level::of(blocks), from, floor)
    }

    #[inline(always)]
    fn next_in(&mut self, level: Level, from: usize, number: u32) -> Option<usize> {
        match level.above() {
            None => first(&self.0[level.range(from, level.len)], number).map(|at| from + at),
            Some(above) => self.next_of_groups(level, above, from, number),
        }
    }

    #[inline(never)]
    fn next_of_groups(
        &mut self,
        level: Level,
        above: Level,
        mut from: usize,
        number: u32,
    ) -> Option<usize> {
        loop {
            let group = from / GROUP;
            let rest = level.range(from, GROUP * (group + 1));
            if let Some(at) = first(&self.0[rest], number) {
                return Some(from + at);
            }
            self.0[above.start + group] = min(&self.0[level.group(group)]);
            from = GROUP * self.next_in(above, group + 1, number)?;
        }
    }
}

fn min(numbers: &[u32]) -> u32 {
    numbers.iter().copied().min().unwrap_or(u32::MAX)
}

/// The first position of `number`.
#[inline(always)]
fn first(numbers: &[u32], number: u32) -> Option<usize> {
    let (eights, rest) = numbers.as_chunks::<8>();
    let same = |eight| equal_in_group(eight, u32::MAX, number);
    let found = eights.iter().map(same).enumerate().find(|(_, same)| *same != 0);
    found.map(|(eight, same)| 8 * eight + same.trailing_zeros() as usize).or_else(|| {
        let at = rest.iter().position(|other| *other == number)?;
        Some(8 * eights.len() + at)
    })
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]
mod tests {
    use super::*;

    /// With one to three levels, in sweeps that raise the floor they find and sometimes the next
    /// one: the minimum floor and the next block that has it are those that a linear search finds.
    #[test]
    fn floors_are_found_as_by_a_linear_search() {
        let mut random = fastrand::Rng::with_seed(1);
        for blocks in [1, 2, 63, TOP, TOP + 1, 1000, GROUP * TOP, GROUP * TOP + 1, 40_000] {
            let mut floors = Floors::new(blocks, &Memory::unlimited()).unwrap();
            let mut model: Vec<u32> = (0..blocks).map(|_| random.u32(3..6)).collect();
            floors.begin(blocks, |block| model[block]);
            let (mut from, mut number) = (0, 0);
            for _ in 0..500 {
                let next = loop {
                    if let Some(next) = floors.next(blocks, from, number) {
                        break next;
                    }
                    let min = *model.iter().min().unwrap();
                    (from, number) = (0, floors.min(blocks));
                    assert!(number <= min, "{blocks}");
                };
                assert_eq!(number, *model.iter().min().unwrap());
                let behind = model[from..].iter().position(|floor| *floor == number).unwrap();
                assert_eq!(next, from + behind, "{blocks}");
                let end = blocks.min(next + random.usize(1..3));
                for (block, floor) in (next..).zip(&mut model[next..end]) {
                    *floor = (*floor).max(number + random.u32(1..3));
                    floors.raise(block, *floor);
                }
                from = next;
            }
        }
    }
}
