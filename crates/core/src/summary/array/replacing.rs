//! CountArray, replacing: each slot stores its key, and a colliding key takes the slot over.
//!
//! Paper: Alipourfard et al., "A comparison of performance and accuracy of measurement algorithms
//! in software" (SOSR 2018), §3. An estimate is never above the truth. What a key loses when it
//! is displaced is counted, so that the bounds hold for every key.

use std::any::Any;

use flowgauge_kernel::{Digester, Zeroed, prefetch};

use super::super::basis::{Basis, twin};
use super::super::codec::{DecodeError, Reader, Writer};
use super::super::slot::Slot;
use super::super::state::{ARRAY_STATE, Distinct, Ewma, Kind};
use super::super::{
    Answers, BuildError, Candidates, Describe, Incompatible, Info, Ingest, Laws, Memory, Merge,
    Options, Parameter, Setting, Size, SizeEstimate, SizeQuery,
};
use super::keyed::KeyedArray;
use crate::batch::Batch;
use crate::key::{CanonicalKey, FlowKey};

/// Slots whose cache lines are asked for ahead of the one in hand.
const PREFETCH_AHEAD: usize = 32;

/// One array of keyed slots.
///
/// Cost: one cache line a packet. Memory in bytes: `columns × (size_of::<K>() + 12, rounded up to
/// the key's or 8 bytes' alignment)`.
pub struct ReplacingArray<K> {
    digester: Digester,
    slots: Zeroed<Slot<K>>,
    displaced: Size,
    saturated: Size,
}

impl Describe for ReplacingArray<()> {
    const INFO: Info = Info {
        name: "replacing-array",
        idea: "one array of keyed slots by one hash, a colliding key takes the slot over",
        paper: "Simple (SOSR 2018), section 3",
        parameters: &[
            Parameter {
                name: "columns",
                help: "number of slots, a power of two (default: what fits into the memory)",
            },
            ARRAY_STATE,
        ],
        memory: "columns x (key + 12, or 144 distinct, or 28 ewma, rounded up to 4 or 8)",
        laws: Laws { commutable: false, aggregatable: false, merge: Merge::WithinBounds },
    };

    fn build<K: FlowKey>(options: &Options) -> Result<Box<dyn Ingest<K>>, BuildError> {
        match Kind::from_options::<K>(Self::INFO.name, &Kind::OF_ARRAYS, options)? {
            Kind::Distinct => return KeyedArray::<K, Distinct>::build(options),
            Kind::Ewma => return KeyedArray::<K, Ewma>::build(options),
            _ => {}
        }
        let columns = options.parameters.power_of_two(
            "columns",
            options.memory_bytes,
            size_of::<Slot<K>>(),
        )?;
        Ok(Box::new(ReplacingArray::<K>::new(columns, options.digester, &options.memory)?))
    }
}

impl<K: FlowKey> ReplacingArray<K> {
    /// Reserves `columns` slots, a power of two.
    ///
    /// # Errors
    /// When the memory does not suffice.
    pub fn new(columns: usize, digester: Digester, memory: &Memory) -> Result<Self, BuildError> {
        debug_assert!(columns.is_power_of_two());
        Ok(Self {
            digester,
            slots: memory.zeroed(columns)?,
            displaced: Size::default(),
            saturated: Size::default(),
        })
    }

    #[inline(always)]
    fn column(&self, digest: u64) -> usize {
        digest as usize & (self.slots.len() - 1)
    }

    /// Any displaced weight may have been this key's.
    fn bounds(&self, size: Size) -> SizeEstimate {
        SizeEstimate::between(size, size, size + self.displaced + self.saturated)
    }
}

impl<K: FlowKey> Ingest<K> for ReplacingArray<K> {
    fn ingest(&mut self, batch: &mut Batch<K>) {
        batch.digest(&self.digester);
        let (keys, digests) = (batch.keys(), batch.digests());
        let (packets, bytes) = (batch.packets(), batch.bytes());
        let slots: &mut [Slot<K>] = &mut self.slots;
        let mask = slots.len() - 1;
        // In a local: in memory each packet would wait for the store of the one before.
        let mut displaced = Size::default();
        for &digest in digests.iter().take(PREFETCH_AHEAD) {
            prefetch(slots, digest as usize & mask);
        }
        for i in 0..keys.len() {
            if let Some(&digest) = digests.get(i + PREFETCH_AHEAD) {
                prefetch(slots, digest as usize & mask);
            }
            let slot = &mut slots[digests[i] as usize & mask];
            if slot.key == keys[i] && !slot.is_empty() {
                let excess = slot.add(packets[i], bytes[i]);
                if excess != Size::default() {
                    self.saturated += excess;
                }
            } else {
                displaced += slot.size();
                *slot = Slot { key: keys[i], packets: packets[i], bytes: bytes[i] };
            }
        }
        self.displaced += displaced;
    }

    fn answers(&self) -> &dyn Answers {
        self
    }

    /// Where both hold a slot, the heavier key keeps it and the other's weight is displaced.
    fn merge(&mut self, other: &dyn Ingest<K>) -> Result<(), Incompatible> {
        let other = twin(self, other, |summary| Basis::of(&summary.digester))?;
        for (slot, other) in self.slots.iter_mut().zip(other.slots.iter()) {
            if slot.key == other.key {
                self.saturated += slot.add(other.packets, other.bytes);
                continue;
            }
            let lighter =
                if slot.packets < other.packets { std::mem::replace(slot, *other) } else { *other };
            self.displaced += lighter.size();
        }
        self.displaced += other.displaced;
        self.saturated += other.saturated;
        Ok(())
    }

    fn save(&self, out: &mut Writer) {
        out.size(self.displaced);
        out.size(self.saturated);
        let occupied = || self.slots.iter().filter(|slot| !slot.is_empty());
        out.number(occupied().count() as u64);
        out.sorted(Slot::<K>::STORED_BYTES, |out| occupied().for_each(|slot| slot.save(out)));
    }

    fn load(&mut self, from: &mut Reader<'_>) -> Result<(), DecodeError> {
        self.displaced = from.size("displaced")?;
        self.saturated = from.size("saturated")?;
        for _ in 0..from.count("number of slots", self.slots.len())? {
            let slot = Slot::<K>::load(from)?;
            let column = self.column(slot.key.digest(&self.digester));
            if !self.slots[column].is_empty() {
                return Err(from.invalid("slot", Slot::<K>::STORED_BYTES, "it is another key's"));
            }
            self.slots[column] = slot;
        }
        Ok(())
    }

    fn clear(&mut self) {
        for slot in self.slots.iter_mut() {
            slot.packets = 0;
            slot.bytes = 0;
        }
        self.displaced = Size::default();
        self.saturated = Size::default();
    }

    fn parameters(&self) -> Vec<(&'static str, Setting)> {
        vec![("columns", Setting::Integer(self.slots.len() as u64))]
    }

    fn memory_bytes(&self) -> usize {
        self.slots.memory_bytes()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl<K: FlowKey> Answers for ReplacingArray<K> {
    fn untracked(&self) -> Size {
        self.displaced
    }
    fn saturated(&self) -> Size {
        self.saturated
    }
    fn size(&self) -> Option<&dyn SizeQuery> {
        Some(self)
    }
    fn candidates(&self) -> Option<&dyn Candidates> {
        Some(self)
    }
}

impl<K: FlowKey> SizeQuery for ReplacingArray<K> {
    fn estimate(&self, key: &[u8]) -> SizeEstimate {
        let Some(key) = K::from_canonical(key) else {
            return SizeEstimate::exact(Size::default());
        };
        let slot = &self.slots[self.column(key.digest(&self.digester))];
        self.bounds(if slot.key == key { slot.size() } else { Size::default() })
    }
}

impl<K: FlowKey> Candidates for ReplacingArray<K> {
    fn for_each(&self, visit: &mut dyn FnMut(CanonicalKey, SizeEstimate)) {
        for slot in self.slots.iter().filter(|slot| !slot.is_empty()) {
            visit(CanonicalKey::new(slot.key.canonical()), self.bounds(slot.size()));
        }
    }

    fn overflow(&self) -> u64 {
        0
    }
}
