//! Random sampling of packets, and bounds of a weight from a sample of it.

use std::f64::consts::LN_2;

use fastrand::Rng;

use super::Estimate;
use super::codec::{DecodeError, Reader, Writer};

/// Draws computed at a time; more would take more code.
const VECTOR: usize = 4;

/// Chooses each packet with the same probability, independently of the others. It draws the number
/// of packets to skip, so that packets that are not chosen cost nothing. Summaries store its state.
#[derive(Debug)]
pub(crate) struct Sampler {
    seed: u64,
    rng: Rng,
    /// The probability that a packet is chosen, and the logarithm of that that it is skipped.
    chance: f64,
    log_skip: f64,
    /// A number of slots, and the probability that at least one of them is chosen.
    any: (u32, f64),
    /// Packets to skip before the next chosen one.
    skip: u64,
}

impl Sampler {
    pub(crate) fn new(seed: u64, probability: f64) -> Self {
        let rng = Rng::with_seed(seed);
        let mut sampler = Self { seed, rng, chance: 1.0, log_skip: 0.0, any: (0, 0.0), skip: 0 };
        sampler.change(probability);
        sampler
    }

    /// Changes the probability for the packets to come.
    pub(crate) fn change(&mut self, probability: f64) {
        self.chance = probability.min(1.0);
        self.log_skip = (-self.chance).ln_1p();
        self.any = (0, 0.0);
        self.skip = self.draw();
    }

    /// Returns to the initial state.
    pub(crate) fn reset(&mut self) {
        self.rewind();
        self.skip = self.draw();
    }

    /// Restarts the random numbers; takes effect with the next [`Self::change`].
    pub(crate) fn rewind(&mut self) {
        self.rng = Rng::with_seed(self.seed);
    }

    /// Draws a geometrically distributed number of packets to skip.
    fn draw(&mut self) -> u64 {
        if self.log_skip.is_infinite() {
            return 0;
        }
        (ln(self.uniform()) / self.log_skip) as u64
    }

    /// A random number from 2⁻⁵⁴ to 1, so that its logarithm is finite.
    #[inline(always)]
    fn uniform(&mut self) -> f64 {
        ((self.rng.u64(..) >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    }

    /// Draws the numbers of packets to skip before each of the next chosen ones: the same that
    /// [`Self::choose`] draws one by one. [`Self::most`] must be below 2⁶³.
    pub(crate) fn choose_all<const N: usize>(&mut self, skips: &mut [u64; N]) {
        const { assert!(N.is_multiple_of(VECTOR)) };
        for skips in skips.as_chunks_mut::<VECTOR>().0 {
            // In a loop of their own, so that they are computed in vectors.
            let mut draws: [f64; VECTOR] = std::array::from_fn(|_| self.uniform());
            for draw in &mut draws {
                *draw = ln(*draw) / self.log_skip;
            }
            for (skip, draw) in skips.iter_mut().zip(draws) {
                *skip = std::mem::replace(&mut self.skip, (draw as i64).cast_unsigned());
            }
        }
    }

    /// The largest number of packets to skip that can be drawn.
    pub(crate) fn most(&self) -> f64 {
        -54.0 * LN_2 / self.log_skip
    }

    /// Takes the skipped packets and the next chosen one off `packets`; returns whether one was
    /// chosen.
    #[inline(always)]
    pub(crate) fn choose(&mut self, packets: &mut u64) -> bool {
        if self.pass(*packets) {
            *packets = 0;
            return false;
        }
        *packets -= self.skip + 1;
        self.skip = self.draw();
        true
    }

    /// Skips all of `packets` unless one of them is to be chosen; returns whether it skipped them.
    #[inline(always)]
    pub(crate) fn pass(&mut self, packets: u64) -> bool {
        let passed = self.skip >= packets;
        if passed {
            self.skip -= packets;
        }
        passed
    }

    /// The first chosen one of `slots`, given that at least one is chosen. Later slots are drawn
    /// independently.
    pub(crate) fn first_of(&mut self, slots: u32) -> u32 {
        if self.log_skip.is_infinite() {
            return 0;
        }
        if self.any.0 != slots {
            self.any = (slots, -(f64::from(slots) * self.log_skip).exp_m1());
        }
        let drawn = self.uniform() * self.any.1;
        // There are few slots, so that adding up is faster than a logarithm, and than a branch that
        // depends on the draw.
        let (mut chosen, mut first) = (self.chance, 0);
        for _ in 1..slots {
            first += u32::from(drawn >= chosen);
            chosen += (1.0 - chosen) * self.chance;
        }
        first
    }

    /// A random number below `end`.
    #[inline(always)]
    pub(crate) fn below(&mut self, end: u32) -> u32 {
        ((u64::from(self.rng.u32(..)) * u64::from(end)) >> 32) as u32
    }

    pub(crate) fn save(&self, out: &mut Writer) {
        out.number(self.rng.get_seed());
        out.number(self.skip);
    }

    pub(crate) fn load(&mut self, from: &mut Reader<'_>) -> Result<(), DecodeError> {
        self.rng = Rng::with_seed(from.number("random state")?);
        self.skip = from.number("packets to pass over")?;
        Ok(())
    }
}

/// The natural logarithm of a positive normal number, with a relative error below 10⁻¹⁵. The
/// system's logarithm is a call for each number, to code that a switch has evicted from the cache.
#[inline(always)]
fn ln(x: f64) -> f64 {
    /// The bits of √½.
    const ROOT: u64 = 0x3fe6_a09e_667f_3bcd;
    const FRACTION: u32 = 52;
    // x = 2^exponent · m, where m is between √½ and √2.
    let above = x.to_bits().wrapping_sub(ROOT).wrapping_add(1024 << FRACTION);
    let exponent = f64::from((above >> FRACTION) as i32 - 1024);
    let m = f64::from_bits(above % (1 << FRACTION) + ROOT);
    // ln m = 2 artanh s
    let s = (m - 1.0) / (m + 1.0);
    let square = s * s;
    let mut series = 1.0 / 21.0;
    for odd in [19.0, 17.0, 15.0, 13.0, 11.0, 9.0, 7.0, 5.0, 3.0] {
        series = series * square + 1.0 / odd;
    }
    exponent * LN_2 + 2.0 * (s + s * square * series)
}

/// The two-sided quantile of the normal distribution for [`CONFIDENCE`].
pub(in crate::summary) const Z: f64 = 2.575_829_303_548_901;
/// Probability that the bounds of a sampled weight hold.
pub(in crate::summary) const CONFIDENCE: f64 = 0.99;

/// Estimates a weight from a sample of its packets: each was sampled with `probability`, the
/// sampled ones weigh `sampled`, and none weighs more than `largest`.
///
/// The bounds are Wilson's for a binomial number (JASA 1927): the means that are [`Z`] standard
/// deviations away from the sample. Packets of unequal weights vary less than the same weight in
/// packets of the largest weight. For few sampled packets the tails of the normal distribution are
/// too light; the lower bound is that of one packet less, so that the bounds hold with
/// [`CONFIDENCE`] for any number of packets. The sampled weight is always a lower bound.
pub(in crate::summary) fn scaled(sampled: u64, probability: f64, largest: u64) -> Estimate {
    let (unit, seen) = (largest.max(1) as f64, sampled as f64);
    let missed = 1.0 - probability;
    let (count, half) = (seen / unit, Z * Z * missed / 2.0);
    let spread = |count: f64| Z * (missed * (count + Z * Z * missed / 4.0)).sqrt();
    let (below, scale) = ((count - 1.0).max(0.0), unit / probability);
    Estimate {
        value: seen / probability,
        low: ((below + half - spread(below)) * scale).max(seen),
        high: (count + half + spread(count)) * scale,
        confidence: Some(CONFIDENCE),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The probability that the bounds hold for a flow of `packets` packets, summed over all
    /// samples.
    fn coverage(packets: u32, probability: f64) -> f64 {
        let (mut chance, mut held) = ((1.0 - probability).powf(packets.into()), 0.0);
        for sampled in 0..=packets {
            let bounds = scaled(sampled.into(), probability, 1);
            if bounds.low <= packets.into() && f64::from(packets) <= bounds.high {
                held += chance;
            }
            chance *= f64::from(packets - sampled) / f64::from(sampled + 1) * probability
                / (1.0 - probability);
        }
        held
    }

    #[test]
    fn logarithms_are_those_of_the_system() {
        let mut sampler = Sampler::new(1, 0.5);
        let limits = [0.5f64.powi(54), 0.5, 0.7, 0.8, 1.0 - f64::EPSILON, 1.0];
        for x in (0..100_000).map(|_| sampler.uniform()).chain(limits) {
            let (own, exact) = (ln(x), x.ln());
            assert!((own - exact).abs() <= 1e-15 * exact.abs(), "ln {x} = {exact}, not {own}");
        }
    }

    #[test]
    fn draws_at_once_are_those_one_by_one() {
        for probability in [0.9, 0.1, 0.01, 1e-9] {
            let [mut once, mut single] = [3, 3].map(|seed| Sampler::new(seed, probability));
            for _ in 0..1000 {
                let mut skips = [0; 16];
                once.choose_all(&mut skips);
                for skip in skips {
                    assert!(skip as f64 <= single.most());
                    let mut left = u64::MAX;
                    assert!(single.choose(&mut left));
                    assert_eq!(skip, u64::MAX - left - 1);
                }
            }
        }
    }

    #[test]
    fn bounds_hold_with_their_confidence_for_flows_of_any_size() {
        for probability in [0.5, 0.1, 0.01, 0.001] {
            for packets in (1..=100).chain((110..1000).step_by(10)) {
                let coverage = coverage(packets, probability);
                assert!(coverage >= CONFIDENCE, "{packets} at {probability}: {coverage}");
            }
        }
    }
}
