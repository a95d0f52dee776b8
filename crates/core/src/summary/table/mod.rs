//! Exact tables (Simple, §3): the size of every flow, until the table is full.
//!
//! `ExactTable` is what all of them have in common. It is generic over what a flow keeps
//! (`State`), and over where flows are kept and how they are found (`Layout`).

mod answers;
mod cuckoo;
mod indirect;
mod layout;
mod linear;
mod probing;

use std::marker::PhantomData;
use std::ops::Range;

use flowgauge_kernel::{Digester, Zeroed};

use crate::batch::{BATCH_PACKETS, Batch};
use crate::key::FlowKey;
use crate::sorting::order_of_bytes;
use crate::summary::codec::{DecodeError, Reader, StepBudget, Writer};
use crate::summary::ingest::{Basis, twin};
use crate::summary::state::{self, Past, State};
use crate::summary::{
    Answers, BuildError, BuildErrorKind, Incompatible, Ingest, Laws, Merge, Options, Reads,
    Setting, Summary,
};
use crate::terms::Size;

pub use super::state::Payload;
pub use cuckoo::{Cuckoo1, Cuckoo4};
pub use indirect::IndirectTable;
pub(super) use layout::Layout;
pub use linear::LinearTable;
pub(super) use linear::{Counts, LAYOUTS, Linear, MOST_BUCKETS};

/// The laws of all exact tables.
const LAWS: Laws = Laws {
    flows: true,
    commutable: true,
    aggregatable: true,
    sizes: true,
    merge: Merge::Equal,
    ..Laws::NONE
};

/// Flows whose cache lines are fetched while one is stored.
const AHEAD: usize = 16;

/// An exact state for each flow. Once the table is full, packets of new flows are untracked.
///
/// Cost: the cache lines of the layout and of the state, all prefetched. Memory in bytes: the
/// layout's, and 4 per flow if states outlive the epoch.
pub(super) struct ExactTable<K, S, L> {
    digester: Digester,
    layout: L,
    /// Distinct-peer threshold of a superspreader.
    spread: u64,
    /// If states outlive the epoch, the flows with a packet in it; else empty.
    active: Zeroed<u32>,
    active_len: usize,
    past: Past,
    untracked: Size,
    /// Once there are untracked packets: flows with lower numbers have none of them. With flows [in
    /// buckets](Layout::IN_BUCKETS) this holds for all flows or for none.
    complete: usize,
    saturated: Size,
    /// Whether there may be flows without a packet, kept from an earlier part of the epoch.
    kept: bool,
    types: PhantomData<(K, S)>,
}

/// The number of buckets: the parameter, or what fits into the memory, `most` at most.
#[inline(never)]
fn buckets(options: &Options, most: u64, per_bucket: usize) -> Result<usize, BuildError> {
    let memory_bytes = options.memory_bytes.min((most as usize).saturating_mul(per_bucket));
    let buckets = options.parameters.power_of_two("buckets", memory_bytes, per_bucket)?;
    if buckets as u64 > most {
        return Err(BuildErrorKind::OutOfRange {
            name: "buckets",
            value: buckets.to_string(),
            range: format!("a power of two from 2 to {most}"),
        }
        .into());
    }
    Ok(buckets)
}

impl<K: FlowKey, S: State, L: Layout<K, S>> ExactTable<K, S, L> {
    /// Builds a table of as many buckets as its parameters say, or as fit into its memory, `most`
    /// at most.
    fn build(options: &Options, most: u64) -> Result<Box<dyn Summary<K>>, BuildError> {
        Ok(Box::new(Self::new(options, most)?))
    }

    /// As [`Self::build`], without the box.
    pub(super) fn new(options: &Options, most: u64) -> Result<Self, BuildError> {
        let more = if S::LASTING { size_of::<u32>() } else { 0 } + options.task_bytes_per_flow;
        let buckets = buckets(options, most, L::bytes_per_bucket(more))?;
        let layout = L::new(buckets, &options.memory)?;
        let active = if S::LASTING { layout.most() } else { 0 };
        Ok(Self {
            digester: options.digester,
            spread: options.spread,
            active: options.memory.zeroed(active)?,
            active_len: 0,
            layout,
            past: Past::new(options.by),
            untracked: Size::default(),
            complete: 0,
            saturated: Size::default(),
            kept: false,
            types: PhantomData,
        })
    }

    fn basis(&self) -> Basis<'_> {
        let (by, spread) = (self.past.by(), self.spread);
        Basis {
            by: S::LASTING.then_some(by),
            spread: S::ELEMENTS.then_some(spread),
            ..Basis::of(&self.digester)
        }
    }

    /// Guesses the flow of each key, and prefetches its state.
    #[inline(never)]
    fn look_up(&mut self, keys: &[K], digests: &[u64]) -> [usize; BATCH_PACKETS] {
        self.build_index();
        self.layout.grow_ahead(&self.digester);
        let mut guesses = [0; BATCH_PACKETS];
        self.layout.look_up(keys, digests, self.digester.isa(), &mut guesses);
        guesses
    }

    /// Builds the index of stored flows, if it is deferred. Flows that find no room in it, since
    /// their keys collide on purpose, are untracked.
    #[inline(always)]
    fn build_index(&mut self) {
        if self.layout.is_sorted() {
            self.build_deferred_index();
        }
    }

    #[cold]
    fn build_deferred_index(&mut self) {
        let mut lost = Size::default();
        self.layout.build_index(&self.digester, &mut |state| lost += state.size());
        if lost != Size::default() {
            self.lose(lost, Size::default());
        }
    }

    /// Counts packets up to the first one whose guess is wrong, and returns how many: a loop
    /// without calls, so that all locals stay in registers.
    #[inline(always)]
    fn run(
        &mut self,
        guesses: &[usize],
        keys: &[K],
        packets: &[u32],
        bytes: &[u64],
        (elements, times_ns): (&[u64], &[i64]),
    ) -> usize {
        let len = keys.len();
        let (guesses, packets) = (&guesses[..len], &packets[..len]);
        let (bytes, elements, times_ns) = (&bytes[..len], &elements[..len], &times_ns[..len]);
        for (i, &key) in keys.iter().enumerate() {
            match self.layout.guessed(guesses[i], key) {
                Some(state) if !S::LASTING || !state.is_silent() => {
                    if S::DETAILS {
                        state.see(times_ns[i]);
                    }
                    let excess = state.add(packets[i], bytes[i], elements[i]);
                    if excess != Size::default() {
                        self.saturated += excess;
                    }
                }
                _ => return i,
            }
        }
        len
    }

    /// Counts packets of the flow with this key, inserting it if it is new.
    #[inline(never)]
    pub(super) fn add(
        &mut self,
        key: K,
        digest: u64,
        packets: u32,
        bytes: u64,
        (element, time_ns): (u64, i64),
    ) {
        let Some(flow) = self.find_or_insert(key, digest) else {
            return self.miss(Size { packets: packets.into(), bytes });
        };
        self.activate(flow);
        let state = self.layout.state_mut(flow);
        state.see(time_ns);
        self.saturated += state.add(packets, bytes, element);
    }

    pub(super) fn buckets(&self) -> usize {
        self.layout.buckets()
    }

    /// Flows that the table has room for.
    pub(super) fn most(&self) -> usize {
        self.layout.most()
    }

    /// Inserts a flow that is not in the table, or counts it as untracked. Its packets may exceed a
    /// 32-bit counter.
    pub(super) fn add_flow(&mut self, key: K, digest: u64, size: Size) {
        let Some(flow) = self.find_or_insert(key, digest) else {
            return self.miss(size);
        };
        self.activate(flow);
        let packets = u32::try_from(size.packets).unwrap_or(u32::MAX);
        self.saturated += self.layout.state_mut(flow).add(packets, size.bytes, 0);
        self.saturated += Size { packets: size.packets - u64::from(packets), bytes: 0 };
    }

    /// Counts `untracked` packets that may belong to any flow, and `saturated` ones.
    pub(super) fn lose(&mut self, untracked: Size, saturated: Size) {
        self.untracked += untracked;
        self.saturated += saturated;
        if self.untracked != Size::default() {
            self.complete = 0;
        }
    }

    /// The flow with this key, inserted if it is new; `None` if it finds no room.
    #[inline(never)]
    fn find_or_insert(&mut self, key: K, digest: u64) -> Option<usize> {
        self.build_index();
        self.layout.find_or_insert(key, digest, &self.digester)
    }

    /// Counts packets of a flow that found no room. It may find some later in layouts that move
    /// flows.
    #[cold]
    #[inline(never)]
    fn miss(&mut self, size: Size) {
        if self.untracked == Size::default() {
            self.complete = self.next_flow();
        }
        self.untracked += size;
    }

    /// A number above those of all flows so far, but not above those of flows that come later.
    fn next_flow(&self) -> usize {
        if L::IN_BUCKETS { usize::MAX } else { self.layout.len() }
    }

    /// Whether no untracked packet can belong to this flow.
    fn is_complete(&self, flow: usize) -> bool {
        flow < self.complete || self.untracked == Size::default()
    }

    /// Whether no untracked packet can belong to any flow in the table.
    fn are_complete(&self) -> bool {
        let len = self.layout.len();
        len == 0 || self.is_complete(self.layout.flow(len - 1))
    }

    #[inline(never)]
    fn find(&self, key: K, digest: u64) -> Option<usize> {
        self.layout.find(key, digest)
    }

    /// Adds a flow to the active ones if it is about to get its first packet.
    #[inline(always)]
    fn activate(&mut self, flow: usize) {
        if S::LASTING && self.layout.state(flow).is_silent() {
            self.active[self.active_len] = flow as u32;
            self.active_len += 1;
        }
    }

    /// The number of flows with a packet in this epoch.
    fn active(&self) -> usize {
        if S::LASTING { self.active_len } else { self.layout.len() }
    }

    /// The number in the layout of the active flow at `index`.
    fn active_flow(&self, index: usize) -> usize {
        if S::LASTING {
            self.active[..self.active_len][index] as usize
        } else {
            self.layout.flow(index)
        }
    }

    /// The numbers of all flows, including those of past epochs.
    fn all(&self) -> impl Iterator<Item = usize> {
        (0..self.layout.len()).map(|index| self.layout.flow(index))
    }

    /// Merges a batch of another table's flows, with prefetches as for packets.
    fn merge_flows(&mut self, other: &Self, indices: Range<usize>) {
        let flows = indices.map(|index| other.layout.flow(index));
        let (mut keys, mut digests) = ([K::zeroed(); BATCH_PACKETS], [0; BATCH_PACKETS]);
        for ((key, digest), flow) in keys.iter_mut().zip(&mut digests).zip(flows.clone()) {
            *key = *other.layout.key(flow);
            *digest = key.digest(&self.digester);
        }
        let guesses = self.look_up(&keys[..flows.len()], &digests[..flows.len()]);
        for ((guess, digest), flow) in guesses.into_iter().zip(digests).zip(flows) {
            let (key, state) = (*other.layout.key(flow), other.layout.state(flow));
            if !S::LASTING && state.is_silent() {
                continue;
            }
            match self.layout.guessed(guess, key) {
                Some(own) if !S::LASTING => self.saturated += own.merge(state),
                _ => self.merge_flow(key, digest, state),
            }
        }
    }

    /// Merges the state of the flow with this key, inserting the flow if it is new.
    #[inline(never)]
    fn merge_flow(&mut self, key: K, digest: u64, state: &S) {
        let Some(flow) = self.find_or_insert(key, digest) else {
            self.miss(state.size());
            if let Some(ewma) = state.ewma() {
                self.past.lose(ewma);
            }
            return;
        };
        if !state.is_silent() {
            self.activate(flow);
        }
        self.saturated += self.layout.state_mut(flow).merge(state);
    }

    /// Drops flows without a packet before they take the room of others.
    #[cold]
    fn drop_kept(&mut self) {
        self.build_index();
        self.layout.retain(&self.digester, &mut |state| !state.is_silent());
        self.kept = false;
        // Flows have new numbers, and a flow that found no room may find some now.
        self.lose(Size::default(), Size::default());
    }

    fn forget_epoch(&mut self) {
        self.active_len = 0;
        self.untracked = Size::default();
        self.saturated = Size::default();
    }
}

impl<K: FlowKey, S: State, L: Layout<K, S>> Ingest<K> for ExactTable<K, S, L> {
    fn ingest(&mut self, batch: &mut Batch<K>) {
        batch.digest(&self.digester);
        if !S::LASTING && self.kept && 2 * (self.layout.len() + batch.len()) > self.layout.most() {
            self.drop_kept();
        }
        let (keys, digests) = (batch.keys(), batch.digests());
        let (packets, bytes) = (batch.packets(), batch.bytes());
        let (elements, times_ns) = (batch.elements(), batch.times_ns());
        let guesses = self.look_up(keys, digests);
        let (guesses, mut at) = (&guesses[..keys.len()], 0);
        loop {
            at += self.run(
                &guesses[at..],
                &keys[at..],
                &packets[at..],
                &bytes[at..],
                (&elements[at..], &times_ns[at..]),
            );
            if at == keys.len() {
                return;
            }
            if L::may_have(guesses[at]) {
                let beside = (elements[at], times_ns[at]);
                self.add(keys[at], digests[at], packets[at], bytes[at], beside);
            } else {
                self.miss(Size { packets: packets[at].into(), bytes: bytes[at] });
            }
            at += 1;
        }
    }

    fn reads(&self) -> Reads {
        Reads { bytes: true, times: S::DETAILS, elements: S::ELEMENTS || S::DETAILS }
    }
}

impl<K: FlowKey, S: State, L: Layout<K, S>> Summary<K> for ExactTable<K, S, L> {
    fn answers(&self) -> &dyn Answers {
        self
    }

    /// Sizes stay exact if neither table was full. Otherwise packets that are untracked in `other`
    /// may belong to flows of this table, whose upper bounds include them.
    fn merge(&mut self, other: &dyn Summary<K>) -> Result<(), Incompatible> {
        let other = twin(self, other, Self::basis)?;
        let untracked = self.untracked + other.untracked;
        let saturated = &mut self.saturated;
        let merge = &mut |own: &mut S, other: &S| *saturated += own.merge(other);
        if !self.layout.merge_sorted(&other.layout, merge) {
            for start in (0..other.layout.len()).step_by(BATCH_PACKETS) {
                self.merge_flows(other, start..other.layout.len().min(start + BATCH_PACKETS));
            }
        }
        if untracked != Size::default() {
            self.complete = 0;
        }
        self.past.merge(&other.past);
        self.untracked += other.untracked;
        self.saturated += other.saturated;
        Ok(())
    }

    fn save(&self, out: &mut Writer) {
        out.size(self.untracked);
        out.number(u8::from(self.are_complete()));
        out.size(self.saturated);
        if S::LASTING {
            self.past.save(out);
        }
        out.number(self.layout.len() as u64);
        let key = |index| self.layout.key(self.layout.flow(index)).canonical(K::BYTES);
        let order = order_of_bytes(self.layout.len(), &key);
        for (place, &index) in order.iter().enumerate() {
            if let Some(&next) = order.get(place + AHEAD) {
                self.layout.prefetch_flow(next as usize);
            }
            let flow = self.layout.flow(index as usize);
            out.key(*self.layout.key(flow));
            self.layout.state(flow).save_short(out);
        }
    }

    fn load(&mut self, from: &mut Reader<'_>) -> Result<(), DecodeError> {
        self.untracked = from.size("untracked")?;
        let complete = from.flag("whether flows are whole")?;
        self.saturated = from.size("saturated")?;
        if S::LASTING {
            self.past.load(from)?;
        }
        let count = from.count("number of flows", self.layout.most())?;
        let (mut budget, mut before) = (StepBudget::new(count), None);
        for _ in 0..count {
            let left = from.left();
            let key: K = from.next_key("key", &mut before)?;
            let state = S::load_short(from)?;
            let flow = self.layout.append(key, &self.digester, &mut budget);
            let flow = flow.ok_or_else(|| {
                let full = "its buckets are full, or its key collides with others";
                from.invalid("flow", left - from.left(), full)
            })?;
            if !state.is_silent() {
                self.activate(flow);
            }
            *self.layout.state_mut(flow) = state;
        }
        self.complete = if complete { self.next_flow() } else { 0 };
        Ok(())
    }

    fn clear(&mut self) {
        self.layout.clear(&self.digester);
        self.past = self.past.forgotten();
        self.kept = false;
        self.forget_epoch();
    }

    fn next_epoch(&mut self) {
        if !S::LASTING {
            return self.clear();
        }
        let partial = !self.are_complete() || self.saturated != Size::default();
        self.layout.retain(&self.digester, &mut |state| state.next_epoch(&self.past));
        self.past.next_epoch(self.untracked + self.saturated, partial);
        self.forget_epoch();
    }

    /// Flows stay, without packets, if at least half of them had some: most will come again, and
    /// the others cost little.
    fn next_part(&mut self) {
        if S::LASTING {
            return self.next_epoch();
        }
        if L::IN_BUCKETS {
            return self.clear();
        }
        let (len, mut silent) = (self.layout.len(), 0);
        for flow in 0..len {
            let state = self.layout.state_mut(flow);
            silent += usize::from(state.is_silent());
            *state = S::zeroed();
        }
        if 2 * silent > len {
            return self.clear();
        }
        self.kept = true;
        self.forget_epoch();
    }

    fn parameters(&self) -> Vec<(&'static str, Setting)> {
        let buckets = ("buckets", Setting::Integer(self.layout.buckets() as u64));
        let layout = L::NAME.map(|layout| ("layout", Setting::Word(layout)));
        std::iter::once(buckets).chain(layout).chain(state::parameters::<S>()).collect()
    }

    fn memory_bytes(&self) -> usize {
        self.layout.memory_bytes() + self.active.memory_bytes()
    }
}
