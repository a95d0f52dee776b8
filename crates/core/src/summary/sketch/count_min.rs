//! Count-Min: d rows of counters; the smallest counter of a key is its estimate.
//!
//! Paper: Cormode and Muthukrishnan, "An improved data stream summary: the Count-Min sketch and its
//! applications" (J. Algorithms 2005), §3 and §4.1. An estimate is never below the truth. Over the
//! choice of a key's columns, its collisions in a row are the content of a random cell of that row,
//! so the cells themselves bound the error.

use std::marker::PhantomData;

use super::k_ary;
use super::rows::{
    CONFIDENCE, Cell, Grid, Linear, MOST_ROWS, RowSketch, Rows, Rule, TOTAL_PARAMETERS, Targets,
    Unsigned, Weight, build, build_concurrent, info, seldom_exceeded,
};
use crate::key::FlowKey;
use crate::summary::concurrent::{Concurrent, ConcurrentIngest};
use crate::summary::distinct::counted_linearly;
use crate::summary::{BuildError, Cells, Describe, Estimate, Info, Options, RowIngest, Summary};

/// A Count-Min sketch of `u32` counters for packets or `u64` counters for bytes.
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
/// let mut sketch = catalog::build::<Key8>("count-min", &options).unwrap();
/// let key = Key8::from_canonical(&[192, 0, 2, 1]).unwrap();
/// let mut batch = Batch::new();
/// for _ in 0..100 {
///     batch.push(key, 1500, 0);
/// }
/// sketch.ingest(&mut batch);
/// let size = sketch.answers().size().unwrap().estimate(&[192, 0, 2, 1]);
/// assert_eq!(size.packets.unwrap().value, 100.0);
/// ```
pub struct CountMin;

impl Describe for CountMin {
    const INFO: Info = info(
        "count-min",
        "rows of counters; the smallest counter of a key is its estimate",
        "Count-Min (J. Algorithms 2005), sections 3 and 4.1",
        TOTAL_PARAMETERS,
    );

    fn build<K: FlowKey>(options: &Options) -> Result<Box<dyn Summary<K>>, BuildError> {
        build::<K, Least<u32>, Least<u64>>(options)
    }
}

impl Concurrent for CountMin {
    fn build_concurrent<K: FlowKey>(
        options: &Options,
    ) -> Result<Box<dyn ConcurrentIngest<K>>, BuildError> {
        build_concurrent::<K, Least<u32>, Least<u64>>(options)
    }
}

/// The rule of Count-Min: every counter of a key takes its weight, and the smallest is the
/// estimate.
pub(crate) struct Least<C>(PhantomData<C>);

impl<C: Unsigned> Rule for Least<C> {
    const NEVER_LOW: bool = true;
    type Cell = C;
    const TARGETS: Targets = Targets::Least;

    #[inline(always)]
    fn add<const FULL: bool>(
        cells: &mut [C],
        places: &[usize],
        _: u64,
        weight: C,
        limit: u64,
    ) -> (u64, bool) {
        let (mut lost, mut least) = (0, u64::MAX);
        for &place in places {
            let cell = &mut cells[place];
            lost += cell.raise::<FULL>(weight);
            least = least.min(cell.get());
        }
        (lost, least > limit)
    }

    /// The smallest of several samples is too low. They are read as K-ary reads them, and so is
    /// their margin.
    #[inline]
    fn estimate(grid: &Grid<Self>, digest: u64) -> f64 {
        if grid.unit > 0 {
            return k_ary::estimate(grid, digest);
        }
        least(grid.rows, &grid.cells, digest).get() as f64
    }

    fn margin(grid: &Grid<Self>) -> f64 {
        if grid.unit > 0 {
            return k_ary::margin(grid);
        }
        excess(grid)
    }

    fn bounds(grid: &Grid<Self>, value: f64, margin: f64) -> Estimate {
        sums(grid, value, margin)
    }

    fn overestimates(rows: usize, share: f64) -> f64 {
        all_exceed(rows, share)
    }

    fn most_keys(grid: &Grid<Self>, free: f64) -> f64 {
        most_keys(grid, free)
    }

    fn listed_low(_: &Grid<Self>, value: f64, _: f64, over: f64) -> f64 {
        value - over
    }

    fn signs(_: u64) -> Option<u64> {
        Some(0)
    }

    fn alone(rows: Rows, digest: u64, _: f64, cell: &dyn Fn(usize) -> f64) -> Option<f64> {
        let places = rows.places::<MOST_ROWS>(digest);
        places[..rows.rows()].iter().map(|place| cell(*place)).reduce(f64::min)
    }

    fn shortfall(_: &Grid<Self>) -> f64 {
        0.0
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

/// The smallest of several differences means nothing. They are read as K-ary reads them.
impl<C: Unsigned> Linear for Least<C> {
    fn value(rows: Rows, digest: u64, total: f64, cell: impl Fn(usize) -> f64) -> f64 {
        k_ary::value(rows, digest, total, cell)
    }

    fn noise(rows: Rows, total: f64, cells: impl Fn(usize) -> f64) -> f64 {
        k_ary::noise(rows, total, cells)
    }

    fn squared_l2(rows: Rows, total: f64, cells: impl Fn(usize) -> f64) -> f64 {
        k_ary::squared_l2(rows, total, cells)
    }

    #[inline(always)]
    fn add_to_row<const FULL: bool>(
        cell: &mut C,
        _: usize,
        _: u64,
        weight: Weight<Self>,
        limit: u64,
    ) -> (u64, bool) {
        k_ary::add_to_row::<FULL, C>(cell, weight, limit)
    }
}

/// Upper bound of the number of keys, by linear counting from the fraction `free` of empty cells.
pub(super) fn most_keys<C: Unsigned, R: Rule<Cell = C>>(grid: &Grid<R>, free: f64) -> f64 {
    let (columns, total) = (grid.rows.columns() as f64, grid.total as f64);
    if free > 0.0 { counted_linearly(columns, columns * (1.0 - free), total).high } else { total }
}

/// The chance that a key's cells exceed, in all rows, what a fraction `share` of the cells exceeds.
pub(super) fn all_exceed(rows: usize, share: f64) -> f64 {
    share.powf(rows as f64)
}

/// Whether every row holds all packets but those that full cells lost.
pub(super) fn adds_up(lost: u128, saturated: u64) -> bool {
    lost.min(u64::MAX.into()) == saturated.into()
}

/// The smallest cell of a key.
#[inline]
pub(super) fn least<C: Unsigned>(rows: Rows, cells: &[C], digest: u64) -> C {
    let places = rows.places::<MOST_ROWS>(digest);
    let mut least = cells[places[0]];
    for &place in &places[1..rows.rows()] {
        if cells[place].get() < least.get() {
            least = cells[place];
        }
    }
    least
}

/// Largest excess in all rows, in multiples of its mean, with [`confidence`]: e, or more if the
/// rows are so few that e would not give [`CONFIDENCE`].
pub(super) fn factor(rows: Rows) -> f64 {
    (1.0 - CONFIDENCE).powf(-1.0 / rows.rows() as f64).max(std::f64::consts::E)
}

/// The chance that not all rows exceed their mean by [`factor`], by Markov's inequality in each.
fn confidence(rows: Rows) -> f64 {
    1.0 - factor(rows).powf(-(rows.rows() as f64))
}

/// The smallest value that a key's cells exceed in all rows with a chance of at most δ. In each row
/// the chance is the fraction of columns that exceed it, with the key's own cell counted as one of
/// them. By Markov's inequality, the value is at most the mean × δ^(−1/d).
pub(super) fn excess<C: Unsigned, R: Rule<Cell = C>>(grid: &Grid<R>) -> f64 {
    let (rows, columns) = (grid.rows, grid.rows.columns());
    let allowed = 1.0 - confidence(rows);
    let most = (factor(rows) * grid.total as f64 / columns as f64) as u64;
    seldom_exceeded(&grid.cells, columns, most, allowed) as f64
}

/// The bounds of an estimate that is never below the truth unless its cells are full, and at most
/// `margin` above it.
pub(super) fn sums<R: Rule>(grid: &Grid<R>, value: f64, margin: f64) -> Estimate {
    // If the total is full, the excess of any cell is unknown.
    let full = value >= R::Cell::MOST as f64 || grid.total == u64::MAX;
    let high = if full { value + grid.saturated as f64 } else { value };
    let confidence = Some(confidence(grid.rows));
    Estimate { value, low: (value - margin).max(0.0), high, confidence }
}
