//! One level of UnivMon: a Count Sketch of its keys, and the heaviest of them.

use std::cell::Cell as Cached;

use flowgauge_kernel::{Zeroed, prefetch};

use super::super::super::codec::{DecodeError, Reader, Writer};
use super::super::super::remix::remix;
use super::super::super::{BuildError, Counter, Estimate, Memory};
use super::super::cell::{Signed, join_all};
use super::super::noise::Noise;
use super::super::rows::{MOST_ROWS, Rows, median, median_fails, median_of_rows, signs, sum_over};
use super::super::top_keys::TopKeys;
use crate::batch::BATCH_PACKETS;
use crate::key::FlowKey;

/// Packets whose cells are asked for ahead of the one in hand.
const PREFETCH_AHEAD: usize = 12;

/// By Chebyshev's inequality a row is off by more than √8 standard deviations one time in 8.
const ROW_FAILS: f64 = 1.0 / 8.0;

/// Random places where the noise of a level is measured, and the word that they are made from.
const NOISE_TRIALS: u64 = 1 << 12;
const NOISE_WORD: u64 = 15;

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

/// The packets of a batch that a level takes: digests of its own, weights, and where in the batch
/// they stand.
pub(super) struct Selected<'a, K, W> {
    pub(super) keys: &'a [K],
    pub(super) weights: &'a [W],
    pub(super) rows: &'a [u8],
    pub(super) digests: &'a [u64; BATCH_PACKETS],
}

pub(super) struct Level<K, C> {
    pub(super) rows: Rows,
    pub(super) cells: Zeroed<C>,
    pub(super) top: TopKeys<K>,
    pub(super) saturated: u64,
    /// What the cells do not exceed, of either sign.
    pub(super) reach: u64,
    /// How far an estimate is off at most, since the last packet, once it was asked for.
    pub(super) margin: Cached<Option<f64>>,
}

impl<K: FlowKey, C: Signed> Level<K, C> {
    pub(super) fn new(rows: Rows, top: usize, memory: &Memory) -> Result<Self, BuildError> {
        Ok(Self {
            rows,
            cells: memory.zeroed(rows.cells())?,
            top: TopKeys::new(top, memory)?,
            saturated: 0,
            reach: 0,
            margin: Cached::new(None),
        })
    }

    /// Counts packets, and admits their keys to the heap.
    pub(super) fn ingest<const D: usize>(&mut self, packets: &Selected<'_, K, C::Weight>) {
        let weights = packets.rows.iter().map(|row| packets.weights[usize::from(*row)].get());
        self.reach = weights.fold(self.reach, u64::saturating_add);
        self.margin.set(None);
        if self.reach <= C::MOST {
            self.count::<D, false>(packets);
        } else {
            self.count::<MOST_ROWS, true>(packets);
        }
    }

    /// [`Self::ingest`] for `D` rows, whose cells may be `FULL` or surely are not.
    #[inline(never)]
    fn count<const D: usize, const FULL: bool>(&mut self, packets: &Selected<'_, K, C::Weight>) {
        let (rows, cells, top) = (self.rows, &mut self.cells[..], &mut self.top);
        let (count, digests) = (rows.count::<D>(), &packets.digests[..packets.rows.len()]);
        let mut places = [[0; BATCH_PACKETS]; D];
        rows.place_batch(digests, &mut places);
        for places in &places[..count] {
            places[..PREFETCH_AHEAD].iter().for_each(|place| prefetch(cells, *place as usize));
        }
        // Of a key that is held nothing is to be done, and which are is known before their estimates
        // are. One rare branch is left: those at every heavy packet would be mispredicted too often.
        let mut enough = [0; BATCH_PACKETS];
        let look = |top: &TopKeys<K>, enough: &mut [u8; BATCH_PACKETS], from: usize| {
            let selected = packets.rows[from..].iter().zip(&digests[from..]);
            for ((&at, &digest), enough) in selected.zip(&mut enough[from..]) {
                let held = top.surely_holds(&packets.keys[usize::from(at)], digest);
                *enough = count.div_ceil(2) as u8 | u8::from(held) << 7;
            }
        };
        look(top, &mut enough, 0);
        // In registers: in memory each packet would wait for the store of the one before.
        let (mut least, mut saturated) = (top.least(), self.saturated);
        for (i, (&at, &digest)) in packets.rows.iter().zip(digests).enumerate() {
            if i + PREFETCH_AHEAD < BATCH_PACKETS {
                for places in &places[..count] {
                    prefetch(cells, places[i + PREFETCH_AHEAD] as usize);
                }
            }
            let (weight, signs) = (packets.weights[usize::from(at)], signs(digest));
            let (mut values, mut over) = ([0; D], 0u8);
            for row in 0..count {
                let (cell, sign) = (&mut cells[places[row][i] as usize], sign(signs, row));
                let lost = cell.turn::<FULL>(weight, sign);
                if FULL {
                    saturated = u64::saturating_add(saturated, lost);
                }
                values[row] = cell.turned(sign);
                over += u8::from(values[row] > least);
            }
            // The median is not above what most rows are not above.
            if over >= enough[i] {
                let value = middle(&mut values[..count]);
                let key = &packets.keys[usize::from(at)];
                if value > least && !top.refuses_again(digest) && !top.holds(key, digest) {
                    top.offer(*key, digest, value, |digest| estimate(rows, cells, digest));
                    least = top.least();
                    look(top, &mut enough, i + 1);
                }
            }
        }
        self.saturated = saturated;
    }

    /// The estimate of a key: no less than 0.
    pub(super) fn size(&self, digest: u64) -> f64 {
        median_of(self.rows, digest, |place| self.cells[place].real()).max(0.0)
    }

    /// The estimate with bounds, where the rows are samples of this `unit`.
    pub(super) fn bounded(&self, digest: u64, unit: u64) -> Estimate {
        let value = self.size(digest);
        let (low, high) = self.noise(unit).bounds(value);
        let (low, high) = (low.max(0.0), high + self.saturated as f64);
        Estimate { value, low, high, confidence: Some(self.confidence()) }
    }

    /// How estimates err where the rows are samples of this `unit`.
    pub(super) fn noise(&self, unit: u64) -> Noise {
        let margin = self
            .margin
            .get()
            .unwrap_or_else(|| margin(self.rows, |place| self.cells[place].real()));
        self.margin.set(Some(margin));
        noise(margin, unit as f64)
    }

    /// L2² of the level's flows.
    pub(super) fn squared_l2(&self) -> f64 {
        squared_l2(self.rows, |place| self.cells[place].real())
    }

    /// The chance that an estimate is within its margin.
    pub(super) fn confidence(&self) -> f64 {
        1.0 - median_fails(self.rows.rows(), ROW_FAILS)
    }

    /// The mean of a function of what an estimate is off, which is what a key that was never seen
    /// would have as its own: the median of random cells with random signs.
    pub(super) fn mean_over_noise(&self, of: impl Fn(f64) -> f64) -> f64 {
        let cell = |place: usize| self.cells[place].real();
        let trial = |trial| of(median_of(self.rows, remix(trial, NOISE_WORD), cell));
        (0..NOISE_TRIALS).map(trial).sum::<f64>() / NOISE_TRIALS as f64
    }

    pub(super) fn merge(&mut self, other: &Self) {
        self.reach = self.reach.saturating_add(other.reach);
        if other.reach > 0 {
            let lost = join_all(&mut self.cells, &other.cells, self.reach);
            self.saturated = self.saturated.saturating_add(lost);
        }
        self.saturated = self.saturated.saturating_add(other.saturated);
        let (rows, cells) = (self.rows, &self.cells[..]);
        self.top.merge(&other.top, |digest| estimate(rows, cells, digest));
        self.margin.set(None);
    }

    pub(super) fn clear(&mut self) {
        if self.reach > 0 {
            self.cells.fill(C::zeroed());
        }
        self.top.clear();
        self.saturated = 0;
        self.reach = 0;
        self.margin.set(None);
    }

    pub(super) fn save(&self, out: &mut Writer) {
        out.number(self.saturated);
        out.numbers(&self.cells);
        self.top.save(out);
    }

    pub(super) fn load(
        &mut self,
        from: &mut Reader<'_>,
        digest: impl Fn(&K) -> Option<u64>,
    ) -> Result<(), DecodeError> {
        self.saturated = from.number("saturated")?;
        from.numbers("cells", &mut self.cells)?;
        self.reach = self.cells.iter().map(|cell| cell.size()).max().unwrap_or(0);
        self.top.load(from, digest)
    }
}

/// The sign of a row: 1, or -1 where the weight is subtracted.
#[inline(always)]
pub(super) fn sign(signs: u64, row: usize) -> i64 {
    1 - 2 * (signs >> row & 1).cast_signed()
}

/// The estimate that the heap goes by.
#[inline]
pub(super) fn estimate<C: Signed>(rows: Rows, cells: &[C], digest: u64) -> i64 {
    let signs = signs(digest);
    let places = rows.places::<MOST_ROWS>(digest);
    let mut values = [0; MOST_ROWS];
    for (row, value) in values.iter_mut().enumerate().take(rows.rows()) {
        *value = cells[places[row]].turned(sign(signs, row));
    }
    middle(&mut values[..rows.rows()])
}

/// The median estimate of a key from cells of any kind.
pub(super) fn median_of(rows: Rows, digest: u64, cell: impl Fn(usize) -> f64) -> f64 {
    let signs = signs(digest);
    let mut values = [0.0; MOST_ROWS];
    let places = rows.places::<MOST_ROWS>(digest);
    let values = &mut values[..rows.rows()];
    for (row, (value, place)) in values.iter_mut().zip(places).enumerate() {
        let number = cell(place);
        *value = if signs >> row & 1 == 1 { -number } else { number };
    }
    median(values)
}

/// How far the median of the rows is off at most: √8 standard deviations of a row, all flows together
/// being the median row's squares.
pub(super) fn margin(rows: Rows, cell: impl Fn(usize) -> f64) -> f64 {
    (squared_l2(rows, cell) / ROW_FAILS / rows.columns() as f64).sqrt()
}

/// [`Noise`] with this margin.
pub(super) fn noise(margin: f64, unit: f64) -> Noise {
    Noise { margin, deviations: (1.0 / ROW_FAILS).sqrt(), unit }
}

/// L2² by the squares of the median row.
fn squared_l2(rows: Rows, cell: impl Fn(usize) -> f64) -> f64 {
    median_of_rows(rows, |places| sum_over(places, |place| cell(place).powi(2)))
}
