//! Where a table keeps its flows, and how it finds them.

use bytemuck::Zeroable;
use flowgauge_kernel::{Digester, Zeroed, prefetch};

use super::super::codec::Patience;
use super::super::state::State;
use super::super::{BuildError, Memory};
use crate::key::FlowKey;

/// The flows of a table with their states, each with a number that stays until another epoch begins
/// or flows are dropped: from 0 in the order of arrival, or that of its bucket.
pub(in crate::summary) trait Layout<K: FlowKey, S: State>:
    Send + Sized + 'static
{
    /// The word of the parameter `layout`, where that is not the default.
    const NAME: Option<&'static str> = None;
    /// Whether flows stay in buckets that are empty while the state is nothing. So a flow that found no
    /// room finds none later in the epoch, and no flow is kept without a packet.
    const IN_BUCKETS: bool = false;

    /// Bytes for each bucket and a full table's share of flows in it, of which each has so many
    /// `more` elsewhere.
    fn bytes_per_bucket(more: usize) -> usize;
    /// Reserves `buckets` buckets, a power of two.
    fn new(buckets: usize, memory: &Memory) -> Result<Self, BuildError>;
    fn buckets(&self) -> usize;
    /// Flows that there are.
    fn len(&self) -> usize;
    /// Flows that there is room for.
    fn most(&self) -> usize;
    /// The number of the flow that came as the one with this index, counted from 0.
    fn flow(&self, index: usize) -> usize {
        index
    }
    fn key(&self, flow: usize) -> &K;
    fn state(&self, flow: usize) -> &S;
    fn state_mut(&mut self, flow: usize) -> &mut S;
    /// Whether nothing is in two parts for the time of growing: searches are shorter then, and `WHOLE` says
    /// so.
    fn is_whole(&self) -> bool {
        true
    }
    /// Asks for the cache lines that [`Self::guess`] reads.
    fn prefetch<const WHOLE: bool>(&self, digest: u64);
    /// The number of the flow that may have this key, and asks for the cache lines of its state; it
    /// is no flow's number where there is none to guess.
    fn guess<const WHOLE: bool>(&self, key: K, digest: u64) -> usize;
    /// The state of the flow guessed, if it has the key.
    fn guessed(&mut self, guess: usize, key: K) -> Option<&mut S>;
    /// The number of the flow with this key.
    fn find(&self, key: K, digest: u64) -> Option<usize>;
    /// Adds a flow that is not there, its state all zero; `None` where it finds no room. With
    /// `patience` no effort is spared while that lasts, and the table may be broken where it was in
    /// vain.
    fn insert(
        &mut self,
        key: K,
        digest: u64,
        digester: &Digester,
        patience: Option<&mut Patience>,
    ) -> Option<usize>;
    /// The number of the flow with this key, made where there is none; `None` where it finds no room.
    fn place(&mut self, key: K, digest: u64, digester: &Digester) -> Option<usize> {
        let found = self.find(key, digest);
        found.or_else(|| self.insert(key, digest, digester, None))
    }
    /// Keeps the flows whose state is to stay, in their order.
    fn retain(&mut self, digester: &Digester, stays: &mut dyn FnMut(&mut S) -> bool);
    /// Forgets all flows, at a cost in proportion to their number.
    fn clear(&mut self, digester: &Digester);
    /// Makes the empty table ready for so many flows, in any order.
    fn expect(&mut self, flows: usize) {
        let _ = flows;
    }
    /// Goes on growing, by as much as a batch of packets can wait for.
    fn go_on(&mut self, digester: &Digester) {
        let _ = digester;
    }
    fn memory_bytes(&self) -> usize;
}

/// Finds the numbers of flows by the digests of their keys.
pub(in crate::summary) trait Index: Send + Sized + 'static {
    /// Bytes for each bucket.
    const BUCKET_BYTES: usize;
    /// Flows that a full table has, of `buckets` buckets: the numerator and the denominator.
    const FULL: (usize, usize);
    fn new(buckets: usize, memory: &Memory) -> Result<Self, BuildError>;
    fn buckets(&self) -> usize;
    /// As [`Layout::is_whole`].
    fn is_whole(&self) -> bool {
        true
    }
    /// Asks for the cache lines that [`Self::guess`] reads.
    fn prefetch<const WHOLE: bool>(&self, digest: u64);
    /// A flow that may have this digest; no flow's number where there is none to guess.
    fn guess<const WHOLE: bool>(&self, digest: u64) -> usize;
    /// The flow of this digest that `is` the one.
    fn find(&self, digest: u64, is: impl Fn(usize) -> bool) -> Option<usize>;
    /// Adds the flow number `flow`, which is not there; `digest_of` gives those of the flows before
    /// it, and `ahead` asks for what that reads, if it is a flow. Without room it returns `false`, unless
    /// there was `patience`.
    fn insert(
        &mut self,
        digest: u64,
        flow: usize,
        ahead: impl Fn(usize),
        digest_of: impl Fn(usize) -> u64,
        patience: Option<&mut Patience>,
    ) -> bool;
    /// Gives all flows new numbers, which are no larger, or none: `flows` has their digests and new
    /// numbers in the order of the old ones.
    fn renumber(&mut self, flows: impl Iterator<Item = (u64, Option<usize>)>);
    /// Forgets all flows; `digests` are theirs.
    fn clear(&mut self, digests: impl ExactSizeIterator<Item = u64>);
    /// Makes the empty index ready for so many flows, in any order.
    fn expect(&mut self, flows: usize) {
        let _ = flows;
    }
    /// As [`Layout::go_on`], with the two of [`Self::insert`].
    fn go_on(&mut self, ahead: impl Fn(usize), digest_of: impl Fn(usize) -> u64) {
        let _ = (ahead, digest_of);
    }
    fn memory_bytes(&self) -> usize;
}

/// Key and state side by side.
#[derive(Clone, Copy, Zeroable)]
#[repr(C)]
pub(super) struct Entry<K, S> {
    pub(super) key: K,
    pub(super) state: S,
}

/// An index in front of an array of keys with their states.
pub(in crate::summary) struct Records<K, S, I> {
    index: I,
    entries: Zeroed<Entry<K, S>>,
    len: usize,
}

impl<K: FlowKey, S: State, I: Index> Records<K, S, I> {
    /// Buckets for each flow of [`Self::with_room`]: half of them are empty.
    const BUCKETS_PER_FLOW: usize = 2;

    /// Bytes that [`Self::with_room`] reserves for each flow.
    pub(in crate::summary) const fn bytes_per_flow() -> usize {
        Self::BUCKETS_PER_FLOW * I::BUCKET_BYTES + size_of::<Entry<K, S>>()
    }

    /// Reserves room for `most` flows, a power of two up to 2³¹.
    pub(in crate::summary) fn with_room(most: usize, memory: &Memory) -> Result<Self, BuildError> {
        let index = I::new(Self::BUCKETS_PER_FLOW * most, memory)?;
        Ok(Self { index, entries: memory.zeroed(most)?, len: 0 })
    }
}

/// Asks for a flow.
fn ahead<K: FlowKey, S: State>(entries: &[Entry<K, S>]) -> impl Fn(usize) {
    move |flow| prefetch(entries, flow)
}

/// The digest of a flow.
fn digest_of<K: FlowKey, S: State>(
    entries: &[Entry<K, S>],
    digester: &Digester,
) -> impl Fn(usize) -> u64 {
    move |flow| entries[flow].key.digest(digester)
}

impl<K: FlowKey, S: State, I: Index> Layout<K, S> for Records<K, S, I> {
    fn bytes_per_bucket(more: usize) -> usize {
        let (numerator, denominator) = I::FULL;
        I::BUCKET_BYTES + ((size_of::<Entry<K, S>>() + more) * numerator).div_ceil(denominator)
    }

    fn new(buckets: usize, memory: &Memory) -> Result<Self, BuildError> {
        let (numerator, denominator) = I::FULL;
        let most = (buckets * numerator / denominator).max(1);
        Ok(Self { index: I::new(buckets, memory)?, entries: memory.zeroed(most)?, len: 0 })
    }

    fn buckets(&self) -> usize {
        self.index.buckets()
    }

    #[inline(always)]
    fn len(&self) -> usize {
        self.len
    }

    fn most(&self) -> usize {
        self.entries.len()
    }

    fn key(&self, flow: usize) -> &K {
        &self.entries[flow].key
    }

    #[inline(always)]
    fn state(&self, flow: usize) -> &S {
        &self.entries[flow].state
    }

    #[inline(always)]
    fn state_mut(&mut self, flow: usize) -> &mut S {
        &mut self.entries[flow].state
    }

    #[inline(always)]
    fn is_whole(&self) -> bool {
        self.index.is_whole()
    }

    #[inline(always)]
    fn prefetch<const WHOLE: bool>(&self, digest: u64) {
        self.index.prefetch::<WHOLE>(digest);
    }

    #[inline(always)]
    fn guess<const WHOLE: bool>(&self, _: K, digest: u64) -> usize {
        let guess = self.index.guess::<WHOLE>(digest);
        prefetch(&self.entries, guess);
        guess
    }

    #[inline(always)]
    fn guessed(&mut self, guess: usize, key: K) -> Option<&mut S> {
        let entry = self.entries[..self.len].get_mut(guess)?;
        (entry.key == key).then_some(&mut entry.state)
    }

    #[inline(always)]
    fn find(&self, key: K, digest: u64) -> Option<usize> {
        self.index.find(digest, |flow| self.entries[flow].key == key)
    }

    #[inline(never)]
    fn insert(
        &mut self,
        key: K,
        digest: u64,
        digester: &Digester,
        patience: Option<&mut Patience>,
    ) -> Option<usize> {
        let flow = self.len;
        let entries = &self.entries;
        if flow == entries.len() {
            return None;
        }
        let found_room = {
            let (ahead, digest_of) = (ahead(entries), digest_of(entries, digester));
            self.index.insert(digest, flow, &ahead, &digest_of, patience)
        };
        if !found_room {
            return None;
        }
        self.entries[flow] = Entry { key, state: S::zeroed() };
        self.len += 1;
        Some(flow)
    }

    fn retain(&mut self, digester: &Digester, stays: &mut dyn FnMut(&mut S) -> bool) {
        let entries = &mut self.entries[..self.len];
        let mut kept = 0;
        self.index.renumber((0..entries.len()).map(|flow| {
            let Entry { key, mut state } = entries[flow];
            let new = stays(&mut state).then_some(kept);
            if new.is_some() {
                entries[kept] = Entry { key, state };
                kept += 1;
            }
            (key.digest(digester), new)
        }));
        self.len = kept;
    }

    fn clear(&mut self, digester: &Digester) {
        let entries = &self.entries[..self.len];
        self.index.clear(entries.iter().map(|entry| entry.key.digest(digester)));
        self.len = 0;
    }

    fn expect(&mut self, flows: usize) {
        self.index.expect(flows);
    }

    #[inline]
    fn go_on(&mut self, digester: &Digester) {
        let entries = &self.entries;
        self.index.go_on(ahead(entries), digest_of(entries, digester));
    }

    fn memory_bytes(&self) -> usize {
        self.index.memory_bytes() + self.entries.memory_bytes()
    }
}
