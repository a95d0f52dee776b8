//! Estimates with bounds, and the error of random samples.

use crate::terms::{Measure, Size};

/// A number with lower and upper bounds. Exact numbers have `low = value = high` and no confidence.
///
/// ```
/// use flowgauge_core::summary::Estimate;
///
/// let exact = Estimate::exact(7);
/// assert_eq!((exact.low, exact.value, exact.high), (7.0, 7.0, 7.0));
/// let bounded = Estimate::between(90.0, 100.0, 120.0);
/// assert!(bounded.low <= bounded.value && bounded.value <= bounded.high);
/// assert_eq!(bounded.confidence, None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The best guess.
    pub value: f64,
    /// The lower bound.
    pub low: f64,
    /// The upper bound.
    pub high: f64,
    /// The probability that the bounds hold; `None` if they always do.
    pub confidence: Option<f64>,
}

impl Estimate {
    /// An exact number.
    pub fn exact(value: u64) -> Self {
        let value = value as f64;
        Self { value, low: value, high: value, confidence: None }
    }

    /// A number that is always within these bounds.
    pub fn between(low: f64, value: f64, high: f64) -> Self {
        Self { value, low, high, confidence: None }
    }

    /// The estimate, limited to `total`, of which it is a part.
    pub(crate) fn within(self, total: u64) -> Self {
        let most = total as f64;
        let Self { value, low, high, confidence } = self;
        Self { value: value.min(most), low: low.min(most), high: high.min(most), confidence }
    }
}

/// The estimated size of a flow, in the measures that the summary counts.
///
/// ```
/// use flowgauge_core::summary::{Estimate, SizeEstimate};
/// use flowgauge_core::terms::{Measure, Size};
///
/// let size = SizeEstimate::exact(Size { packets: 2, bytes: 3000 });
/// assert_eq!(size.by(Measure::Bytes), Some(Estimate::exact(3000)));
/// assert_eq!(SizeEstimate::default().by(Measure::Bytes), None);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SizeEstimate {
    /// Packets, if the summary counts them.
    pub packets: Option<Estimate>,
    /// Bytes, if the summary counts them.
    pub bytes: Option<Estimate>,
}

impl SizeEstimate {
    /// An estimate of `measure` alone.
    pub fn of(measure: Measure, estimate: Estimate) -> Self {
        match measure {
            Measure::Packets => Self { packets: Some(estimate), bytes: None },
            Measure::Bytes => Self { packets: None, bytes: Some(estimate) },
        }
    }

    /// An exact size.
    #[inline(never)]
    pub fn exact(size: Size) -> Self {
        Self {
            packets: Some(Estimate::exact(size.packets)),
            bytes: Some(Estimate::exact(size.bytes)),
        }
    }

    /// An exact count, unless its 32-bit packet counter is full: then it may have lost any of the
    /// `saturated` increments.
    #[inline(never)]
    pub fn counted(size: Size, saturated: Size) -> Self {
        let full = size.packets >= u64::from(u32::MAX);
        Self::between(size, size, if full { size + saturated } else { size })
    }

    /// A size that is always within these bounds, in both measures.
    #[inline(never)]
    pub fn between(low: Size, value: Size, high: Size) -> Self {
        let estimate = |low: u64, value: u64, high: u64| {
            Some(Estimate::between(low as f64, value as f64, high as f64))
        };
        Self {
            packets: estimate(low.packets, value.packets, high.packets),
            bytes: estimate(low.bytes, value.bytes, high.bytes),
        }
    }

    /// The estimate in this measure.
    pub fn by(&self, measure: Measure) -> Option<Estimate> {
        match measure {
            Measure::Packets => self.packets,
            Measure::Bytes => self.bytes,
        }
    }
}

/// The error of weights that are estimated from a random sample of the packets.
///
/// ```
/// use flowgauge_core::summary::{Estimate, Sampling};
///
/// // Each sampled packet represents 100; 99 % confidence.
/// let sampling = Sampling::of_packets(100.0, 1, 0.01).unwrap();
/// let weight = sampling.widen(Estimate::exact(1_000_000));
/// assert!(weight.low < 1_000_000.0 && weight.high > 1_000_000.0);
/// assert_eq!(weight.confidence, Some(0.99));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Sampling {
    /// The square of the error is at most this times the true weight.
    pub unit: f64,
    /// The probability that this holds.
    pub confidence: f64,
}

impl Sampling {
    /// The error of a sample of whole packets, none of which represents more than `weight`. It
    /// bounds all of `flows` flows at once, except with probability `delta`. `None` if every packet
    /// was taken.
    pub fn of_packets(weight: f64, flows: u64, delta: f64) -> Option<Self> {
        // Chernoff's bounds for sums of numbers from 0 to this weight, with half of δ for each
        // side: a sum with mean t falls short of it by at most √(2 weight ln(2/δ) t), and exceeds t
        // by less than this expression has with the sum itself in place of t.
        let chances = 2.0 * flows.max(1) as f64 / delta;
        let unit = 2.0 * weight * chances.ln();
        (unit > 0.0).then_some(Self { unit, confidence: 1.0 - delta })
    }

    /// The bounds of a weight in all packets, from the bounds of its estimate by the sample.
    pub fn widen(&self, sampled: Estimate) -> Estimate {
        let Estimate { value, low, high, confidence } = sampled;
        // Either the sample or the summary may fail: the probabilities add up.
        let confidence = (confidence.unwrap_or(1.0) + self.confidence - 1.0).max(0.0);
        let (low, high) = (low - self.error(low.max(0.0)), high + self.error(high.max(0.0)));
        Estimate { value, low, high, confidence: Some(confidence) }
    }

    /// The error bound of a signed sum of sampled weights, whose terms are estimated to weigh
    /// `estimated` in all. A true weight t is estimated within √(unit t); the bound is that of the
    /// largest t for which `estimated` is possible (Wilson, JASA 1927).
    pub fn error(&self, estimated: f64) -> f64 {
        let root = f64::midpoint(self.unit.sqrt(), (self.unit + 4.0 * estimated).sqrt());
        self.unit.sqrt() * root
    }

    /// The smallest weight that is known to half of its value.
    pub fn least(&self) -> f64 {
        6.0 * self.unit
    }
}

/// A lower bound of the mean of a flow whose sample shows `count`, which holds for all of `flows`
/// flows at once with this `confidence`.
///
/// The flows of a list were chosen by the same sample: among many small flows, the listed ones are
/// those that were sampled more often than expected. A bound that holds for 99 of 100 given flows
/// would fail for most of them.
///
/// Bernstein's inequality: a number with mean m and `variance` v m exceeds m by √(2 m v l) + 2 v l
/// / 3 with probability e⁻ˡ at most. Poisson numbers have v = 1.
pub(crate) fn least_mean(count: f64, variance: f64, flows: f64, confidence: f64) -> f64 {
    let spread = variance * (flows.max(1.0) / (1.0 - confidence)).ln();
    let room = (count - spread / 6.0).max(0.0);
    (room.sqrt() - (spread / 2.0).sqrt()).max(0.0).powi(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Poisson numbers with means from 0.01 to 300: the probability that the bound exceeds the mean
    /// is at most that allowed for one flow.
    #[test]
    fn the_bound_fails_as_rarely_as_it_says() {
        for (flows, confidence) in [(1.0, 0.99), (1e6, 0.99), (1e9, 0.95)] {
            for mean in (0..200).map(|step| 0.01 * f64::powf(1.055, f64::from(step))) {
                let (mut chance, mut broken) = (f64::exp(-mean), 0.0);
                for count in 0..2000 {
                    let count = f64::from(count);
                    if least_mean(count, 1.0, flows, confidence) > mean {
                        broken += chance;
                    }
                    chance *= mean / (count + 1.0);
                }
                let allowed = (1.0 - confidence) / flows;
                assert!(broken <= allowed, "{mean} of {flows}: {broken:e} > {allowed:e}");
            }
        }
        // The bound is useful: 1,000 packets, in a million flows, leave four fifths certain.
        assert!(least_mean(1000.0, 1.0, 1e6, 0.99) > 800.0);
    }
}
