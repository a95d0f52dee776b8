//! Linear probing over buckets of one item each.
//!
//! Paper: Alipourfard et al., "A comparison of performance and accuracy of measurement algorithms
//! in software" (SOSR 2018), §3.

use std::hint::select_unpredictable;

use bytemuck::Zeroable;
use flowgauge_kernel::{Digester, Zeroed, prefetch};

use super::super::{BuildError, Memory};
use crate::key::FlowKey;

/// Share of the buckets that may be occupied: beyond 3/4 the probes for keys that are not there
/// grow from 8 buckets to 32 (at 7/8), which an attacker who fills the table would choose.
const FULL_NUMERATOR: usize = 3;
const FULL_DENOMINATOR: usize = 4;

/// Buckets that are probed for a key. Of keys that do not collide on purpose fewer than one in 10⁸
/// would be further away in a full table.
const MOST_PROBES: usize = 512;

/// Buckets that a guess looks at.
const GUESSED: usize = 16;

/// A bucket with its item. All zero is empty.
pub(super) trait Bucket: Copy + Zeroable + Send {
    type Key: FlowKey;
    fn key(&self) -> &Self::Key;
    fn is_empty(&self) -> bool;
}

/// A power of two of buckets, all of them there from the start. An item is in the first bucket that
/// was empty when it came, from the one on that the low bits of its digest name.
pub(super) struct Probed<B> {
    buckets: Zeroed<B>,
    /// The buckets of the items, in the order of arrival.
    places: Zeroed<u32>,
    len: usize,
}

impl<B: Bucket> Probed<B> {
    /// Bytes for each bucket, where each item has so many `more` elsewhere.
    pub(super) const fn bytes_per_bucket(more: usize) -> usize {
        let per_item = size_of::<u32>() + more;
        size_of::<B>() + (per_item * FULL_NUMERATOR).div_ceil(FULL_DENOMINATOR)
    }

    /// Reserves `buckets` buckets, a power of two.
    pub(super) fn new(buckets: usize, memory: &Memory) -> Result<Self, BuildError> {
        let most = (buckets * FULL_NUMERATOR / FULL_DENOMINATOR).max(1);
        Ok(Self { buckets: memory.zeroed(buckets)?, places: memory.zeroed(most)?, len: 0 })
    }

    pub(super) fn buckets(&self) -> usize {
        self.buckets.len()
    }

    /// Items that there are.
    #[inline(always)]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Items that there is room for.
    pub(super) fn most(&self) -> usize {
        self.places.len()
    }

    /// The bucket of the item that came as number `index`.
    pub(super) fn place(&self, index: usize) -> usize {
        self.places[index] as usize
    }

    #[inline(always)]
    pub(super) fn get(&self, bucket: usize) -> &B {
        &self.buckets[bucket]
    }

    /// The same, to change it.
    #[inline(always)]
    pub(super) fn get_mut(&mut self, bucket: usize) -> &mut B {
        &mut self.buckets[bucket]
    }

    #[inline(always)]
    fn home(&self, digest: u64) -> usize {
        digest as usize & (self.buckets.len() - 1)
    }

    /// Asks for the cache lines where the search for a digest begins.
    #[inline(always)]
    pub(super) fn prefetch(&self, digest: u64) {
        prefetch(&self.buckets, self.home(digest));
    }

    /// The bucket of this key, or the empty one where it would go, if there is one among so many.
    #[inline(always)]
    fn among(&self, probes: usize, key: B::Key, digest: u64) -> Option<usize> {
        let buckets = &self.buckets[..];
        let home = self.home(digest);
        let way = (home..home + probes).map(|bucket| bucket & (buckets.len() - 1));
        way.into_iter().find(|at| *buckets[*at].key() == key || buckets[*at].is_empty())
    }

    /// The bucket of this key, or the empty one where it would go, if there is one near enough.
    #[inline(always)]
    pub(super) fn bucket(&self, key: B::Key, digest: u64) -> Option<usize> {
        self.among(MOST_PROBES, key, digest)
    }

    /// The bucket of this key, if it is there.
    #[inline(always)]
    pub(super) fn find(&self, key: B::Key, digest: u64) -> Option<usize> {
        self.bucket(key, digest).filter(|bucket| !self.buckets[*bucket].is_empty())
    }

    /// The same of a key that is mostly there and not far away, or else `None`. Which of the first two
    /// buckets has it cannot be foreseen, and is chosen without a branch.
    #[inline(always)]
    pub(super) fn guess(&self, key: B::Key, digest: u64) -> Option<usize> {
        let (first, second) = (self.home(digest), self.home(digest.wrapping_add(1)));
        let bucket = select_unpredictable(*self.buckets[first].key() == key, first, second);
        let found = if *self.buckets[bucket].key() == key {
            Some(bucket)
        } else {
            self.among(GUESSED, key, digest)
        };
        found.filter(|bucket| !self.buckets[*bucket].is_empty())
    }

    /// Puts a new item into an empty bucket; returns whether there is room for it.
    pub(super) fn fill(&mut self, bucket: usize, item: B) -> bool {
        let Some(place) = self.places.get_mut(self.len) else { return false };
        *place = bucket as u32;
        self.buckets[bucket] = item;
        self.len += 1;
        true
    }

    /// Keeps the items that stay, in their order; `stays` gets the number that each would then have.
    ///
    /// Each is put where it would be had the others never come. Those on its way came before it, and
    /// stand where they are to stay.
    pub(super) fn retain(
        &mut self,
        digester: &Digester,
        mut stays: impl FnMut(usize, &mut B) -> bool,
    ) {
        let mut kept = 0;
        for index in 0..self.len {
            let place = self.place(index);
            let mut item = std::mem::replace(&mut self.buckets[place], B::zeroed());
            if stays(kept, &mut item) {
                // No further away than it was.
                let found = self.bucket(*item.key(), item.key().digest(digester));
                let place = found.unwrap_or(place);
                self.buckets[place] = item;
                self.places[kept] = place as u32;
                kept += 1;
            }
        }
        self.len = kept;
    }

    /// Forgets all items, at a cost in proportion to their number.
    pub(super) fn clear(&mut self) {
        for &place in &self.places[..self.len] {
            self.buckets[place as usize] = B::zeroed();
        }
        self.len = 0;
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.buckets.memory_bytes() + self.places.memory_bytes()
    }
}
