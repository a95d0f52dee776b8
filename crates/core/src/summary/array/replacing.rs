//! CountArray, replacing: each slot stores its key, and a colliding key takes the slot over.
//!
//! Paper: Alipourfard et al., "A comparison of performance and accuracy of measurement algorithms
//! in software" (SOSR 2018), §3; with other states than counters §4.2. A key that is displaced
//! begins anew, so that nothing is ever above the truth. What it loses is counted, so that the
//! bounds hold for every key.

use std::any::Any;

use bytemuck::Zeroable;
use flowgauge_kernel::{Digester, Zeroed, prefetch};

use super::super::basis::{Basis, twin};
use super::super::codec::{DecodeError, Reader, Writer};
use super::super::state::{self, ARRAY_STATE, Count, Distinct, Ewma, Kind, Past, State};
use super::super::{
    Answers, BuildError, Candidates, Describe, Estimate, Forecast, Forecasts, Incompatible, Info,
    Ingest, Laws, Merge, Options, Parameter, Setting, Size, SizeEstimate, SizeQuery, Spread,
};
use crate::batch::Batch;
use crate::key::{CanonicalKey, FlowKey};

/// Every state in a slot of its own, until another key takes that over.
///
/// Cost: one cache line a packet. Memory in bytes: `columns × (size_of::<K>() + 12, or 144 distinct,
/// or 28 ewma, rounded up to the key's alignment)`.
pub struct ReplacingArray;

impl Describe for ReplacingArray {
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
        Ok(match Kind::from_options::<K>(Self::INFO.name, &Kind::OF_ARRAYS, options)? {
            Kind::Distinct => Box::new(KeyedArray::<K, Distinct>::new(options)?),
            Kind::Ewma => Box::new(KeyedArray::<K, Ewma>::new(options)?),
            _ => Box::new(KeyedArray::<K, Count>::new(options)?),
        })
    }
}

/// A key and its state; of no key while the state is nothing.
#[derive(Clone, Copy, Zeroable)]
#[repr(C)]
struct Slot<K, S> {
    key: K,
    state: S,
}

/// One array of keyed states.
struct KeyedArray<K, S> {
    digester: Digester,
    slots: Zeroed<Slot<K, S>>,
    spread: u64,
    past: Past,
    displaced: Size,
    saturated: Size,
}

impl<K: FlowKey, S: State> KeyedArray<K, S> {
    fn new(options: &Options) -> Result<Self, BuildError> {
        let slot = size_of::<Slot<K, S>>();
        let columns = options.parameters.power_of_two("columns", options.memory_bytes, slot)?;
        Ok(Self {
            digester: options.digester,
            slots: options.memory.zeroed(columns)?,
            spread: options.spread,
            past: Past::new(options.by),
            displaced: Size::default(),
            saturated: Size::default(),
        })
    }

    fn basis(&self) -> Basis {
        let (by, spread) = (self.past.by(), self.spread);
        Basis {
            by: S::LASTING.then_some(by),
            spread: S::ELEMENTS.then_some(spread),
            ..Basis::of(&self.digester)
        }
    }

    #[inline(always)]
    fn column(&self, digest: u64) -> usize {
        digest as usize & (self.slots.len() - 1)
    }

    /// Notes what is lost with the state of a displaced key.
    fn displace(&mut self, state: &S) {
        self.displaced += state.size();
        if let Some(ewma) = state.ewma() {
            self.past.lose(ewma);
        }
    }

    /// What any key may have had while it was displaced.
    fn missed(&self) -> Size {
        self.displaced + self.saturated
    }

    fn bounds(&self, size: Size) -> SizeEstimate {
        SizeEstimate::between(size, size, size + self.missed())
    }

    fn occupied(&self) -> impl Iterator<Item = &Slot<K, S>> {
        self.slots.iter().filter(|slot| !slot.state.is_nothing())
    }

    fn forget_epoch(&mut self) {
        self.displaced = Size::default();
        self.saturated = Size::default();
    }
}

impl<K: FlowKey, S: State> Ingest<K> for KeyedArray<K, S> {
    fn ingest(&mut self, batch: &mut Batch<K>) {
        batch.digest(&self.digester);
        let (keys, digests) = (batch.keys(), batch.digests());
        let (packets, bytes, elements) = (batch.packets(), batch.bytes(), batch.elements());
        let slots: &mut [Slot<K, S>] = &mut self.slots;
        let mask = slots.len() - 1;
        // In a local: in memory each packet would wait for the store of the one before.
        let mut displaced = Size::default();
        for &digest in digests {
            prefetch(slots, digest as usize & mask);
        }
        for i in 0..keys.len() {
            let element = if S::ELEMENTS { elements[i] } else { 0 };
            let slot = &mut slots[digests[i] as usize & mask];
            if slot.key == keys[i] {
                let excess = slot.state.add(packets[i], bytes[i], element);
                if excess != Size::default() {
                    self.saturated += excess;
                }
            } else {
                displaced += slot.state.size();
                if let Some(ewma) = slot.state.ewma() {
                    self.past.lose(ewma);
                }
                let mut state = S::zeroed();
                // One row fills no counter.
                let _ = state.add(packets[i], bytes[i], element);
                *slot = Slot { key: keys[i], state };
            }
        }
        self.displaced += displaced;
    }

    fn answers(&self) -> &dyn Answers {
        self
    }

    /// Where both hold a slot, the heavier key keeps it and the other's state is displaced.
    fn merge(&mut self, other: &dyn Ingest<K>) -> Result<(), Incompatible> {
        let other = twin(self, other, Self::basis)?;
        for (column, slot) in other.slots.iter().enumerate() {
            let own = &mut self.slots[column];
            if own.key == slot.key {
                self.saturated += own.state.merge(&slot.state);
                continue;
            }
            let mut lighter = *slot;
            if own.state.is_nothing() || own.state.size().packets < slot.state.size().packets {
                std::mem::swap(own, &mut lighter);
            }
            self.displace(&lighter.state);
        }
        self.past.merge(&other.past);
        self.displaced += other.displaced;
        self.saturated += other.saturated;
        Ok(())
    }

    fn save(&self, out: &mut Writer) {
        out.size(self.displaced);
        out.size(self.saturated);
        if S::LASTING {
            self.past.save(out);
        }
        out.number(self.occupied().count() as u64);
        out.sorted(K::BYTES + S::STORED_BYTES, |out| {
            for slot in self.occupied() {
                out.key(slot.key);
                slot.state.save(out);
            }
        });
    }

    fn load(&mut self, from: &mut Reader<'_>) -> Result<(), DecodeError> {
        self.displaced = from.size("displaced")?;
        self.saturated = from.size("saturated")?;
        if S::LASTING {
            self.past.load(from)?;
        }
        for _ in 0..from.count("number of slots", self.slots.len())? {
            let slot = Slot::<K, S> { key: from.key("key")?, state: S::load(from)? };
            let column = self.column(slot.key.digest(&self.digester));
            if !self.slots[column].state.is_nothing() {
                let width = K::BYTES + S::STORED_BYTES;
                return Err(from.invalid("slot", width, "it is another key's"));
            }
            self.slots[column] = slot;
        }
        Ok(())
    }

    fn clear(&mut self) {
        self.slots.fill(Slot::zeroed());
        self.past = self.past.forgotten();
        self.forget_epoch();
    }

    fn next_epoch(&mut self) {
        if !S::LASTING {
            return self.clear();
        }
        for slot in self.slots.iter_mut() {
            slot.state.next_epoch(&self.past);
        }
        self.past.next_epoch(self.missed(), true);
        self.forget_epoch();
    }

    fn parameters(&self) -> Vec<(&'static str, Setting)> {
        let columns = ("columns", Setting::Integer(self.slots.len() as u64));
        std::iter::once(columns).chain(state::parameters::<S>()).collect()
    }

    fn wants_elements(&self) -> bool {
        S::ELEMENTS
    }

    fn memory_bytes(&self) -> usize {
        self.slots.memory_bytes()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl<K: FlowKey, S: State> Answers for KeyedArray<K, S> {
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
    fn spread(&self) -> Option<&dyn Spread> {
        S::ELEMENTS.then_some(self as &dyn Spread)
    }
    fn forecasts(&self) -> Option<&dyn Forecasts> {
        S::LASTING.then_some(self as &dyn Forecasts)
    }
}

impl<K: FlowKey, S: State> SizeQuery for KeyedArray<K, S> {
    fn estimate(&self, key: &[u8]) -> SizeEstimate {
        let Some(key) = K::from_canonical(key) else {
            return SizeEstimate::exact(Size::default());
        };
        let slot = &self.slots[self.column(key.digest(&self.digester))];
        self.bounds(if slot.key == key { slot.state.size() } else { Size::default() })
    }
}

impl<K: FlowKey, S: State> Candidates for KeyedArray<K, S> {
    fn for_each(&self, visit: &mut dyn FnMut(CanonicalKey, SizeEstimate)) {
        for slot in self.occupied().filter(|slot| !slot.state.is_silent()) {
            visit(CanonicalKey::new(slot.key.canonical()), self.bounds(slot.state.size()));
        }
    }

    fn overflow(&self) -> u64 {
        0
    }
}

/// What was displaced may hold further elements of any address.
impl<K: FlowKey, S: State> Spread for KeyedArray<K, S> {
    fn for_each(&self, visit: &mut dyn FnMut(CanonicalKey, Estimate)) {
        for slot in self.occupied() {
            if let Some(distinct) = slot.state.distinct_above(self.spread) {
                let estimate = distinct.estimate(self.displaced.packets, self.saturated.packets);
                visit(CanonicalKey::new(slot.key.canonical()), estimate);
            }
        }
    }

    fn overflow(&self) -> u64 {
        0
    }
}

impl<K: FlowKey, S: State> Forecasts for KeyedArray<K, S> {
    fn for_each(&self, visit: &mut dyn FnMut(CanonicalKey, Forecast)) {
        for slot in self.occupied() {
            if let Some(ewma) = slot.state.ewma() {
                let forecast = self.past.of(ewma, self.missed());
                visit(CanonicalKey::new(slot.key.canonical()), forecast);
            }
        }
    }
}
