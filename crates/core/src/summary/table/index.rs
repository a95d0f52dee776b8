//! Buckets that hold the numbers of flows.

use flowgauge_kernel::{Zeroed, equal_in_group, prefetch};

use super::super::{BuildError, Memory};

/// Buckets of a group, all of which are compared at once: half a cache line. Where half of all
/// buckets are occupied, one group in twenty is full.
const GROUP: usize = 8;

/// Buckets that an index begins with.
const FIRST_BUCKETS: usize = 1 << 10;

/// An index that is half full grows by this factor.
const GROWTH: usize = 2;

/// Finds flows by the digests of their keys.
///
/// A bucket holds a flow's number, counted from 1, in the bits that the largest number needs, and
/// bits of the digest in the others; 0 is empty. The low bits of the digest name a group; where it
/// is full, the flow is in the next one that is not. Groups fill from their first bucket on.
pub(super) struct Index {
    buckets: Zeroed<u32>,
    /// How many of them are in use so far, a power of two; those behind are empty.
    used: usize,
    /// The bits of a bucket that hold the number.
    number: u32,
}

impl Index {
    /// Reserves `buckets` buckets, a power of two, for fewer flows.
    pub(super) fn new(buckets: usize, memory: &Memory) -> Result<Self, BuildError> {
        let number = (buckets - 1) as u32;
        let buckets = memory.zeroed(buckets.max(GROUP))?;
        Ok(Self { used: buckets.len().min(FIRST_BUCKETS), buckets, number })
    }

    pub(super) fn buckets(&self) -> usize {
        self.number as usize + 1
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.buckets.memory_bytes()
    }

    fn groups(&self) -> &[[u32; GROUP]] {
        self.buckets[..self.used].as_chunks().0
    }

    /// The bits of the digest that a bucket holds: the last of them is bit 47.
    #[inline(always)]
    fn tag(&self, digest: u64) -> u32 {
        (digest >> 16) as u32 & !self.number
    }

    /// Asks for the cache line that [`Self::guess`] reads.
    #[inline(always)]
    pub(super) fn prefetch(&self, digest: u64) {
        prefetch(self.groups(), digest as usize & (self.used / GROUP - 1));
    }

    /// A flow that may have this digest; it is no flow's number where there is none to guess.
    #[inline(always)]
    pub(super) fn guess(&self, digest: u64) -> usize {
        let groups = self.groups();
        let group = &groups[digest as usize & (groups.len() - 1)];
        let same = equal_in_group(group, !self.number, self.tag(digest));
        let bucket = group[same.trailing_zeros() as usize & (GROUP - 1)];
        ((bucket & self.number) as usize).wrapping_sub(1)
    }

    /// The flow of this digest that `is` the one.
    #[inline(always)]
    pub(super) fn find(&self, digest: u64, is: impl Fn(usize) -> bool) -> Option<usize> {
        let (groups, tag) = (self.groups(), self.tag(digest));
        let mut at = digest as usize;
        loop {
            let group = &groups[at & (groups.len() - 1)];
            let empty = empty_in(group);
            let mut same = equal_in_group(group, !self.number, tag) & !empty;
            while same != 0 {
                let bucket = group[same.trailing_zeros() as usize & (GROUP - 1)];
                let flow = (bucket & self.number) as usize - 1;
                if is(flow) {
                    return Some(flow);
                }
                same &= same - 1;
            }
            // Ends, since a quarter of the buckets is always empty.
            if empty != 0 {
                return None;
            }
            at += 1;
        }
    }

    /// Adds a flow that is not there.
    #[inline(always)]
    pub(super) fn insert(&mut self, digest: u64, flow: usize) {
        let tag = self.tag(digest);
        let groups: &mut [[u32; GROUP]] = self.buckets[..self.used].as_chunks_mut().0;
        let mask = groups.len() - 1;
        let mut at = digest as usize;
        while empty_in(&groups[at & mask]) == 0 {
            at += 1;
        }
        let group = &mut groups[at & mask];
        group[empty_in(group).trailing_zeros() as usize & (GROUP - 1)] = tag | (flow as u32 + 1);
    }

    /// Whether an index of so many flows should grow before the next one.
    #[inline]
    pub(super) fn is_full(&self, flows: usize) -> bool {
        flows == self.used / 2 && self.used < self.buckets.len()
    }

    /// Takes more buckets into use; `digests` are those of all flows, in the order of their numbers.
    #[cold]
    pub(super) fn grow(&mut self, digests: impl Iterator<Item = u64>) {
        self.buckets[..self.used].fill(0);
        self.used = self.buckets.len().min(GROWTH * self.used);
        for (flow, digest) in digests.enumerate() {
            self.insert(digest, flow);
        }
    }

    /// Empties the index, and makes it so small that as many flows as before just find room: the
    /// cost is in proportion to `flows`, however many there were once.
    pub(super) fn clear(&mut self, flows: usize) {
        self.buckets[..self.used].fill(0);
        let least = FIRST_BUCKETS.min(self.buckets.len());
        self.used = (2 * flows).next_power_of_two().clamp(least, self.buckets.len());
    }
}

/// The empty buckets of a group, as bits.
#[inline(always)]
fn empty_in(group: &[u32; GROUP]) -> u32 {
    equal_in_group(group, u32::MAX, 0)
}
