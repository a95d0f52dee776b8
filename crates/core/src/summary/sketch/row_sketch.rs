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
use super::rows::{MOST_ROWS, Rows, Targets, with_rows};
use crate::batch::Batch;
use crate::key::{CanonicalKey, FlowKey};
use crate::task::Threshold;

/// Heavy keys that are kept, unless asked otherwise or the memory is small.
const MOST_CANDIDATES: usize = 1 << 14;

/// Packets whose cells are asked for ahead of the one in hand.
const PREFETCH_AHEAD: usize = 16;

/// The weights that a sketch counts.
pub(crate) type Weight<R> = <<R as Rule>::Cell as Cell>::Weight;

/// What one kind of sketch does with the cells of a key.
pub(crate) trait Rule: Send + Sized + 'static {
    /// A counter.
    type Cell: Cell;
    /// What ε and δ mean.
    const TARGETS: Targets;

    /// Adds `weight` to the cells at `places`, of which there are as many as rows. Returns what
    /// found no room, and whether the estimate may now be above `limit`.
    fn add(
        cells: &mut [Self::Cell],
        places: &[usize],
        digest: u64,
        weight: Weight<Self>,
        limit: u64,
    ) -> (u64, bool);

    /// The estimate of a key, among packets of weight `total`.
    fn estimate(rows: Rows, cells: &[Self::Cell], total: u64, digest: u64) -> f64;

    /// What some cells of a key exceed when its estimate exceeds `threshold`, among packets of
    /// weight `total`; it never falls while the total grows.
    fn limit(rows: Rows, threshold: f64, total: u64) -> f64 {
        let _ = (rows, total);
        threshold
    }

    /// How far an estimate is off at most, with the confidence of its bounds.
    fn margin(grid: &Grid<Self>) -> f64;

    /// The bounds of an estimate.
    fn bounds(grid: &Grid<Self>, value: f64, margin: f64) -> Estimate;

    /// Whether cells with this total and this lost weight can come about; what is stored is checked.
    fn possible(grid: &Grid<Self>) -> bool;

    /// The cells as a linear function of the sizes, where they are one.
    fn cells<K: FlowKey>(sketch: &RowSketch<K, Self>) -> Option<&dyn Cells> {
        let _ = sketch;
        None
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
    /// Reserves the cells.
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
        let value = R::estimate(self.rows, &self.cells, self.total, digest);
        R::bounds(self, value, margin)
    }

    /// Adds one weight; a loop over packets does better to unroll this.
    pub(crate) fn add(&mut self, digest: u64, weight: Weight<R>) {
        let places = self.rows.places::<MOST_ROWS>(digest);
        let places = &places[..self.rows.rows()];
        self.saturated += R::add(&mut self.cells, places, digest, weight, 0).0;
        self.total = self.total.saturating_add(weight.get());
        self.margin.set(None);
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
        let rows = R::TARGETS.shape(parameters, rest, size_of::<R::Cell>())?;
        Ok(Self {
            digester: options.digester,
            grid: Grid::new(rows, options)?,
            heavy: HeavyKeys::new(candidates, &options.memory)?,
            candidates,
            threshold: options.threshold,
        })
    }

    fn ingest_rows<const D: usize>(&mut self, batch: &Batch<K>) {
        let (keys, digests) = (batch.keys(), batch.digests());
        let weights = Weight::<R>::column(batch);
        let (rows, cells) = (self.grid.rows, &mut *self.grid.cells);
        let count = rows.count::<D>();
        // Sums in registers: in memory each packet would wait for the store of the one before.
        let (mut total, mut saturated) = (self.grid.total, 0);
        // Thresholds only grow, so that most packets need no look at their own.
        let limit = R::limit(rows, self.threshold.weight(total), total).max(0.0) as u64;
        for &digest in digests.iter().take(PREFETCH_AHEAD) {
            for &place in &rows.places::<D>(digest)[..count] {
                prefetch(cells, place);
            }
        }
        for i in 0..keys.len() {
            if let Some(&digest) = digests.get(i + PREFETCH_AHEAD) {
                for &place in &rows.places::<D>(digest)[..count] {
                    prefetch(cells, place);
                }
            }
            let places = rows.places::<D>(digests[i]);
            let (lost, heavy) = R::add(cells, &places[..count], digests[i], weights[i], limit);
            saturated += lost;
            total = total.saturating_add(weights[i].get());
            if heavy && !self.heavy.holds(keys[i], digests[i]) {
                // Against the weight so far, this packet's included: batches of any size agree.
                let threshold = self.threshold.weight(total);
                let (cells, digester) = (&*cells, &self.digester);
                if R::estimate(rows, cells, total, digests[i]) > threshold {
                    self.heavy.join(keys[i], digests[i], threshold, digester, |key| {
                        R::estimate(rows, cells, total, key.digest(digester))
                    });
                }
            }
        }
        self.grid.total = total;
        self.grid.saturated = self.grid.saturated.saturating_add(saturated);
        self.grid.margin.set(None);
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
        with_rows!(self.grid.rows.rows(), D => self.ingest_rows::<D>(batch));
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
            R::estimate(grid.rows, &grid.cells, grid.total, key.digest(digester))
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
