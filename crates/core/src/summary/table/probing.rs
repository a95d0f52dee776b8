//! Linear probing over the numbers of flows.

use flowgauge_kernel::{Zeroed, prefetch};

use super::super::{BuildError, Memory};
use super::layout::Index;

/// Buckets that hold a flow's number, counted from 1, in the bits that the largest number needs, and
/// bits of the digest in the others; 0 is empty. Three quarters are occupied at most.
pub(super) struct Probing {
    buckets: Zeroed<u32>,
    /// The bits of a bucket that hold the number.
    number: u32,
}

impl Probing {
    #[inline(always)]
    fn bucket(&self, digest: u64, flow: usize) -> u32 {
        (digest >> 32) as u32 & !self.number | (flow as u32 + 1)
    }

    #[inline(always)]
    fn flow(&self, bucket: u32) -> usize {
        ((bucket & self.number) as usize).wrapping_sub(1)
    }

    /// The first bucket of the digest's way that is empty or `is` the one.
    #[inline(always)]
    fn probe(&self, digest: u64, is: impl Fn(u32) -> bool) -> usize {
        let buckets = &self.buckets[..];
        let mask = buckets.len() - 1;
        let mut at = digest as usize & mask;
        // Ends, since a quarter of the buckets is always empty.
        while buckets[at] != 0 && !is(buckets[at]) {
            at = (at + 1) & mask;
        }
        at
    }

    #[inline(always)]
    fn put(&mut self, digest: u64, flow: usize) {
        let at = self.probe(digest, |_| false);
        self.buckets[at] = self.bucket(digest, flow);
    }
}

impl Index for Probing {
    const BUCKET_BYTES: usize = size_of::<u32>();
    const FULL: (usize, usize) = (3, 4);

    fn new(buckets: usize, memory: &Memory) -> Result<Self, BuildError> {
        Ok(Self { buckets: memory.zeroed(buckets)?, number: (buckets - 1) as u32 })
    }

    fn buckets(&self) -> usize {
        self.buckets.len()
    }

    #[inline(always)]
    fn prefetch(&self, digest: u64) {
        prefetch(&self.buckets, digest as usize & (self.buckets.len() - 1));
    }

    #[inline(always)]
    fn guess(&self, digest: u64) -> usize {
        let tag = self.bucket(digest, 0) & !self.number;
        let at = self.probe(digest, |bucket| bucket & !self.number == tag);
        self.flow(self.buckets[at])
    }

    #[inline(always)]
    fn find(&self, digest: u64, is: impl Fn(usize) -> bool) -> Option<usize> {
        let tag = self.bucket(digest, 0) & !self.number;
        let same = |bucket| bucket & !self.number == tag && is(self.flow(bucket));
        let bucket = self.buckets[self.probe(digest, same)];
        (bucket != 0).then(|| self.flow(bucket))
    }

    #[inline(always)]
    fn insert(&mut self, digest: u64, flow: usize, _: impl Fn(usize) -> u64, _: bool) -> bool {
        self.put(digest, flow);
        true
    }

    /// Anew, since a bucket emptied in between would cut the ways to others.
    fn renumber(&mut self, flows: impl Iterator<Item = (u64, Option<usize>)>) {
        self.buckets.fill(0);
        for (digest, new) in flows {
            if let Some(flow) = new {
                self.put(digest, flow);
            }
        }
    }

    /// Each way is emptied to its end: whichever flow of a run comes first takes those behind it along.
    fn clear(&mut self, digests: impl ExactSizeIterator<Item = u64>) {
        let mask = self.buckets.len() - 1;
        for digest in digests {
            let mut at = digest as usize & mask;
            while self.buckets[at] != 0 {
                self.buckets[at] = 0;
                at = (at + 1) & mask;
            }
        }
    }

    fn memory_bytes(&self) -> usize {
        self.buckets.memory_bytes()
    }
}
