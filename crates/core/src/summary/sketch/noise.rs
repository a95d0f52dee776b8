//! How far the estimates of a sketch are off, and how much further where its rows are samples.
//!
//! A row is off by what collides with a flow, whose variance does not depend on the flow, and by its
//! own sample of the flow, whose variance is the flow's size times a unit at most. Both are random in
//! each row, so that the median of the rows is within as many standard deviations of both as a share
//! of the rows may fail by Chebyshev's inequality.

use super::super::Estimate;

/// Chance that some flow in the list of them is below its lower bound for the luck of its sample.
const LUCK: f64 = 0.01;

/// How the estimates of one sketch err.
#[derive(Clone, Copy)]
pub(crate) struct Noise {
    /// How far they are off for what collides.
    pub(crate) margin: f64,
    /// Standard deviations of a row that the median is off at most.
    pub(crate) deviations: f64,
    /// The variance of a sampled weight over that weight; 0 where rows are no samples.
    pub(crate) unit: f64,
}

impl Noise {
    /// The bounds of what is estimated as `value`.
    pub(crate) fn bounds(self, value: f64) -> (f64, f64) {
        ends(value, self.margin, self.deviations.powi(2) * self.unit)
    }

    /// The lower bound of a flow that is estimated as `value` and listed for that among the flows of
    /// `total`: small ones among them were counted more often than they should have been. A flow is
    /// given its share of the total as its share of the chance that any is below.
    fn least(self, value: f64, total: f64, rows: usize) -> f64 {
        // A flow that is larger than this has a larger share of the chance.
        let size = self.least_of(value, total, rows);
        self.least_of(value, total / size.max(1.0), rows)
    }

    /// The lower bound of a flow that is one of so many `flows`, all of which are above theirs: by
    /// Bernstein's inequality no row of any of them is further above the truth.
    fn least_of(self, value: f64, flows: f64, rows: usize) -> f64 {
        let chances = 2.0 * (rows as f64 * flows.max(1.0) / LUCK).ln();
        let value = (value - self.unit * chances / 6.0).max(0.0);
        let margin = self.margin / self.deviations * chances.sqrt();
        ends(value, margin, chances * self.unit).0
    }

    /// The estimate of a flow that a sample listed among the packets of `total` weight, from that of a
    /// flow which was asked for.
    pub(crate) fn listed(self, asked: Estimate, total: u64, rows: usize) -> Estimate {
        if self.unit == 0.0 {
            return asked;
        }
        let least = self.least(asked.value, total as f64, rows);
        Estimate { low: asked.low.min(least.max(0.0)), ..asked }
    }
}

/// The numbers that are estimated as `value` where those of t are off by the root of `margin`² and
/// `unit` t at most: the ends of (value − t)² ≤ margin² + unit t.
fn ends(value: f64, margin: f64, unit: f64) -> (f64, f64) {
    if unit == 0.0 {
        return (value - margin, value + margin);
    }
    let (value, half) = (value.max(0.0), unit / 2.0);
    let root = (unit * value + half.powi(2) + margin.powi(2)).sqrt();
    (value + half - root, value + half + root)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ends_are_where_the_error_is_as_large_as_allowed() {
        for (value, margin, unit) in [(0.0, 0.0, 7.0), (50.0, 3.0, 1000.0), (1e6, 500.0, 99.0)] {
            let (low, high) = ends(value, margin, unit);
            for t in [low, high] {
                let allowed: f64 = margin * margin + unit * t;
                assert!(((value - t).powi(2) - allowed).abs() <= 1e-6 * (allowed + 1.0), "{t}");
            }
            assert!(low <= value && value <= high);
        }
        assert_eq!(ends(-5.0, 3.0, 0.0), (-8.0, -2.0));
        let noise = Noise { margin: 0.0, deviations: 3.0, unit: 99.0 };
        assert!(noise.bounds(0.0).1 >= 9.0 * 99.0);
        assert!(noise.least(300.0, 1e6, 4) <= 1.0 && noise.least(1e6, 1e6, 4) > 9e5);
    }
}
