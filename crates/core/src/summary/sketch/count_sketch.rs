//! Count Sketch: d rows of signed counters; the median of a key's counters is its estimate.
//!
//! Paper: Charikar, Chen and Farach-Colton, "Finding frequent items in data streams" (ICALP 2002),
//! §3. A key adds its weight in some rows and subtracts it in others, so that the keys that collide
//! with it cancel on average: each row is unbiased, with the variance (L2² − f²)/columns. The
//! squares of a row's counters add up to L2² on average, so the sketch estimates its own error.

use std::marker::PhantomData;

use super::rows::{
    CONFIDENCE, Counts, Grid, L2_PARAMETERS, Linear, MOST_ROWS, RowSketch, Rows, Rule, Signed,
    Targets, Weight, build, build_concurrent, deviations, info, median, median_fails,
    median_of_rows, seldom_short, signs, sum_over,
};
use crate::key::FlowKey;
use crate::summary::concurrent::{Concurrent, ConcurrentIngest};
use crate::summary::{BuildError, Cells, Describe, Estimate, Info, Options, RowIngest, Summary};

/// A Count Sketch of `i32` counters for packets or `i64` counters for bytes.
///
/// Cost: a cache line per row and a multiply per packet, and one more line in the set of heavy keys
/// while the key is heavy. Memory in bytes: `rows × columns × 4 (or 8) + candidates × (3 ×
/// size_of::<K>() + 8)`.
///
/// ```
/// use flowgauge_core::batch::Batch;
/// use flowgauge_core::catalog;
/// use flowgauge_core::key::{FlowKey, Key8};
/// use flowgauge_core::summary::Options;
///
/// let options = Options::new(1 << 20, 1).for_keys(4);
/// let mut sketch = catalog::build::<Key8>("count-sketch", &options).unwrap();
/// let key = Key8::from_canonical(&[192, 0, 2, 1]).unwrap();
/// let mut batch = Batch::new();
/// for _ in 0..100 {
///     batch.push(key, 1500, 0);
/// }
/// sketch.ingest(&mut batch);
/// let size = sketch.answers().size().unwrap().estimate(&[192, 0, 2, 1]).packets.unwrap();
/// assert_eq!((size.value, size.confidence), (100.0, Some(0.95)));
/// ```
pub struct CountSketch;

impl Describe for CountSketch {
    const INFO: Info = info(
        "count-sketch",
        "rows of signed counters; the median counter of a key is its estimate",
        "Count Sketch (ICALP 2002), section 3",
        L2_PARAMETERS,
    );

    fn build<K: FlowKey>(options: &Options) -> Result<Box<dyn Summary<K>>, BuildError> {
        build::<K, Signs<i32>, Signs<i64>>(options)
    }
}

impl Concurrent for CountSketch {
    fn build_concurrent<K: FlowKey>(
        options: &Options,
    ) -> Result<Box<dyn ConcurrentIngest<K>>, BuildError> {
        build_concurrent::<K, Signs<i32>, Signs<i64>>(options)
    }
}

/// The rule of Count Sketch: every counter of a key takes its weight with the sign of the row, and
/// the median is the estimate.
pub(crate) struct Signs<C>(PhantomData<C>);

impl<C: Signed> Rule for Signs<C> {
    type Cell = C;
    const TARGETS: Targets = Targets::Median;

    #[inline(always)]
    fn add<const FULL: bool>(
        cells: &mut [C],
        places: &[usize],
        digest: u64,
        weight: Weight<Self>,
        limit: u64,
    ) -> (u64, bool) {
        let (signs, limit) = (signs(digest), C::at_most(limit));
        let (mut lost, mut beyond) = (0, 0);
        for (row, &place) in places.iter().enumerate() {
            let sign = 1 - 2 * (signs >> row & 1).cast_signed();
            let cell = &mut cells[place];
            lost += cell.add_signed::<FULL>(weight, sign);
            beyond += usize::from(cell.exceeds(sign, limit));
        }
        (lost, beyond >= places.len().div_ceil(2))
    }

    fn estimate(grid: &Grid<Self>, digest: u64) -> f64 {
        Self::value(grid.rows, digest, grid.total as f64, |place| grid.cells[place].real()).max(0.0)
    }

    fn margin(grid: &Grid<Self>) -> f64 {
        Self::noise(grid.rows, grid.total as f64, |place| grid.cells[place].real())
    }

    fn bounds(grid: &Grid<Self>, value: f64, margin: f64) -> Estimate {
        medians(grid, value, margin)
    }

    /// Half of the colliding cells have the sign of the key.
    fn overestimates(rows: usize, share: f64) -> f64 {
        median_fails(rows, share / 2.0)
    }

    fn listed_low(grid: &Grid<Self>, value: f64, _: f64, over: f64) -> f64 {
        value - over - grid.saturated as f64
    }

    fn shortfall_of_one(grid: &Grid<Self>, cells: &Counts, allowed: f64) -> Option<f64> {
        let rows = grid.rows.rows();
        Some(cells.seldom(rows, allowed, &|share| Self::overestimates(rows, share)))
    }

    fn signs(digest: u64) -> Option<u64> {
        Some(signs(digest))
    }

    fn alone(rows: Rows, digest: u64, total: f64, cell: &dyn Fn(usize) -> f64) -> Option<f64> {
        Some(Self::value(rows, digest, total, cell))
    }

    fn shortfall(grid: &Grid<Self>) -> f64 {
        let keys = |size: f64| (grid.total as f64 / size).max(1.0);
        seldom_short(grid.rows, &Counts::of_cells(&grid.cells), 1.0 - CONFIDENCE, &keys)
    }

    /// A packet changes a counter of each row by at most its weight.
    fn is_possible(_: u128, _: u64) -> bool {
        true
    }

    fn cells<K: FlowKey>(sketch: &RowSketch<K, Self>) -> Option<&dyn Cells> {
        Some(sketch)
    }

    fn sampled<K: FlowKey>(sketch: &mut RowSketch<K, Self>) -> Option<&mut dyn RowIngest<K>> {
        Some(sketch)
    }
}

impl<C: Signed> Linear for Signs<C> {
    const SIGNED: bool = true;

    #[inline]
    fn value(rows: Rows, digest: u64, _: f64, cell: impl Fn(usize) -> f64) -> f64 {
        let (places, signs) = (rows.places::<MOST_ROWS>(digest), signs(digest));
        let mut values = [0.0; MOST_ROWS];
        for (row, value) in values[..rows.rows()].iter_mut().enumerate() {
            let number = cell(places[row]);
            *value = if signs >> row & 1 == 1 { -number } else { number };
        }
        median(&mut values[..rows.rows()])
    }

    fn squared_l2(rows: Rows, _: f64, cells: impl Fn(usize) -> f64) -> f64 {
        median_of_rows(rows, |places| sum_over(places, |place| cells(place).powi(2)))
    }

    fn noise(rows: Rows, total: f64, cells: impl Fn(usize) -> f64) -> f64 {
        let variance = Self::squared_l2(rows, total, cells) / rows.columns() as f64;
        deviations(rows.rows()) * variance.sqrt()
    }

    #[inline(always)]
    fn add_to_row<const FULL: bool>(
        cell: &mut C,
        row: usize,
        digest: u64,
        weight: Weight<Self>,
        limit: u64,
    ) -> (u64, bool) {
        let sign = 1 - 2 * (signs(digest) >> row & 1).cast_signed();
        let lost = cell.add_signed::<FULL>(weight, sign);
        (lost, cell.exceeds(sign, C::at_most(limit)))
    }
}

/// The bounds of an estimate with an error of at most `margin` to either side.
pub(super) fn medians<R: Rule>(grid: &Grid<R>, value: f64, margin: f64) -> Estimate {
    let low = (value - margin - grid.saturated as f64).max(0.0);
    let high = value + margin + grid.saturated as f64;
    Estimate { value, low, high, confidence: Some(CONFIDENCE) }
}
