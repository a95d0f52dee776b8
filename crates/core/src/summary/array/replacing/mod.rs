//! A replacing array: each slot stores its key, and a colliding key takes the slot over.
//!
//! Paper: Alipourfard et al., "A comparison of performance and accuracy of measurement algorithms
//! in software" (SOSR 2018), §3; with states other than counters, §4.2. A displaced key starts
//! again from zero, so no estimate exceeds the truth. Beyond the paper, heavy displaced states are
//! kept in a small table, and a key has what is in its slot and in the table. Lost weight is
//! counted, so that the bounds hold for every key.

mod displaced;

use bytemuck::Zeroable;
use flowgauge_kernel::{Digester, Zeroed, prefetch};

use crate::batch::Batch;
use crate::key::{CanonicalKey, FlowKey};
use crate::summary::codec::{DecodeError, Reader, Writer};
use crate::summary::describe::form;
use crate::summary::ingest::{Basis, twin};
use crate::summary::state::{self, ARRAY_STATE, Count, Distinct, Ewma, Kind, Past, State, States};
use crate::summary::{
    Answers, BuildError, Candidates, Counted, Counter, Describe, Estimate, Forecast, Forecasts,
    Incompatible, Info, Ingest, Laws, Options, Parameter, Reads, Setting, SizeEstimate, SizeQuery,
    Spread, Summary, heavy,
};
use crate::terms::{Measure, Size};
use displaced::{Displaced, lose};

/// A replacing array of counters, distinct counts or forecasts.
///
/// Cost: one cache line per packet. Memory in bytes, with `slot` for `size_of::<K>() + 12, or 144
/// distinct, or 28 ewma, rounded up to the key's alignment`: `columns × slot + candidates × (slot +
/// 8)`.
///
/// ```
/// use flowgauge_core::batch::Batch;
/// use flowgauge_core::catalog;
/// use flowgauge_core::key::{FlowKey, Key8};
/// use flowgauge_core::summary::Options;
///
/// let options = Options::new(1 << 20, 1).for_keys(4);
/// let mut array = catalog::build::<Key8>("replacing-array", &options).unwrap();
/// let key = Key8::from_canonical(&[192, 0, 2, 1]).unwrap();
/// let mut batch = Batch::new();
/// for _ in 0..100 {
///     batch.push(key, 1500, 0);
/// }
/// array.ingest(&mut batch);
/// let size = array.answers().size().unwrap().estimate(&[192, 0, 2, 1]);
/// assert_eq!(size.packets.unwrap().value, 100.0);
/// assert_eq!(size.bytes.unwrap().value, 150_000.0);
/// ```
pub struct ReplacingArray;

impl Describe for ReplacingArray {
    const INFO: Info = Info {
        name: "replacing-array",
        idea: "one array of keyed slots with one hash; a colliding key takes over the slot, and \
               heavy displaced states are kept",
        paper: "Simple (SOSR 2018), section 3",
        parameters: &[
            Parameter {
                name: "columns",
                help: "number of slots, a power of two (default: what fits into the memory)",
            },
            Parameter {
                name: "candidates",
                help: "displaced heavy states to keep, a power of two, or 0 to lose them all as \
                       in the paper (default: 16384, or what a quarter of the memory holds)",
            },
            ARRAY_STATE,
        ],
        memory: "columns x slot + candidates x (slot + 8); slot: key + 12, 144 for distinct or \
                 28 for ewma, rounded up to 4 or 8",
        forms: &[
            form![Size(Counted::Both), Candidates],
            form![state = "distinct"; Size(Counted::Both), Candidates, Spread],
            form![state = "ewma"; Size(Counted::Both), Candidates, Forecasts],
        ],
        laws: Laws { sizes: true, ..Laws::NONE },
    };

    fn fits(options: &Options) -> Result<(), BuildError> {
        Kind::fits(Self::INFO.name, &Kind::OF_ARRAYS, options)
    }

    fn build<K: FlowKey>(options: &Options) -> Result<Box<dyn Summary<K>>, BuildError> {
        Ok(match Kind::from_options(Self::INFO.name, &Kind::OF_ARRAYS, options)? {
            Kind::Distinct if const { K::DISTINCT } => {
                Box::new(KeyedArray::<K, Distinct>::new(options)?)
            }
            Kind::Ewma => Box::new(KeyedArray::<K, Ewma>::new(options)?),
            _ => Box::new(KeyedArray::<K, Count>::new(options)?),
        })
    }
}

/// A key and its state; empty if the state is zero.
#[derive(Clone, Copy, Zeroable)]
#[repr(C)]
struct Slot<K, S> {
    key: K,
    state: S,
}

/// The state of a key, from its slot and from the table, and what its counters had no room for.
struct Whole<S> {
    state: S,
    excess: Size,
}

/// A replacing array of states.
struct KeyedArray<K, S> {
    digester: Digester,
    slots: Zeroed<Slot<K, S>>,
    displaced: Displaced<K, S>,
    spread: u64,
    past: Past,
    /// The weight of all packets.
    total: u64,
    saturated: Size,
}

impl<K: FlowKey, S: State> KeyedArray<K, S> {
    fn new(options: &Options) -> Result<Self, BuildError> {
        let per_candidate = Displaced::<K, S>::BYTES_PER_STATE;
        let candidates = heavy::candidates(options, per_candidate)?;
        let rest = options.memory_bytes.saturating_sub(candidates.saturating_mul(per_candidate));
        let slot = size_of::<Slot<K, S>>();
        let columns = options.parameters.power_of_two("columns", rest, slot)?;
        Ok(Self {
            digester: options.digester,
            slots: options.memory.zeroed(columns)?,
            displaced: Displaced::new(candidates, options)?,
            spread: options.spread,
            past: Past::new(options.by),
            total: 0,
            saturated: Size::default(),
        })
    }

    fn basis(&self) -> Basis<'_> {
        let (by, spread) = (self.past.by(), self.spread);
        self.displaced.basis(Basis {
            by: S::LASTING.then_some(by),
            spread: S::ELEMENTS.then_some(spread),
            ..Basis::of(&self.digester)
        })
    }

    #[inline(always)]
    fn column(&self, digest: u64) -> usize {
        digest as usize & (self.slots.len() - 1)
    }

    /// Largest weight that a key may have lost.
    fn missed(&self) -> Size {
        self.displaced.lost + self.saturated
    }

    /// The state of a key: that in its slot, if the slot is its own, and the displaced one.
    fn whole(&self, key: K) -> Whole<S> {
        let digest = key.digest(&self.digester);
        let slot = &self.slots[self.column(digest)];
        let mut state = if slot.key == key { slot.state } else { S::zeroed() };
        let displaced = self.displaced.find(key, digest);
        let excess = displaced.map_or(Size::default(), |displaced| state.merge(displaced));
        Whole { state, excess }
    }

    fn size_of(&self, whole: &Whole<S>) -> SizeEstimate {
        let size = whole.state.size() + whole.excess;
        SizeEstimate::between(size, size, size + self.missed())
    }

    /// Every key with a state, once.
    fn keys(&self) -> impl Iterator<Item = K> {
        let displaced = |key: K| self.displaced.find(key, key.digest(&self.digester)).is_some();
        let in_slots = self.occupied().map(|slot| slot.key).filter(move |key| !displaced(*key));
        self.displaced.iter().map(|(key, _)| key).chain(in_slots)
    }

    fn occupied(&self) -> impl Iterator<Item = &Slot<K, S>> {
        self.slots.iter().filter(|slot| !slot.state.is_nothing())
    }
}

/// The weight of packets in this measure.
fn weight(packets: &[u32], bytes: &[u64], by: Measure) -> u64 {
    match by {
        Measure::Packets => u32::sum(packets),
        Measure::Bytes => u64::sum(bytes),
    }
}

impl<K: FlowKey, S: State> Ingest<K> for KeyedArray<K, S> {
    fn ingest(&mut self, batch: &mut Batch<K>) {
        batch.digest(&self.digester);
        let (keys, digests) = (batch.keys(), batch.digests());
        let (packets, bytes, elements) = (batch.packets(), batch.bytes(), batch.elements());
        // The limit only grows: a state below it before the batch is light throughout.
        let (by, limit) = (self.past.by(), self.displaced.limit(self.total));
        let slots: &mut [Slot<K, S>] = &mut self.slots;
        let mask = slots.len() - 1;
        // In a local variable: in memory, each packet would wait for the store of the one before.
        let mut lost = Size::default();
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
                continue;
            }
            // In place: if it were read from a copy, its counters would wait for the copy's stores.
            if slot.state.outweighs(limit, by) {
                // The total after this packet, so that the size of batches makes no difference.
                let total = self.total.saturating_add(weight(&packets[..=i], &bytes[..=i], by));
                self.saturated += self.displaced.take(slot.key, &slot.state, total, &mut self.past);
            } else {
                lose(&slot.state, &mut lost, &mut self.past);
            }
            let mut state = S::zeroed();
            // A single row fills no counter.
            let _ = state.add(packets[i], bytes[i], element);
            *slot = Slot { key: keys[i], state };
        }
        self.displaced.lost += lost;
        self.total = self.total.saturating_add(weight(packets, bytes, by));
    }

    fn reads(&self) -> Reads {
        Reads { elements: S::ELEMENTS, ..Reads::BYTES }
    }
}

impl<K: FlowKey, S: State> Summary<K> for KeyedArray<K, S> {
    fn answers(&self) -> &dyn Answers {
        self
    }

    /// If both occupy a slot, the heavier key keeps it, and the other's state is displaced.
    fn merge(&mut self, other: &dyn Summary<K>) -> Result<(), Incompatible> {
        let other = twin(self, other, Self::basis)?;
        self.total = self.total.saturating_add(other.total);
        self.saturated += other.saturated;
        self.past.merge(&other.past);
        let (total, past) = (self.total, &mut self.past);
        self.saturated += self.displaced.merge(&other.displaced, total, past);
        for (own, slot) in self.slots.iter_mut().zip(other.slots.iter()) {
            if own.key == slot.key {
                self.saturated += own.state.merge(&slot.state);
                continue;
            }
            let mut lighter = *slot;
            if own.state.is_nothing() || own.state.size().packets < slot.state.size().packets {
                std::mem::swap(own, &mut lighter);
            }
            self.saturated += self.displaced.take(lighter.key, &lighter.state, total, past);
        }
        Ok(())
    }

    fn save(&self, out: &mut Writer) {
        out.number(self.total);
        out.size(self.saturated);
        if S::LASTING {
            self.past.save(out);
        }
        out.number(self.occupied().count() as u64);
        out.sorted(out.key_bytes() + S::STORED_BYTES, |out| {
            for slot in self.occupied() {
                out.key(slot.key);
                slot.state.save(out);
            }
        });
        self.displaced.save(out);
    }

    fn load(&mut self, from: &mut Reader<'_>) -> Result<(), DecodeError> {
        self.total = from.number("total")?;
        self.saturated = from.size("saturated")?;
        if S::LASTING {
            self.past.load(from)?;
        }
        for _ in 0..from.count("number of slots", self.slots.len())? {
            let slot = Slot::<K, S> { key: from.key("key")?, state: S::load(from)? };
            let column = self.column(slot.key.digest(&self.digester));
            if !self.slots[column].state.is_nothing() {
                let width = from.key_bytes() + S::STORED_BYTES;
                return Err(from.invalid("slot", width, "it belongs to another key"));
            }
            self.slots[column] = slot;
        }
        self.displaced.load(from)
    }

    fn clear(&mut self) {
        self.slots.fill(Slot::zeroed());
        self.displaced.clear();
        self.past = self.past.forgotten();
        self.total = 0;
        self.saturated = Size::default();
    }

    fn next_epoch(&mut self) {
        if !S::LASTING {
            return self.clear();
        }
        let past = self.past;
        for slot in self.slots.iter_mut() {
            slot.state.next_epoch(&past);
        }
        self.past.next_epoch(self.missed(), true);
        self.displaced.next_epoch(self.total, &past, &mut self.past);
        self.total = 0;
        self.saturated = Size::default();
    }

    fn parameters(&self) -> Vec<(&'static str, Setting)> {
        let sizes = [
            ("columns", Setting::Integer(self.slots.len() as u64)),
            ("candidates", Setting::Integer(self.displaced.most() as u64)),
        ];
        sizes.into_iter().chain(state::parameters::<S>()).collect()
    }

    fn memory_bytes(&self) -> usize {
        self.slots.memory_bytes() + self.displaced.memory_bytes()
    }
}

impl<K: FlowKey, S: State> Answers for KeyedArray<K, S> {
    fn untracked(&self) -> Size {
        self.displaced.lost
    }
    fn displaces(&self) -> bool {
        true
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
        match K::matching(key, &self.digester) {
            Some(key) => self.size_of(&self.whole(key)),
            None => SizeEstimate::exact(Size::default()),
        }
    }
}

impl<K: FlowKey, S: State> Candidates for KeyedArray<K, S> {
    fn for_each(&self, visit: &mut dyn FnMut(CanonicalKey, SizeEstimate)) {
        for key in self.keys() {
            let whole = self.whole(key);
            if !whole.state.is_silent() {
                visit(key.to_canonical(&self.digester), self.size_of(&whole));
            }
        }
    }

    fn overflow(&self) -> u64 {
        self.displaced.overflow()
    }
}

/// Lost states may hold further elements of any address.
impl<K: FlowKey, S: State> Spread for KeyedArray<K, S> {
    fn for_each(&self, visit: &mut dyn FnMut(CanonicalKey, Estimate)) {
        let (unseen, uncounted) = (self.displaced.lost.packets, self.saturated.packets);
        for key in self.keys() {
            let Whole { state, excess } = self.whole(key);
            if let Some(distinct) = state.distinct_above(self.spread) {
                let uncounted = uncounted.saturating_add(excess.packets);
                let estimate = distinct.estimate(unseen, uncounted);
                visit(key.to_canonical(&self.digester), estimate);
            }
        }
    }

    fn overflow(&self) -> u64 {
        self.displaced.overflow()
    }
}

impl<K: FlowKey, S: State> Forecasts for KeyedArray<K, S> {
    fn for_each(&self, visit: &mut dyn FnMut(CanonicalKey, Forecast)) {
        for key in self.keys() {
            let Whole { state, excess } = self.whole(key);
            if let Some(ewma) = state.ewma() {
                let forecast = self.past.of(ewma, self.missed() + excess);
                visit(key.to_canonical(&self.digester), forecast);
            }
        }
    }
}
