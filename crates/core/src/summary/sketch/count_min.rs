//! Count-Min: d rows of counters, the least of a key's d counters is its estimate.
//!
//! Paper: Cormode and Muthukrishnan, "An improved data stream summary: the Count-Min sketch and its
//! applications" (J. Algorithms 2005), §3 and §4.1. An estimate is never below the truth. Over
//! the choice of a key's columns, what collides with it in a row is the content of a random cell of
//! that row: the rows themselves tell how large that is at most.

use std::marker::PhantomData;

use super::super::distinct::counted_linearly;
use super::super::shared::{Share, SharedIngest};
use super::super::{BuildError, Cells, Describe, Estimate, Info, Options, RowIngest, Summary};
use super::k_ary;
use super::rows::{
    CONFIDENCE, Cell, Grid, Linear, MOST_ROWS, RowSketch, Rows, Rule, TOTAL_PARAMETERS, Targets,
    Unsigned, Weight, build, build_concurrent, info, seldom_exceeded,
};
use crate::key::FlowKey;

/// The Count-Min sketch, of `u32` for packets and `u64` for bytes.
///
/// Cost: a cache line for each row a packet, and one more in the set while the key is heavy. Memory
/// in bytes: `rows × columns × 4 (or 8) + candidates × (3 × size_of::<K>() + 8)`.
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

impl Share for CountMin {
    fn share<K: FlowKey>(options: &Options) -> Result<Box<dyn SharedIngest<K>>, BuildError> {
        build_concurrent::<K, Least<u32>, Least<u64>>(options)
    }
}

/// Every counter of a key takes its weight; the least is the estimate.
pub(crate) struct Least<C>(PhantomData<C>);

impl<C: Unsigned> Rule for Least<C> {
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

    /// The least of samples is too low: they are read as K-ary's are, and so is their margin.
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

    fn listed_low(_: &Grid<Self>, value: f64, over: f64) -> f64 {
        value - over
    }

    fn shortfall(_: &Grid<Self>) -> f64 {
        0.0
    }

    fn is_possible(grid: &Grid<Self>) -> bool {
        adds_up(grid)
    }

    fn cells<K: FlowKey>(sketch: &RowSketch<K, Self>) -> Option<&dyn Cells> {
        Some(sketch)
    }

    fn sampled<K: FlowKey>(sketch: &mut RowSketch<K, Self>) -> Option<&mut dyn RowIngest<K>> {
        Some(sketch)
    }
}

/// Differences of counters have no least one that means anything: they are read as K-ary's are.
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

/// How many keys there are at most: as linear counting tells of the share of the cells that is `free`.
pub(super) fn most_keys<C: Unsigned, R: Rule<Cell = C>>(grid: &Grid<R>, free: f64) -> f64 {
    let (columns, total) = (grid.rows.columns() as f64, grid.total as f64);
    if free > 0.0 { counted_linearly(columns, columns * (1.0 - free), total).high } else { total }
}

/// The chance that the cells of a key exceed in all rows what a share of the cells exceeds.
pub(super) fn all_exceed(rows: usize, share: f64) -> f64 {
    share.powf(rows as f64)
}

/// Whether every packet is in every row, or among what was lost there.
pub(super) fn adds_up<C: Unsigned, R: Rule<Cell = C>>(grid: &Grid<R>) -> bool {
    if grid.total == u64::MAX {
        return true;
    }
    let sum = |row: &[C]| row.iter().map(|cell| u128::from(cell.get())).sum::<u128>();
    let sums = grid.cells.chunks_exact(grid.rows.columns()).map(sum);
    let lost = sums.map(|sum| u128::from(grid.total).checked_sub(sum));
    let lost = lost.sum::<Option<u128>>();
    lost.is_some_and(|lost| lost.min(u64::MAX.into()) == grid.saturated.into())
}

/// The least cell of a key.
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

/// How many times its mean the excess of all rows is at most, with [`confidence`]: e, or more where
/// the rows are so few that e would not give [`CONFIDENCE`].
pub(super) fn factor(rows: Rows) -> f64 {
    (1.0 - CONFIDENCE).powf(-1.0 / rows.rows() as f64).max(std::f64::consts::E)
}

/// The chance that not all rows exceed their mean by [`factor`]: Markov's inequality in each.
fn confidence(rows: Rows) -> f64 {
    1.0 - factor(rows).powf(-(rows.rows() as f64))
}

/// The least number that the cells of a key exceed in all rows with the chance δ at most: a share of the
/// columns that is δ over all rows, the key's own cell counted as one of them. By Markov's inequality it
/// is not above the mean × δ^(−1/d).
pub(super) fn excess<C: Unsigned, R: Rule<Cell = C>>(grid: &Grid<R>) -> f64 {
    let (rows, columns) = (grid.rows, grid.rows.columns());
    let allowed = 1.0 - confidence(rows);
    let most = (factor(rows) * grid.total as f64 / columns as f64) as u64;
    seldom_exceeded(&grid.cells, columns, most, allowed) as f64
}

/// Bounds of an estimate that is never below the truth, unless its cells are full, and `margin`
/// above it at most.
pub(super) fn sums<R: Rule>(grid: &Grid<R>, value: f64, margin: f64) -> Estimate {
    // A total that is full may have taken no more of any cell.
    let full = value >= R::Cell::MOST as f64 || grid.total == u64::MAX;
    let high = if full { value + grid.saturated as f64 } else { value };
    let confidence = Some(confidence(grid.rows));
    Estimate { value, low: (value - margin).max(0.0), high, confidence }
}
