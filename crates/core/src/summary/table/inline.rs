//! Keys with their states in the buckets of linear probing, as the papers have them.

use flowgauge_kernel::Digester;

use super::super::codec::Patience;
use super::super::state::State;
use super::super::{BuildError, Memory};
use super::layout::{Entry, Layout};
use super::probing::{Bucket, Probed};
use crate::key::FlowKey;

/// Empty while the state is nothing.
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

/// A flow's number is that of its bucket.
///
/// It does not grow: a flow that moved would have another number while a batch of packets goes by the
/// old one, and a table of the papers has the size that it is asked for.
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
        self.0.place(index)
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
    fn prefetch<const WHOLE: bool>(&self, digest: u64) {
        self.0.prefetch(digest);
    }

    #[inline(always)]
    fn guess<const WHOLE: bool>(&self, key: K, digest: u64) -> usize {
        self.0.guess(key, digest).unwrap_or(usize::MAX)
    }

    /// A guess is right, if it is one.
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
        _: Option<&mut Patience>,
    ) -> Option<usize> {
        let bucket = self.0.bucket(key, digest)?;
        self.0.fill(bucket, Entry { key, state: S::zeroed() }).then_some(bucket)
    }

    /// With one search for both.
    fn place(&mut self, key: K, digest: u64, _: &Digester) -> Option<usize> {
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
