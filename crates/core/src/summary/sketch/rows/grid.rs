//! The cells of a sketch of rows, and the rule by which one kind of sketch fills and reads them.

use std::sync::OnceLock;

use flowgauge_kernel::{Zeroed, prefetch};

use super::bounds::{Counts, Listed, Noise, UPPER};
use super::cell::{Cell, join_all, load_cells, save_cells};
use super::peeled::{MOST_WEIGHT, Peeled, Peeling};
use super::sketch::RowSketch;
use super::{CONFIDENCE, MOST_ROWS, Rows, Targets, ask_first, deviations, with_rows};
use crate::batch::BATCH_PACKETS;
use crate::key::FlowKey;
use crate::summary::codec::{DecodeError, Reader, Writer};
use crate::summary::{BuildError, CACHED_BYTES, Cells, Counter, Estimate, Options, RowIngest};
use crate::terms::Threshold;

/// Distance in packets between a prefetch and its use.
const PREFETCH_AHEAD: usize = 16;

/// A shape that needs no shifts of variable width, and its number of cells: four rows of 65536
/// columns, the size in most papers.
const WORDS: Rows = Rows::of(WORDS_ROWS, 16);
const WORDS_ROWS: usize = 4;
const WORDS_CELLS: usize = WORDS_ROWS << 16;

/// A key of this many times the threshold is listed, however packets were divided among merged
/// sketches.
const CLEAR: f64 = 2.0;

/// The weight of a packet in a sketch.
pub(crate) type Weight<R> = <<R as Rule>::Cell as Cell>::Weight;

/// Visits the same digests or keys each time it is called.
pub(crate) type Each<'a, T> = dyn Fn(&mut dyn FnMut(T)) + 'a;

/// How one kind of sketch fills and reads the cells of a key.
pub(crate) trait Rule: Send + Sized + 'static {
    /// Whether no estimate is below the weight of its key.
    const NEVER_LOW: bool = false;

    /// The type of a cell.
    type Cell: Cell;
    /// The meaning of ε and δ.
    const TARGETS: Targets;

    /// Adds `weight` to the cells at `places`, one per row. Returns the excess of full cells, and
    /// whether the cells now give an estimate above `limit`.
    fn add<const FULL: bool>(
        cells: &mut [Self::Cell],
        places: &[usize],
        digest: u64,
        weight: Weight<Self>,
        limit: u64,
    ) -> (u64, bool);

    /// The estimate of a key.
    fn estimate(grid: &Grid<Self>, digest: u64) -> f64;

    /// The limit that a key's cells exceed when its estimate exceeds the threshold.
    fn cell_limit(rows: Rows, threshold: Threshold) -> Limit {
        let _ = rows;
        match threshold {
            Threshold::Share(share) => Limit::new(0.0, share),
            Threshold::Weight(weight) => Limit::new(weight as f64, 0.0),
        }
    }

    /// Largest error of an estimate, with the confidence of its bounds. Reads all cells.
    fn margin(grid: &Grid<Self>) -> f64;

    /// An estimate with its bounds.
    fn bounds(grid: &Grid<Self>, value: f64, margin: f64) -> Estimate;

    /// The chance that an estimate is too high by more than a value which a fraction `share` of the
    /// cells exceeds.
    fn overestimates(rows: usize, share: f64) -> f64;

    /// Upper bound of the number of keys when a fraction `free` of the cells is 0. Every key has a
    /// packet.
    fn most_keys(grid: &Grid<Self>, free: f64) -> f64 {
        let _ = free;
        grid.total as f64
    }

    /// Lower bound of the size behind the estimate `value`, if at most `over` collides with the key
    /// in the deciding rows. The other keys weigh `others`.
    fn listed_low(grid: &Grid<Self>, value: f64, others: f64, over: f64) -> f64;

    /// Largest shortfall of the estimate of one key, but for a chance of `allowed`; `None` if no
    /// estimate is too low. `cells` are those of the grid.
    fn shortfall_of_one(grid: &Grid<Self>, cells: &Counts, allowed: f64) -> Option<f64> {
        let _ = (grid, cells, allowed);
        None
    }

    /// If cells are sums of weights, whether rows subtract that of a key: bit `row` is set if so.
    fn signs(digest: u64) -> Option<u64> {
        let _ = digest;
        None
    }

    /// The estimate of a key from the contents of its cells, if cells are sums of weights.
    fn alone(rows: Rows, digest: u64, total: f64, cell: &dyn Fn(usize) -> f64) -> Option<f64> {
        let _ = (rows, digest, total, cell);
        None
    }

    /// Largest shortfall of an estimate below its key's size, over all keys and all times so far.
    /// Reads all cells. The rows must not be samples.
    fn shortfall(grid: &Grid<Self>) -> f64;

    /// Whether packets can produce rows that lack `lost` of the total weight, over all rows, with
    /// this excess of full cells: a check of stored bytes. No row exceeds the total.
    fn is_possible(lost: u128, saturated: u64) -> bool;

    /// The sketch as [`Cells`], if its cells are [`Linear`].
    fn cells<K: FlowKey>(sketch: &RowSketch<K, Self>) -> Option<&dyn Cells> {
        let _ = sketch;
        None
    }

    /// The sketch as [`RowIngest`], if its cells are [`Linear`]: samples mean nothing in other
    /// cells.
    fn sampled<K: FlowKey>(sketch: &mut RowSketch<K, Self>) -> Option<&mut dyn RowIngest<K>> {
        let _ = sketch;
        None
    }
}

/// A rule whose cells are sums of weights, so that sums and differences of cells are meaningful.
pub(crate) trait Linear: Rule {
    /// Whether rows subtract a key's weight, as [`signs`](super::signs) selects them.
    const SIGNED: bool = false;
    /// The estimate of a key from any linear combination of such cells, with the total `total`.
    fn value(rows: Rows, digest: u64, total: f64, cell: impl Fn(usize) -> f64) -> f64;
    /// L2², the sum of the squares of all sizes, by the median row.
    fn squared_l2(rows: Rows, total: f64, cells: impl Fn(usize) -> f64) -> f64;
    /// Largest error of an estimate, with [`CONFIDENCE`].
    fn noise(rows: Rows, total: f64, cells: impl Fn(usize) -> f64) -> f64;
    /// Adds `weight` to the cell of a key in one row. Returns the excess of a full cell, and
    /// whether the cell now indicates more than `limit`.
    fn add_to_row<const FULL: bool>(
        cell: &mut Self::Cell,
        row: usize,
        digest: u64,
        weight: Weight<Self>,
        limit: u64,
    ) -> (u64, bool);
}

/// A limit that is linear in the total weight, in integers: compared at each packet's own total, it
/// does not depend on the size of batches.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limit {
    base: u64,
    /// The fraction of the total, in units of 2⁻⁶⁴.
    share: u64,
}

impl Limit {
    pub(crate) fn new(base: f64, share: f64) -> Self {
        Self { base: base as u64, share: (share * 2f64.powi(64)) as u64 }
    }

    #[inline(always)]
    pub(crate) fn at(self, total: u64) -> u64 {
        let share = (u128::from(total) * u128::from(self.share)) >> 64;
        self.base.saturating_add(share as u64)
    }
}

/// The packets of a batch, as a grid counts them.
struct Updates<'a, W> {
    digests: &'a [u64],
    weights: &'a [W],
    /// The limit above which a packet is listed.
    limit: Limit,
}

impl<W: Counter> Updates<'_, W> {
    /// Adds all packets to the cells given by `places`, which also returns the number of rows.
    /// Returns the excess of full cells and, if it is to `LIST`, the number of packets listed in
    /// `heavy`. `total` is the weight of all packets before.
    #[inline(always)]
    fn add<R: Rule<Cell: Cell<Weight = W>>, const D: usize, const FULL: bool, const LIST: bool>(
        &self,
        cells: &mut [R::Cell],
        mut total: u64,
        heavy: &mut [u8; BATCH_PACKETS],
        places: impl Fn(&[R::Cell], usize) -> ([usize; D], usize),
    ) -> (u64, usize) {
        let (mut lost, mut found) = (0, 0);
        for (i, (&digest, &weight)) in self.digests.iter().zip(self.weights).enumerate() {
            let (places, rows) = places(cells, i);
            total = if FULL { total.saturating_add(weight.get()) } else { total + weight.get() };
            let limit = self.limit.at(total);
            let (rest, beyond) = R::add::<FULL>(cells, &places[..rows], digest, weight, limit);
            if FULL {
                lost = u64::saturating_add(lost, rest);
            }
            if LIST {
                // Always written, but kept only if it counts: a branch would be mispredicted too
                // often.
                heavy[found % BATCH_PACKETS] = i as u8;
                found += usize::from(beyond);
            }
        }
        (lost, found)
    }
}

/// The cells of a sketch, with their totals.
pub(crate) struct Grid<R: Rule> {
    pub(crate) rows: Rows,
    pub(crate) cells: Zeroed<R::Cell>,
    /// Weight of all packets.
    pub(crate) total: u64,
    /// Excess of full cells, over all rows.
    pub(crate) saturated: u64,
    /// A bound that no cell exceeds.
    pub(crate) reach: u64,
    deviations: f64,
    /// Unit of the sample: the variance of a flow's sampled weight divided by that weight; 0 if the
    /// rows are not samples.
    pub(crate) unit: u64,
    /// Errors of estimates, computed when first needed after a packet.
    pub(crate) noise: OnceLock<Noise>,
}

/// Errors of listed keys.
pub(crate) struct List {
    listed: Listed,
    /// The same without the heaviest of them.
    peeled: Option<(Listed, Peeled)>,
    /// Largest shortfall of an estimate, if any may be too low.
    short: Option<f64>,
}

impl<R: Rule> Grid<R> {
    /// Reserves the cells of `rows`.
    pub(crate) fn new(rows: Rows, options: &Options) -> Result<Self, BuildError> {
        Ok(Self {
            rows,
            cells: options.memory.zeroed(rows.cells())?,
            total: 0,
            saturated: 0,
            reach: 0,
            deviations: deviations(rows.rows()),
            unit: 0,
            noise: OnceLock::new(),
        })
    }

    /// The estimate of a key with its bounds.
    pub(crate) fn estimate(&self, digest: u64) -> Estimate {
        let (noise, value) = (self.noise(), R::estimate(self, digest));
        if self.unit == 0 {
            return R::bounds(self, value, noise.margin);
        }
        let ((low, high), lost) = (noise.bounds(value), self.saturated as f64);
        let (low, high) = ((low - lost).max(0.0), high + lost);
        Estimate { value, low, high, confidence: Some(CONFIDENCE) }.within(self.total)
    }

    /// Errors of the estimates of keys that exceeded `threshold`; `each` visits their digests.
    pub(crate) fn list(&self, threshold: f64, each: &Each<'_, u64>) -> List {
        let (rows, cells) = (self.rows.rows(), Counts::of_cells(&self.cells));
        let mut estimates = Counts::new();
        each(&mut |digest| estimates.add(R::estimate(self, digest) as u64));
        let chance = 1.0 - R::bounds(self, 0.0, 0.0).confidence.unwrap_or(CONFIDENCE);
        let keys = R::most_keys(self, cells.zeros());
        let short = R::shortfall_of_one(self, &cells, UPPER * chance);
        let chance = if short.is_some() { (1.0 - UPPER) * chance } else { chance };
        let fails = |share| R::overestimates(rows, share);
        let peeled = self.peel(CLEAR * threshold, &cells, each);
        // A lower bound is the better one of two.
        let chance = if peeled.is_some() { chance / 2.0 } else { chance };
        let listed = |cells: &Counts| Listed::new(&estimates, rows, cells, keys, chance, &fails);
        let peeled = peeled.map(|peeled| (listed(&peeled.cells), peeled));
        List { listed: listed(&cells), peeled, short }
    }

    /// The cells without the keys estimated at `least` or more, if cells are sums of weights.
    ///
    /// Keys that may reach `least` only by their collisions with others stay in the cells: whether such
    /// a key is listed depends on how packets were divided among sketches that were merged.
    fn peel(&self, least: f64, cells: &Counts, each: &Each<'_, u64>) -> Option<Peeled> {
        // Full cells lack some of their keys.
        if self.unit > 0 || self.saturated > 0 || self.total >= MOST_WEIGHT {
            return None;
        }
        R::signs(0)?;
        let without = |takes: &dyn Fn(u64, f64) -> bool| {
            let mut peeling = Peeling::new(self.total as f64);
            each(&mut |digest| {
                let estimate = R::estimate(self, digest);
                if takes(digest, estimate) {
                    let places = self.rows.places::<MOST_ROWS>(digest);
                    let signs = R::signs(digest).unwrap_or(0);
                    peeling.take(digest, estimate, &places[..self.rows.rows()], signs);
                }
            });
            peeling.finish(cells.clone(), &|place| self.cells[place].real())
        };
        let all = without(&|_, estimate| estimate >= least);
        // An estimate that is too high takes so much from the cells of its neighbors that they would fail the
        // second test. They would then stay in the cells, where the estimate hides them.
        if R::NEVER_LOW {
            return Some(all);
        }
        Some(without(&|digest, estimate| {
            estimate >= least && self.alone(&all, digest, estimate) >= least
        }))
    }

    /// The estimate of a listed key in the cells without others.
    fn alone(&self, peeled: &Peeled, digest: u64, estimate: f64) -> f64 {
        let cell = |place: usize| self.cells[place].real() - peeled.taken(place);
        let rest = R::alone(self.rows, digest, peeled.total, &cell).unwrap_or(0.0);
        rest + peeled.own(digest, estimate)
    }

    /// The estimate of one of these keys with its bounds.
    pub(crate) fn listed(&self, list: &List, digest: u64) -> Estimate {
        let asked = self.estimate(digest);
        if self.unit > 0 {
            return self.noise().listed(asked, self.total, self.rows.rows());
        }
        let (value, others) = (asked.value, (self.total as f64 - asked.value).max(0.0));
        let mut low = R::listed_low(self, value, others, list.listed.over(value)).min(asked.low);
        if let Some((listed, peeled)) = &list.peeled {
            let alone = self.alone(peeled, digest, value);
            low = low.max(R::listed_low(self, alone, peeled.total, listed.over(value)));
        }
        let short = list.short.map_or(f64::INFINITY, |short| short + self.saturated as f64);
        let high = asked.high.min(value + short);
        Estimate { low: low.clamp(0.0, value), high, ..asked }
    }

    /// Upper bound of the weight of a key whose estimate never exceeded `value`.
    pub(crate) fn most(&self, value: f64) -> f64 {
        let most = match self.unit {
            0 => value + R::shortfall(self),
            _ => self.noise().bounds(value).1,
        };
        most + self.saturated as f64
    }

    fn noise(&self) -> Noise {
        *self.noise.get_or_init(|| self.noise_of(R::margin(self), self.unit as f64))
    }

    /// Errors of estimates if the rows are samples of this `unit`.
    pub(crate) fn noise_of(&self, margin: f64, unit: f64) -> Noise {
        Noise { margin, deviations: self.deviations, unit }
    }

    /// Counts packets.
    pub(crate) fn count(&mut self, digests: &[u64], weights: &[Weight<R>]) {
        let updates = Updates { digests, weights, limit: Limit::new(0.0, 0.0) };
        self.take::<false>(&updates, &mut [0; BATCH_PACKETS]);
    }

    /// Counts packets, and writes the indices of those whose estimate then exceeded `limit` to
    /// `heavy`; returns their number.
    pub(crate) fn count_and_list(
        &mut self,
        digests: &[u64],
        weights: &[Weight<R>],
        limit: Limit,
        heavy: &mut [u8; BATCH_PACKETS],
    ) -> usize {
        self.take::<true>(&Updates { digests, weights, limit }, heavy)
    }

    /// Counts packets and, if it is to `LIST`, lists the heavy ones; returns their number.
    fn take<const LIST: bool>(
        &mut self,
        updates: &Updates<'_, Weight<R>>,
        heavy: &mut [u8; BATCH_PACKETS],
    ) -> usize {
        self.noise = OnceLock::new();
        let weight = Weight::<R>::sum(updates.weights);
        let total = self.total.saturating_add(weight);
        self.reach = self.reach.saturating_add(weight);
        // No cell exceeds the weight of all packets, which may have reached its own limit.
        let (lost, found) = if total.max(self.reach) >= R::Cell::MOST {
            self.take_rows::<MOST_ROWS, true, LIST>(updates, heavy)
        } else if self.rows == WORDS {
            self.take_words::<LIST>(updates, heavy)
        } else {
            with_rows!(self.rows.rows(), D => self.take_rows::<D, false, LIST>(updates, heavy))
        };
        self.total = total;
        self.saturated = self.saturated.saturating_add(lost);
        found
    }

    /// Adds packets to cells whose columns are the four 16-bit words of the digest. Returns the
    /// excess of full cells, and the number of listed packets.
    #[inline(never)]
    fn take_words<const LIST: bool>(
        &mut self,
        updates: &Updates<'_, Weight<R>>,
        heavy: &mut [u8; BATCH_PACKETS],
    ) -> (u64, usize) {
        // With a constant length, no index needs a check.
        let Some(cells) = self.cells.first_chunk_mut::<WORDS_CELLS>() else { return (0, 0) };
        let places = |digest: u64| -> [usize; WORDS_ROWS] {
            std::array::from_fn(|row| row << 16 | usize::from((digest >> (16 * row)) as u16))
        };
        updates.add::<R, WORDS_ROWS, false, LIST>(cells, self.total, heavy, |cells, i| {
            if let Some(&digest) = updates.digests.get(i + PREFETCH_AHEAD) {
                for place in places(digest) {
                    prefetch(cells, place);
                }
            }
            (places(updates.digests[i]), WORDS_ROWS)
        })
    }

    /// The same for `D` rows, whose cells may be `FULL`.
    #[inline(never)]
    fn take_rows<const D: usize, const FULL: bool, const LIST: bool>(
        &mut self,
        updates: &Updates<'_, Weight<R>>,
        heavy: &mut [u8; BATCH_PACKETS],
    ) -> (u64, usize) {
        let mut places = [[0; BATCH_PACKETS]; D];
        let (rows, cells) = (self.rows.count::<D>(), &mut *self.cells);
        self.rows.place_batch(updates.digests, &mut places[..rows]);
        let ahead = if size_of_val(cells) > CACHED_BYTES { PREFETCH_AHEAD } else { BATCH_PACKETS };
        if ahead < BATCH_PACKETS {
            ask_first(cells, &places[..rows], ahead);
        }
        updates.add::<R, D, FULL, LIST>(cells, self.total, heavy, |cells, i| {
            if i + ahead < BATCH_PACKETS {
                places[..rows].iter().for_each(|row| prefetch(cells, row[i + ahead] as usize));
            }
            (std::array::from_fn(|row| places[row][i] as usize), rows)
        })
    }

    /// Adds the cells of a grid of the same shape.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.reach = self.reach.saturating_add(other.reach);
        if other.reach > 0 {
            let lost = join_all(&mut self.cells, &other.cells, self.reach);
            self.saturated = self.saturated.saturating_add(lost);
        }
        self.saturated = self.saturated.saturating_add(other.saturated);
        self.total = self.total.saturating_add(other.total);
        // Both samples may err at the same packets.
        self.unit = self.unit.saturating_add(other.unit);
        self.noise = OnceLock::new();
    }

    /// Replaces the cells by sums of 64 bits. `lost` is the weight these lack of the total, over
    /// all rows.
    pub(crate) fn replace(&mut self, total: u64, lost: u64, sums: impl Iterator<Item = u64>) {
        self.clear();
        (self.total, self.reach, self.saturated) = (total, total, lost);
        for (cell, sum) in self.cells.iter_mut().zip(sums) {
            let (cut, over) = R::Cell::of_sum(sum);
            *cell = cut;
            self.saturated = self.saturated.saturating_add(over);
        }
    }

    pub(crate) fn save(&self, out: &mut Writer) {
        out.number(self.total);
        out.number(self.saturated);
        save_cells(&self.cells, out);
    }

    pub(crate) fn load(&mut self, from: &mut Reader<'_>) -> Result<(), DecodeError> {
        self.total = from.number("total")?;
        self.saturated = from.number("saturated")?;
        let (left, total) = (from.left(), u128::from(self.total));
        let (reach, sums) = load_cells(&mut self.cells, self.rows.columns(), from)?;
        let lost = sums.into_iter().map(|sum| total.checked_sub(sum)).sum::<Option<u128>>();
        self.reach = reach;
        // The weights of a row add up to the total, unless it is a sample or the total is full.
        let is_sum = self.unit == 0 && self.total < u64::MAX;
        if is_sum && !lost.is_some_and(|lost| R::is_possible(lost, self.saturated)) {
            return Err(from.invalid(
                "cells",
                left - from.left(),
                "no packets with this total can make these cells",
            ));
        }
        self.noise = OnceLock::new();
        Ok(())
    }

    pub(crate) fn clear(&mut self) {
        if self.reach > 0 {
            self.cells.fill(bytemuck::Zeroable::zeroed());
        }
        (self.total, self.saturated, self.reach, self.unit) = (0, 0, 0, 0);
        self.noise = OnceLock::new();
    }
}

impl<R: Linear> Grid<R> {
    /// Records the total and the unit that the rows are samples of.
    pub(crate) fn sampled_from(&mut self, total: u64, unit: u64) {
        (self.total, self.unit) = (total, unit);
        self.noise = OnceLock::new();
    }

    /// Adds the weight of each packet to one row of its key, and writes the indices of packets
    /// whose cell then indicates more than `limit` to `heavy`; returns their number. Leaves the
    /// total to [`Self::sampled_from`].
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

    /// The same for cells that may be `FULL`.
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

    /// L2², the sum of the squares of all sizes.
    pub(crate) fn squared_l2(&self) -> f64 {
        R::squared_l2(self.rows, self.total as f64, |place| self.cells[place].real())
    }
}
