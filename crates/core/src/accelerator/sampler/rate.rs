//! How many units a sampler takes one of: by their number, or by the L2 norm of the sizes.

use crate::batch::BATCH_PACKETS;
use crate::summary::{BuildError, Parameters, Setting};

/// The largest interval: its weight, and that of the packets in the same row, must fit into 32 bits
/// each. A smaller interval only reduces the error.
pub(in crate::accelerator) const MOST: u64 = 1 << 31;

/// How the interval is chosen.
#[derive(Clone, Copy)]
pub(super) enum Rate {
    /// By the number of units.
    Steps(Steps),
    /// By the L2 norm of all sizes.
    Norm(Norm),
}

/// One in `first` of the first `step` units, one in 2 × `first` of the next `step`, one in 3 ×
/// `first`, and so on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::accelerator) struct Steps {
    first: u64,
    step: u64,
}

impl Steps {
    /// One in `n` of all.
    pub(in crate::accelerator) fn constant(n: u64) -> Self {
        Self { first: n, step: u64::MAX }
    }

    /// All of the first `step` units, one in two of the next, and so on.
    pub(in crate::accelerator) fn falling(step: u64) -> Self {
        Self { first: 1, step }
    }

    /// The interval at the unit of this number, counted from 1, and the number of the last unit for
    /// which it holds.
    pub(in crate::accelerator) fn at(self, unit: u64) -> (u64, u64) {
        let steps = unit.div_ceil(self.step);
        (self.first.saturating_mul(steps).min(MOST), steps.saturating_mul(self.step))
    }
}

/// Defaults: the error as a share of L2, the probability of more, and the minimum sampling
/// probability.
const EPSILON: f64 = 0.05;
const DELTA: f64 = 0.01;
const LEAST: f64 = 0.01;

pub(super) const OWN: &str = "own";
pub(super) const PAPER: &str = "paper";

/// L2 Skipper: the rate that an error as a share of the L2 norm allows.
///
/// Paper: Skipper, section VII, after McGregor et al.: the probability is ε⁻² (ln(U/δ)/L2)^(2/3),
/// with U possible flows, but not below a minimum, for which the columns must suffice. The paper
/// replaces L2 by its minimum √N, with which nothing is skipped before some 10¹⁰ packets. Here L2
/// is read from the sketch behind; √N is another choice.
#[derive(Clone, Copy)]
pub(super) struct Norm {
    of: &'static str,
    pub(super) epsilon: f64,
    pub(super) delta: f64,
    pub(super) least: f64,
    /// Bits of a key.
    bits: usize,
}

impl Norm {
    /// Reads the parameters, for keys of `bits` bits.
    pub(super) fn new(parameters: &Parameters, bits: usize) -> Result<Self, BuildError> {
        parameters.exclusive("l2", &["gamma"])?;
        Ok(Self {
            of: parameters.word("l2", &[OWN, PAPER])?,
            epsilon: parameters.fraction("epsilon")?.unwrap_or(EPSILON),
            delta: parameters.fraction("delta")?.unwrap_or(DELTA),
            least: parameters.fraction("p")?.unwrap_or(LEAST),
            bits,
        })
    }

    pub(super) fn settings(self) -> Vec<(&'static str, Setting)> {
        vec![
            ("l2", Setting::Word(self.of)),
            ("epsilon", Setting::Fraction(self.epsilon)),
            ("delta", Setting::Fraction(self.delta)),
            ("p", Setting::Fraction(self.least)),
        ]
    }

    /// Whether L2 is read from the sketch.
    pub(super) fn is_own(self) -> bool {
        self.of == OWN
    }

    /// The maximum interval.
    pub(super) fn most(self) -> u64 {
        self.one_in(f64::INFINITY)
    }

    /// The interval from this unit on, where it was `one_in`, and the number of the unit until
    /// which the norm of a sketch of `cells` cells is not read again.
    pub(super) fn turn(self, one_in: u64, unit: u64, cells: usize, squared_l2: f64) -> (u64, u64) {
        let seen = unit - 1;
        // Each flow has at least a unit. The squares that sampling itself adds do not count.
        let added = (one_in - 1) as f64 * seen as f64;
        let now = self.one_in((squared_l2 - added).max(seen as f64));
        // The norm is read again after an eighth more units, and at most one cell is read for each
        // unit.
        let until = unit.saturating_add((unit / 8).max(cells as u64).max(BATCH_PACKETS as u64));
        // Bounds assume the largest interval so far.
        (now.max(one_in), until)
    }

    /// The interval where the squares of all sizes sum to `squared_l2`.
    pub(super) fn one_in(self, squared_l2: f64) -> u64 {
        let logarithm = self.bits as f64 * std::f64::consts::LN_2 - self.delta.ln();
        let share = (logarithm / squared_l2.sqrt()).powf(2.0 / 3.0) / self.epsilon.powi(2);
        // Rounded down, so that the probability is not too small.
        (1.0 / share.max(self.least).min(1.0)).min(MOST as f64) as u64
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]
mod tests {
    use bytemuck::Zeroable;

    use super::super::super::{Accelerate, Skipper};
    use super::super::Sampled;
    use super::*;
    use crate::batch::Batch;
    use crate::key::{FlowKey, Key8};
    use crate::summary::sketch::CountSketch;
    use crate::summary::{Describe, Options};

    /// One flow of 2¹⁷ packets makes up the norm. The norm is read every 1024 packets at first (the
    /// number of cells), then after an eighth more packets.
    #[test]
    fn fewer_are_taken_the_larger_the_norm() {
        let sketch =
            Options::new(1 << 20, 1).with([("rows", "4"), ("columns", "256"), ("candidates", "0")]);
        let inner = CountSketch::build::<Key8>(&sketch.digesting::<Key8>()).unwrap();
        let options =
            Options::new(1 << 20, 1).with([("l2", OWN), ("epsilon", "0.1")]).digesting::<Key8>();
        let mut sampled = Skipper::build::<Key8>(&options, inner).unwrap();
        let mut batch = Batch::new();
        batch.fill(&[Key8::zeroed(); BATCH_PACKETS], 64);
        let mut rates = Vec::new();
        for _ in 0..512 {
            sampled.ingest(&mut batch);
            let sampled = sampled.downcast_ref::<Sampled<Key8>>().unwrap();
            assert!(sampled.until >= sampled.seen && sampled.until <= sampled.seen * 9 / 8 + 1025);
            rates.push(sampled.one_in);
        }
        assert!(rates.is_sorted() && rates[0] == 1, "{rates:?}");
        let norm = Norm::new(&options.parameters, 32).unwrap();
        let last = norm.one_in(f64::from(1 << 17).powi(2));
        assert!((last - 1..=last).contains(&rates[511]) && last > 1, "{last}, {}", rates[511]);
        let sizes = sampled.answers().size().unwrap();
        let size = sizes.estimate(Key8::zeroed().canonical(Key8::BYTES)).packets.unwrap();
        assert!(size.low <= f64::from(1 << 17) && size.high >= f64::from(1 << 17), "{size:?}");
    }

    /// A billion packets of Zipf 1.1 have an L2 of about 1.4e8. With √N, the interval is 2 from
    /// 4·10¹¹ packets on.
    #[test]
    fn the_rate_follows_the_norm() {
        let norm = |least: &str| Norm::new(&Parameters::new([("p", least)]), 32).unwrap();
        let own = norm("0.001").one_in(1.4e8f64.powi(2));
        assert!((70..=80).contains(&own), "one in {own}");
        assert_eq!(norm("0.05").one_in(1.4e8f64.powi(2)), 20);
        assert_eq!([0.0, 1.0, 1e10].map(|squares| norm("0.001").one_in(squares)), [1; 3]);
        assert_eq!([1e11, 4e11].map(|packets| norm("0.001").one_in(packets)), [1, 2]);
    }

    #[test]
    fn the_rate_falls_with_each_step() {
        let falling = Steps::falling(10);
        assert_eq!([1, 10, 11, 20, 21].map(|unit| falling.at(unit).0), [1, 1, 2, 2, 3]);
        assert_eq!([1, 10, 11, 20, 21].map(|unit| falling.at(unit).1), [10, 10, 20, 20, 30]);
        assert_eq!(falling.at(u64::MAX), (MOST, u64::MAX));
        let constant = Steps::constant(100);
        assert_eq!([1, u64::MAX].map(|unit| constant.at(unit)), [(100, u64::MAX); 2]);
    }
}
