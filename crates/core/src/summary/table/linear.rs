//! LinearTable: open addressing with linear probing, in front of an array of flows.
//!
//! Paper: Alipourfard et al., "A comparison of performance and accuracy of measurement algorithms
//! in software" (SOSR 2018), §3. Beside the paper, keys and counters stand one after the other in
//! the order of arrival, and the buckets hold their numbers. So memory is touched in proportion to
//! the flows, the flows that arrive first, which are the large ones, share cache lines, visiting is
//! one walk, and growing moves no flow. Probing goes by groups of buckets, which are looked at all
//! at once.

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
use super::index::Index;
use super::layout::Inline;
use super::probing::Probing;
use crate::batch::{BATCH_PACKETS, Batch};
use crate::key::{CanonicalKey, FlowKey};

/// Share of the buckets that may be occupied, at most.
const FULL_NUMERATOR: usize = 3;
const FULL_DENOMINATOR: usize = 4;

/// Exact counts of every flow, until it is full.
///
/// Cost: a cache line of the index and one of the flows for each packet, both asked for ahead.
/// Memory in bytes: `4 × buckets + 3/4 × buckets × (size_of::<K>() + 12, rounded up to the key's or
/// 8 bytes' alignment)`.
pub struct LinearTable<K> {
    digester: Digester,
    index: Index,
    /// The flows in the order of arrival; its length is the largest number of them.
    slots: Zeroed<Slot<K>>,
    flows: usize,
    untracked: Size,
    saturated: Size,
}

impl Describe for LinearTable<()> {
    const INFO: Info = Info {
        name: "linear-table",
        idea: "exact hash table, linear probing, keys and counters in order of arrival",
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
        memory: "4 x buckets + 3/4 x buckets x (key + state, rounded up to 4 or 8)",
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
        let per_flow = size_of::<Slot<K>>() + options.task_bytes_per_flow;
        let per_bucket = size_of::<u32>() + (per_flow * FULL_NUMERATOR).div_ceil(FULL_DENOMINATOR);
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
            index: Index::new(buckets, memory)?,
            slots: memory.zeroed(most_flows)?,
            flows: 0,
            untracked: Size::default(),
            saturated: Size::default(),
        })
    }

    /// The number of the flow with this key.
    #[inline(always)]
    fn find(&self, key: K, digest: u64) -> Option<usize> {
        self.index.find(digest, |flow| self.slots[flow].key == key)
    }

    /// Adds to the flow of this key, wherever it is, or else makes it.
    #[inline(never)]
    pub(in crate::summary) fn add(&mut self, key: K, digest: u64, packets: u32, bytes: u64) {
        if let Some(flow) = self.find(key, digest) {
            self.saturated += self.slots[flow].add(packets, bytes);
        } else if self.flows == self.slots.len() {
            self.untracked += Size { packets: packets.into(), bytes };
        } else {
            if self.index.is_full(self.flows) {
                let slots = &self.slots[..self.flows];
                self.index.grow(slots.iter().map(|slot| slot.key.digest(&self.digester)));
            }
            self.index.insert(digest, self.flows);
            self.slots[self.flows] = Slot { key, packets, bytes };
            self.flows += 1;
        }
    }

    fn slots(&self) -> &[Slot<K>] {
        &self.slots[..self.flows]
    }
}

impl<K: FlowKey> Ingest<K> for LinearTable<K> {
    fn ingest(&mut self, batch: &mut Batch<K>) {
        batch.digest(&self.digester);
        let (keys, digests) = (batch.keys(), batch.digests());
        let (packets, bytes) = (batch.packets(), batch.bytes());
        for &digest in digests {
            self.index.prefetch(digest);
        }
        let mut guesses = [0; BATCH_PACKETS];
        for (guess, &digest) in guesses.iter_mut().zip(digests) {
            *guess = self.index.guess(digest);
            prefetch(&self.slots, *guess);
        }
        for i in 0..keys.len() {
            match self.slots[..self.flows].get_mut(guesses[i]) {
                Some(slot) if slot.key == keys[i] => {
                    let excess = slot.add(packets[i], bytes[i]);
                    if excess != Size::default() {
                        self.saturated += excess;
                    }
                }
                _ => self.add(keys[i], digests[i], packets[i], bytes[i]),
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
        for slot in other.slots() {
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
            self.slots().iter().for_each(|slot| slot.save(out));
        });
    }

    fn load(&mut self, from: &mut Reader<'_>) -> Result<(), DecodeError> {
        self.untracked = from.size("untracked")?;
        self.saturated = from.size("saturated")?;
        for _ in 0..from.count("number of flows", self.slots.len())? {
            let Slot { key, packets, bytes } = Slot::<K>::load(from)?;
            self.add(key, key.digest(&self.digester), packets, bytes);
        }
        Ok(())
    }

    fn clear(&mut self) {
        self.index.clear(self.flows);
        self.flows = 0;
        self.untracked = Size::default();
        self.saturated = Size::default();
    }

    fn parameters(&self) -> Vec<(&'static str, Setting)> {
        vec![("buckets", Setting::Integer(self.index.buckets() as u64))]
    }

    fn memory_bytes(&self) -> usize {
        self.index.memory_bytes() + self.slots.memory_bytes()
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
        self.slots.len()
    }

    fn get(&self, index: usize) -> (&[u8], Size) {
        let slot = &self.slots()[index];
        (slot.key.canonical(), slot.size())
    }

    fn for_each(&self, visit: &mut dyn FnMut(&[u8], Size)) {
        for slot in self.slots() {
            visit(slot.key.canonical(), slot.size());
        }
    }
}

impl<K: FlowKey> Candidates for LinearTable<K> {
    fn for_each(&self, visit: &mut dyn FnMut(CanonicalKey, SizeEstimate)) {
        for slot in self.slots() {
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
        match self.find(key, key.digest(&self.digester)) {
            Some(flow) => SizeEstimate::counted(self.slots[flow].size(), self.saturated),
            // The flow may be among the untracked ones.
            None => SizeEstimate::between(Size::default(), Size::default(), self.untracked),
        }
    }
}
