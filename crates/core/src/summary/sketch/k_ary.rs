//! K-ary sketch: Count-Min's counters, read without bias.
//!
//! Paper: Krishnamurthy, Sen, Zhang and Chen, "Sketch-based change detection: methods, evaluation,
//! and applications" (IMC 2003), §3.1. In a row of w counters with the sum N, the size of a key
//! with counter C is estimated as (C − N/w)/(1 − 1/w), which is unbiased. The estimate is the
//! median over the rows. Counters are skewed to the right, so the median is slightly low. As in
//! Count Sketch, the squared deviations of a row estimate the error.

use std::marker::PhantomData;
use std::ops::Range;

use super::count_min::{adds_up, most_keys};
use super::count_sketch::medians;
use super::rows::{
    Cell, Counts, Grid, L2_PARAMETERS, Limit, Linear, MOST_ROWS, RowSketch, Rows, Rule, Targets,
    Unsigned, Weight, build, build_concurrent, deviations, info, median, median_fails,
    median_of_rows, sum_over,
};
use crate::key::FlowKey;
use crate::summary::concurrent::{Concurrent, ConcurrentIngest};
use crate::summary::{BuildError, Cells, Describe, Estimate, Info, Options, RowIngest, Summary};
use crate::terms::Threshold;

/// A K-ary sketch of `u32` counters for packets or `u64` counters for bytes.
///
/// Cost: a cache line per row and packet, and one more in the set of heavy keys while the key is
/// heavy. Memory in bytes: `rows × columns × 4 (or 8) + candidates × (3 × size_of::<K>() + 8)`.
///
/// ```
/// use flowgauge_core::batch::Batch;
/// use flowgauge_core::catalog;
/// use flowgauge_core::key::{FlowKey, Key8};
/// use flowgauge_core::summary::Options;
///
/// let options = Options::new(1 << 20, 1).for_keys(4);
/// let mut sketch = catalog::build::<Key8>("k-ary", &options).unwrap();
/// let key = Key8::from_canonical(&[192, 0, 2, 1]).unwrap();
/// let mut batch = Batch::new();
/// for _ in 0..100 {
///     batch.push(key, 1500, 0);
/// }
/// sketch.ingest(&mut batch);
/// let size = sketch.answers().size().unwrap().estimate(&[192, 0, 2, 1]).packets.unwrap();
/// assert!((size.value - 100.0).abs() < 0.1);
/// ```
pub struct KAry;

impl Describe for KAry {
    const INFO: Info = info(
        "k-ary",
        "rows of counters less their mean; the median counter of a key is its estimate",
        "K-ary sketch (IMC 2003), section 3.1",
        L2_PARAMETERS,
    );

    fn build<K: FlowKey>(options: &Options) -> Result<Box<dyn Summary<K>>, BuildError> {
        build::<K, Centred<u32>, Centred<u64>>(options)
    }
}

impl Concurrent for KAry {
    fn build_concurrent<K: FlowKey>(
        options: &Options,
    ) -> Result<Box<dyn ConcurrentIngest<K>>, BuildError> {
        build_concurrent::<K, Centred<u32>, Centred<u64>>(options)
    }
}

/// The rule of K-ary: every counter of a key takes its weight, and is read relative to its row's
/// mean.
pub(crate) struct Centred<C>(PhantomData<C>);

impl<C: Unsigned> Rule for Centred<C> {
    type Cell = C;
    const TARGETS: Targets = Targets::Median;

    #[inline(always)]
    fn add<const FULL: bool>(
        cells: &mut [C],
        places: &[usize],
        _: u64,
        weight: C,
        limit: u64,
    ) -> (u64, bool) {
        let (mut lost, mut beyond) = (0, 0);
        for &place in places {
            let cell = &mut cells[place];
            lost += cell.raise::<FULL>(weight);
            beyond += usize::from(cell.get() > limit);
        }
        (lost, beyond >= places.len().div_ceil(2))
    }

    fn estimate(grid: &Grid<Self>, digest: u64) -> f64 {
        estimate(grid, digest)
    }

    /// The expected counter of a key whose size is the threshold.
    fn cell_limit(rows: Rows, threshold: Threshold) -> Limit {
        let mean = 1.0 / rows.columns() as f64;
        match threshold {
            Threshold::Share(share) => Limit::new(0.0, share * (1.0 - mean) + mean),
            Threshold::Weight(weight) => Limit::new(weight as f64 * (1.0 - mean), mean),
        }
    }

    fn margin(grid: &Grid<Self>) -> f64 {
        margin(grid)
    }

    fn bounds(grid: &Grid<Self>, value: f64, margin: f64) -> Estimate {
        medians(grid, value, margin)
    }

    fn overestimates(rows: usize, share: f64) -> f64 {
        median_fails(rows, share)
    }

    fn most_keys(grid: &Grid<Self>, free: f64) -> f64 {
        most_keys(grid, free)
    }

    /// The mean of the other keys in a row is already subtracted.
    fn listed_low(grid: &Grid<Self>, value: f64, others: f64, over: f64) -> f64 {
        let share = 1.0 / grid.rows.columns() as f64;
        let mean = others.max(0.0) * share;
        value - (over - mean).max(0.0) / (1.0 - share) - grid.saturated as f64
    }

    fn shortfall_of_one(grid: &Grid<Self>, _: &Counts, _: f64) -> Option<f64> {
        Some(Self::shortfall(grid))
    }

    fn signs(_: u64) -> Option<u64> {
        Some(0)
    }

    fn alone(rows: Rows, digest: u64, total: f64, cell: &dyn Fn(usize) -> f64) -> Option<f64> {
        Some(Self::value(rows, digest, total, cell))
    }

    /// A cell is never below its key's size, and only the row's mean is subtracted from it.
    fn shortfall(grid: &Grid<Self>) -> f64 {
        grid.total as f64 / (grid.rows.columns() - 1).max(1) as f64
    }

    fn is_possible(lost: u128, saturated: u64) -> bool {
        adds_up(lost, saturated)
    }

    fn cells<K: FlowKey>(sketch: &RowSketch<K, Self>) -> Option<&dyn Cells> {
        Some(sketch)
    }

    fn sampled<K: FlowKey>(sketch: &mut RowSketch<K, Self>) -> Option<&mut dyn RowIngest<K>> {
        Some(sketch)
    }
}

impl<C: Unsigned> Linear for Centred<C> {
    fn value(rows: Rows, digest: u64, total: f64, cell: impl Fn(usize) -> f64) -> f64 {
        value(rows, digest, total, cell)
    }

    fn noise(rows: Rows, total: f64, cells: impl Fn(usize) -> f64) -> f64 {
        noise(rows, total, cells)
    }

    fn squared_l2(rows: Rows, total: f64, cells: impl Fn(usize) -> f64) -> f64 {
        squared_l2(rows, total, cells)
    }

    #[inline(always)]
    fn add_to_row<const FULL: bool>(
        cell: &mut C,
        _: usize,
        _: u64,
        weight: Weight<Self>,
        limit: u64,
    ) -> (u64, bool) {
        add_to_row::<FULL, C>(cell, weight, limit)
    }
}

/// [`Rule::estimate`] of counters read without bias.
#[inline]
pub(super) fn estimate<R: Rule>(grid: &Grid<R>, digest: u64) -> f64 {
    value(grid.rows, digest, grid.total as f64, |place| grid.cells[place].real()).max(0.0)
}

/// [`Rule::margin`] of counters read without bias.
pub(super) fn margin<R: Rule>(grid: &Grid<R>) -> f64 {
    noise(grid.rows, grid.total as f64, |place| grid.cells[place].real())
}

/// [`Linear::add_to_row`] of counters.
#[inline(always)]
pub(super) fn add_to_row<const FULL: bool, C: Unsigned>(
    cell: &mut C,
    weight: C,
    limit: u64,
) -> (u64, bool) {
    let lost = cell.raise::<FULL>(weight);
    (lost, cell.get() > limit)
}

/// The median over the rows of their unbiased estimates.
#[inline]
pub(super) fn value(rows: Rows, digest: u64, total: f64, cell: impl Fn(usize) -> f64) -> f64 {
    let columns = rows.columns();
    let places = rows.places::<MOST_ROWS>(digest);
    let mut values = places.map(|place| unbiased(cell(place), total, columns));
    median(&mut values[..rows.rows()])
}

/// The unbiased estimate of a key's size from its counter, in a row of `columns` counters that add
/// up to `total`.
#[inline]
pub(super) fn unbiased(counter: f64, total: f64, columns: usize) -> f64 {
    let columns = columns as f64;
    (counter - total / columns) / (1.0 - 1.0 / columns)
}

/// Largest error of the median: the standard deviation of a row by its own squares, (L2² − f²)/(w −
/// 1), times the deviations that the median may be off by.
pub(super) fn noise(rows: Rows, total: f64, cells: impl Fn(usize) -> f64) -> f64 {
    let variance = squared_l2(rows, total, cells) / (rows.columns() as f64 - 1.0);
    deviations(rows.rows()) * variance.sqrt()
}

/// L2² by the squared deviations of the median row.
pub(super) fn squared_l2(rows: Rows, total: f64, cells: impl Fn(usize) -> f64) -> f64 {
    let columns = rows.columns() as f64;
    let squares =
        |places: Range<usize>| sum_over(places, |place| (cells(place) - total / columns).powi(2));
    // Around the mean, the squares add up to (1 − 1/w) L2² on average.
    median_of_rows(rows, squares) / (1.0 - 1.0 / columns)
}
