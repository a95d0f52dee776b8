//! Sketches whose rows are sampled one by one: packets go into single rows.

use std::sync::OnceLock;

use flowgauge_kernel::prefetch;

use super::super::{Counter, RowIngest};
use super::cell::Cell;
use super::grid::{Grid, Linear, Weight};
use super::row_sketch::RowSketch;
use crate::batch::{BATCH_PACKETS, Batch};
use crate::key::FlowKey;

impl<R: Linear> Grid<R> {
    /// Takes note of what the rows are samples of.
    pub(crate) fn sampled_from(&mut self, total: u64, unit: u64) {
        (self.total, self.unit) = (total, unit);
        self.noise = OnceLock::new();
    }

    /// Adds weights to single rows of their keys, and writes the numbers of those whose cells then
    /// say more than `limit` to `heavy`; returns how many these are. The total is told apart.
    pub(crate) fn count_rows(
        &mut self,
        digests: &[u64],
        weights: &[Weight<R>],
        rows: &[u8],
        limit: u64,
        heavy: &mut [u8; BATCH_PACKETS],
    ) -> usize {
        self.noise = OnceLock::new();
        self.reach = self.reach.saturating_add(Weight::<R>::sum(weights));
        if self.reach < R::Cell::MOST {
            self.add_to_rows::<false>(digests, weights, rows, limit, heavy)
        } else {
            self.add_to_rows::<true>(digests, weights, rows, limit, heavy)
        }
    }

    /// The same, for cells that may be `FULL` or surely are not.
    #[inline(never)]
    fn add_to_rows<const FULL: bool>(
        &mut self,
        digests: &[u64],
        weights: &[Weight<R>],
        rows: &[u8],
        limit: u64,
        heavy: &mut [u8; BATCH_PACKETS],
    ) -> usize {
        let (shape, cells) = (self.rows, &mut *self.cells);
        let mut places = [0; BATCH_PACKETS];
        let keys = digests.iter().zip(rows);
        for (place, (digest, row)) in places.iter_mut().zip(keys.clone()) {
            *place = shape.place(*digest, usize::from(*row));
            prefetch(cells, *place);
        }
        let (mut lost, mut found) = (0u64, 0);
        for (i, ((&digest, &row), (&place, &weight))) in
            keys.zip(places.iter().zip(weights)).enumerate()
        {
            let cell = &mut cells[place];
            let (rest, beyond) =
                R::add_to_row::<FULL>(cell, usize::from(row), digest, weight, limit);
            lost = lost.saturating_add(rest);
            heavy[found % BATCH_PACKETS] = i as u8;
            found += usize::from(beyond);
        }
        self.saturated = self.saturated.saturating_add(lost);
        found
    }

    /// The sum of the squares of all sizes.
    pub(crate) fn squared_l2(&self) -> f64 {
        R::squared_l2(self.rows, self.total as f64, |place| self.cells[place].real())
    }
}

impl<K: FlowKey, R: Linear> RowIngest<K> for RowSketch<K, R> {
    fn rows(&self) -> usize {
        self.grid.rows.rows()
    }

    fn cells(&self) -> usize {
        self.grid.cells.len()
    }

    fn ingest_rows(&mut self, batch: &mut Batch<K>, rows: &[u8]) {
        batch.digest(&self.digester);
        let (keys, digests, weights) = (batch.keys(), batch.digests(), Weight::<R>::column(batch));
        let limit = R::limit(self.grid.rows, self.threshold).at(self.grid.total);
        let mut heavy = [0; BATCH_PACKETS];
        let found = self.grid.count_rows(digests, weights, rows, limit, &mut heavy);
        if self.candidates == 0 {
            return;
        }
        // A row that is over the limit is a hint: all are asked before a key joins.
        for number in heavy[..found].iter().map(|number| usize::from(*number)) {
            self.admit(keys[number], digests[number]);
        }
    }

    fn sampled_from(&mut self, total: u64, unit: u64) {
        self.grid.sampled_from(total, unit);
    }

    fn squared_l2(&self) -> f64 {
        self.grid.squared_l2()
    }
}
