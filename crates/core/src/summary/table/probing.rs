//! Linear probing over buckets of one item each, and the layout that keeps flows in them.
//!
//! Paper: Alipourfard et al., "A comparison of performance and accuracy of measurement algorithms
//! in software" (SOSR 2018), §3.

use std::hint::select_unpredictable;

use bytemuck::Zeroable;
use flowgauge_kernel::{Digester, Isa, Zeroed, prefetch};

use super::layout::{Entry, Layout};
use crate::key::FlowKey;
use crate::summary::codec::StepBudget;
use crate::summary::state::State;
use crate::summary::{BuildError, Memory, Parameter};

/// The parameter `buckets` of tables with linear probing.
pub(super) const BUCKETS: Parameter = Parameter {
    name: "buckets",
    help: "number of buckets, a power of two, of which three quarters can hold a flow (default: \
           what fits into the memory)",
};

/// The highest load factor. At 3/4 a search for a missing key takes 8 probes on average; at 7/8 it
/// would take 32, which an attacker who fills the table would exploit.
const FULL_NUMERATOR: usize = 3;
const FULL_DENOMINATOR: usize = 4;

/// Probes for a key at most. Of keys that do not collide on purpose, fewer than one in 10⁸ would
/// need more in a full table.
const MOST_PROBES: usize = 512;

/// Probes of a guess.
const GUESSED: usize = 16;

/// A bucket with its item. All zero is empty.
pub(super) trait Bucket: Copy + Zeroable + Send {
    type Key: FlowKey;
    fn key(&self) -> &Self::Key;
    fn is_empty(&self) -> bool;
}

/// A fixed number of buckets, a power of two. An item is in the first bucket that was empty when it
/// came, from the one that the low bits of its digest choose.
pub(super) struct Probed<B> {
    buckets: Zeroed<B>,
    /// The buckets of the items in the order of arrival.
    order: Zeroed<u32>,
    len: usize,
}

impl<B: Bucket> Probed<B> {
    /// Bytes per bucket, if each item takes `more` bytes elsewhere.
    pub(super) const fn bytes_per_bucket(more: usize) -> usize {
        let per_item = size_of::<u32>() + more;
        size_of::<B>() + (per_item * FULL_NUMERATOR).div_ceil(FULL_DENOMINATOR)
    }

    /// Reserves `buckets` buckets, a power of two.
    pub(super) fn new(buckets: usize, memory: &Memory) -> Result<Self, BuildError> {
        let most = (buckets * FULL_NUMERATOR / FULL_DENOMINATOR).max(1);
        Ok(Self { buckets: memory.zeroed(buckets)?, order: memory.zeroed(most)?, len: 0 })
    }

    pub(super) fn buckets(&self) -> usize {
        self.buckets.len()
    }

    /// The number of items.
    #[inline(always)]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The number of items that there is room for.
    pub(super) fn most(&self) -> usize {
        self.order.len()
    }

    /// The bucket of the item with this index in the order of arrival.
    pub(super) fn bucket_of(&self, index: usize) -> usize {
        self.order[index] as usize
    }

    #[inline(always)]
    pub(super) fn get(&self, bucket: usize) -> &B {
        &self.buckets[bucket]
    }

    #[inline(always)]
    pub(super) fn get_mut(&mut self, bucket: usize) -> &mut B {
        &mut self.buckets[bucket]
    }

    #[inline(always)]
    fn home(&self, digest: u64) -> usize {
        digest as usize & (self.buckets.len() - 1)
    }

    /// Prefetches the first bucket of a search.
    #[inline(always)]
    pub(super) fn prefetch(&self, digest: u64) {
        prefetch(&self.buckets, self.home(digest));
    }

    /// The bucket of this key, or the empty one where it would go, within so many `probes`.
    #[inline(always)]
    fn bucket_within(&self, probes: usize, key: B::Key, digest: u64) -> Option<usize> {
        let buckets = &self.buckets[..];
        let home = self.home(digest);
        for probed in home..home + probes {
            let at = probed & (buckets.len() - 1);
            if *buckets[at].key() == key || buckets[at].is_empty() {
                return Some(at);
            }
        }
        None
    }

    /// The bucket of this key, or the empty one where it would go, if there is one within reach.
    #[inline(always)]
    pub(super) fn bucket(&self, key: B::Key, digest: u64) -> Option<usize> {
        self.bucket_within(MOST_PROBES, key, digest)
    }

    /// The bucket of this key, if it has one.
    #[inline(always)]
    pub(super) fn find(&self, key: B::Key, digest: u64) -> Option<usize> {
        self.bucket(key, digest).filter(|bucket| !self.buckets[*bucket].is_empty())
    }

    /// As [`Self::find`], but gives up after a few probes: most keys are near their first bucket.
    /// Which of the first two buckets has the key is unpredictable, so no branch decides it.
    #[inline(always)]
    pub(super) fn guess(&self, key: B::Key, digest: u64) -> Option<usize> {
        let (first, second) = (self.home(digest), self.home(digest.wrapping_add(1)));
        let bucket = select_unpredictable(*self.buckets[first].key() == key, first, second);
        let found = if *self.buckets[bucket].key() == key {
            Some(bucket)
        } else {
            self.bucket_within(GUESSED, key, digest)
        };
        found.filter(|bucket| !self.buckets[*bucket].is_empty())
    }

    /// Writes a new item to an empty bucket; returns whether there is room for it.
    pub(super) fn fill(&mut self, bucket: usize, item: B) -> bool {
        let Some(slot) = self.order.get_mut(self.len) else { return false };
        *slot = bucket as u32;
        self.buckets[bucket] = item;
        self.len += 1;
        true
    }

    /// Keeps the items that `stays` accepts, in their order; it is given the index that each item
    /// would then have.
    ///
    /// Each item moves to where it would be if the others had never come. Items that it probes past
    /// came earlier, and so are in their final buckets already.
    pub(super) fn retain(
        &mut self,
        digester: &Digester,
        mut stays: impl FnMut(usize, &mut B) -> bool,
    ) {
        let mut kept = 0;
        for index in 0..self.len {
            let old = self.bucket_of(index);
            let mut item = std::mem::replace(&mut self.buckets[old], B::zeroed());
            if stays(kept, &mut item) {
                // No further away than before, so the search always succeeds.
                let found = self.bucket(*item.key(), item.key().digest(digester));
                let new = found.unwrap_or(old);
                self.buckets[new] = item;
                self.order[kept] = new as u32;
                kept += 1;
            }
        }
        self.len = kept;
    }

    /// Removes all items, at a cost in proportion to their number.
    pub(super) fn clear(&mut self) {
        for &bucket in &self.order[..self.len] {
            self.buckets[bucket as usize] = B::zeroed();
        }
        self.len = 0;
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.buckets.memory_bytes() + self.order.memory_bytes()
    }
}

/// A bucket of [`Inline`], empty while the state is.
impl<K: FlowKey, S: State> Bucket for Entry<K, S> {
    type Key = K;

    #[inline(always)]
    fn key(&self) -> &K {
        &self.key
    }

    #[inline(always)]
    fn is_empty(&self) -> bool {
        self.state.is_nothing()
    }
}

/// Keys and states in the buckets of linear probing, as in the papers. A flow's number is that of
/// its bucket.
///
/// The table does not grow: flows would get new numbers in the middle of a batch, which uses the
/// old ones; and the papers' tables have a fixed size.
pub(in crate::summary) struct Inline<K, S>(Probed<Entry<K, S>>);

impl<K: FlowKey, S: State> Layout<K, S> for Inline<K, S> {
    const NAME: Option<&'static str> = Some("inline");
    const IN_BUCKETS: bool = true;

    fn bytes_per_bucket(more: usize) -> usize {
        Probed::<Entry<K, S>>::bytes_per_bucket(more)
    }

    fn new(buckets: usize, memory: &Memory) -> Result<Self, BuildError> {
        Ok(Self(Probed::new(buckets, memory)?))
    }

    fn buckets(&self) -> usize {
        self.0.buckets()
    }

    #[inline(always)]
    fn len(&self) -> usize {
        self.0.len()
    }

    fn most(&self) -> usize {
        self.0.most()
    }

    fn flow(&self, index: usize) -> usize {
        self.0.bucket_of(index)
    }

    fn key(&self, flow: usize) -> &K {
        &self.0.get(flow).key
    }

    #[inline(always)]
    fn state(&self, flow: usize) -> &S {
        &self.0.get(flow).state
    }

    #[inline(always)]
    fn state_mut(&mut self, flow: usize) -> &mut S {
        &mut self.0.get_mut(flow).state
    }

    #[inline(always)]
    fn look_up(&self, keys: &[K], digests: &[u64], _: Isa, guesses: &mut [usize]) {
        for &digest in digests {
            self.0.prefetch(digest);
        }
        for ((guess, &key), &digest) in guesses.iter_mut().zip(keys).zip(digests) {
            *guess = self.0.guess(key, digest).unwrap_or(usize::MAX);
        }
    }

    /// A guess is never wrong.
    #[inline(always)]
    fn guessed(&mut self, guess: usize, _: K) -> Option<&mut S> {
        (guess != usize::MAX).then(|| &mut self.0.get_mut(guess).state)
    }

    #[inline(always)]
    fn find(&self, key: K, digest: u64) -> Option<usize> {
        self.0.find(key, digest)
    }

    #[inline(never)]
    fn insert(
        &mut self,
        key: K,
        digest: u64,
        _: &Digester,
        _: Option<&mut StepBudget>,
    ) -> Option<usize> {
        let bucket = self.0.bucket(key, digest)?;
        self.0.fill(bucket, Entry { key, state: S::zeroed() }).then_some(bucket)
    }

    /// One search both finds the flow and the bucket where it would go.
    fn find_or_insert(&mut self, key: K, digest: u64, _: &Digester) -> Option<usize> {
        let bucket = self.0.bucket(key, digest)?;
        let is_there = !self.0.get(bucket).is_empty();
        (is_there || self.0.fill(bucket, Entry { key, state: S::zeroed() })).then_some(bucket)
    }

    fn retain(&mut self, digester: &Digester, stays: &mut dyn FnMut(&mut S) -> bool) {
        self.0.retain(digester, |_, entry| stays(&mut entry.state));
    }

    fn clear(&mut self, _: &Digester) {
        self.0.clear();
    }

    fn memory_bytes(&self) -> usize {
        self.0.memory_bytes()
    }
}
