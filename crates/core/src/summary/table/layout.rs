//! Where an exact table keeps its flows ([`Layout`]), and how it finds them ([`Index`]).

use std::cmp::Ordering;

use bytemuck::Zeroable;
use flowgauge_kernel::{Digester, Isa, Zeroed, prefetch};

use crate::key::FlowKey;
use crate::summary::codec::StepBudget;
use crate::summary::state::State;
use crate::summary::{BuildError, Memory};

/// The flows of a table and their states. A flow has a number until the epoch ends or flows are
/// dropped: its index in the order of arrival, or that of its bucket.
pub(in crate::summary) trait Layout<K: FlowKey, S: State>:
    Send + Sized + 'static
{
    /// The value of the parameter `layout`; `None` for the default.
    const NAME: Option<&'static str> = None;
    /// Whether flows stay in their buckets, which count as empty while the state is. Then a flow
    /// that found no room finds none later in the epoch, and no flow is kept without a packet.
    const IN_BUCKETS: bool = false;

    /// Bytes per bucket of a full table, its flows included, if each flow takes `more` bytes
    /// elsewhere.
    fn bytes_per_bucket(more: usize) -> usize;
    /// Reserves `buckets` buckets, a power of two.
    fn new(buckets: usize, memory: &Memory) -> Result<Self, BuildError>;
    fn buckets(&self) -> usize;
    /// The number of flows.
    fn len(&self) -> usize;
    /// The number of flows that there is room for.
    fn most(&self) -> usize;
    /// The number of the flow with this index in the order of arrival.
    fn flow(&self, index: usize) -> usize {
        index
    }
    fn key(&self, flow: usize) -> &K;
    fn state(&self, flow: usize) -> &S;
    fn state_mut(&mut self, flow: usize) -> &mut S;
    /// Prefetches the flow with this index in the order of arrival.
    fn prefetch_flow(&self, index: usize) {
        let _ = index;
    }
    /// Guesses the flow of each key, and prefetches its state: the number of the flow that probably
    /// has the key; any or an unused one if there is none.
    fn look_up(&self, keys: &[K], digests: &[u64], isa: Isa, guesses: &mut [usize]);
    /// Whether a key with this guess may be in the table, or may be inserted.
    fn may_have(guess: usize) -> bool {
        let _ = guess;
        true
    }
    /// The state of the guessed flow, if it has this key.
    fn guessed(&mut self, guess: usize, key: K) -> Option<&mut S>;
    /// The number of the flow with this key.
    fn find(&self, key: K, digest: u64) -> Option<usize>;
    /// Inserts a flow that is not in the table, with an all-zero state; `None` if it finds no room.
    /// With a `budget` it searches until that is spent; after a failure the table is then unusable.
    fn insert(
        &mut self,
        key: K,
        digest: u64,
        digester: &Digester,
        budget: Option<&mut StepBudget>,
    ) -> Option<usize>;
    /// The number of the flow with this key, inserted if it is new; `None` if it finds no room.
    fn find_or_insert(&mut self, key: K, digest: u64, digester: &Digester) -> Option<usize> {
        let found = self.find(key, digest);
        found.or_else(|| self.insert(key, digest, digester, None))
    }
    /// Inserts a flow whose key follows those of all flows so far, as [`Self::insert`] does. Its
    /// entry in the index may be deferred to [`Self::build_index`].
    fn append(&mut self, key: K, digester: &Digester, budget: &mut StepBudget) -> Option<usize> {
        self.insert(key, key.digest(digester), digester, Some(budget))
    }
    /// Whether the flows are sorted by their keys, and their index is deferred.
    fn is_sorted(&self) -> bool {
        false
    }
    /// Builds the deferred index. Flows that find no room in it are removed, and `lost` gets their
    /// states.
    fn build_index(&mut self, digester: &Digester, lost: &mut dyn FnMut(&S)) {
        let _ = (digester, lost);
    }
    /// Merges the flows of another table by the order of keys, and the states of flows in both by
    /// `merge`. Returns `false`, without a change, unless both tables are
    /// [sorted](Self::is_sorted), all flows have room, and this is faster than by the index.
    fn merge_sorted(&mut self, other: &Self, merge: &mut dyn FnMut(&mut S, &S)) -> bool {
        let _ = (other, merge);
        false
    }
    /// Keeps the flows whose state `stays` accepts, in their order.
    fn retain(&mut self, digester: &Digester, stays: &mut dyn FnMut(&mut S) -> bool);
    /// Removes all flows, at a cost in proportion to their number.
    fn clear(&mut self, digester: &Digester);
    /// Grows a step ahead of a batch, as far as packets can wait for it.
    fn grow_ahead(&mut self, digester: &Digester) {
        let _ = digester;
    }
    fn memory_bytes(&self) -> usize;
}

/// A hash index: from the digest of a key to the number of its flow.
pub(in crate::summary) trait Index: Send + Sized + 'static {
    /// Bytes per bucket.
    const BUCKET_BYTES: usize;
    /// Flows per bucket of a full table, as numerator and denominator.
    const MAX_LOAD: (usize, usize);
    /// Whether stored flows do without the index until they need it: where building it always ends
    /// soon, whatever their keys are.
    const DEFERRED: bool = false;
    fn new(buckets: usize, memory: &Memory) -> Result<Self, BuildError>;
    fn buckets(&self) -> usize;
    /// As [`Layout::look_up`], without a prefetch of the states.
    fn look_up(&self, digests: &[u64], isa: Isa, guesses: &mut [usize]);
    /// The flow of this digest that `is` accepts.
    fn find(&self, digest: u64, is: impl Fn(usize) -> bool) -> Option<usize>;
    /// Inserts the number of a new flow; returns whether it found room. `digest_of` gives the
    /// digests of earlier flows, and `ahead` prefetches what it reads. As to `budget` see
    /// [`Layout::insert`].
    fn insert(
        &mut self,
        digest: u64,
        flow: usize,
        ahead: impl Fn(usize),
        digest_of: impl Fn(usize) -> u64,
        budget: Option<&mut StepBudget>,
    ) -> bool;
    /// Renumbers all flows: `flows` has their digests and new numbers in the order of the old ones.
    /// A new number is never larger than the old one; `None` removes the flow.
    fn renumber(&mut self, flows: impl Iterator<Item = (u64, Option<usize>)>);
    /// Removes all flows, which have these `digests`.
    fn clear(&mut self, digests: impl ExactSizeIterator<Item = u64>);
    /// Sizes the empty index for so many flows.
    fn size_for(&mut self, flows: usize) {
        let _ = flows;
    }
    /// As [`Layout::grow_ahead`], with the closures of [`Self::insert`].
    fn grow_ahead(&mut self, ahead: impl Fn(usize), digest_of: impl Fn(usize) -> u64) {
        let _ = (ahead, digest_of);
    }
    fn memory_bytes(&self) -> usize;
}

/// How many times as many flows as are merged may be in a table that stays sorted: moving a flow
/// takes a sixth of the time of finding one by the index.
const MOST_SORTED: usize = 4;

/// How many flows ahead of the last one the memory of new flows is prefetched.
const AHEAD: usize = 16;

/// A flow's key and state side by side.
#[derive(Clone, Copy, Zeroable)]
#[repr(C)]
pub(super) struct Entry<K, S> {
    pub(super) key: K,
    pub(super) state: S,
}

/// An array of flows in the order of arrival, found by an index.
///
/// Stored flows are sorted by their keys. While all flows are, the index is empty: a stored table is
/// mostly merged with another, or visited, which is sequential then.
pub(in crate::summary) struct Records<K, S, I> {
    index: I,
    entries: Zeroed<Entry<K, S>>,
    len: usize,
    sorted: bool,
}

impl<K: FlowKey, S: State, I: Index> Records<K, S, I> {
    /// Whether the index of appended flows is deferred. States that outlive the epoch refer to flows
    /// by numbers, which change in merges of sorted flows.
    const DEFERRED: bool = I::DEFERRED && !S::LASTING;
    /// Buckets per flow of [`Self::with_room`]: half of them stay empty.
    const BUCKETS_PER_FLOW: usize = 2;

    /// Bytes per flow that [`Self::with_room`] reserves.
    pub(in crate::summary) const fn bytes_per_flow() -> usize {
        Self::BUCKETS_PER_FLOW * I::BUCKET_BYTES + size_of::<Entry<K, S>>()
    }

    /// Reserves room for `most` flows, a power of two up to 2³¹.
    pub(in crate::summary) fn with_room(most: usize, memory: &Memory) -> Result<Self, BuildError> {
        let index = I::new(Self::BUCKETS_PER_FLOW * most, memory)?;
        Ok(Self { index, entries: memory.zeroed(most)?, len: 0, sorted: false })
    }
}

/// Prefetches a flow.
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
        let (numerator, denominator) = I::MAX_LOAD;
        I::BUCKET_BYTES + ((size_of::<Entry<K, S>>() + more) * numerator).div_ceil(denominator)
    }

    fn new(buckets: usize, memory: &Memory) -> Result<Self, BuildError> {
        let (numerator, denominator) = I::MAX_LOAD;
        let most = (buckets * numerator / denominator).max(1);
        let index = I::new(buckets, memory)?;
        Ok(Self { index, entries: memory.zeroed(most)?, len: 0, sorted: false })
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
    fn prefetch_flow(&self, index: usize) {
        prefetch(&self.entries, index);
    }

    #[inline(always)]
    fn look_up(&self, _: &[K], digests: &[u64], isa: Isa, guesses: &mut [usize]) {
        self.index.look_up(digests, isa, guesses);
        for &guess in &guesses[..digests.len()] {
            prefetch(&self.entries, guess);
        }
    }

    #[inline(always)]
    fn guessed(&mut self, guess: usize, key: K) -> Option<&mut S> {
        let entry = self.entries[..self.len].get_mut(guess)?;
        (entry.key == key).then_some(&mut entry.state)
    }

    #[inline(always)]
    fn find(&self, key: K, digest: u64) -> Option<usize> {
        if self.is_sorted() {
            return self.entries[..self.len].binary_search_by(|entry| entry.key.order(&key)).ok();
        }
        self.index.find(digest, |flow| self.entries[flow].key == key)
    }

    #[inline(never)]
    fn insert(
        &mut self,
        key: K,
        digest: u64,
        digester: &Digester,
        budget: Option<&mut StepBudget>,
    ) -> Option<usize> {
        let flow = self.len;
        let entries = &self.entries;
        if flow == entries.len() {
            return None;
        }
        let found_room = {
            let (ahead, digest_of) = (ahead(entries), digest_of(entries, digester));
            self.index.insert(digest, flow, &ahead, &digest_of, budget)
        };
        if !found_room {
            return None;
        }
        self.entries[flow] = Entry { key, state: S::zeroed() };
        self.len += 1;
        prefetch(&self.entries, flow + AHEAD);
        Some(flow)
    }

    fn append(&mut self, key: K, digester: &Digester, budget: &mut StepBudget) -> Option<usize> {
        if !Self::DEFERRED {
            return self.insert(key, key.digest(digester), digester, Some(budget));
        }
        let flow = self.len;
        *self.entries.get_mut(flow)? = Entry { key, state: S::zeroed() };
        self.len += 1;
        self.sorted = true;
        Some(flow)
    }

    #[inline(always)]
    fn is_sorted(&self) -> bool {
        Self::DEFERRED && self.sorted
    }

    fn build_index(&mut self, digester: &Digester, lost: &mut dyn FnMut(&S)) {
        let all = self.len;
        self.index.size_for(all);
        (self.len, self.sorted) = (0, false);
        for flow in 0..all {
            let Entry { key, state } = self.entries[flow];
            match self.insert(key, key.digest(digester), digester, None) {
                Some(new) => self.entries[new].state = state,
                None => lost(&state),
            }
        }
    }

    fn merge_sorted(&mut self, other: &Self, merge: &mut dyn FnMut(&mut S, &S)) -> bool {
        let most = self.len + other.len;
        let faster = self.len <= MOST_SORTED * other.len;
        if !(self.is_sorted() && other.is_sorted() && faster && most <= self.entries.len()) {
            return false;
        }
        // From the last flow on, to places that hold none, or one that has moved.
        let (mut own, mut added, mut place) = (self.len, other.len, most);
        while added > 0 {
            let next = other.entries[added - 1];
            let before = own.checked_sub(1).map(|own| self.entries[own]);
            let order = before.map_or(Ordering::Less, |before| before.key.order(&next.key));
            let mut entry = before.filter(|_| order.is_ge()).unwrap_or(next);
            if order.is_eq() {
                merge(&mut entry.state, &next.state);
            }
            own -= usize::from(order.is_ge());
            added -= usize::from(order.is_le());
            place -= 1;
            self.entries[place] = entry;
        }
        // The flows of both left a gap.
        self.entries.copy_within(place..most, own);
        self.len = most - (place - own);
        true
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
        (self.len, self.sorted) = (0, false);
    }

    #[inline]
    fn grow_ahead(&mut self, digester: &Digester) {
        let entries = &self.entries;
        self.index.grow_ahead(ahead(entries), digest_of(entries, digester));
    }

    fn memory_bytes(&self) -> usize {
        self.index.memory_bytes() + self.entries.memory_bytes()
    }
}
