//! CountArray, additive: one counter array, colliding keys add up.
//!
//! Paper: Alipourfard et al., "A comparison of performance and accuracy of measurement algorithms
//! in software" (SOSR 2018), §3. An estimate is never below the truth; its expected excess is the
//! other keys' weight over the number of columns. Heavy keys are kept in a set beside the array.

use std::any::Any;

use flowgauge_kernel::{Digester, Zeroed, prefetch};

use super::super::basis::{Basis, twin};
use super::super::codec::{DecodeError, Reader, Writer};
use super::super::heavy::HeavyKeys;
use super::super::state::{self, ARRAY_STATE, Distinct, Ewma, Kind};
use super::super::{
    Answers, BuildError, Candidates, Counter, Describe, Estimate, Incompatible, Info, Ingest, Laws,
    Measure, Memory, Merge, Options, Parameter, Parameters, Setting, Size, SizeEstimate, SizeQuery,
};
use super::shared::SharedArray;
use crate::batch::{BATCH_PACKETS, Batch};
use crate::key::{CanonicalKey, FlowKey};
use crate::task::Threshold;

/// By Markov's inequality, a counter's excess is below [`EXCESS`] times its expectation with this
/// chance.
pub(super) const CONFIDENCE: f64 = 0.95;
const EXCESS: f64 = 20.0;

/// Heavy keys that are kept, unless asked otherwise or the memory is small.
pub(super) const MOST_CANDIDATES: usize = 1 << 14;

/// Fewer packets are counted one by one: a block has a list of heavy ones to begin with.
const LEAST_BLOCK: usize = 32;

/// Columns whose cache lines are asked for ahead of the one in hand.
pub(super) const PREFETCH_AHEAD: usize = 32;

/// One array of counters of one measure: `C` is `u32` for packets, `u64` for bytes.
///
/// Cost: one cache line a packet; one more in the set while the key is heavy. Memory in bytes:
/// `columns × size_of::<C>() + candidates × (3 × size_of::<K>() + 8)`.
pub struct CountArray<K, C> {
    digester: Digester,
    counters: Zeroed<C>,
    heavy: HeavyKeys<K>,
    candidates: usize,
    threshold: Threshold,
    total: u64,
    saturated: u64,
}

impl Describe for CountArray<(), ()> {
    const INFO: Info = Info {
        name: "count-array",
        idea: "one counter array by one hash, colliding keys add up",
        paper: "Simple (SOSR 2018), section 3",
        parameters: &[
            Parameter {
                name: "columns",
                help: "number of counters, a power of two (default: what fits into the memory)",
            },
            Parameter {
                name: "candidates",
                help: "heavy keys that are kept, a power of two (default: 16384, or what \
                       a quarter of the memory holds)",
            },
            ARRAY_STATE,
        ],
        memory: "columns x (4 by packets, 8 by bytes, 144 distinct, 28 ewma) + candidates x (3 x key + 8), \
                 twice that for ewma",
        laws: Laws { commutable: true, aggregatable: true, merge: Merge::Equal },
    };

    fn laws(parameters: &Parameters) -> Laws {
        state::laws(Self::INFO.laws, parameters)
    }

    fn build<K: FlowKey>(options: &Options) -> Result<Box<dyn Ingest<K>>, BuildError> {
        let kind = Kind::from_options::<K>(Self::INFO.name, &Kind::OF_ARRAYS, options)?;
        Ok(match (kind, options.by) {
            (Kind::Distinct, _) => return SharedArray::<K, Distinct>::build(options),
            (Kind::Ewma, _) => return SharedArray::<K, Ewma>::build(options),
            (_, Measure::Packets) => Box::new(CountArray::<K, u32>::from_options(options)?),
            (_, Measure::Bytes) => Box::new(CountArray::<K, u64>::from_options(options)?),
        })
    }
}

impl<K: FlowKey, C: Counter> CountArray<K, C> {
    fn from_options(options: &Options) -> Result<Self, BuildError> {
        let per_candidate = HeavyKeys::<K>::memory_bytes(1);
        let for_candidates = (options.memory_bytes / 4).min(MOST_CANDIDATES * per_candidate);
        let parameters = &options.parameters;
        let candidates = parameters.power_of_two("candidates", for_candidates, per_candidate)?;
        let rest = options.memory_bytes.saturating_sub(candidates * per_candidate);
        let columns = parameters.power_of_two("columns", rest, size_of::<C>())?;
        Self::new(columns, candidates, options.threshold, options.digester, &options.memory)
    }

    /// Reserves `columns` counters and room for `candidates` heavy keys, both powers of two.
    ///
    /// # Errors
    /// When the memory does not suffice.
    pub fn new(
        columns: usize,
        candidates: usize,
        threshold: Threshold,
        digester: Digester,
        memory: &Memory,
    ) -> Result<Self, BuildError> {
        debug_assert!(columns.is_power_of_two() && candidates.is_power_of_two());
        Ok(Self {
            digester,
            counters: memory.zeroed(columns)?,
            heavy: HeavyKeys::new(candidates, memory)?,
            candidates,
            threshold,
            total: 0,
            saturated: 0,
        })
    }

    fn basis(&self) -> Basis {
        Basis { threshold: Some(self.threshold), ..Basis::of(&self.digester) }
    }

    fn count(&self, key: K) -> u64 {
        let column = key.digest(&self.digester) as usize & (self.counters.len() - 1);
        self.counters[column].get()
    }

    /// Counts as many packets at once as the set has room for: what a full set drops depends on all
    /// counters, and batches of any size must see the same.
    #[cold]
    #[inline(never)]
    fn take_by_room(&mut self, keys: &[K], digests: &[u64], weights: &[C]) {
        let mut from = 0;
        while from < keys.len() {
            let room = self.heavy.room();
            let upto = keys.len().min(from + room.max(LEAST_BLOCK));
            if room < LEAST_BLOCK {
                for i in from..upto {
                    self.take::<1>(&keys[i..=i], &digests[i..=i], &weights[i..=i]);
                }
            } else {
                let (keys, digests) = (&keys[from..upto], &digests[from..upto]);
                self.take::<BATCH_PACKETS>(keys, digests, &weights[from..upto]);
            }
            from = upto;
        }
    }

    /// Counts up to `N` packets.
    #[inline(always)]
    fn take<const N: usize>(&mut self, keys: &[K], digests: &[u64], weights: &[C]) {
        let (counters, digester) = (&mut *self.counters, &self.digester);
        let mask = counters.len() - 1;
        for &digest in digests.iter().take(PREFETCH_AHEAD) {
            prefetch(counters, digest as usize & mask);
        }
        let before = self.total;
        let low = self.threshold.weight(before) as u64;
        let (mut listed, mut counts) = ([0u8; N], [C::zeroed(); N]);
        let (mut heavy, mut total) = (0, before);
        for i in 0..keys.len() {
            if let Some(&digest) = digests.get(i + PREFETCH_AHEAD) {
                prefetch(counters, digest as usize & mask);
            }
            let counter = &mut counters[digests[i] as usize & mask];
            let excess = counter.add(weights[i]);
            if excess > 0 {
                self.saturated = self.saturated.saturating_add(excess);
            }
            total = total.saturating_add(weights[i].get());
            // Which packets are heavy cannot be foretold: a list of them costs less than a branch.
            listed[heavy] = i as u8;
            counts[i] = *counter;
            heavy += usize::from(counter.get() > low);
        }
        self.total = total;
        // A threshold only grows: what passes it as it is after the batch passed it in the batch.
        let high = self.threshold.weight(total) as u64;
        let (mut so_far, mut summed) = (before, 0);
        let counters = &*counters;
        for &i in &listed[..heavy] {
            let i = usize::from(i);
            if counts[i].get() <= high {
                // Against the weight so far, this packet's included: batches of any size agree.
                so_far = weights[summed..=i]
                    .iter()
                    .map(|weight| weight.get())
                    .fold(so_far, u64::saturating_add);
                summed = i + 1;
                if counts[i].get() <= self.threshold.weight(so_far) as u64 {
                    continue;
                }
            }
            if !self.heavy.has(&keys[i], digests[i]) {
                let threshold = self.threshold.weight(total);
                self.heavy.join(keys[i], digests[i], threshold, digester, move |key| {
                    counters[key.digest(digester) as usize & mask].get() as f64
                });
            }
        }
    }

    /// The counter is never below the truth, unless it is full.
    fn bounds(&self, count: u64) -> Estimate {
        let low = least_of(count as f64, self.total as f64, self.counters.len());
        let full = count == C::MOST.get();
        let high = if full { count.saturating_add(self.saturated) } else { count };
        Estimate { value: count as f64, low, high: high as f64, confidence: Some(CONFIDENCE) }
    }

    fn estimate_of(&self, count: u64) -> SizeEstimate {
        let estimate = Some(self.bounds(count));
        match C::MEASURE {
            Measure::Packets => SizeEstimate { packets: estimate, bytes: None },
            Measure::Bytes => SizeEstimate { packets: None, bytes: estimate },
        }
    }
}

/// The least that a key has surely enough of the `count` in its column, where all `columns` hold
/// `total`. The others' f′ = total − f weigh f′ ÷ columns in it on average, and [`EXCESS`] times that
/// at most with the chance [`CONFIDENCE`]; so f ≥ (columns × count − 20 total) ÷ (columns − 20).
pub(super) fn least_of(count: f64, total: f64, columns: usize) -> f64 {
    let columns = columns as f64;
    if columns <= EXCESS {
        return 0.0;
    }
    let least = (columns * count - EXCESS * total) / (columns - EXCESS);
    least.clamp(0.0, count).floor()
}

impl<K: FlowKey, C: Counter> Ingest<K> for CountArray<K, C> {
    fn ingest(&mut self, batch: &mut Batch<K>) {
        batch.digest(&self.digester);
        let (keys, digests, weights) = (batch.keys(), batch.digests(), C::column(batch));
        if self.heavy.room() >= keys.len() {
            return self.take::<BATCH_PACKETS>(keys, digests, weights);
        }
        self.take_by_room(keys, digests, weights);
    }

    fn answers(&self) -> &dyn Answers {
        self
    }

    fn merge(&mut self, other: &dyn Ingest<K>) -> Result<(), Incompatible> {
        let other = twin(self, other, Self::basis)?;
        self.heavy.note_parts(self.threshold, [self.total, other.total]);
        for (counter, other) in self.counters.iter_mut().zip(other.counters.iter()) {
            self.saturated = self.saturated.saturating_add(counter.add(*other));
        }
        self.saturated = self.saturated.saturating_add(other.saturated);
        self.total = self.total.saturating_add(other.total);
        let threshold = self.threshold.weight(self.total);
        let (counters, digester) = (&self.counters, &self.digester);
        self.heavy.merge(&other.heavy, threshold, digester, |key| {
            counters[key.digest(digester) as usize & (counters.len() - 1)].get() as f64
        });
        Ok(())
    }

    fn save(&self, out: &mut Writer) {
        out.number(self.total);
        out.number(self.saturated);
        out.numbers(&self.counters);
        self.heavy.save(out);
    }

    fn load(&mut self, from: &mut Reader<'_>) -> Result<(), DecodeError> {
        self.total = from.number("total")?;
        self.saturated = from.number("saturated")?;
        from.numbers("counters", &mut self.counters)?;
        self.heavy.load(from, &self.digester)
    }

    fn clear(&mut self) {
        self.counters.fill(C::zeroed());
        self.heavy.clear();
        self.total = 0;
        self.saturated = 0;
    }

    fn parameters(&self) -> Vec<(&'static str, Setting)> {
        vec![
            ("columns", Setting::Integer(self.counters.len() as u64)),
            ("candidates", Setting::Integer(self.candidates as u64)),
        ]
    }

    fn wants_bytes(&self) -> bool {
        C::MEASURE == Measure::Bytes
    }

    fn memory_bytes(&self) -> usize {
        self.counters.memory_bytes() + HeavyKeys::<K>::memory_bytes(self.candidates)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl<K: FlowKey, C: Counter> Answers for CountArray<K, C> {
    fn saturated(&self) -> Size {
        match C::MEASURE {
            Measure::Packets => Size { packets: self.saturated, bytes: 0 },
            Measure::Bytes => Size { packets: 0, bytes: self.saturated },
        }
    }
    fn size(&self) -> Option<&dyn SizeQuery> {
        Some(self)
    }
    fn candidates(&self) -> Option<&dyn Candidates> {
        Some(self)
    }
}

impl<K: FlowKey, C: Counter> SizeQuery for CountArray<K, C> {
    fn estimate(&self, key: &[u8]) -> SizeEstimate {
        self.estimate_of(K::from_canonical(key).map_or(0, |key| self.count(key)))
    }
}

impl<K: FlowKey, C: Counter> Candidates for CountArray<K, C> {
    fn for_each(&self, visit: &mut dyn FnMut(CanonicalKey, SizeEstimate)) {
        for key in self.heavy.iter() {
            visit(CanonicalKey::new(key.canonical()), self.estimate_of(self.count(key)));
        }
    }

    fn overflow(&self) -> u64 {
        self.heavy.overflow()
    }
}
