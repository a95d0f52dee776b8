//! UnivMon whose rows are sampled one by one.

use flowgauge_kernel::prefetch;

use super::super::super::{Counter, RowIngest};
use super::super::cell::Signed;
use super::super::rows::signs;
use super::UniversalSketch;
use super::level::{Level, Selected, estimate, sign};
use crate::batch::{BATCH_PACKETS, Batch};
use crate::key::FlowKey;

/// A packet goes into the same row of each level that its key is in: sums over the flows take off from
/// one level what they add in the next, and with it what both have in common.
impl<K: FlowKey, C: Signed> RowIngest<K> for UniversalSketch<K, C> {
    fn rows(&self) -> usize {
        self.levels[0].rows.rows()
    }

    fn cells(&self) -> usize {
        self.levels[0].cells.len()
    }

    fn ingest_rows(&mut self, batch: &mut Batch<K>, rows: &[u8]) {
        batch.digest(&self.digester);
        self.each_level(batch, &mut |level, packets| level.ingest_rows(packets, rows));
    }

    fn sampled_from(&mut self, total: u64, unit: u64) {
        (self.total, self.unit) = (total, unit);
    }

    /// Of the first level, which all flows are in.
    fn squared_l2(&self) -> f64 {
        self.levels[0].squared_l2()
    }
}

impl<K: FlowKey, C: Signed> Level<K, C> {
    /// Takes packets into single rows, which are `of` the batch, and admits their keys to the heap.
    pub(super) fn ingest_rows(&mut self, packets: &Selected<'_, K, C::Weight>, of: &[u8]) {
        let weights = packets.rows.iter().map(|row| packets.weights[usize::from(*row)].get());
        self.reach = weights.fold(self.reach, u64::saturating_add);
        self.margin.set(None);
        if self.reach <= C::MOST {
            self.count_rows::<false>(packets, of);
        } else {
            self.count_rows::<true>(packets, of);
        }
    }

    /// [`Self::ingest_rows`], for cells that may be `FULL` or surely are not.
    #[inline(never)]
    fn count_rows<const FULL: bool>(&mut self, packets: &Selected<'_, K, C::Weight>, of: &[u8]) {
        let (rows, cells, top) = (self.rows, &mut self.cells[..], &mut self.top);
        let selected = packets.rows.iter().zip(packets.digests);
        let mut places = [0; BATCH_PACKETS];
        for (place, (&at, &digest)) in places.iter_mut().zip(selected.clone()) {
            *place = rows.place(digest, usize::from(of[usize::from(at)]));
            prefetch(cells, *place);
        }
        let (least, mut saturated) = (top.least(), self.saturated);
        let (mut over, mut found) = ([0; BATCH_PACKETS], 0);
        for (i, ((&at, &digest), &place)) in selected.zip(&places).enumerate() {
            let at = usize::from(at);
            let (cell, sign) = (&mut cells[place], sign(signs(digest), usize::from(of[at])));
            let lost = cell.turn::<FULL>(packets.weights[at], sign);
            if FULL {
                saturated = u64::saturating_add(saturated, lost);
            }
            // Written always and kept where it counts: a branch would be mispredicted too often.
            over[found % BATCH_PACKETS] = i as u8;
            found += usize::from(cell.turned(sign) > least);
        }
        self.saturated = saturated;
        // A row that is over the least is a hint: all are asked before a key is admitted. Of most keys
        // nothing is asked, since they are there.
        for i in over[..found].iter().map(|i| usize::from(*i)) {
            let (key, digest) = (&packets.keys[usize::from(packets.rows[i])], packets.digests[i]);
            if !top.surely_holds(key, digest) && !top.holds(key, digest) {
                let value = estimate(rows, cells, digest);
                if value > top.least() {
                    top.offer(*key, digest, value, |digest| estimate(rows, cells, digest));
                }
            }
        }
    }
}
