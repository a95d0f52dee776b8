//! What all exact tables have in common: their write side.

use std::any::Any;
use std::marker::PhantomData;

use flowgauge_kernel::{Digester, Zeroed};

use super::super::codec::{DecodeError, Reader, Writer};
use super::super::state::{self, Past, State};
use super::super::{Answers, BuildError, Incompatible, Ingest, Options, Setting, Size};
use super::layout::Layout;
use crate::batch::{BATCH_PACKETS, Batch};
use crate::key::FlowKey;

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
    pub(super) saturated: Size,
    types: PhantomData<(K, S)>,
}

impl<K: FlowKey, S: State, L: Layout<K, S>> ExactTable<K, S, L> {
    /// A table of as many `buckets` as its parameters say, or as fit into its memory; `most` at
    /// most.
    pub(super) fn build(options: &Options, most: u64) -> Result<Box<dyn Ingest<K>>, BuildError> {
        Ok(Box::new(Self::new(options, most)?))
    }

    /// The same, not boxed.
    pub(in crate::summary) fn new(options: &Options, most: u64) -> Result<Self, BuildError> {
        let more = if S::LASTING { size_of::<u32>() } else { 0 } + options.task_bytes_per_flow;
        let per_bucket = L::bytes_per_bucket(more);
        let memory_bytes = options.memory_bytes.min((most as usize).saturating_mul(per_bucket));
        let buckets = options.parameters.power_of_two("buckets", memory_bytes, per_bucket)?;
        if buckets as u64 > most {
            return Err(BuildError::OutOfRange {
                name: "buckets",
                value: buckets.to_string(),
                range: format!("a power of two from 2 to {most}"),
            });
        }
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
            saturated: Size::default(),
            types: PhantomData,
        })
    }

    /// Takes in packets of the flow with this key, wherever it is, or else makes it.
    #[inline(never)]
    pub(in crate::summary) fn add(
        &mut self,
        key: K,
        digest: u64,
        packets: u32,
        bytes: u64,
        element: u64,
    ) {
        let Some(flow) = self.place(key, digest) else {
            self.untracked += Size { packets: packets.into(), bytes };
            return;
        };
        self.activate(flow);
        self.saturated += self.layout.state_mut(flow).add(packets, bytes, element);
    }

    /// The flow with this key, made where there is none; `None` where it finds no room.
    #[inline(never)]
    fn place(&mut self, key: K, digest: u64) -> Option<usize> {
        let found = self.find(key, digest);
        found.or_else(|| self.layout.insert(key, digest, &self.digester, false))
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
        if S::LASTING { self.active[..self.active_len][index] as usize } else { index }
    }

    /// All flows, those of past epochs included.
    pub(super) fn all(&self) -> impl Iterator<Item = (&K, &S)> {
        (0..self.layout.len()).map(|flow| (self.layout.key(flow), self.layout.state(flow)))
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
        let (keys, digests) = (batch.keys(), batch.digests());
        let (packets, bytes, elements) = (batch.packets(), batch.bytes(), batch.elements());
        for &digest in digests {
            self.layout.prefetch(digest);
        }
        let mut guesses = [0; BATCH_PACKETS];
        for ((guess, &key), &digest) in guesses.iter_mut().zip(keys).zip(digests) {
            *guess = self.layout.guess(key, digest);
        }
        for i in 0..keys.len() {
            match self.layout.guessed(guesses[i], keys[i]) {
                Some(state) if !S::LASTING || !state.is_silent() => {
                    let excess = state.add(packets[i], bytes[i], elements[i]);
                    if excess != Size::default() {
                        self.saturated += excess;
                    }
                }
                _ => self.add(keys[i], digests[i], packets[i], bytes[i], elements[i]),
            }
        }
    }

    fn answers(&self) -> &dyn Answers {
        self
    }

    /// Sizes stay exact while neither table was full: what `other` could not track may belong to
    /// flows that are listed here, and is then only in the untracked size.
    fn merge(&mut self, other: &dyn Ingest<K>) -> Result<(), Incompatible> {
        let other = other.as_any().downcast_ref::<Self>().ok_or(Incompatible("types differ"))?;
        if other.digester.seed() != self.digester.seed() {
            return Err(Incompatible("seeds differ"));
        }
        for (key, state) in other.all() {
            let digest = key.digest(&self.digester);
            match self.place(*key, digest) {
                Some(flow) => {
                    if !state.is_silent() {
                        self.activate(flow);
                    }
                    self.saturated += self.layout.state_mut(flow).merge(state);
                }
                None => self.untracked += state.size(),
            }
        }
        self.past.merge(&other.past);
        self.untracked += other.untracked;
        self.saturated += other.saturated;
        Ok(())
    }

    fn save(&self, out: &mut Writer) {
        out.size(self.untracked);
        out.size(self.saturated);
        if S::LASTING {
            self.past.save(out);
        }
        out.number(self.layout.len() as u64);
        out.sorted(K::BYTES + S::STORED_BYTES, |out| {
            for (key, state) in self.all() {
                out.key(*key);
                state.save(out);
            }
        });
    }

    fn load(&mut self, from: &mut Reader<'_>) -> Result<(), DecodeError> {
        self.untracked = from.size("untracked")?;
        self.saturated = from.size("saturated")?;
        if S::LASTING {
            self.past.load(from)?;
        }
        for _ in 0..from.count("number of flows", self.layout.most())? {
            let (key, state): (K, _) = (from.key("key")?, S::load(from)?);
            let invalid = |reason| from.invalid("flow", K::BYTES + S::STORED_BYTES, reason);
            let digest = key.digest(&self.digester);
            if self.find(key, digest).is_some() {
                return Err(invalid("it stands there twice"));
            }
            let flow = self
                .layout
                .insert(key, digest, &self.digester, true)
                .ok_or_else(|| invalid("its buckets are full"))?;
            if !state.is_silent() {
                self.activate(flow);
            }
            *self.layout.state_mut(flow) = state;
        }
        Ok(())
    }

    fn clear(&mut self) {
        self.layout.clear(&self.digester);
        self.past = self.past.forgotten();
        self.forget_epoch();
    }

    fn next_epoch(&mut self) {
        if !S::LASTING {
            return self.clear();
        }
        self.layout.retain(&self.digester, |state| state.next_epoch(&self.past));
        self.past.next_epoch(self.untracked);
        self.forget_epoch();
    }

    fn parameters(&self) -> Vec<(&'static str, Setting)> {
        let buckets = ("buckets", Setting::Integer(self.layout.buckets() as u64));
        std::iter::once(buckets).chain(state::parameters::<S>()).collect()
    }

    fn wants_elements(&self) -> bool {
        S::ELEMENTS
    }

    fn memory_bytes(&self) -> usize {
        self.layout.memory_bytes() + self.active.memory_bytes()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
