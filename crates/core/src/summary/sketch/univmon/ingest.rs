//! How UnivMon takes packets in: each goes into the cells and the heap of its key's depth.

use flowgauge_kernel::prefetch;

use super::super::super::{Counter, RowIngest};
use super::super::cell::Signed;
use super::super::rows::{MOST_ROWS, signs};
use super::grids::Shape;
use super::{MOST_LEVELS, UniversalSketch};
use crate::batch::{BATCH_PACKETS, Batch};
use crate::key::FlowKey;

/// Packets whose cells are asked for ahead of the one in hand.
const PREFETCH_AHEAD: usize = 12;

/// The median of whole numbers; of an even number the middle of the middle two.
#[inline(always)]
fn middle(values: &mut [i64]) -> i64 {
    match *values {
        [a] => a,
        [a, b] => a.midpoint(b),
        [a, b, c] => a.min(b).max(a.max(b).min(c)),
        [a, b, c, d] => {
            let low = a.min(b).max(c.min(d));
            low.midpoint(a.max(b).min(c.max(d)))
        }
        _ => {
            values.sort_unstable();
            let upper = values.len() / 2;
            values[(values.len() - 1) / 2].midpoint(values[upper])
        }
    }
}

/// The sign of a row: 1, or -1 where the weight is subtracted.
#[inline(always)]
fn sign(signs: u64, row: usize) -> i64 {
    1 - 2 * (signs >> row & 1).cast_signed()
}

/// The estimate that the heaps go by.
#[inline]
pub(super) fn estimate<C: Signed>(shape: &Shape, cells: &[C], digest: u64) -> i64 {
    let (signs, places) = (signs(digest), shape.places(digest, shape.depth(digest)));
    let mut values = [0; MOST_ROWS];
    for (row, value) in values.iter_mut().enumerate().take(shape.first.rows()) {
        *value = cells[places[row]].turned(sign(signs, row));
    }
    middle(&mut values[..shape.first.rows()])
}

impl<K: FlowKey, C: Signed> UniversalSketch<K, C> {
    /// Counts the packets of a batch in `D` rows, whose cells may be `FULL` or surely are not, and admits
    /// their keys to the heaps.
    #[inline(never)]
    pub(super) fn count<const D: usize, const FULL: bool>(&mut self, batch: &Batch<K>) {
        let (keys, digests, weights) = (batch.keys(), batch.digests(), C::Weight::column(batch));
        let (shape, cells, tops) = (&self.grids.shape, &mut self.grids.cells[..], &mut self.tops);
        let count = shape.first.count::<D>();
        let (mut depths, mut places) = ([0; BATCH_PACKETS], [[0; BATCH_PACKETS]; D]);
        shape.place_batch(digests, &mut depths, &mut places);
        for places in &places[..count] {
            places[..PREFETCH_AHEAD].iter().for_each(|place| prefetch(cells, *place as usize));
        }
        // Of a key that is held nothing is to be done, and which are is known before their estimates
        // are. One rare branch is left: those at every heavy packet would be mispredicted too often.
        let half = count.div_ceil(2) as u8;
        let mut enough = [0; BATCH_PACKETS];
        for (i, enough) in enough[..keys.len()].iter_mut().enumerate() {
            let held = tops[usize::from(depths[i])].surely_holds(&keys[i], digests[i]);
            *enough = half | u8::from(held) << 7;
        }
        let mut least = [i64::MAX; MOST_LEVELS];
        for (least, top) in least.iter_mut().zip(tops.iter()) {
            *least = top.least();
        }
        // In a register: in memory each packet would wait for the store of the one before.
        let mut saturated = self.grids.saturated;
        for (i, &digest) in digests.iter().enumerate() {
            if i + PREFETCH_AHEAD < BATCH_PACKETS {
                for places in &places[..count] {
                    prefetch(cells, places[i + PREFETCH_AHEAD] as usize);
                }
            }
            let (weight, signs) = (weights[i], signs(digest));
            let depth = usize::from(depths[i]) % MOST_LEVELS;
            let (mut values, mut over) = ([0; D], 0u8);
            for row in 0..count {
                let (cell, sign) = (&mut cells[places[row][i] as usize], sign(signs, row));
                let lost = cell.turn::<FULL>(weight, sign);
                if FULL {
                    saturated = u64::saturating_add(saturated, lost);
                }
                values[row] = cell.turned(sign);
                over += u8::from(values[row] > least[depth]);
            }
            // The median is not above what most rows are not above.
            if over >= enough[i] {
                let (value, top) = (middle(&mut values[..count]), &mut tops[depth]);
                if value > least[depth]
                    && !top.refuses_again(digest)
                    && !top.holds(&keys[i], digest)
                {
                    top.offer(keys[i], digest, value, |digest| estimate(shape, cells, digest));
                    least[depth] = top.least();
                    for later in i + 1..keys.len() {
                        if usize::from(depths[later]) == depth {
                            let held = top.surely_holds(&keys[later], digests[later]);
                            enough[later] = half | u8::from(held) << 7;
                        }
                    }
                }
            }
        }
        self.grids.saturated = saturated;
    }

    /// Counts packets in single `rows`, one of each packet, and admits their keys to the heaps.
    #[inline(never)]
    fn count_rows<const FULL: bool>(&mut self, batch: &Batch<K>, rows: &[u8]) {
        let (keys, digests, weights) = (batch.keys(), batch.digests(), C::Weight::column(batch));
        let (shape, cells, tops) = (&self.grids.shape, &mut self.grids.cells[..], &mut self.tops);
        let mut places = [0; BATCH_PACKETS];
        for (place, (&digest, &row)) in places.iter_mut().zip(digests.iter().zip(rows)) {
            *place = shape.place(digest, usize::from(row));
            prefetch(cells, *place);
        }
        let mut least = [i64::MAX; MOST_LEVELS];
        for (least, top) in least.iter_mut().zip(tops.iter()) {
            *least = top.least();
        }
        let mut saturated = self.grids.saturated;
        let (mut over, mut found) = ([0; BATCH_PACKETS], 0);
        for (i, (&digest, &row)) in digests.iter().zip(rows).enumerate() {
            let (cell, sign) = (&mut cells[places[i]], sign(signs(digest), usize::from(row)));
            let lost = cell.turn::<FULL>(weights[i], sign);
            if FULL {
                saturated = u64::saturating_add(saturated, lost);
            }
            // Written always and kept where it counts: a branch would be mispredicted too often.
            over[found % BATCH_PACKETS] = i as u8;
            found += usize::from(cell.turned(sign) > least[shape.depth(digest)]);
        }
        self.grids.saturated = saturated;
        // A row that is over the least is a hint: all are asked before a key is admitted. Of most keys
        // nothing is asked, since they are there.
        for i in over[..found].iter().map(|i| usize::from(*i)) {
            let (key, digest) = (&keys[i], digests[i]);
            let top = &mut tops[shape.depth(digest)];
            if !top.surely_holds(key, digest) && !top.holds(key, digest) {
                let value = estimate(shape, cells, digest);
                if value > top.least() {
                    top.offer(*key, digest, value, |digest| estimate(shape, cells, digest));
                }
            }
        }
    }
}

impl<K: FlowKey, C: Signed> RowIngest<K> for UniversalSketch<K, C> {
    fn rows(&self) -> usize {
        self.grids.shape.first.rows()
    }

    fn cells(&self) -> usize {
        self.grids.cells.len()
    }

    fn ingest_rows(&mut self, batch: &mut Batch<K>, rows: &[u8]) {
        batch.digest(&self.digester);
        if self.grids.fills(C::Weight::sum(C::Weight::column(batch))) {
            self.count_rows::<true>(batch, rows);
        } else {
            self.count_rows::<false>(batch, rows);
        }
    }

    fn sampled_from(&mut self, total: u64, unit: u64) {
        (self.total, self.unit) = (total, unit);
    }

    fn squared_l2(&self) -> f64 {
        self.grids.squared_l2()
    }
}
