//! L2 Skipper: as few as an error allows that is a share of the root of all sizes' squares.
//!
//! Paper: Skipper, section VII, after McGregor et al.: the probability is ε⁻² (ln(U/δ)/L2)^(2/3), U
//! being how many flows there can be, and not below a least one, which the columns must be enough for.
//! The paper puts √N for L2, the least that it can be, with which nothing is passed over before some
//! 10¹⁰ packets. Here L2 is read off the sketch behind, and √N is another choice.

use super::rate::MOST;
use crate::batch::BATCH_PACKETS;
use crate::summary::{BuildError, Parameters, Setting};

/// The error as a share of L2, the chance of more, and the least probability.
const EPSILON: f64 = 0.05;
const DELTA: f64 = 0.01;
const LEAST: f64 = 0.01;

pub(super) const OWN: &str = "own";
pub(super) const PAPER: &str = "paper";

/// What is asked of the sample.
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
    /// What the parameters ask for, of keys of so many bits.
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

    /// Whether L2 is that of the sketch.
    pub(super) fn is_own(self) -> bool {
        self.of == OWN
    }

    /// How many one is taken of at most.
    pub(super) fn most(self) -> u64 {
        self.one_in(f64::INFINITY)
    }

    /// How many one is taken of from this unit on, where it was one of `one_in`, and the number of the
    /// unit until which the norm is not read again: that of a sketch of so many cells.
    pub(super) fn turn(self, one_in: u64, unit: u64, cells: usize, squared_l2: f64) -> (u64, u64) {
        let seen = unit - 1;
        // Flows have a unit at least; and what the sample adds to the squares is no flow's.
        let added = (one_in - 1) as f64 * seen as f64;
        let now = self.one_in((squared_l2 - added).max(seen as f64));
        // It is read while it grows by an eighth, and no more than a cell a unit.
        let until = unit.saturating_add((unit / 8).max(cells as u64).max(BATCH_PACKETS as u64));
        // Bounds go by the largest that ever was.
        (now.max(one_in), until)
    }

    /// How many one is taken of where the squares of all sizes sum up to this.
    pub(super) fn one_in(self, squared_l2: f64) -> u64 {
        let logarithm = self.bits as f64 * std::f64::consts::LN_2 - self.delta.ln();
        let share = (logarithm / squared_l2.sqrt()).powf(2.0 / 3.0) / self.epsilon.powi(2);
        // Rounded down: no less likely than it must be.
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
    use crate::key::{FlowKey, Key4};
    use crate::summary::sketch::CountSketch;
    use crate::summary::{Describe, Options};

    /// One flow of 2¹⁷ packets is all of the norm: it is read every 1024 packets at first, the cells of
    /// the sketch, and then when there are an eighth more.
    #[test]
    fn fewer_are_taken_the_larger_the_norm() {
        let sketch =
            Options::new(1 << 20, 1).with([("rows", "4"), ("columns", "256"), ("candidates", "0")]);
        let inner = CountSketch::build::<Key4>(&sketch.digesting::<Key4>()).unwrap();
        let options =
            Options::new(1 << 20, 1).with([("l2", OWN), ("epsilon", "0.1")]).digesting::<Key4>();
        let mut sampled = Skipper::build::<Key4>(&options, inner).unwrap();
        let mut batch = Batch::new();
        batch.fill(&[Key4::zeroed(); BATCH_PACKETS], 64);
        let mut rates = Vec::new();
        for _ in 0..512 {
            sampled.ingest(&mut batch);
            let sampled = sampled.downcast_ref::<Sampled<Key4>>().unwrap();
            assert!(sampled.until >= sampled.seen && sampled.until <= sampled.seen * 9 / 8 + 1025);
            rates.push(sampled.one_in);
        }
        assert!(rates.is_sorted() && rates[0] == 1, "{rates:?}");
        let norm = Norm::new(&options.parameters, 32).unwrap();
        let last = norm.one_in(f64::from(1 << 17).powi(2));
        assert!((last - 1..=last).contains(&rates[511]) && last > 1, "{last}, {}", rates[511]);
        let sizes = sampled.answers().size().unwrap();
        let size = sizes.estimate(Key4::zeroed().canonical(Key4::BYTES)).packets.unwrap();
        assert!(size.low <= f64::from(1 << 17) && size.high >= f64::from(1 << 17), "{size:?}");
    }

    /// A billion packets of Zipf 1.1 have an L2 of some 1.4e8; with √N there is one in two from 4·10¹¹ packets on.
    #[test]
    fn the_rate_follows_the_norm() {
        let norm = |least: &str| Norm::new(&Parameters::new([("p", least)]), 32).unwrap();
        let own = norm("0.001").one_in(1.4e8f64.powi(2));
        assert!((70..=80).contains(&own), "one in {own}");
        assert_eq!(norm("0.05").one_in(1.4e8f64.powi(2)), 20);
        assert_eq!([0.0, 1.0, 1e10].map(|squares| norm("0.001").one_in(squares)), [1; 3]);
        assert_eq!([1e11, 4e11].map(|packets| norm("0.001").one_in(packets)), [1, 2]);
    }
}
