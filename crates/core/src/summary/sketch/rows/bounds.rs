//! How far the estimates of a sketch are off, and how much further where its rows are samples.
//!
//! A row is off by what collides with a flow, whose variance does not depend on the flow, and by its
//! own sample of the flow, whose variance is the flow's size times a unit at most. Both are random in
//! each row, so that the median of the rows is within as many standard deviations of both as a share
//! of the rows may fail by Chebyshev's inequality.
//!
//! What the cells of a key seldom exceed in all rows, in few passes over the cells.

use super::cell::{Cell, Unsigned};
use super::{CONFIDENCE, Rows, median_fails};
use crate::summary::Estimate;

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

/// Numbers that one pass compares with.
const STEPS: usize = 256;

/// Cells counted side by side: most cells of a row are alike, and to count one waits for the one before
/// of the same range.
const LANES: usize = 4;

/// The least number, `most` at most, that the cells of a key exceed in all rows with the chance
/// `allowed` at most: a share of the `columns` in each row, the key's own cell counted as one of them.
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
        // Steps may go beyond `high`.
        let first = chances.iter().position(|chance| *chance <= allowed).unwrap_or(STEPS);
        if first > 0 {
            low = high.min(steps.at(first - 1).saturating_add(1));
        }
        high = high.min(steps.at(first));
    }
    low
}

/// How much less than its size the median of any key's signed cells was at most, of all keys at once and
/// at any time so far, with the chance [`CONFIDENCE`].
///
/// What collides with a key in a row is the content of a random cell, with a random sign. It was larger
/// before where cells cancelled out since: sums of random signs exceed a number at most twice as often as
/// those of larger weights do (Ledoux and Talagrand, "Probability in Banach spaces", theorem 4.4), so that
/// both signs are counted. A key that weighs less than a number is not short by it, and of others there
/// are no more than the total weight over it.
///
/// The cells may be sums of merged sketches, of which a key may have been short in each. In a row these
/// shortfalls add up as the cells do. Their medians add up to more than the median of the sums only where
/// most rows are short in each of the sketches, which random signs make as seldom.
pub(crate) fn seldom_short<C: Cell>(rows: Rows, cells: &[C], total: f64) -> f64 {
    Counts::of_cells(cells).least(1.0 - CONFIDENCE, &|share, _, number| {
        median_fails(rows.rows(), share) * (total / number).max(1.0)
    })
}

/// How much less than their estimates keys may be that are listed for these.
///
/// What collides with a key in a row is the content of a random cell, as it would be without the key:
/// the key's own cell is counted as one that exceeds a number. Of all keys that there are some collide
/// with heavy ones in most rows, and those come first. So the bound of the key at place k of a list is
/// one that no more than k times the `chance` of a failure are over, of all keys: then no more than that
/// share of the first k are below their bounds, on average, for each k.
pub(crate) struct Listed {
    /// What the estimates in each range are over by.
    over: [f64; EIGHTHS],
}

impl Listed {
    /// Of a list with these `estimates`. `cells` are those of all `rows`; there are so many `keys` at
    /// most. `fails` is the chance that an estimate is over by more than what a share of the cells
    /// exceeds.
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
            *over = cells.least(allowed, &|share, of_cell, _| {
                fails((share + rows as f64 * of_cell).min(1.0))
            });
            before += count;
        }
        Self { over }
    }

    /// What the estimate of one of them is over by at most.
    pub(crate) fn over(&self, estimate: f64) -> f64 {
        self.over[eighth(estimate as u64)]
    }
}

/// Numbers by their range.
pub(crate) struct Counts([u64; EIGHTHS]);

impl Counts {
    pub(crate) fn new() -> Self {
        Self([0; EIGHTHS])
    }

    /// Of these cells, whatever their sign.
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

    /// The share of the numbers that are 0.
    pub(crate) fn zeros(&self) -> f64 {
        self.0[0] as f64 / self.0.iter().sum::<u64>() as f64
    }

    /// The least number whose `chance` is the `allowed` one at most, in eighths of a power of two;
    /// infinite where there is none. It depends on the share of the numbers that exceed this one, on the
    /// share of one of them, and on the number itself.
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

/// Ranges of numbers, eight for each power of two.
const EIGHTHS: usize = 62 * 8;

/// The range of a number.
#[inline(always)]
fn eighth(number: u64) -> usize {
    let shift = number.checked_ilog2().unwrap_or(0).saturating_sub(3);
    (shift << 3) as usize + (number >> shift) as usize
}

/// The last number of a range.
fn last_of(eighth: usize) -> f64 {
    let shift = (eighth >> 3).saturating_sub(1);
    let first = (eighth - (shift << 3)) as f64;
    (first + 1.0) * (1u64 << shift) as f64 - 1.0
}

/// [`STEPS`] numbers at equal distances, which are powers of two.
struct Steps {
    from: u64,
    shift: u32,
}

impl Steps {
    /// From `low` on; the one behind the last would not be below `high`.
    fn between(low: u64, high: u64) -> Self {
        let distance = (high - low).div_ceil(STEPS as u64).next_power_of_two();
        Self { from: low, shift: distance.trailing_zeros() }
    }

    fn at(&self, step: usize) -> u64 {
        self.from.saturating_add((step as u64).saturating_mul(1 << self.shift))
    }

    /// How many cells exceed each of the steps.
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

    /// How many steps are below a number.
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

    /// By trying every number.
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
    fn no_lesser_number_will_do() {
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
    fn large_numbers_are_told_apart() {
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
