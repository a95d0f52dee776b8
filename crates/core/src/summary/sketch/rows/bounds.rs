//! Errors of the estimates of a sketch: by collisions, by sampling, and by selection.
//!
//! - [`Noise`]: the error of a median. Each row errs by the keys that collide with a flow, with a
//!   variance that does not depend on the flow, and by its own sample of the flow, with a variance
//!   of at most the flow's size times a unit. Both are independent between rows. So the median errs
//!   by at most as many standard deviations as Chebyshev's inequality allows half of the rows to
//!   fail by.
//! - [`seldom_exceeded`] and [`seldom_short`]: bounds read from the cells themselves, in few
//!   passes.
//! - [`Listed`]: bounds of keys that are listed because their estimates are large.

use super::cell::{Cell, Unsigned};
use super::{Rows, median_fails};
use crate::summary::Estimate;

/// Chance that some listed flow is below its lower bound because its sample was lucky.
const LUCK: f64 = 0.01;

/// The errors of the estimates of one sketch.
#[derive(Clone, Copy)]
pub(crate) struct Noise {
    /// Largest error by collisions.
    pub(crate) margin: f64,
    /// Largest error of the median, in standard deviations of a row.
    pub(crate) deviations: f64,
    /// The variance of a sampled weight divided by that weight; 0 if rows are not samples.
    pub(crate) unit: f64,
}

impl Noise {
    /// The bounds of a size estimated as `value`.
    pub(crate) fn bounds(self, value: f64) -> (f64, f64) {
        ends(value, self.margin, self.deviations.powi(2) * self.unit)
    }

    /// The lower bound of a flow listed for its estimate `value` among flows of `total` weight: it
    /// may be a small flow that was sampled more often than expected. The chance of failure is
    /// divided among the flows in proportion to their weight.
    fn least(self, value: f64, total: f64, rows: usize) -> f64 {
        // A larger flow has a larger part of the chance.
        let size = self.least_of(value, total, rows);
        self.least_of(value, total / size.max(1.0), rows)
    }

    /// A lower bound that holds for each of `flows` flows at once: by Bernstein's inequality, no
    /// row of any of them is further above the truth.
    fn least_of(self, value: f64, flows: f64, rows: usize) -> f64 {
        let chances = 2.0 * (rows as f64 * flows.max(1.0) / LUCK).ln();
        let value = (value - self.unit * chances / 6.0).max(0.0);
        let margin = self.margin / self.deviations * chances.sqrt();
        ends(value, margin, chances * self.unit).0
    }

    /// The estimate of a flow listed from a sample of packets of `total` weight, given its estimate
    /// when asked for by key.
    pub(crate) fn listed(self, asked: Estimate, total: u64, rows: usize) -> Estimate {
        if self.unit == 0.0 {
            return asked;
        }
        let least = self.least(asked.value, total as f64, rows);
        Estimate { low: asked.low.min(least.max(0.0)), ..asked }
    }
}

/// The ends of the interval of sizes t with (value − t)² ≤ margin² + unit·t: sizes that can be
/// estimated as `value` if the variance of a sample is `unit`·t.
fn ends(value: f64, margin: f64, unit: f64) -> (f64, f64) {
    if unit == 0.0 {
        return (value - margin, value + margin);
    }
    let (value, half) = (value.max(0.0), unit / 2.0);
    let root = (unit * value + half.powi(2) + margin.powi(2)).sqrt();
    (value + half - root, value + half + root)
}

/// Number of steps that one pass compares with.
const STEPS: usize = 256;

/// Histograms filled in parallel: most cells of a row are alike, and counting one waits for the
/// last one of the same range.
const LANES: usize = 4;

/// The smallest value, up to `most`, that a key's cells exceed in all rows with a chance of at most
/// `allowed`. In each row, the chance is the fraction of the `columns` that exceed it, with the
/// key's own cell counted as one of them.
///
/// Cost: a pass over the cells for each eight bits of `most`.
#[inline(never)]
pub(crate) fn seldom_exceeded<C: Unsigned>(
    cells: &[C],
    columns: usize,
    most: u64,
    allowed: f64,
) -> u64 {
    let (mut low, mut high) = (0, most);
    while low < high {
        let steps = Steps::between(low, high);
        let mut chances = [1.0; STEPS];
        for row in cells.chunks_exact(columns) {
            for (chance, above) in chances.iter_mut().zip(steps.exceeded(row)) {
                *chance *= ((above + 1) as f64 / columns as f64).min(1.0);
            }
        }
        // The last steps may exceed `high`.
        let first = chances.iter().position(|chance| *chance <= allowed).unwrap_or(STEPS);
        if first > 0 {
            low = high.min(steps.at(first - 1).saturating_add(1));
        }
        high = high.min(steps.at(first));
    }
    low
}

/// Largest shortfall of the median of a key's signed cells below its size, over all keys and all
/// times so far, but for a chance of `allowed`. `keys` is an upper bound of the number of keys whose
/// size is at least a given one.
///
/// The collisions of a key in a row equal the content of a random cell, with a random sign. They
/// may have been larger before and have cancelled out since. But sums of random signs exceed a
/// value at most twice as often as those of larger weights do (Ledoux and Talagrand, "Probability
/// in Banach spaces", theorem 4.4), which counting both signs covers. A key of less weight than a
/// value cannot fall short by it.
///
/// The cells may be sums of merged sketches, in each of which a key may have fallen short. In a row
/// these shortfalls add up as the cells do. Their medians add up to more than the median of the
/// sums only if most rows fall short in each of the sketches, which random signs make as rare.
pub(crate) fn seldom_short(
    rows: Rows,
    cells: &Counts,
    allowed: f64,
    keys: &dyn Fn(f64) -> f64,
) -> f64 {
    cells.least(allowed, &|share, _, number| median_fails(rows.rows(), share) * keys(number))
}

/// The part of the chance of failure that upper bounds of listed keys get. Lower bounds get the
/// rest: they are the wide ones, since a large estimate is more likely too large than too small.
pub(crate) const UPPER: f64 = 0.1;

/// Errors of keys that are listed because of their estimates.
///
/// The collisions of a key in a row equal the content of a random cell of a row without the key;
/// the key's own cell is counted as one that exceeds a value. Some of all keys collide with heavy
/// ones in most rows, and those lead the list. So the bound of the key at rank k is chosen such
/// that, of all keys, at most k × `chance` are expected to exceed it. For each k, on average, at
/// most that fraction of the first k keys are then below their bounds.
pub(crate) struct Listed {
    /// Overestimate of the estimates in each range.
    over: [f64; EIGHTHS],
}

impl Listed {
    /// The errors of keys with these `estimates`. `cells` are the cells of all `rows`, and `keys`
    /// is an upper bound of the number of keys. `fails` is the chance that an estimate is too high
    /// by more than a value which a given fraction of the cells exceeds.
    #[inline(never)]
    pub(crate) fn new(
        estimates: &Counts,
        rows: usize,
        cells: &Counts,
        keys: f64,
        chance: f64,
        fails: &dyn Fn(f64) -> f64,
    ) -> Self {
        let (mut over, mut before) = ([f64::INFINITY; EIGHTHS], 0);
        let ranges = over.iter_mut().zip(estimates.0).rev();
        for (over, count) in ranges.filter(|(_, count)| *count > 0) {
            let allowed = chance * (before + 1) as f64 / keys.max(1.0);
            *over = cells.seldom(rows, allowed, fails);
            before += count;
        }
        Self { over }
    }

    /// Largest overestimate of a listed key with this estimate.
    pub(crate) fn over(&self, estimate: f64) -> f64 {
        self.over[eighth(estimate as u64)]
    }
}

/// A histogram of numbers, in eighths of a power of two.
#[derive(Clone)]
pub(crate) struct Counts([u64; EIGHTHS]);

impl Counts {
    pub(crate) fn new() -> Self {
        Self([0; EIGHTHS])
    }

    /// The histogram of the absolute values of cells.
    pub(crate) fn of_cells<C: Cell>(cells: &[C]) -> Self {
        let mut counts = Self::new();
        counts.add_cells(cells);
        counts
    }

    #[inline(never)]
    pub(crate) fn add_cells<C: Cell>(&mut self, cells: &[C]) {
        for cell in cells {
            self.add(cell.size());
        }
    }

    #[inline]
    pub(crate) fn add(&mut self, number: u64) {
        self.0[eighth(number)] += 1;
    }

    /// Counts another number instead of one of those counted.
    pub(crate) fn replace(&mut self, number: u64, other: u64) {
        self.0[eighth(number)] -= 1;
        self.add(other);
    }

    /// The fraction of the numbers that are 0.
    pub(crate) fn zeros(&self) -> f64 {
        self.0[0] as f64 / self.0.iter().sum::<u64>() as f64
    }

    /// The smallest value that a key errs by more than with a chance of at most `allowed`. `fails`
    /// is that chance if a fraction of the cells exceeds the value; the key's own cells count as
    /// ones that do.
    pub(crate) fn seldom(&self, rows: usize, allowed: f64, fails: &dyn Fn(f64) -> f64) -> f64 {
        self.least(allowed, &|share, of_cell, _| fails((share + rows as f64 * of_cell).min(1.0)))
    }

    /// The smallest number whose `chance` is at most `allowed`, in eighths of a power of two, or
    /// infinity. The chance depends on the fraction of the numbers that exceed this one, on the
    /// fraction that is one of them, and on the number itself.
    #[inline(never)]
    fn least(&self, allowed: f64, chance: &dyn Fn(f64, f64, f64) -> f64) -> f64 {
        let of_one = 1.0 / self.0.iter().sum::<u64>() as f64;
        let last = self.0.iter().rposition(|count| *count > 0).unwrap_or(0);
        let (mut least, mut above) = (f64::INFINITY, 0u64);
        for (step, count) in self.0[..=last].iter().enumerate().rev() {
            let number = last_of(step);
            if chance(above as f64 * of_one, of_one, number) > allowed {
                break;
            }
            (least, above) = (number, above + count);
        }
        least
    }
}

/// Number of ranges, eight for each power of two.
const EIGHTHS: usize = 62 * 8;

/// The range that a number is in.
#[inline(always)]
fn eighth(number: u64) -> usize {
    let shift = number.checked_ilog2().unwrap_or(0).saturating_sub(3);
    (shift << 3) as usize + (number >> shift) as usize
}

/// The largest number of a range.
fn last_of(eighth: usize) -> f64 {
    let shift = (eighth >> 3).saturating_sub(1);
    let first = (eighth - (shift << 3)) as f64;
    (first + 1.0) * (1u64 << shift) as f64 - 1.0
}

/// [`STEPS`] numbers at equal distances of a power of two.
struct Steps {
    from: u64,
    shift: u32,
}

impl Steps {
    /// Steps from `low` on; a step behind the last would reach `high`.
    fn between(low: u64, high: u64) -> Self {
        let distance = (high - low).div_ceil(STEPS as u64).next_power_of_two();
        Self { from: low, shift: distance.trailing_zeros() }
    }

    fn at(&self, step: usize) -> u64 {
        self.from.saturating_add((step as u64).saturating_mul(1 << self.shift))
    }

    /// The number of cells that exceed each step.
    fn exceeded<C: Unsigned>(&self, row: &[C]) -> [u64; STEPS] {
        let mut ranges = [[0; STEPS + 1]; LANES];
        for cells in row.chunks(LANES) {
            for (range, cell) in ranges.iter_mut().zip(cells) {
                range[self.passed(cell.get())] += 1;
            }
        }
        let (mut above, mut exceeded) = (0, [0; STEPS]);
        for (step, exceeded) in exceeded.iter_mut().enumerate().rev() {
            above += ranges.iter().map(|range| range[step + 1]).sum::<u64>();
            *exceeded = above;
        }
        exceeded
    }

    /// The number of steps below a number.
    #[inline(always)]
    fn passed(&self, number: u64) -> usize {
        let above = number.saturating_sub(self.from);
        let up = above.saturating_add((1 << self.shift) - 1) >> self.shift;
        up.min(STEPS as u64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::summary::remix::remix;

    /// The reference: tries every number.
    fn by_trial(cells: &[u64], columns: usize, most: u64, allowed: f64) -> u64 {
        let share = |row: &[u64], number| {
            let above = row.iter().filter(|cell| **cell > number).count();
            ((above + 1) as f64 / columns as f64).min(1.0)
        };
        let chance =
            |number: &u64| cells.chunks_exact(columns).map(|row| share(row, *number)).product();
        (0..most)
            .find(|number| {
                let chance: f64 = chance(number);
                chance <= allowed
            })
            .unwrap_or(most)
    }

    #[test]
    fn no_smaller_value_suffices() {
        for seed in 0..400 {
            let random = |at: u64| remix(seed << 32 | at, 1);
            let (rows, columns) = (1 + random(0) as usize % 5, 1 << (random(1) % 8));
            let width = 1 + random(2) % 14;
            let cells: Vec<u64> =
                (0..rows * columns).map(|at| random(9 + at as u64) >> (64 - width)).collect();
            let narrow: Vec<u32> = cells.iter().map(|cell| *cell as u32).collect();
            let most = random(3) % (2 << width);
            let allowed = 0.5f64.powi(random(4) as i32 % 12);
            let least = by_trial(&cells, columns, most, allowed);
            assert_eq!(seldom_exceeded(&cells, columns, most, allowed), least, "seed {seed}");
            assert_eq!(seldom_exceeded(&narrow, columns, most, allowed), least, "seed {seed}");
        }
    }

    #[test]
    fn large_values_are_distinguished() {
        let cells = [[5, 1 << 40, u64::MAX, (1 << 63) + 9]; 2].concat();
        for (allowed, least) in [(1.0, 0), (0.57, 1 << 40), (0.26, (1 << 63) + 9), (0.0, u64::MAX)]
        {
            assert_eq!(seldom_exceeded(&cells, 4, u64::MAX, allowed), least, "{allowed}");
        }
    }

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
