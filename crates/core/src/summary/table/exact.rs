//! What all exact tables have in common: their write side.

use std::marker::PhantomData;
use std::ops::Range;

use flowgauge_kernel::{Digester, Zeroed};

use super::super::basis::{Basis, twin};
use super::super::codec::{DecodeError, Patience, Reader, Writer};
use super::super::state::{self, Past, State};
use super::super::{
    Answers, BuildError, BuildErrorKind, Incompatible, Ingest, Options, Setting, Summary,
};
use super::layout::Layout;
use crate::batch::{BATCH_PACKETS, Batch};
use crate::key::FlowKey;
use crate::terms::Size;

/// Exact states of every flow, until it is full: keys that come later are counted as untracked.
///
/// Cost: the cache lines of the layout and of the state, all asked for ahead. Memory in bytes: the
/// layout's, and 4 for each flow where states outlive the epoch.
pub(in crate::summary) struct ExactTable<K, S, L> {
    pub(super) digester: Digester,
    pub(super) layout: L,
    /// The number that a spread address has more elements than.
    pub(super) spread: u64,
    /// Where states outlive the epoch, the flows that it has a packet of; else empty.
    active: Zeroed<u32>,
    active_len: usize,
    pub(super) past: Past,
    pub(super) untracked: Size,
    /// Once there is something untracked: the flows with numbers below this have nothing of it, and of
    /// those [in buckets](Layout::IN_BUCKETS) all or none.
    whole: usize,
    pub(super) saturated: Size,
    /// Whether there may be flows that only parts of the epoch before had packets of.
    kept: bool,
    types: PhantomData<(K, S)>,
}

/// As many buckets as the parameters say, or as fit into the memory: `most` at most.
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
    /// A table of as many `buckets` as its parameters say, or as fit into its memory; `most` at
    /// most.
    pub(super) fn build(options: &Options, most: u64) -> Result<Box<dyn Summary<K>>, BuildError> {
        Ok(Box::new(Self::new(options, most)?))
    }

    /// The same, not boxed.
    pub(in crate::summary) fn new(options: &Options, most: u64) -> Result<Self, BuildError> {
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
            whole: 0,
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

    /// Guesses the flows of these keys, and asks for their memory.
    #[inline(never)]
    fn look_up(&mut self, keys: &[K], digests: &[u64]) -> [usize; BATCH_PACKETS] {
        self.layout.go_on(&self.digester);
        if self.layout.is_whole() {
            self.look_up_in::<true>(keys, digests)
        } else {
            self.look_up_in::<false>(keys, digests)
        }
    }

    #[inline(always)]
    fn look_up_in<const WHOLE: bool>(&self, keys: &[K], digests: &[u64]) -> [usize; BATCH_PACKETS] {
        for &digest in digests {
            self.layout.prefetch::<WHOLE>(digest);
        }
        let mut guesses = [0; BATCH_PACKETS];
        for ((guess, &key), &digest) in guesses.iter_mut().zip(keys).zip(digests) {
            *guess = self.layout.guess::<WHOLE>(key, digest);
        }
        guesses
    }

    /// Takes in packets of flows that are where they are guessed, up to the first that is not, and
    /// returns how many: a loop without calls, all of whose locals stay in registers.
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

    /// Takes in packets of the flow with this key, wherever it is, or else makes it.
    #[inline(never)]
    pub(in crate::summary) fn add(
        &mut self,
        key: K,
        digest: u64,
        packets: u32,
        bytes: u64,
        (element, time_ns): (u64, i64),
    ) {
        let Some(flow) = self.place(key, digest) else {
            return self.miss(Size { packets: packets.into(), bytes });
        };
        self.activate(flow);
        let state = self.layout.state_mut(flow);
        state.see(time_ns);
        self.saturated += state.add(packets, bytes, element);
    }

    pub(in crate::summary) fn buckets(&self) -> usize {
        self.layout.buckets()
    }

    /// Flows that there is room for.
    pub(in crate::summary) fn most(&self) -> usize {
        self.layout.most()
    }

    /// Takes in a flow that it does not have, whose packets may be more than a counter holds; or counts
    /// it as untracked.
    pub(in crate::summary) fn add_flow(&mut self, key: K, digest: u64, size: Size) {
        let Some(flow) = self.place(key, digest) else {
            return self.miss(size);
        };
        self.activate(flow);
        let packets = u32::try_from(size.packets).unwrap_or(u32::MAX);
        self.saturated += self.layout.state_mut(flow).add(packets, size.bytes, 0);
        self.saturated += Size { packets: size.packets - u64::from(packets), bytes: 0 };
    }

    /// Counts what may be of any flow as untracked, and what found no room in a counter.
    pub(in crate::summary) fn lose(&mut self, untracked: Size, saturated: Size) {
        self.untracked += untracked;
        self.saturated += saturated;
        if self.untracked != Size::default() {
            self.whole = 0;
        }
    }

    /// The flow with this key, made where there is none; `None` where it finds no room.
    #[inline(never)]
    fn place(&mut self, key: K, digest: u64) -> Option<usize> {
        self.layout.place(key, digest, &self.digester)
    }

    /// Counts packets of a flow that found no room. It may find some later, where flows can move.
    fn miss(&mut self, size: Size) {
        if self.untracked == Size::default() {
            self.whole = self.so_far();
        }
        self.untracked += size;
    }

    /// A number that those of the flows so far are below, and of flows that find room late are not.
    fn so_far(&self) -> usize {
        if L::IN_BUCKETS { usize::MAX } else { self.layout.len() }
    }

    /// Whether nothing that is untracked can belong to this flow.
    pub(super) fn is_whole(&self, flow: usize) -> bool {
        flow < self.whole || self.untracked == Size::default()
    }

    /// Whether that is so for all flows.
    fn are_whole(&self) -> bool {
        let len = self.layout.len();
        len == 0 || self.is_whole(self.layout.flow(len - 1))
    }

    #[inline(never)]
    pub(super) fn find(&self, key: K, digest: u64) -> Option<usize> {
        self.layout.find(key, digest)
    }

    /// Notes that a flow is about to get a packet.
    #[inline(always)]
    fn activate(&mut self, flow: usize) {
        if S::LASTING && self.layout.state(flow).is_silent() {
            self.active[self.active_len] = flow as u32;
            self.active_len += 1;
        }
    }

    /// Flows with a packet in this epoch.
    pub(super) fn active(&self) -> usize {
        if S::LASTING { self.active_len } else { self.layout.len() }
    }

    /// The number in the layout of the active flow number `index`.
    pub(super) fn active_flow(&self, index: usize) -> usize {
        if S::LASTING {
            self.active[..self.active_len][index] as usize
        } else {
            self.layout.flow(index)
        }
    }

    /// The numbers of all flows, those of past epochs included.
    pub(super) fn all(&self) -> impl Iterator<Item = usize> {
        (0..self.layout.len()).map(|index| self.layout.flow(index))
    }

    /// Takes in a batch of another table's flows, asking ahead as for packets.
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

    /// Takes in the state of the flow with this key, wherever it is here, or else makes it.
    #[inline(never)]
    fn merge_flow(&mut self, key: K, digest: u64, state: &S) {
        let Some(flow) = self.place(key, digest) else {
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

    /// Forgets flows without a packet where they could take the room of others.
    #[cold]
    fn drop_kept(&mut self) {
        self.layout.retain(&self.digester, &mut |state| !state.is_silent());
        self.kept = false;
        // Flows have new numbers, and one that found no room may find some now.
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
            let beside = (elements[at], times_ns[at]);
            self.add(keys[at], digests[at], packets[at], bytes[at], beside);
            at += 1;
        }
    }

    fn wants_elements(&self) -> bool {
        S::ELEMENTS || S::DETAILS
    }
}

impl<K: FlowKey, S: State, L: Layout<K, S>> Summary<K> for ExactTable<K, S, L> {
    fn answers(&self) -> &dyn Answers {
        self
    }

    /// Sizes stay exact while neither table was full: what `other` could not track may belong to
    /// flows that are listed here, and is then only in the untracked size and in their bounds.
    fn merge(&mut self, other: &dyn Summary<K>) -> Result<(), Incompatible> {
        let other = twin(self, other, Self::basis)?;
        let untracked = self.untracked + other.untracked;
        for start in (0..other.layout.len()).step_by(BATCH_PACKETS) {
            self.merge_flows(other, start..other.layout.len().min(start + BATCH_PACKETS));
        }
        if untracked != Size::default() {
            self.whole = 0;
        }
        self.past.merge(&other.past);
        self.untracked += other.untracked;
        self.saturated += other.saturated;
        Ok(())
    }

    fn save(&self, out: &mut Writer) {
        out.size(self.untracked);
        out.number(u8::from(self.are_whole()));
        out.size(self.saturated);
        if S::LASTING {
            self.past.save(out);
        }
        out.number(self.layout.len() as u64);
        out.sorted(out.key_bytes() + S::STORED_BYTES, |out| {
            for flow in self.all() {
                out.key(*self.layout.key(flow));
                self.layout.state(flow).save(out);
            }
        });
    }

    fn load(&mut self, from: &mut Reader<'_>) -> Result<(), DecodeError> {
        self.untracked = from.size("untracked")?;
        let whole = from.flag("whether flows are whole")?;
        self.saturated = from.size("saturated")?;
        if S::LASTING {
            self.past.load(from)?;
        }
        let count = from.count("number of flows", self.layout.most())?;
        self.layout.expect(count);
        let (mut patience, mut before) = (Patience::new(count), None);
        for _ in 0..count {
            let key: K = from.next_key("key", &mut before)?;
            let state = S::load(from)?;
            let digest = key.digest(&self.digester);
            let flow = self.layout.insert(key, digest, &self.digester, Some(&mut patience));
            let flow = flow.ok_or_else(|| {
                let full = "its buckets are full, or its key collides with others";
                from.invalid("flow", from.key_bytes() + S::STORED_BYTES, full)
            })?;
            if !state.is_silent() {
                self.activate(flow);
            }
            *self.layout.state_mut(flow) = state;
        }
        self.whole = if whole { self.so_far() } else { 0 };
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
        let partial = !self.are_whole() || self.saturated != Size::default();
        self.layout.retain(&self.digester, &mut |state| state.next_epoch(&self.past));
        self.past.next_epoch(self.untracked + self.saturated, partial);
        self.forget_epoch();
    }

    /// Flows stay, without packets, while at least half of them had some: most will come again, and
    /// those that do not cost little.
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
