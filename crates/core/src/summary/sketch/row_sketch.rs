//! What the sketches of many rows have in common: all but what one packet does to its cells.

use std::any::Any;
use std::cell::Cell as Cached;

use flowgauge_kernel::{Digester, Zeroed, prefetch};

use super::super::codec::{DecodeError, Reader, Writer};
use super::super::heavy::HeavyKeys;
use super::super::{
    Answers, BuildError, Candidates, Cells, Counter, Estimate, Incompatible, Ingest, Measure,
    Options, Setting, Size, SizeEstimate, SizeQuery,
};
use super::cell::Cell;
use super::rows::{CONFIDENCE, MOST_ROWS, Rows, Targets, with_rows};
use crate::batch::{BATCH_PACKETS, Batch};
use crate::key::{CanonicalKey, FlowKey};
use crate::task::Threshold;

/// Heavy keys that are kept, unless asked otherwise or the memory is small.
const MOST_CANDIDATES: usize = 1 << 14;

/// Packets whose cells are asked for ahead of the one in hand.
const PREFETCH_AHEAD: usize = 16;

/// Cells of so many bytes are in a cache that the processor reaches without being asked ahead.
const CACHED_BYTES: usize = 1 << 18;

/// The weights that a sketch counts.
pub(crate) type Weight<R> = <<R as Rule>::Cell as Cell>::Weight;

/// What one kind of sketch does with the cells of a key.
pub(crate) trait Rule: Send + Sized + 'static {
    /// A counter.
    type Cell: Cell;
    /// What ε and δ mean.
    const TARGETS: Targets;

    /// Adds `weight` to the cells at `places`, of which there are as many as rows. Returns what
    /// found no room, and whether the estimate is now of cells above `limit`.
    fn add<const FULL: bool>(
        cells: &mut [Self::Cell],
        places: &[usize],
        digest: u64,
        weight: Weight<Self>,
        limit: u64,
    ) -> (u64, bool);

    /// The estimate of a key.
    fn estimate(grid: &Grid<Self>, digest: u64) -> f64;

    /// What the cells of a key exceed when its estimate exceeds the threshold.
    fn limit(rows: Rows, threshold: Threshold) -> Limit {
        let _ = rows;
        match threshold {
            Threshold::Share(share) => Limit::new(0.0, share),
            Threshold::Weight(weight) => Limit::new(weight as f64, 0.0),
        }
    }

    /// How far an estimate is off at most, with the confidence of its bounds. Read from all the cells.
    fn margin(grid: &Grid<Self>) -> f64;

    /// The bounds of an estimate.
    fn bounds(grid: &Grid<Self>, value: f64, margin: f64) -> Estimate;

    /// Whether cells with this total and this lost weight can come about; what is stored is checked.
    fn possible(grid: &Grid<Self>) -> bool;

    /// The cells, where they are [`Linear`].
    fn cells<K: FlowKey>(sketch: &RowSketch<K, Self>) -> Option<&dyn Cells> {
        let _ = sketch;
        None
    }
}

/// A rule whose cells are sums of the weights, so that sums and differences of them mean something.
pub(crate) trait Linear: Rule {
    /// The estimate of a key from any such cells, whose total is `total`.
    fn value(rows: Rows, digest: u64, total: f64, cell: impl Fn(usize) -> f64) -> f64;
    /// How far it is off at most, with [`CONFIDENCE`].
    fn noise(rows: Rows, total: f64, cells: impl Fn(usize) -> f64) -> f64;
}

/// A linear function of the total weight in whole numbers: exact against each packet's own total,
/// so that batches of any size agree.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limit {
    base: u64,
    /// The share of the total, in units of 2⁻⁶⁴.
    share: u64,
}

impl Limit {
    pub(crate) fn new(base: f64, share: f64) -> Self {
        Self { base: base as u64, share: (share * 2f64.powi(64)) as u64 }
    }

    #[inline(always)]
    fn at(self, total: u64) -> u64 {
        let share = (u128::from(total) * u128::from(self.share)) >> 64;
        self.base.saturating_add(share as u64)
    }
}

/// The cells with what was counted into them.
pub(crate) struct Grid<R: Rule> {
    pub(crate) rows: Rows,
    pub(crate) cells: Zeroed<R::Cell>,
    /// Weight of all packets.
    pub(crate) total: u64,
    /// Increments that a full cell could not take, over all rows.
    pub(crate) saturated: u64,
    /// The margin of the estimates since the last packet, once it was asked for.
    margin: Cached<Option<f64>>,
}

impl<R: Rule> Grid<R> {
    /// Reserves the cells of `rows`.
    pub(crate) fn new(rows: Rows, options: &Options) -> Result<Self, BuildError> {
        Ok(Self {
            rows,
            cells: options.memory.zeroed(rows.cells())?,
            total: 0,
            saturated: 0,
            margin: Cached::new(None),
        })
    }

    /// The estimate of a key with its bounds.
    pub(crate) fn estimate(&self, digest: u64) -> Estimate {
        let margin = self.margin.get().unwrap_or_else(|| R::margin(self));
        self.margin.set(Some(margin));
        R::bounds(self, R::estimate(self, digest), margin)
    }

    /// Counts packets, and writes the numbers of those whose keys were beyond `limit` then to
    /// `heavy`; returns how many these are.
    fn take(
        &mut self,
        digests: &[u64],
        weights: &[Weight<R>],
        limit: Limit,
        heavy: &mut [u8; BATCH_PACKETS],
    ) -> usize {
        let weight =
            weights.iter().fold(self.total, |sum, weight| sum.saturating_add(weight.get()));
        // No cell holds more than the weight of all packets.
        if weight <= R::Cell::MOST {
            with_rows!(self.rows.rows(), D =>
                self.count::<D, false>(digests, weights, limit, heavy))
        } else {
            self.count::<MOST_ROWS, true>(digests, weights, limit, heavy)
        }
    }

    #[inline(never)]
    fn count<const D: usize, const FULL: bool>(
        &mut self,
        digests: &[u64],
        weights: &[Weight<R>],
        limit: Limit,
        heavy: &mut [u8; BATCH_PACKETS],
    ) -> usize {
        let mut places = [[0; BATCH_PACKETS]; D];
        self.rows.place_batch(digests, &mut places);
        let (rows, cells) = (self.rows.count::<D>(), &mut *self.cells);
        let ahead = if size_of_val(cells) > CACHED_BYTES { PREFETCH_AHEAD } else { BATCH_PACKETS };
        for row in &places[..rows] {
            row[..PREFETCH_AHEAD].iter().for_each(|&place| prefetch(cells, place as usize));
        }
        // Sums in registers: in memory each packet would wait for the store of the one before.
        let (mut total, mut saturated, mut found) = (self.total, 0, 0);
        for (i, (&digest, &weight)) in digests.iter().zip(weights).enumerate() {
            if i + ahead < BATCH_PACKETS {
                places[..rows].iter().for_each(|row| prefetch(cells, row[i + ahead] as usize));
            }
            total = total.saturating_add(weight.get());
            let at: [usize; D] = std::array::from_fn(|row| places[row][i] as usize);
            let (lost, beyond) =
                R::add::<FULL>(cells, &at[..rows], digest, weight, limit.at(total));
            saturated += lost;
            // Written always and kept where it counts: a branch would be mispredicted too often.
            heavy[found % BATCH_PACKETS] = i as u8;
            found += usize::from(beyond);
        }
        self.total = total;
        self.saturated = self.saturated.saturating_add(saturated);
        self.margin.set(None);
        found
    }

    /// Adds the cells of a grid of the same shape.
    pub(crate) fn merge(&mut self, other: &Self) {
        for (cell, other) in self.cells.iter_mut().zip(other.cells.iter()) {
            self.saturated = self.saturated.saturating_add(cell.join(*other));
        }
        self.saturated = self.saturated.saturating_add(other.saturated);
        self.total = self.total.saturating_add(other.total);
        self.margin.set(None);
    }

    pub(crate) fn save(&self, out: &mut Writer) {
        out.number(self.total);
        out.number(self.saturated);
        out.numbers(&self.cells);
    }

    pub(crate) fn load(&mut self, from: &mut Reader<'_>) -> Result<(), DecodeError> {
        self.total = from.number("total")?;
        self.saturated = from.number("saturated")?;
        from.numbers("cells", &mut self.cells)?;
        if !R::possible(self) {
            let width = self.cells.memory_bytes();
            return Err(from.invalid("cells", width, "no packets of this total make them"));
        }
        Ok(())
    }

    pub(crate) fn clear(&mut self) {
        self.cells.fill(bytemuck::Zeroable::zeroed());
        self.total = 0;
        self.saturated = 0;
        self.margin.set(None);
    }
}

/// A sketch with the keys that became heavy while the epoch ran.
///
/// Memory in bytes: `rows × columns × size_of::<Cell>() + candidates × (3 × size_of::<K>() + 8)`.
pub(crate) struct RowSketch<K, R: Rule> {
    pub(crate) digester: Digester,
    pub(crate) grid: Grid<R>,
    heavy: HeavyKeys<K>,
    candidates: usize,
    threshold: Threshold,
}

impl<K: FlowKey, R: Rule> RowSketch<K, R> {
    pub(crate) fn new(options: &Options) -> Result<Self, BuildError> {
        let per_candidate = HeavyKeys::<K>::memory_bytes(1);
        let for_candidates = (options.memory_bytes / 4).min(MOST_CANDIDATES * per_candidate);
        let parameters = &options.parameters;
        let candidates = parameters.power_of_two("candidates", for_candidates, per_candidate)?;
        let rest = options.memory_bytes.saturating_sub(candidates.saturating_mul(per_candidate));
        // Beside the cells the tasks get the total and the noise.
        let rest = rest.saturating_sub(2 * options.task_bytes_per_cell);
        let cell_bytes = size_of::<R::Cell>() + options.task_bytes_per_cell;
        let rows = R::TARGETS.shape(parameters, rest, cell_bytes)?;
        Ok(Self {
            digester: options.digester,
            grid: Grid::new(rows, options)?,
            heavy: HeavyKeys::new(candidates, &options.memory)?,
            candidates,
            threshold: options.threshold,
        })
    }

    /// Counts packets, at most a batch of them, with their digests and weights.
    pub(crate) fn take(&mut self, keys: &[K], digests: &[u64], weights: &[Weight<R>]) {
        let limit = R::limit(self.grid.rows, self.threshold);
        // What a full set drops depends on all cells: batches of any size must see the same.
        let block = if self.heavy.room() < keys.len() { 1 } else { keys.len().max(1) };
        let mut heavy = [0; BATCH_PACKETS];
        for start in (0..keys.len()).step_by(block) {
            let (digests, weights) = (&digests[start..][..block], &weights[start..][..block]);
            let found = self.grid.take(digests, weights, limit, &mut heavy);
            let threshold = self.threshold.weight(self.grid.total);
            for &number in &heavy[..found] {
                let (key, digest) = (keys[start + number as usize], digests[number as usize]);
                if !self.heavy.has(&key, digest) {
                    self.heavy.join(key, digest, threshold, &self.digester, |key| {
                        R::estimate(&self.grid, key.digest(&self.digester))
                    });
                }
            }
        }
    }

    fn size(&self, digest: u64) -> SizeEstimate {
        let estimate = Some(self.grid.estimate(digest));
        match Weight::<R>::MEASURE {
            Measure::Packets => SizeEstimate { packets: estimate, bytes: None },
            Measure::Bytes => SizeEstimate { packets: None, bytes: estimate },
        }
    }
}

impl<K: FlowKey, R: Rule> Ingest<K> for RowSketch<K, R> {
    fn ingest(&mut self, batch: &mut Batch<K>) {
        batch.digest(&self.digester);
        self.take(batch.keys(), batch.digests(), Weight::<R>::column(batch));
    }

    fn answers(&self) -> &dyn Answers {
        self
    }

    fn merge(&mut self, other: &dyn Ingest<K>) -> Result<(), Incompatible> {
        let other = other.as_any().downcast_ref::<Self>().ok_or(Incompatible("types differ"))?;
        if other.digester.seed() != self.digester.seed() {
            return Err(Incompatible("seeds differ"));
        }
        if other.grid.rows != self.grid.rows || other.candidates != self.candidates {
            return Err(Incompatible("sizes differ"));
        }
        self.grid.merge(&other.grid);
        let (grid, digester) = (&self.grid, &self.digester);
        let threshold = self.threshold.weight(grid.total);
        self.heavy.merge(&other.heavy, threshold, digester, |key| {
            R::estimate(grid, key.digest(digester))
        });
        Ok(())
    }

    fn save(&self, out: &mut Writer) {
        self.grid.save(out);
        self.heavy.save(out);
    }

    fn load(&mut self, from: &mut Reader<'_>) -> Result<(), DecodeError> {
        self.grid.load(from)?;
        self.heavy.load(from, &self.digester)
    }

    fn clear(&mut self) {
        self.grid.clear();
        self.heavy.clear();
    }

    fn parameters(&self) -> Vec<(&'static str, Setting)> {
        vec![
            ("rows", Setting::Integer(self.grid.rows.rows() as u64)),
            ("columns", Setting::Integer(self.grid.rows.columns() as u64)),
            ("candidates", Setting::Integer(self.candidates as u64)),
        ]
    }

    fn memory_bytes(&self) -> usize {
        self.grid.cells.memory_bytes() + HeavyKeys::<K>::memory_bytes(self.candidates)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl<K: FlowKey, R: Rule> Answers for RowSketch<K, R> {
    fn saturated(&self) -> Size {
        match Weight::<R>::MEASURE {
            Measure::Packets => Size { packets: self.grid.saturated, bytes: 0 },
            Measure::Bytes => Size { packets: 0, bytes: self.grid.saturated },
        }
    }

    fn size(&self) -> Option<&dyn SizeQuery> {
        Some(self)
    }

    fn candidates(&self) -> Option<&dyn Candidates> {
        Some(self)
    }

    fn cells(&self) -> Option<&dyn Cells> {
        R::cells(self)
    }
}

impl<K: FlowKey, R: Rule> SizeQuery for RowSketch<K, R> {
    fn estimate(&self, key: &[u8]) -> SizeEstimate {
        let digest = K::from_canonical(key).map(|key| key.digest(&self.digester));
        digest.map_or(SizeEstimate::exact(Size::default()), |digest| self.size(digest))
    }
}

impl<K: FlowKey, R: Rule> Candidates for RowSketch<K, R> {
    fn for_each(&self, visit: &mut dyn FnMut(CanonicalKey, SizeEstimate)) {
        for key in self.heavy.iter() {
            visit(CanonicalKey::new(key.canonical()), self.size(key.digest(&self.digester)));
        }
    }

    fn overflow(&self) -> u64 {
        self.heavy.overflow()
    }
}

/// The cells row by row, then the total, then the noise of estimates from all of these.
impl<K: FlowKey, R: Linear> Cells for RowSketch<K, R> {
    fn measure(&self) -> Measure {
        Weight::<R>::MEASURE
    }

    fn len(&self) -> usize {
        self.grid.cells.len() + 2
    }

    fn read(&self, cells: &mut [f64]) {
        for (real, cell) in cells.iter_mut().zip(self.grid.cells.iter()) {
            *real = cell.real();
        }
        let tail = self.grid.cells.len();
        cells[tail] = self.grid.total as f64;
        cells[tail + 1] = 0.0;
    }

    fn seal(&self, cells: &mut [f64]) {
        let tail = self.grid.cells.len();
        cells[tail + 1] = R::noise(self.grid.rows, cells[tail], |place| cells[place]);
    }

    fn estimate(&self, cells: &[f64], key: &[u8]) -> Estimate {
        let Some(key) = K::from_canonical(key) else { return Estimate::exact(0) };
        let tail = self.grid.cells.len();
        let (digest, noise) = (key.digest(&self.digester), cells[tail + 1]);
        let value = R::value(self.grid.rows, digest, cells[tail], |place| cells[place]);
        let (low, high) = (value - noise, value + noise);
        Estimate { value, low, high, confidence: Some(CONFIDENCE) }
    }
}
