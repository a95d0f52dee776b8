//! Randomized counter sharing: each flow spreads its packets over many counters that it shares.
//!
//! Paper: Li, Chen, Ling, "Fast and compact per-flow traffic measurement through randomized counter
//! sharing" (INFOCOM 2011), §4: the counter-sum estimation. A packet adds to a random one of the l
//! counters of its flow, out of m; the flow's size is the sum of its counters less what other flows
//! add to any l counters on average, l N/m. One counter is touched for each packet, but to estimate
//! takes l of them: keys are given afterwards, none is kept.

use std::marker::PhantomData;

use fastrand::Rng;
use flowgauge_kernel::{Digester, Zeroed, prefetch};

use super::super::codec::{DecodeError, Reader, Writer};
use super::super::ingest::{Basis, twin};
use super::super::remix::remix;
use super::super::{
    Answers, BuildError, BuildErrorKind, Counter, Describe, Estimate, Incompatible, Info, Ingest,
    Laws, Options, Parameter, Setting, SizeEstimate, SizeQuery, Summary,
};
use super::monitor::{excess, size};
use crate::batch::{BATCH_PACKETS, Batch};
use crate::key::FlowKey;
use crate::summary::Counted;
use crate::summary::describe::form;
use crate::terms::{Measure, Size};

/// Counters of a flow, unless asked otherwise or the memory is small.
const MOST_SHARED: u64 = 10_000;
/// Counters for each counter of a flow, at least.
const COUNTERS_PER_SHARED: u64 = 64;
/// By Chebyshev's inequality an estimate is within [`DEVIATIONS`] standard deviations this often.
const CONFIDENCE: f64 = 0.95;
/// √(1 / (1 − 0.95)).
const DEVIATIONS: f64 = 4.472_135_954_999_579;

/// From one counter of a flow to the next: an odd number, 2⁶⁴ over the golden ratio.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// Counters that all flows share; `C` is `u32` for packets, `u64` for bytes.
pub(super) struct SharedSums<K, C> {
    keys: PhantomData<fn(K)>,
    digester: Digester,
    counters: Zeroed<C>,
    shared: u32,
    rng: Rng,
    total: u64,
    /// Of all counters: what says how far estimates are off.
    squares: u128,
    saturated: u64,
}

/// Shared counters, as the catalog has them.
///
/// Cost: one random number and one cache line a packet; an estimate reads `shared` of them. Memory
/// in bytes: `counters × size_of::<C>()`.
pub struct SharedCounters;

impl Describe for SharedCounters {
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
        // A sum would go to one counter as a whole, and the counters' noise grow with it.
        forms: &[form![Size(Counted::Asked)]],
        laws: Laws { commutable: true, sizes: true, ..Laws::NONE },
    };

    fn build<K: FlowKey>(options: &Options) -> Result<Box<dyn Summary<K>>, BuildError> {
        Ok(match options.by {
            Measure::Packets => Box::new(SharedSums::<K, u32>::new(options)?),
            Measure::Bytes => Box::new(SharedSums::<K, u64>::new(options)?),
        })
    }
}

impl<K: FlowKey, C: Counter> SharedSums<K, C> {
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
        let usual = (counters / COUNTERS_PER_SHARED).clamp(1, MOST_SHARED);
        Ok(Self {
            keys: PhantomData,
            digester: options.digester,
            counters: options.memory.zeroed(counters as usize)?,
            shared: parameters.integer("shared", 1..=most)?.unwrap_or(usual) as u32,
            rng: Rng::with_seed(options.digester.seed().draws()),
            total: 0,
            squares: 0,
            saturated: 0,
        })
    }

    /// The counter number `n` of a flow's, among `counters`.
    #[inline(always)]
    fn place(digest: u64, n: u64, counters: usize) -> usize {
        // One word of a stepped digest: a word of its own for each `n` would cost two more mixes.
        let word = remix(digest.wrapping_add(n.wrapping_mul(STEP)), 0);
        ((u128::from(word) * counters as u128) >> 64) as usize
    }

    /// The flow's counters hold a random sample of all counters' contents, beside its own: a sum of
    /// `shared` of them has the variance of so many.
    fn weight(&self, digest: u64) -> Estimate {
        let (counters, shared) = (self.counters.len() as f64, f64::from(self.shared));
        let places = (0..self.shared).map(|n| Self::place(digest, n.into(), self.counters.len()));
        let sum: f64 = places.map(|place| self.counters[place].get() as f64).sum();
        let mean = self.total as f64 / counters;
        let variance = (self.squares as f64 / counters - mean * mean).max(0.0);
        let value = sum - shared * mean;
        let error = DEVIATIONS * (shared * variance).sqrt();
        let high = (value + error).max(0.0) + self.saturated as f64;
        let low = (value - error).max(0.0);
        let all = self.total.saturating_add(self.saturated);
        Estimate { value: value.max(0.0), low, high, confidence: Some(CONFIDENCE) }.within(all)
    }

    /// Adds weights to the counters at these places.
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

    /// Adds the same weight, of 32 bits, to the counters at these places: `n` times w add n w² and
    /// 2 w for each that was there before to the squares, less what full counters do not take.
    #[inline(always)]
    fn add_alike(&mut self, places: &[usize], weight: C) {
        let (mut sum, mut squares, mut saturated) = (0u64, 0u128, 0u64);
        for &place in places {
            let counter = &mut self.counters[place];
            let before = counter.get();
            let excess = counter.add(weight);
            sum += before;
            if excess > 0 {
                saturated += excess;
                squares += square(before + weight.get()) - square(counter.get());
            }
        }
        let (count, weight) = (places.len() as u64, weight.get());
        let all = u128::from(count) * square(weight) + 2 * u128::from(weight) * u128::from(sum);
        self.saturated = self.saturated.saturating_add(saturated);
        self.total = self.total.saturating_add(count * weight - saturated);
        self.squares = self.squares.saturating_add(all - squares);
    }

    /// Total and squares anew. The total is that of the counters: what they could not take is in
    /// nobody's noise.
    fn sum_up(&mut self) {
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

impl<K: FlowKey, C: Counter> Ingest<K> for SharedSums<K, C> {
    fn ingest(&mut self, batch: &mut Batch<K>) {
        batch.digest(&self.digester);
        let (digests, weights) = (batch.digests(), C::column(batch));
        let counters = &mut *self.counters;
        // A copy in registers: in memory each packet would wait for the store of the one before.
        let mut rng = self.rng.clone();
        // The places first, so that their cache lines arrive together.
        let mut places = [0; BATCH_PACKETS];
        for (place, &digest) in places.iter_mut().zip(digests) {
            let n = (u64::from(rng.u32(..)) * u64::from(self.shared)) >> 32;
            *place = Self::place(digest, n, counters.len());
            prefetch(counters, *place);
        }
        self.rng = rng;
        let places = &places[..digests.len()];
        match weights {
            [one, rest @ ..] if size_of::<C>() < 8 && *rest == weights[..rest.len()] => {
                self.add_alike(places, *one);
            }
            _ => self.add_each(places, weights),
        }
    }
}

impl<K: FlowKey, C: Counter> Summary<K> for SharedSums<K, C> {
    fn answers(&self) -> &dyn Answers {
        self
    }

    fn merge(&mut self, other: &dyn Summary<K>) -> Result<(), Incompatible> {
        let other = twin(self, other, |summary| Basis::of(&summary.digester))?;
        self.saturated = self.saturated.saturating_add(other.saturated);
        for (counter, &other) in self.counters.iter_mut().zip(other.counters.iter()) {
            self.saturated = self.saturated.saturating_add(counter.add(other));
        }
        self.sum_up();
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
        self.sum_up();
        Ok(())
    }

    fn clear(&mut self) {
        self.counters.fill(C::zeroed());
        self.rng = Rng::with_seed(self.digester.seed().draws());
        (self.total, self.squares, self.saturated) = (0, 0, 0);
    }

    fn parameters(&self) -> Vec<(&'static str, Setting)> {
        vec![
            ("counters", Setting::Integer(self.counters.len() as u64)),
            ("shared", Setting::Integer(self.shared.into())),
        ]
    }

    fn memory_bytes(&self) -> usize {
        self.counters.memory_bytes()
    }
}

impl<K: FlowKey, C: Counter> Answers for SharedSums<K, C> {
    fn saturated(&self) -> Size {
        excess::<C>(self.saturated)
    }
    fn size(&self) -> Option<&dyn SizeQuery> {
        Some(self)
    }
}

impl<K: FlowKey, C: Counter> SizeQuery for SharedSums<K, C> {
    fn estimate(&self, key: &[u8]) -> SizeEstimate {
        let key = K::matching(key, &self.digester);
        let weight = key.map(|key| self.weight(key.digest(&self.digester)));
        size::<C>(weight.unwrap_or(Estimate::exact(0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::Key4;

    /// Places that come twice, counters that fill up, and sums of packets.
    #[test]
    fn equal_weights_add_up_as_any_others() {
        let options = Options::new(64, 1).digesting::<Key4>();
        for weight in [1, 7, u32::MAX] {
            let [mut alike, mut each] = [(); 2].map(|()| {
                let mut summary = SharedSums::<Key4, u32>::new(&options).expect("it is small");
                for (n, counter) in summary.counters.iter_mut().enumerate() {
                    *counter = if n % 2 == 0 { u32::MAX - n as u32 } else { 1000 * n as u32 };
                }
                summary.sum_up();
                summary
            });
            let places = [0, 1, 2, 3, 1, 2, 15, 14, 6];
            alike.add_alike(&places, weight);
            each.add_each(&places, &[weight; 9]);
            assert_eq!(*alike.counters, *each.counters);
            let sums = |summary: &SharedSums<Key4, u32>| {
                (summary.total, summary.squares, summary.saturated)
            };
            assert_eq!(sums(&alike), sums(&each), "{weight}");
            let kept = sums(&alike);
            alike.sum_up();
            assert_eq!(sums(&alike), kept);
        }
    }
}
