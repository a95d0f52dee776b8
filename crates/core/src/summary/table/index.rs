//! Buckets that hold the numbers of flows, by linear probing.

use flowgauge_kernel::{Zeroed, equal_in_group, prefetch};

use super::super::codec::Patience;
use super::super::{BuildError, Memory};
use super::layout::Index;

/// Buckets of a group, all of which are compared at once: half a cache line. Where half of all
/// buckets are occupied, one group in twenty is full.
const GROUP: usize = 8;

/// Buckets that an index begins with.
const FIRST_BUCKETS: usize = 1 << 10;

/// An index that is half full grows by this factor.
const GROWTH: usize = 2;

/// The index of [`LinearTable`](super::LinearTable): linear probing by groups.
///
/// A bucket holds a flow's number, counted from 1, in the bits that the largest number needs, and
/// bits of the digest in the others; 0 is empty. The low bits of the digest name a group; where it
/// is full, the flow is in the next one that is not. Groups fill from their first bucket on.
pub(in crate::summary) struct Groups {
    buckets: Zeroed<u32>,
    /// How many of them are in use so far, a power of two; those behind are empty.
    used: usize,
    /// The bits of a bucket that hold the number.
    number: u32,
}

impl Groups {
    fn groups(&self) -> &[[u32; GROUP]] {
        self.buckets[..self.used].as_chunks().0
    }

    /// The bits of the digest that a bucket holds: the last of them is bit 47.
    #[inline(always)]
    fn tag(&self, digest: u64) -> u32 {
        (digest >> 16) as u32 & !self.number
    }

    /// Returns how many groups are before the one that the flow goes to.
    #[inline(always)]
    fn put(&mut self, digest: u64, flow: usize) -> usize {
        let tag = self.tag(digest);
        let groups: &mut [[u32; GROUP]] = self.buckets[..self.used].as_chunks_mut().0;
        let mask = groups.len() - 1;
        let mut at = digest as usize;
        while empty_in(&groups[at & mask]) == 0 {
            at = at.wrapping_add(1);
        }
        let group = &mut groups[at & mask];
        group[empty_in(group).trailing_zeros() as usize & (GROUP - 1)] = tag | (flow as u32 + 1);
        at.wrapping_sub(digest as usize)
    }

    /// Whether an index of so many flows should grow before the next one.
    #[inline]
    fn is_full(&self, flows: usize) -> bool {
        flows == self.used / 2 && self.used < self.buckets.len()
    }

    /// Takes more buckets into use; `digests` are those of all flows, in the order of their numbers.
    #[cold]
    fn grow(&mut self, digests: impl Iterator<Item = u64>) {
        self.buckets[..self.used].fill(0);
        self.used = self.buckets.len().min(GROWTH * self.used);
        for (flow, digest) in digests.enumerate() {
            self.put(digest, flow);
        }
    }
}

impl Index for Groups {
    const BUCKET_BYTES: usize = size_of::<u32>();
    const FULL: (usize, usize) = (3, 4);

    fn new(buckets: usize, memory: &Memory) -> Result<Self, BuildError> {
        let number = (buckets - 1) as u32;
        let buckets = memory.zeroed(buckets.max(GROUP))?;
        Ok(Self { used: buckets.len().min(FIRST_BUCKETS), buckets, number })
    }

    fn buckets(&self) -> usize {
        self.number as usize + 1
    }

    #[inline(always)]
    fn prefetch(&self, digest: u64) {
        prefetch(self.groups(), digest as usize & (self.used / GROUP - 1));
    }

    #[inline(always)]
    fn guess(&self, digest: u64) -> usize {
        let groups = self.groups();
        let group = &groups[digest as usize & (groups.len() - 1)];
        let same = equal_in_group(group, !self.number, self.tag(digest));
        let bucket = group[same.trailing_zeros() as usize & (GROUP - 1)];
        ((bucket & self.number) as usize).wrapping_sub(1)
    }

    #[inline(always)]
    fn find(&self, digest: u64, is: impl Fn(usize) -> bool) -> Option<usize> {
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
            at = at.wrapping_add(1);
        }
    }

    #[inline(always)]
    fn insert(
        &mut self,
        digest: u64,
        flow: usize,
        digest_of: impl Fn(usize) -> u64,
        patience: Option<&mut Patience>,
    ) -> bool {
        if self.is_full(flow) {
            self.grow((0..flow).map(digest_of));
        }
        let steps = self.put(digest, flow);
        patience.is_none_or(|patience| patience.take(steps))
    }

    /// Anew, since a bucket emptied in between would cut the ways to others.
    fn renumber(&mut self, flows: impl Iterator<Item = (u64, Option<usize>)>) {
        self.buckets[..self.used].fill(0);
        for (digest, new) in flows {
            if let Some(flow) = new {
                self.put(digest, flow);
            }
        }
    }

    /// Makes the index so small that as many flows as before just find room: the cost is in
    /// proportion to them, however many there were once.
    fn clear(&mut self, digests: impl ExactSizeIterator<Item = u64>) {
        self.buckets[..self.used].fill(0);
        let least = FIRST_BUCKETS.min(self.buckets.len());
        self.used = (2 * digests.len()).next_power_of_two().clamp(least, self.buckets.len());
    }

    fn memory_bytes(&self) -> usize {
        self.buckets.memory_bytes()
    }
}

/// The empty buckets of a group, as bits.
#[inline(always)]
fn empty_in(group: &[u32; GROUP]) -> u32 {
    equal_in_group(group, u32::MAX, 0)
}
