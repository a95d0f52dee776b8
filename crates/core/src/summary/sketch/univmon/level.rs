//! One level of UnivMon: a Count Sketch of its keys, and the heaviest of them.

use std::cell::Cell as Cached;

use flowgauge_kernel::{Zeroed, prefetch};

use super::super::super::codec::{DecodeError, Number, Reader, Writer};
use super::super::super::remix::remix;
use super::super::super::{BuildError, Counter, Estimate, Memory};
use super::super::rows::{MOST_ROWS, Rows, median, median_fails, signed, signs};
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

/// A signed counter: 32 bits for packets, 64 for bytes.
pub trait Signed: Number + Send + 'static {
    /// The weights of packets.
    type Weight: Counter;
    /// Adds a weight with the sign of `row`; returns what found no room.
    fn add(&mut self, signs: u64, row: usize, weight: Self::Weight) -> u64;
    /// Adds another counter; returns what found no room.
    fn join(&mut self, other: Self) -> u64;
    /// The number counted.
    fn get(self) -> i64;
}

impl Signed for i32 {
    type Weight = u32;

    #[inline(always)]
    fn add(&mut self, signs: u64, row: usize, weight: u32) -> u64 {
        let sum = i64::from(*self) + signed(signs, row, i64::from(weight));
        *self = sum as Self;
        if i64::from(*self) == sum { 0 } else { full(self, sum) }
    }

    #[inline(always)]
    fn join(&mut self, other: Self) -> u64 {
        let sum = i64::from(*self) + i64::from(other);
        *self = self.saturating_add(other);
        sum.abs_diff(i64::from(*self))
    }

    #[inline(always)]
    fn get(self) -> i64 {
        i64::from(self)
    }
}

impl Signed for i64 {
    type Weight = u64;

    #[inline(always)]
    fn add(&mut self, signs: u64, row: usize, weight: u64) -> u64 {
        let most = weight.min(Self::MAX as u64);
        let lost = self.join(signed(signs, row, most.cast_signed()));
        lost + (weight - most)
    }

    #[inline(always)]
    fn join(&mut self, other: Self) -> u64 {
        if let Some(sum) = self.checked_add(other) {
            *self = sum;
            return 0;
        }
        let sum = i128::from(*self) + i128::from(other);
        *self = self.saturating_add(other);
        sum.abs_diff(i128::from(*self)) as u64
    }

    #[inline(always)]
    fn get(self) -> i64 {
        self
    }
}

/// Fills a counter that cannot hold `sum`; returns what found no room. Apart, so that nothing of it
/// is computed for counters that have room.
#[cold]
fn full(counter: &mut i32, sum: i64) -> u64 {
    *counter = if sum < 0 { i32::MIN } else { i32::MAX };
    sum.abs_diff(i64::from(*counter))
}

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
    /// How far an estimate is off at most, since the last packet, once it was asked for.
    margin: Cached<Option<(f64, Option<f64>)>>,
}

impl<K: FlowKey, C: Signed> Level<K, C> {
    pub(super) fn new(rows: Rows, top: usize, memory: &Memory) -> Result<Self, BuildError> {
        Ok(Self {
            rows,
            cells: memory.zeroed(rows.cells())?,
            top: TopKeys::new(top, memory)?,
            saturated: 0,
            margin: Cached::new(None),
        })
    }

    /// Counts packets, and admits their keys to the heap.
    #[inline]
    pub(super) fn ingest<const D: usize>(&mut self, packets: &Selected<'_, K, C::Weight>) {
        self.margin.set(None);
        let (rows, cells, top) = (self.rows, &mut self.cells[..], &mut self.top);
        let count = rows.count::<D>();
        let (digests, mut saturated) = (&packets.digests[..packets.rows.len()], 0);
        let ask = |cells: &[C], digest| {
            rows.places::<D>(digest)[..count].iter().for_each(|place| prefetch(cells, *place));
        };
        digests.iter().take(PREFETCH_AHEAD).for_each(|digest| ask(cells, *digest));
        for (i, (&at, &digest)) in packets.rows.iter().zip(digests).enumerate() {
            if let Some(&digest) = digests.get(i + PREFETCH_AHEAD) {
                ask(cells, digest);
            }
            let weight = packets.weights[usize::from(at)];
            let signs = signs(digest);
            let mut values = [0; D];
            let places = rows.places::<D>(digest);
            for (row, (&place, value)) in places.iter().zip(&mut values).take(count).enumerate() {
                saturated += cells[place].add(signs, row, weight);
                *value = signed(signs, row, cells[place].get());
            }
            let value = middle(&mut values[..count]);
            if value > top.least() {
                let key = &packets.keys[usize::from(at)];
                if !top.holds(key, digest) {
                    top.offer(*key, digest, value, |digest| estimate(rows, cells, digest));
                }
            }
        }
        self.saturated = self.saturated.saturating_add(saturated);
    }

    /// The estimate of a key: no less than 0.
    pub(super) fn size(&self, digest: u64) -> f64 {
        median_of(self.rows, digest, |place| self.cells[place].get() as f64).max(0.0)
    }

    /// The estimate with bounds.
    pub(super) fn bounded(&self, digest: u64) -> Estimate {
        let value = self.size(digest);
        let (margin, confidence) = self
            .margin
            .get()
            .unwrap_or_else(|| margin(self.rows, self.cells.iter().map(|cell| cell.get() as f64)));
        self.margin.set(Some((margin, confidence)));
        let low = (value - margin).max(0.0);
        let high = value + margin + self.saturated as f64;
        Estimate { value, low, high, confidence }
    }

    /// The mean of a function of what an estimate is off, which is what a key that was never seen
    /// would have as its own: the median of random cells with random signs.
    pub(super) fn mean_over_noise(&self, of: impl Fn(f64) -> f64) -> f64 {
        let cell = |place: usize| self.cells[place].get() as f64;
        let trial = |trial| of(median_of(self.rows, remix(trial, NOISE_WORD), cell));
        (0..NOISE_TRIALS).map(trial).sum::<f64>() / NOISE_TRIALS as f64
    }

    pub(super) fn merge(&mut self, other: &Self) {
        for (cell, other) in self.cells.iter_mut().zip(other.cells.iter()) {
            self.saturated = self.saturated.saturating_add(cell.join(*other));
        }
        self.saturated = self.saturated.saturating_add(other.saturated);
        let (rows, cells) = (self.rows, &self.cells[..]);
        self.top.merge(&other.top, |digest| estimate(rows, cells, digest));
        self.margin.set(None);
    }

    pub(super) fn clear(&mut self) {
        self.cells.fill(C::zeroed());
        self.top.clear();
        self.saturated = 0;
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
        self.top.load(from, digest)
    }
}

/// The estimate that the heap goes by.
#[inline]
fn estimate<C: Signed>(rows: Rows, cells: &[C], digest: u64) -> i64 {
    let signs = signs(digest);
    let places = rows.places::<MOST_ROWS>(digest);
    let mut values = [0; MOST_ROWS];
    for (row, value) in values.iter_mut().enumerate().take(rows.rows()) {
        *value = signed(signs, row, cells[places[row]].get());
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

/// How far the median of the rows is off at most, and with what confidence: √8 standard deviations
/// of a row, all flows together being the median row's squares.
pub(super) fn margin(rows: Rows, cells: impl Iterator<Item = f64>) -> (f64, Option<f64>) {
    let mut squares = [0.0; MOST_ROWS];
    for (place, cell) in cells.enumerate() {
        squares[place / rows.columns()] += cell * cell;
    }
    let square = median(&mut squares[..rows.rows()]);
    let margin = (square / ROW_FAILS / rows.columns() as f64).sqrt();
    (margin, Some(1.0 - median_fails(rows.rows(), ROW_FAILS)))
}
