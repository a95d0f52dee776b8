//! LinearTable: open addressing with linear probing, key and counters inline.
//!
//! Paper: Alipourfard et al., "A comparison of performance and accuracy of measurement algorithms
//! in software" (SOSR 2018), §3. Buckets are a power of two with one key each; a bucket's number
//! is the digest's low bits. Beside the paper, the table lists its occupied buckets, so that
//! visiting and clearing cost the flows and not the buckets; and it begins with few of its
//! buckets and spreads over four times as many, in place, when half are occupied, so that it
//! touches memory in proportion to the flows.

use std::any::Any;

use flowgauge_kernel::{Digester, Zeroed, prefetch};

use super::super::codec::{DecodeError, Reader, Writer};
use super::super::slot::Slot;
use super::super::state::{Kind, PADDING, STATE, with_state};
use super::super::{
    Answers, BuildError, Candidates, Describe, Flows, Incompatible, Info, Ingest, Laws, Memory,
    Merge, Options, Parameter, Setting, Size, SizeEstimate, SizeQuery,
};
use super::exact::ExactTable;
use super::layout::Inline;
use super::probing::Probing;
use super::spread::spread;
use crate::batch::Batch;
use crate::key::{CanonicalKey, FlowKey};

/// Share of the buckets that may be occupied: beyond 3/4 the probes for keys that are not there
/// grow from 8 buckets to 32 (at 7/8), which an attacker who fills the table would choose.
const FULL_NUMERATOR: usize = 3;
const FULL_DENOMINATOR: usize = 4;

/// Buckets that a table begins with.
const FIRST_BUCKETS: usize = 1 << 10;

/// A table that is half full grows by this factor. Doubling would leave it a quarter full at least
/// instead of an eighth: a run over a million flows took 15 % longer.
const GROWTH: usize = 4;

/// Buckets whose cache lines are asked for ahead of the one in hand: with a million flows a whole
/// run took 0.55 s at 16, 0.51 s at 32, 0.48 s at 64, and 0.51 s again from 160 on.
const PREFETCH_AHEAD: usize = 64;

/// Exact counts of every flow, until it is full.
///
/// Cost: one cache line a packet in most cases, asked for ahead. Memory in bytes:
/// `buckets × (size_of::<K>() + 12, rounded up to the key's or 8 bytes' alignment) + 3 × buckets`.
pub struct LinearTable<K> {
    digester: Digester,
    slots: Zeroed<Slot<K>>,
    /// How many of them are in use so far, a power of two; those behind are empty.
    buckets: usize,
    /// The occupied buckets, the latest last; its length is the largest number of flows.
    occupied: Zeroed<u32>,
    flows: usize,
    untracked: Size,
    saturated: Size,
}

impl Describe for LinearTable<()> {
    const INFO: Info = Info {
        name: "linear-table",
        idea: "exact hash table, linear probing, key and counters inline",
        paper: "Simple (SOSR 2018), section 3",
        parameters: &[
            Parameter {
                name: "buckets",
                help: "number of buckets, a power of two; three quarters of them hold a flow \
                       (default: what fits into the memory)",
            },
            STATE,
            PADDING,
        ],
        memory: "buckets x (key + 12, rounded up to 4 or 8) + 3 x buckets; of other states than \
                 counter: 4 x buckets + 3/4 x buckets x (key + state, rounded up to 4 or 8)",
        laws: Laws { commutable: true, aggregatable: true, merge: Merge::Equal },
    };

    /// Larger states stand in the order of arrival, behind an index of buckets with their numbers.
    fn build<K: FlowKey>(options: &Options) -> Result<Box<dyn Ingest<K>>, BuildError> {
        let kind = Kind::from_options::<K>(Self::INFO.name, &Kind::OF_TABLES, options)?;
        with_state!(kind, LinearTable::<K>::build(options), S =>
            ExactTable::<K, S, Inline<K, S, Probing>>::build(options, 1 << 32))
    }
}

impl<K: FlowKey> LinearTable<K> {
    fn build(options: &Options) -> Result<Box<dyn Ingest<K>>, BuildError> {
        let per_flow = size_of::<u32>() + options.task_bytes_per_flow;
        let per_bucket =
            size_of::<Slot<K>>() + (per_flow * FULL_NUMERATOR).div_ceil(FULL_DENOMINATOR);
        let buckets =
            options.parameters.power_of_two("buckets", options.memory_bytes, per_bucket)?;
        Ok(Box::new(Self::new(buckets, options.digester, &options.memory)?))
    }

    /// Reserves `buckets` buckets, a power of two.
    ///
    /// # Errors
    /// When the memory does not suffice.
    pub fn new(buckets: usize, digester: Digester, memory: &Memory) -> Result<Self, BuildError> {
        debug_assert!(buckets.is_power_of_two());
        let most_flows = (buckets * FULL_NUMERATOR / FULL_DENOMINATOR).max(1);
        Ok(Self {
            digester,
            slots: memory.zeroed(buckets)?,
            occupied: memory.zeroed(most_flows)?,
            buckets: buckets.min(FIRST_BUCKETS),
            flows: 0,
            untracked: Size::default(),
            saturated: Size::default(),
        })
    }

    /// The bucket that holds `key`, or the empty one where it would go.
    #[inline(always)]
    fn find(slots: &[Slot<K>], key: K, digest: u64) -> usize {
        let mask = slots.len() - 1;
        let mut bucket = digest as usize & mask;
        // Ends, since a quarter of the buckets is always empty.
        while !slots[bucket].is_empty() && slots[bucket].key != key {
            bucket = (bucket + 1) & mask;
        }
        bucket
    }

    #[inline(always)]
    fn add(&mut self, key: K, digest: u64, packets: u32, bytes: u64) {
        let slots = &mut self.slots[..self.buckets];
        let bucket = Self::find(slots, key, digest);
        let slot = &mut slots[bucket];
        if slot.is_empty() {
            return self.insert(bucket, Slot { key, packets, bytes }, digest);
        }
        let excess = slot.add(packets, bytes);
        if excess != Size::default() {
            self.saturated += excess;
        }
    }

    /// Puts a key that the table lacks into `bucket`, or elsewhere where the table grows for it.
    #[inline]
    fn insert(&mut self, mut bucket: usize, slot: Slot<K>, digest: u64) {
        if self.flows == self.occupied.len() {
            self.untracked += slot.size();
            return;
        }
        if self.flows == self.buckets / 2 && self.buckets < self.slots.len() {
            self.grow();
            bucket = Self::find(&self.slots[..self.buckets], slot.key, digest);
        }
        self.occupied[self.flows] = bucket as u32;
        self.flows += 1;
        self.slots[bucket] = slot;
    }

    #[cold]
    fn grow(&mut self) {
        let used = self.buckets;
        self.buckets = self.slots.len().min(GROWTH * used);
        let slots = &mut self.slots[..self.buckets];
        spread(slots, used, &mut self.occupied, |key| key.digest(&self.digester));
        let occupied = slots.iter().enumerate().filter(|(_, slot)| !slot.is_empty());
        for (place, (bucket, _)) in self.occupied.iter_mut().zip(occupied) {
            *place = bucket as u32;
        }
    }

    /// The occupied buckets, in no order of memory: without the prefetch a visit of a million flows
    /// takes three times as long.
    fn occupied_slots(&self) -> impl Iterator<Item = &Slot<K>> {
        let occupied = &self.occupied[..self.flows];
        occupied.iter().enumerate().map(move |(index, &bucket)| {
            if let Some(&ahead) = occupied.get(index + PREFETCH_AHEAD) {
                prefetch(&self.slots, ahead as usize);
            }
            &self.slots[bucket as usize]
        })
    }
}

impl<K: FlowKey> Ingest<K> for LinearTable<K> {
    fn ingest(&mut self, batch: &mut Batch<K>) {
        batch.digest(&self.digester);
        let (keys, digests) = (batch.keys(), batch.digests());
        let (packets, bytes) = (batch.packets(), batch.bytes());
        for &digest in digests.iter().take(PREFETCH_AHEAD) {
            prefetch(&self.slots, digest as usize & (self.buckets - 1));
        }
        for i in 0..keys.len() {
            if let Some(&digest) = digests.get(i + PREFETCH_AHEAD) {
                prefetch(&self.slots, digest as usize & (self.buckets - 1));
            }
            self.add(keys[i], digests[i], packets[i], bytes[i]);
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
        for slot in other.occupied_slots() {
            let digest = slot.key.digest(&self.digester);
            self.add(slot.key, digest, slot.packets, slot.bytes);
        }
        self.untracked += other.untracked;
        self.saturated += other.saturated;
        Ok(())
    }

    fn save(&self, out: &mut Writer) {
        out.size(self.untracked);
        out.size(self.saturated);
        out.number(self.flows as u64);
        out.sorted(Slot::<K>::STORED_BYTES, |out| {
            self.occupied_slots().for_each(|slot| slot.save(out));
        });
    }

    fn load(&mut self, from: &mut Reader<'_>) -> Result<(), DecodeError> {
        self.untracked = from.size("untracked")?;
        self.saturated = from.size("saturated")?;
        for _ in 0..from.count("number of flows", self.occupied.len())? {
            let Slot { key, packets, bytes } = Slot::<K>::load(from)?;
            self.add(key, key.digest(&self.digester), packets, bytes);
        }
        Ok(())
    }

    fn clear(&mut self) {
        for &bucket in &self.occupied[..self.flows] {
            self.slots[bucket as usize].packets = 0;
        }
        self.flows = 0;
        self.untracked = Size::default();
        self.saturated = Size::default();
    }

    fn parameters(&self) -> Vec<(&'static str, Setting)> {
        vec![("buckets", Setting::Integer(self.slots.len() as u64))]
    }

    fn memory_bytes(&self) -> usize {
        self.slots.memory_bytes() + self.occupied.memory_bytes()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl<K: FlowKey> Answers for LinearTable<K> {
    fn untracked(&self) -> Size {
        self.untracked
    }
    fn saturated(&self) -> Size {
        self.saturated
    }
    fn flows(&self) -> Option<&dyn Flows> {
        Some(self)
    }
    fn size(&self) -> Option<&dyn SizeQuery> {
        Some(self)
    }
    fn candidates(&self) -> Option<&dyn Candidates> {
        Some(self)
    }
}

impl<K: FlowKey> Flows for LinearTable<K> {
    fn len(&self) -> usize {
        self.flows
    }

    fn most(&self) -> usize {
        self.occupied.len()
    }

    fn get(&self, index: usize) -> (&[u8], Size) {
        let slot = &self.slots[self.occupied[..self.flows][index] as usize];
        (slot.key.canonical(), slot.size())
    }

    fn for_each(&self, visit: &mut dyn FnMut(&[u8], Size)) {
        for slot in self.occupied_slots() {
            visit(slot.key.canonical(), slot.size());
        }
    }
}

impl<K: FlowKey> Candidates for LinearTable<K> {
    fn for_each(&self, visit: &mut dyn FnMut(CanonicalKey, SizeEstimate)) {
        for slot in self.occupied_slots() {
            let size = SizeEstimate::counted(slot.size(), self.saturated);
            visit(CanonicalKey::new(slot.key.canonical()), size);
        }
    }

    fn overflow(&self) -> u64 {
        0
    }
}

impl<K: FlowKey> SizeQuery for LinearTable<K> {
    fn estimate(&self, key: &[u8]) -> SizeEstimate {
        let Some(key) = K::from_canonical(key) else { return SizeEstimate::exact(Size::default()) };
        let slot =
            &self.slots[Self::find(&self.slots[..self.buckets], key, key.digest(&self.digester))];
        if slot.is_empty() {
            // The flow may be among the untracked ones.
            SizeEstimate::between(Size::default(), Size::default(), self.untracked)
        } else {
            SizeEstimate::counted(slot.size(), self.saturated)
        }
    }
}
