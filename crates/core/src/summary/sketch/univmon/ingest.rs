//! How UnivMon takes packets in: each goes into the cells and the heap of its key's depth.

use flowgauge_kernel::prefetch;

use super::super::super::{Counter, LevelIngest, LevelSample, RowIngest};
use super::super::cell::Signed;
use super::super::rows::{MOST_ROWS, ask_first, signs, with_rows};
use super::super::top_keys::TopKeys;
use super::grids::{Grids, Shape};
use super::samples::Samples;
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

/// What the estimates of a batch's packets are compared with.
struct Bars {
    /// What an estimate must pass at each depth.
    least: [i64; MOST_LEVELS],
    /// How many rows of each packet must be above that.
    enough: [u8; BATCH_PACKETS],
}

/// What the cells take.
struct Packets<'a, W> {
    digests: &'a [u64],
    depths: &'a [u8; BATCH_PACKETS],
    weights: &'a [W],
}

/// Gets the cells, the number of a packet and its estimate, which passes the bar.
type Admit<'a, C> = dyn FnMut(&[C], usize, i64, &mut Bars) + 'a;

impl<C: Signed> Grids<C> {
    /// Counts packets in `D` rows, whose cells may be `FULL` or surely are not.
    #[inline(never)]
    fn count<const D: usize, const FULL: bool>(
        &mut self,
        packets: &Packets<'_, C::Weight>,
        bars: &mut Bars,
        admit: &mut Admit<'_, C>,
    ) {
        let (shape, cells) = (&self.shape, &mut self.cells[..]);
        let (count, mut places) = (shape.first.count::<D>(), [[0; BATCH_PACKETS]; D]);
        shape.place_batch(packets.digests, packets.depths, &mut places[..count]);
        ask_first(cells, &places[..count], PREFETCH_AHEAD);
        // In a register: in memory each packet would wait for the store of the one before.
        let mut saturated = self.saturated;
        for (i, (&digest, &weight)) in packets.digests.iter().zip(packets.weights).enumerate() {
            if i + PREFETCH_AHEAD < BATCH_PACKETS {
                for places in &places[..count] {
                    prefetch(cells, places[i + PREFETCH_AHEAD] as usize);
                }
            }
            let signs = signs(digest);
            let depth = usize::from(packets.depths[i]) % MOST_LEVELS;
            let (mut values, mut over) = ([0; D], 0u8);
            for row in 0..count {
                let (cell, sign) = (&mut cells[places[row][i] as usize], sign(signs, row));
                let lost = cell.turn::<FULL>(weight, sign);
                if FULL {
                    saturated = u64::saturating_add(saturated, lost);
                }
                values[row] = cell.turned(sign);
                over += u8::from(values[row] > bars.least[depth]);
            }
            // The median is not above what most rows are not above.
            if over >= bars.enough[i] {
                let value = middle(&mut values[..count]);
                if value > bars.least[depth] {
                    admit(cells, i, value, bars);
                }
            }
        }
        self.saturated = saturated;
    }
}

impl<K: FlowKey, C: Signed> UniversalSketch<K, C> {
    /// Counts the packets of a batch, and admits their keys to the heaps.
    pub(super) fn take(&mut self, batch: &Batch<K>) {
        let (keys, digests, weights) = (batch.keys(), batch.digests(), C::Weight::column(batch));
        let (shape, tops) = (self.grids.shape, &mut self.tops);
        let mut depths = [0; BATCH_PACKETS];
        for (depth, digest) in depths.iter_mut().zip(digests) {
            *depth = shape.depth(*digest) as u8;
        }
        // Of a key that is held nothing is to be done, and which are is known before their estimates
        // are. One rare branch is left: those at every heavy packet would be mispredicted too often.
        let half = shape.first.rows().div_ceil(2) as u8;
        let enough = |top: &TopKeys<K>, i: usize| {
            half | u8::from(top.surely_holds(&keys[i], digests[i])) << 7
        };
        let mut bars = Bars { least: [i64::MAX; MOST_LEVELS], enough: [0; BATCH_PACKETS] };
        for (i, of_packet) in bars.enough[..keys.len()].iter_mut().enumerate() {
            *of_packet = enough(&tops[usize::from(depths[i])], i);
        }
        for (least, top) in bars.least.iter_mut().zip(tops.iter()) {
            *least = top.least();
        }
        let admit: &mut Admit<'_, C> = &mut |cells, i, value, bars| {
            let (digest, depth) = (digests[i], usize::from(depths[i]));
            let top = &mut tops[depth];
            if top.refuses_again(digest) || top.holds(&keys[i], digest) {
                return;
            }
            top.offer(keys[i], digest, value, |digest| estimate(&shape, cells, digest));
            bars.least[depth] = top.least();
            for (later, of_other) in depths[..keys.len()].iter().enumerate().skip(i + 1) {
                if usize::from(*of_other) == depth {
                    bars.enough[later] = enough(top, later);
                }
            }
        };
        let packets = Packets { digests, depths: &depths, weights };
        if self.grids.fills(C::Weight::sum(weights)) {
            self.grids.count::<MOST_ROWS, true>(&packets, &mut bars, admit);
        } else {
            with_rows!(shape.first.rows(), D => {
                self.grids.count::<D, false>(&packets, &mut bars, admit);
            });
        }
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
        self.samples = Samples::of_rows(total, unit);
    }

    fn squared_l2(&self) -> f64 {
        self.grids.squared_l2(0..self.tops.len())
    }
}

impl<K: FlowKey, C: Signed> LevelIngest<K> for UniversalSketch<K, C> {
    fn levels(&self) -> usize {
        self.tops.len()
    }

    /// A key's level is its depth, where alone it is counted.
    fn levels_of(&self, batch: &mut Batch<K>, levels: &mut [u8; BATCH_PACKETS]) {
        batch.digest(&self.digester);
        for (level, digest) in levels.iter_mut().zip(batch.digests()) {
            *level = self.grids.shape.depth(*digest) as u8;
        }
    }

    fn level_cells(&self, level: usize) -> usize {
        self.grids.shape.first.rows() * self.grids.shape.columns(level)
    }

    fn level_squared_l2(&self, level: usize) -> f64 {
        self.grids.squared_l2(level..level + 1)
    }

    fn levels_sampled_from(&mut self, total: u64, levels: &[LevelSample], delta: Option<f64>) {
        self.samples = Samples::new(total, levels, delta);
    }
}
