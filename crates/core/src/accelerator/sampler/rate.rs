//! How many units one is taken of.

use super::norm::Norm;

/// The most that one is taken of: its weight and that of what came with it must fit into 32 bits
/// twice. Whoever is taken from fewer errs less.
pub(in crate::accelerator) const MOST: u64 = 1 << 31;

/// What says how many units one is taken of.
#[derive(Clone, Copy)]
pub(super) enum Rate {
    /// How many units there were.
    Steps(Steps),
    /// How large all flows are together.
    Norm(Norm),
}

/// One in `first` of the first `step` units, one in twice as many of the next `step`, and so on.
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

    /// How many one is taken of at the unit of this number, counted from 1, and the number of the
    /// last one for which that holds.
    pub(in crate::accelerator) fn at(self, unit: u64) -> (u64, u64) {
        let steps = unit.div_ceil(self.step);
        (self.first.saturating_mul(steps).min(MOST), steps.saturating_mul(self.step))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
