//! Randomized counter sharing (CSM): each flow spreads its packets over many counters, which other
//! flows use too.
//!
//! Paper: Li, Chen, Ling, "Fast and compact per-flow traffic measurement through randomized counter
//! sharing" (INFOCOM 2011), §4: counter-sum estimation. A flow has l of the m counters, and each of
//! its packets increments a random one of them. The size of a flow is the sum of its counters minus
//! the mean noise of l counters, l N/m. A packet updates one counter, an estimate reads l. Keys are
//! not stored, so a query names the key.

use std::marker::PhantomData;

use fastrand::Rng;
use flowgauge_kernel::{Digester, Zeroed, prefetch};

use super::{exact_size, size};
use crate::batch::{BATCH_PACKETS, Batch};
use crate::key::FlowKey;
use crate::summary::codec::{DecodeError, Reader, Writer};
use crate::summary::describe::form;
use crate::summary::ingest::{Basis, twin};
use crate::summary::remix::remix;
use crate::summary::{
    Answers, BuildError, BuildErrorKind, Counted, Counter, Describe, Estimate, Incompatible, Info,
    Ingest, Laws, Options, Parameter, Reads, Setting, SizeEstimate, SizeQuery, Summary,
};
use crate::terms::{Measure, Size};

/// Default number of counters per flow, if there are enough.
const MOST_PER_FLOW: u64 = 10_000;
/// By default a flow has at most one in this many counters.
const COUNTERS_PER_FLOW_COUNTER: u64 = 64;
/// Probability that an estimate is within [`DEVIATIONS`] standard deviations (Chebyshev).
const CONFIDENCE: f64 = 0.95;
/// √(1 / (1 − 0.95)).
const DEVIATIONS: f64 = 4.472_135_954_999_579;

/// Added to the digest for each further counter of a flow: 2⁶⁴ divided by the golden ratio, odd.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// Randomized counter sharing, in the catalog as `csm`.
///
/// Cost per packet: one random number and one cache line; an estimate reads all counters of a flow.
/// Memory in bytes: `counters × 4` by packets, `counters × 8` by bytes.
///
/// ```
/// use flowgauge_core::batch::Batch;
/// use flowgauge_core::catalog;
/// use flowgauge_core::key::{FlowKey, Key8};
/// use flowgauge_core::summary::Options;
///
/// let parameters = [("counters", 100_000), ("shared", 100)];
/// let options = Options::new(1 << 20, 1).for_keys(4).with(parameters);
/// let mut summary = catalog::build::<Key8>("csm", &options).unwrap();
/// let key = Key8::from_canonical(&[192, 0, 2, 1]).unwrap();
/// let mut batch = Batch::new();
/// (0..200).for_each(|time_ns| batch.push(key, 64, time_ns));
/// summary.ingest(&mut batch);
/// let size = summary.answers().size().unwrap().estimate(&[192, 0, 2, 1]);
/// assert!((size.packets.unwrap().value - 200.0).abs() < 10.0);
/// ```
pub struct Csm;

impl Describe for Csm {
    const INFO: Info = Info {
        name: "csm",
        idea: "a packet increments one of its flow's counters at random; flows share counters",
        paper: "Randomized counter sharing (INFOCOM 2011), section 4",
        parameters: &[
            Parameter {
                name: "counters",
                help: "number of counters (default: what fits into the memory)",
            },
            Parameter {
                name: "shared",
                help: "counters of a flow (default: 10000, or 1/64 of all counters in a small \
                       memory)",
            },
        ],
        memory: "counters x (4 by packets, 8 by bytes)",
        // A weighted update would add its whole weight to one counter and increase the noise.
        forms: &[form![Size(Counted::Asked)]],
        laws: Laws { commutable: true, sizes: true, ..Laws::NONE },
    };

    fn build<K: FlowKey>(options: &Options) -> Result<Box<dyn Summary<K>>, BuildError> {
        Ok(match options.by {
            Measure::Packets => Box::new(FlowCounters::<K, u32>::new(options)?),
            Measure::Bytes => Box::new(FlowCounters::<K, u64>::new(options)?),
        })
    }
}

/// The counters of all flows; `C` is `u32` for packets, `u64` for bytes.
struct FlowCounters<K, C> {
    keys: PhantomData<fn(K)>,
    digester: Digester,
    counters: Zeroed<C>,
    per_flow: u32,
    rng: Rng,
    total: u64,
    /// Sum of the squares of all counters, which gives the variance of estimates.
    squares: u128,
    saturated: u64,
}

impl<K: FlowKey, C: Counter> FlowCounters<K, C> {
    fn new(options: &Options) -> Result<Self, BuildError> {
        let parameters = &options.parameters;
        let fit = (options.memory_bytes / size_of::<C>()) as u64;
        let counters = match parameters.integer("counters", 2..=1 << 40)? {
            Some(counters) => counters,
            None if fit < 2 => {
                let needed = 2 * size_of::<C>();
                return Err(BuildErrorKind::TooLittleMemory {
                    needed,
                    given: options.memory_bytes,
                }
                .into());
            }
            None => fit,
        };
        let most = counters.min(u64::from(u32::MAX));
        let usual = (counters / COUNTERS_PER_FLOW_COUNTER).clamp(1, MOST_PER_FLOW);
        Ok(Self {
            keys: PhantomData,
            digester: options.digester,
            counters: options.memory.zeroed(counters as usize)?,
            per_flow: parameters.integer("shared", 1..=most)?.unwrap_or(usual) as u32,
            rng: Rng::with_seed(options.digester.seed().draws()),
            total: 0,
            squares: 0,
            saturated: 0,
        })
    }

    /// The position of counter `n` of a flow among `counters`.
    #[inline(always)]
    fn place(digest: u64, n: u64, counters: usize) -> usize {
        // One mix of a stepped digest; independent words for each `n` would cost two more.
        let word = remix(digest.wrapping_add(n.wrapping_mul(STEP)), 0);
        ((u128::from(word) * counters as u128) >> 64) as usize
    }

    /// The noise in the flow's counters is a random sample of all counters, so their sum has the
    /// variance of `per_flow` counters.
    fn estimate(&self, digest: u64) -> Estimate {
        let (counters, per_flow) = (self.counters.len() as f64, f64::from(self.per_flow));
        let places = (0..self.per_flow).map(|n| Self::place(digest, n.into(), self.counters.len()));
        let sum: f64 = places.map(|place| self.counters[place].get() as f64).sum();
        let mean = self.total as f64 / counters;
        let variance = (self.squares as f64 / counters - mean * mean).max(0.0);
        let value = sum - per_flow * mean;
        let error = DEVIATIONS * (per_flow * variance).sqrt();
        let high = (value + error).max(0.0) + self.saturated as f64;
        let low = (value - error).max(0.0);
        let all = self.total.saturating_add(self.saturated);
        Estimate { value: value.max(0.0), low, high, confidence: Some(CONFIDENCE) }.within(all)
    }

    /// Adds a weight to each of the counters at `places`.
    #[inline(always)]
    fn add_each(&mut self, places: &[usize], weights: &[C]) {
        let (mut total, mut squares, mut saturated) = (self.total, self.squares, self.saturated);
        for (&place, &weight) in places.iter().zip(weights) {
            let counter = &mut self.counters[place];
            let before = counter.get();
            saturated = saturated.saturating_add(counter.add(weight));
            squares = squares.saturating_add(square(counter.get()) - square(before));
            total = total.saturating_add(counter.get() - before);
        }
        (self.total, self.squares, self.saturated) = (total, squares, saturated);
    }

    /// Adds the same 32-bit weight w to each of the counters at `places`. Adding w to n counters of
    /// sum s adds n w² + 2 w s to the squares, minus what full counters cannot add.
    #[inline(always)]
    fn add_equal(&mut self, places: &[usize], weight: C) {
        let (mut sum, mut squares, mut saturated) = (0u64, 0u128, 0u64);
        for &place in places {
            let counter = &mut self.counters[place];
            let before = counter.get();
            let lost = counter.add(weight);
            sum += before;
            if lost > 0 {
                saturated += lost;
                squares += square(before + weight.get()) - square(counter.get());
            }
        }
        let (count, weight) = (places.len() as u64, weight.get());
        let all = u128::from(count) * square(weight) + 2 * u128::from(weight) * u128::from(sum);
        self.saturated = self.saturated.saturating_add(saturated);
        self.total = self.total.saturating_add(count * weight - saturated);
        self.squares = self.squares.saturating_add(all - squares);
    }

    /// Recomputes total and squares from the counters. The total excludes saturated weight, which
    /// adds no noise.
    fn recompute_sums(&mut self) {
        (self.total, self.squares) = (0, 0);
        for counter in self.counters.iter() {
            self.total = self.total.saturating_add(counter.get());
            self.squares = self.squares.saturating_add(square(counter.get()));
        }
    }
}

fn square(number: u64) -> u128 {
    u128::from(number) * u128::from(number)
}

impl<K: FlowKey, C: Counter> Ingest<K> for FlowCounters<K, C> {
    fn ingest(&mut self, batch: &mut Batch<K>) {
        batch.digest(&self.digester);
        let (digests, weights) = (batch.digests(), C::column(batch));
        let counters = &mut *self.counters;
        // A local copy stays in registers; in memory each draw would wait for the previous store.
        let mut rng = self.rng.clone();
        // All places first, so that their cache lines are fetched in parallel.
        let mut places = [0; BATCH_PACKETS];
        for (place, &digest) in places.iter_mut().zip(digests) {
            let n = (u64::from(rng.u32(..)) * u64::from(self.per_flow)) >> 32;
            *place = Self::place(digest, n, counters.len());
            prefetch(counters, *place);
        }
        self.rng = rng;
        let places = &places[..digests.len()];
        match weights {
            [one, rest @ ..] if size_of::<C>() < 8 && *rest == weights[..rest.len()] => {
                self.add_equal(places, *one);
            }
            _ => self.add_each(places, weights),
        }
    }

    fn reads(&self) -> Reads {
        Reads::sizes(C::MEASURE)
    }
}

impl<K: FlowKey, C: Counter> Summary<K> for FlowCounters<K, C> {
    fn answers(&self) -> &dyn Answers {
        self
    }

    fn merge(&mut self, other: &dyn Summary<K>) -> Result<(), Incompatible> {
        let other = twin(self, other, |summary| Basis::of(&summary.digester))?;
        self.saturated = self.saturated.saturating_add(other.saturated);
        for (counter, &other) in self.counters.iter_mut().zip(other.counters.iter()) {
            self.saturated = self.saturated.saturating_add(counter.add(other));
        }
        self.recompute_sums();
        Ok(())
    }

    fn save(&self, out: &mut Writer) {
        out.number(self.saturated);
        out.number(self.rng.get_seed());
        out.numbers(&self.counters);
    }

    fn load(&mut self, from: &mut Reader<'_>) -> Result<(), DecodeError> {
        self.saturated = from.number("saturated")?;
        self.rng = Rng::with_seed(from.number("random state")?);
        from.numbers("counters", &mut self.counters)?;
        self.recompute_sums();
        Ok(())
    }

    fn clear(&mut self) {
        self.next_epoch();
        self.rng = Rng::with_seed(self.digester.seed().draws());
    }

    /// Goes on drawing, so that the noise of epochs is independent.
    fn next_epoch(&mut self) {
        self.counters.fill(C::zeroed());
        (self.total, self.squares, self.saturated) = (0, 0, 0);
    }

    fn parameters(&self) -> Vec<(&'static str, Setting)> {
        vec![
            ("counters", Setting::Integer(self.counters.len() as u64)),
            ("shared", Setting::Integer(self.per_flow.into())),
        ]
    }

    fn memory_bytes(&self) -> usize {
        self.counters.memory_bytes()
    }
}

impl<K: FlowKey, C: Counter> Answers for FlowCounters<K, C> {
    fn saturated(&self) -> Size {
        exact_size::<C>(self.saturated)
    }
    fn size(&self) -> Option<&dyn SizeQuery> {
        Some(self)
    }
}

impl<K: FlowKey, C: Counter> SizeQuery for FlowCounters<K, C> {
    fn estimate(&self, key: &[u8]) -> SizeEstimate {
        let key = K::matching(key, &self.digester);
        let weight = key.map(|key| self.estimate(key.digest(&self.digester)));
        size::<C>(weight.unwrap_or(Estimate::exact(0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::Key8;

    /// Repeated places, counters that saturate, and weighted updates.
    #[test]
    fn equal_weights_give_the_same_sums_as_others() {
        let options = Options::new(64, 1).digesting::<Key8>();
        for weight in [1, 7, u32::MAX] {
            let [mut equal, mut each] = [(); 2].map(|()| {
                let mut summary = FlowCounters::<Key8, u32>::new(&options).expect("it is small");
                for (n, counter) in summary.counters.iter_mut().enumerate() {
                    *counter = if n % 2 == 0 { u32::MAX - n as u32 } else { 1000 * n as u32 };
                }
                summary.recompute_sums();
                summary
            });
            let places = [0, 1, 2, 3, 1, 2, 15, 14, 6];
            equal.add_equal(&places, weight);
            each.add_each(&places, &[weight; 9]);
            assert_eq!(*equal.counters, *each.counters);
            let sums = |summary: &FlowCounters<Key8, u32>| {
                (summary.total, summary.squares, summary.saturated)
            };
            assert_eq!(sums(&equal), sums(&each), "{weight}");
            let kept = sums(&equal);
            equal.recompute_sums();
            assert_eq!(sums(&equal), kept);
        }
    }
}
