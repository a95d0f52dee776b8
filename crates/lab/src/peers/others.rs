//! Structures of other projects, which take one key at a time.

use std::hash::{BuildHasher, Hasher};

use asap_sketchlib as asap;
use asap_sketchlib::{DataInput, FastPath, Vector2D};
use datasketches::countmin::CountMinSketch;
use datasketches::frequencies::FrequentItemsSketch;
use datasketches::hll::{HllSketch, HllType};
use flowgauge_core::terms::Size;
use flowgauge_kernel::{Digester, Isa, Seed};
use hashbrown::HashMap;

use super::{Contender, Peer};
use crate::experiment::FRAME_BYTES;
use crate::speed::{FREQUENT, frequent_bytes};

const DATASKETCHES: &str = "datasketches";
const ASAP: &str = "asap_sketchlib";
const HASHBROWN: &str = "hashbrown";

/// Rows and columns of sketches.
const ROWS: usize = 4;
const COLUMNS: usize = 1 << 16;

/// The share of sampled rows.
const SAMPLED: f64 = 0.01;

/// log₂ of the number of HyperLogLog registers.
const REGISTERS: u8 = 14;

type AsapCountMin = asap::CountMinSketch<Vector2D<i32>, FastPath>;
type AsapCountSketch = asap::CountSketch<Vector2D<i32>, FastPath>;
type AsapHll = asap::HyperLogLogP14<asap::Ertl>;

/// The operations of a structure.
struct Use<S> {
    new: fn() -> Option<S>,
    take: fn(&mut S, &[u64]),
    memory_bytes: fn(&S) -> usize,
    size: Option<fn(&S, u64) -> f64>,
    flows: Option<fn(&S) -> f64>,
}

struct Other<S> {
    with: Use<S>,
    /// `None` if the library refuses to create it.
    state: Option<S>,
}

impl<S> Peer for Other<S> {
    fn begin(&mut self) {
        self.state = (self.with.new)();
    }

    fn take(&mut self, keys: &[u64]) {
        if let Some(state) = &mut self.state {
            (self.with.take)(state, keys);
        }
    }

    fn memory_bytes(&self) -> usize {
        self.state.as_ref().map_or(0, self.with.memory_bytes)
    }

    fn size(&self, key: u64) -> Option<f64> {
        Some(self.with.size?(self.state.as_ref()?, key))
    }

    fn flows(&self) -> Option<f64> {
        Some(self.with.flows?(self.state.as_ref()?))
    }
}

fn of<S: 'static>(project: &'static str, name: &'static str, with: Use<S>) -> Contender {
    let state = (with.new)();
    Contender { project, name, peer: Box::new(Other { with, state }) }
}

/// Count-Min.
pub(super) fn datasketches_count_min() -> Contender {
    let with = Use {
        new: || CountMinSketch::<u32>::new(ROWS as u8, COLUMNS as u32).ok(),
        take: |sketch, keys| keys.iter().for_each(|key| sketch.update(*key)),
        memory_bytes: CountMinSketch::estimated_size,
        size: Some(|sketch, key| f64::from(sketch.estimate(key))),
        flows: None,
    };
    of(DATASKETCHES, "CountMinSketch", with)
}

/// Count-Min, in its fast mode with one hash per packet.
pub(super) fn asap_count_min() -> Contender {
    let with = Use {
        new: || Some(AsapCountMin::with_dimensions(ROWS, COLUMNS)),
        take: |sketch, keys| keys.iter().for_each(|key| sketch.update(&DataInput::U64(*key))),
        memory_bytes: AsapCountMin::memory_bytes,
        size: Some(|sketch, key| f64::from(sketch.estimate(&DataInput::U64(key)))),
        flows: None,
    };
    of(ASAP, "CountMinSketch", with)
}

/// Count-Min of sampled rows.
pub(super) fn asap_nitro_count_min() -> Contender {
    let with = Use {
        new: || {
            let mut sketch = AsapCountMin::with_dimensions(ROWS, COLUMNS);
            sketch.enable_nitro_with_seed(SAMPLED, 1);
            Some(sketch)
        },
        take: |sketch, keys| keys.iter().for_each(|key| sketch.nitro_update(&DataInput::U64(*key))),
        memory_bytes: AsapCountMin::memory_bytes,
        size: Some(|sketch, key| sketch.nitro_estimate(&DataInput::U64(key))),
        flows: None,
    };
    of(ASAP, "CountMinSketch with Nitro", with)
}

/// Count Sketch, in its fast mode.
pub(super) fn asap_count_sketch() -> Contender {
    let with = Use {
        new: || Some(AsapCountSketch::with_dimensions(ROWS, COLUMNS)),
        take: |sketch, keys| keys.iter().for_each(|key| sketch.update(&DataInput::U64(*key))),
        memory_bytes: AsapCountSketch::memory_bytes,
        size: Some(|sketch, key| sketch.estimate(&DataInput::U64(key))),
        flows: None,
    };
    of(ASAP, "CountSketch", with)
}

/// Frequent items, with its table grown to full size.
pub(super) fn frequent_items() -> Contender {
    let with = Use {
        new: || {
            let mut sketch = FrequentItemsSketch::<u64>::new(FREQUENT).ok()?;
            (0..FREQUENT as u64).for_each(|key| sketch.update(key));
            sketch.reset();
            Some(sketch)
        },
        take: |sketch, keys| keys.iter().for_each(|key| sketch.update(*key)),
        memory_bytes: |_| frequent_bytes(),
        size: Some(|sketch, key| sketch.estimate(&key) as f64),
        flows: None,
    };
    of(DATASKETCHES, "FrequentItemsSketch", with)
}

/// A counting map with its default hasher.
pub(super) fn map() -> Contender {
    let with = Use {
        new: || Some(HashMap::<u64, u64>::new()),
        take: |map, keys| keys.iter().for_each(|key| *map.entry(*key).or_default() += 1),
        memory_bytes: HashMap::allocation_size,
        size: Some(|map, key| map.get(&key).copied().unwrap_or(0) as f64),
        flows: None,
    };
    of(HASHBROWN, "HashMap", with)
}

/// A map of packets and bytes, as exact tables count both.
pub(super) fn map_of_sizes() -> Contender {
    let with = Use {
        new: || Some(HashMap::<u64, Size>::new()),
        take: |map, keys| {
            for key in keys {
                *map.entry(*key).or_default() += Size { packets: 1, bytes: FRAME_BYTES.into() };
            }
        },
        memory_bytes: HashMap::allocation_size,
        size: Some(|map, key| map.get(&key).map_or(0, |size| size.packets) as f64),
        flows: None,
    };
    of(HASHBROWN, "HashMap of packets and bytes", with)
}

/// A counting map hashed by our digest.
pub(super) fn map_of_digests() -> Contender {
    let with = Use {
        new: || {
            let digester = Digester::new(Seed::number(1), Isa::best());
            Some(HashMap::<u64, u64, Digests>::with_hasher(Digests(digester)))
        },
        take: |map, keys| keys.iter().for_each(|key| *map.entry(*key).or_default() += 1),
        memory_bytes: HashMap::allocation_size,
        size: Some(|map, key| map.get(&key).copied().unwrap_or(0) as f64),
        flows: None,
    };
    of(HASHBROWN, "HashMap by flowgauge's digest", with)
}

/// HyperLogLog.
pub(super) fn datasketches_hll() -> Contender {
    let with = Use {
        new: || HllSketch::new(REGISTERS, HllType::Hll8).ok(),
        take: |sketch, keys| keys.iter().for_each(|key| sketch.update(*key)),
        memory_bytes: HllSketch::estimated_size,
        size: None,
        flows: Some(HllSketch::estimate),
    };
    of(DATASKETCHES, "HllSketch", with)
}

/// HyperLogLog.
pub(super) fn asap_hll() -> Contender {
    let with = Use {
        new: || Some(AsapHll::new()),
        take: |sketch, keys| keys.iter().for_each(|key| sketch.update(&DataInput::U64(*key))),
        memory_bytes: |sketch| sketch.registers_as_slice().len(),
        size: None,
        flows: Some(|sketch| sketch.estimate() as f64),
    };
    of(ASAP, "HyperLogLog", with)
}

/// Hashes a key by its digest.
#[derive(Clone)]
struct Digests(Digester);

struct Digest {
    digester: Digester,
    value: u64,
}

impl BuildHasher for Digests {
    type Hasher = Digest;

    fn build_hasher(&self) -> Digest {
        Digest { digester: self.0, value: 0 }
    }
}

impl Hasher for Digest {
    fn write_u64(&mut self, key: u64) {
        self.value = self.digester.digest(&key, size_of::<u64>());
    }

    /// Only 8-byte keys are hashed.
    fn write(&mut self, bytes: &[u8]) {
        let mut key = [0; 8];
        key[..bytes.len().min(8)].copy_from_slice(&bytes[..bytes.len().min(8)]);
        self.write_u64(u64::from_ne_bytes(key));
    }

    fn finish(&self) -> u64 {
        self.value
    }
}
