//! A sketch of rows as a summary: a grid of cells, and the heavy keys beside it.

use flowgauge_kernel::Digester;

use super::cell::Cell;
use super::grid::{Each, Grid, Linear, Rule, Weight};
use super::{CONFIDENCE, Rows, Targets};
use crate::batch::{BATCH_PACKETS, Batch};
use crate::key::{CanonicalKey, FlowKey};
use crate::summary::codec::{DecodeError, Reader, Writer};
use crate::summary::concurrent::{self, AtomicSums, ConcurrentIngest, Sums};
use crate::summary::describe::form;
use crate::summary::heavy::{self, HeavyKeys};
use crate::summary::ingest::{Basis, twin};
use crate::summary::{
    Answers, BuildError, Candidates, Cells, Counted, Counter, Estimate, Form, Incompatible, Info,
    Ingest, Laws, Merge, Options, Parameter, Reads, RowIngest, Setting, SizeEstimate, SizeQuery,
    Summary,
};
use crate::terms::{Measure, Size, Threshold};

/// Parameters of a sketch whose error is a fraction of the total weight.
pub(crate) const TOTAL_PARAMETERS: &[Parameter] = &[
    Parameter { name: "rows", help: "number of rows, 1 to 16 (default 4)" },
    Parameter {
        name: "columns",
        help: "counters in a row, a power of two (default: 32768, or what fits into the memory)",
    },
    Parameter {
        name: "epsilon",
        help: "instead of columns: the error as a share of the total weight; \
               columns = e / epsilon, rounded up to a power of two",
    },
    Parameter {
        name: "delta",
        help: "instead of rows: the probability of a larger error; rows = ln (1 / delta)",
    },
    CANDIDATES,
];

/// Parameters of a sketch whose error is a fraction of L2.
pub(crate) const L2_PARAMETERS: &[Parameter] = &[
    Parameter { name: "rows", help: "number of rows, 1 to 16 (default 5)" },
    Parameter {
        name: "columns",
        help: "counters in a row, a power of two (default: 65536, or what fits into the memory)",
    },
    Parameter {
        name: "epsilon",
        help: "instead of columns: the error as a share of L2, the square root of the sum of \
               squared sizes; columns = 8 / epsilon^2, rounded up to a power of two",
    },
    Parameter {
        name: "delta",
        help: "instead of rows: the probability of a larger error; enough rows that half of them \
               fail with this probability, where each fails with 1/8",
    },
    CANDIDATES,
];

/// The parameter for the number of heavy keys.
const CANDIDATES: Parameter = Parameter {
    name: "candidates",
    help: "heavy keys to keep, a power of two (default: 16384, or what a quarter of the memory \
           holds), or 0 to count faster and list no keys",
};

/// Memory of a sketch with its heavy keys.
pub(crate) const MEMORY: &str =
    "rows x columns x (4 by packets, 8 by bytes) + candidates x (3 x key + 8)";

/// The answers of a sketch of linear cells.
const FORMS: &[Form] = &[
    form![Size(Counted::Asked), Candidates, Cells { sampled: false }],
    form![candidates = "0"; Size(Counted::Asked), Cells { sampled: false }],
];

/// The laws of a sketch of linear cells.
const LAWS: Laws = Laws {
    commutable: true,
    aggregatable: true,
    sizes: true,
    rows: true,
    merge: Merge::Equal,
    ..Laws::NONE
};

/// The description of a sketch of linear cells.
pub(crate) const fn info(
    name: &'static str,
    idea: &'static str,
    paper: &'static str,
    parameters: &'static [Parameter],
) -> Info {
    Info { name, idea, paper, parameters, memory: MEMORY, forms: FORMS, laws: LAWS }
}

/// Builds a sketch of packets by the rule `P`, or of bytes by the rule `B`.
pub(crate) fn build<K: FlowKey, P: Rule, B: Rule>(
    options: &Options,
) -> Result<Box<dyn Summary<K>>, BuildError> {
    Ok(match options.by {
        Measure::Packets => Box::new(RowSketch::<K, P>::new(options)?),
        Measure::Bytes => Box::new(RowSketch::<K, B>::new(options)?),
    })
}

/// Builds a concurrent sketch of packets by the rule `P`, or of bytes by the rule `B`.
pub(crate) fn build_concurrent<K: FlowKey, P: Linear, B: Linear>(
    options: &Options,
) -> Result<Box<dyn ConcurrentIngest<K>>, BuildError> {
    match options.by {
        Measure::Packets => RowSketch::<K, P>::concurrent(options),
        Measure::Bytes => RowSketch::<K, B>::concurrent(options),
    }
}

/// Values after the cells in [`Cells::read`]: total, noise, and unit of the sample.
const TAIL: usize = 3;

/// A sketch, with the keys that became heavy during the epoch if `candidates` is not 0.
pub(crate) struct RowSketch<K, R: Rule> {
    pub(crate) digester: Digester,
    pub(crate) grid: Grid<R>,
    pub(crate) heavy: HeavyKeys<K>,
    pub(crate) candidates: usize,
    pub(crate) threshold: Threshold,
}

/// The rows and the number of candidates by the parameters, or what fits into the memory.
#[inline(never)]
fn plan(
    options: &Options,
    targets: Targets,
    cell_bytes: usize,
    candidate_bytes: usize,
) -> Result<(Rows, usize), BuildError> {
    let candidates = heavy::candidates(options, candidate_bytes)?;
    let rest = options.memory_bytes.saturating_sub(candidates.saturating_mul(candidate_bytes));
    // Besides the cells, the tasks get the values of the tail.
    let rest = rest.saturating_sub(TAIL * options.task_bytes_per_cell);
    let cell_bytes = cell_bytes + options.task_bytes_per_cell;
    let rows = targets.shape(&options.parameters, rest, cell_bytes, targets.default_shape())?;
    Ok((rows, candidates))
}

impl<K: FlowKey, R: Rule> RowSketch<K, R> {
    pub(crate) fn new(options: &Options) -> Result<Self, BuildError> {
        let per_candidate = HeavyKeys::<K>::memory_bytes(1);
        let (rows, candidates) = plan(options, R::TARGETS, size_of::<R::Cell>(), per_candidate)?;
        Ok(Self {
            digester: options.digester,
            grid: Grid::new(rows, options)?,
            heavy: HeavyKeys::new(candidates, options)?,
            candidates,
            threshold: options.threshold,
        })
    }

    fn basis(&self) -> Basis<'_> {
        Basis { threshold: Some(self.threshold), ..Basis::of(&self.digester) }
    }

    /// Counts up to a batch of packets.
    pub(crate) fn take(&mut self, keys: &[K], digests: &[u64], weights: &[Weight<R>]) {
        if self.candidates == 0 {
            return self.grid.count(digests, weights);
        }
        if self.grid.unit > 0 {
            // Cells of samples cannot be compared with a limit, as the rule does while it adds.
            self.grid.count(digests, weights);
            return (0..keys.len()).for_each(|at| self.admit(keys[at], digests[at]));
        }
        let limit = R::cell_limit(self.grid.rows, self.threshold);
        let mut heavy = [0; BATCH_PACKETS];
        let mut start = 0;
        while start < keys.len() {
            // A full set drops keys by all cells. It must see the same cells for batches of any
            // size.
            let end = keys.len().min(start + self.heavy.room().max(1));
            let (digests, weights) = (&digests[start..end], &weights[start..end]);
            let found = self.grid.count_and_list(digests, weights, limit, &mut heavy);
            let threshold = self.threshold.weight(self.grid.total);
            for &number in &heavy[..found] {
                let (key, digest) = (keys[start + number as usize], digests[number as usize]);
                if !self.heavy.has(&key, digest) {
                    self.heavy.join((key, digest, ()), threshold, &self.digester, &|_, key| {
                        R::estimate(&self.grid, key.digest(&self.digester))
                    });
                }
            }
            start = end;
        }
    }

    /// Adds a key to the heavy keys if its estimate exceeds the threshold.
    pub(crate) fn admit(&mut self, key: K, digest: u64) {
        let threshold = self.threshold.weight(self.grid.total);
        if !self.heavy.has(&key, digest) && R::estimate(&self.grid, digest) > threshold {
            self.heavy.join((key, digest, ()), threshold, &self.digester, &|_, key| {
                R::estimate(&self.grid, key.digest(&self.digester))
            });
        }
    }

    /// Visits the keys that `each` visits, with the bounds of keys selected for their large
    /// estimates.
    pub(crate) fn list(&self, each: &Each<'_, K>, visit: &mut dyn FnMut(K, SizeEstimate)) {
        let digest = |key: K| key.digest(&self.digester);
        let threshold = self.threshold.weight(self.grid.total);
        let list = self.grid.list(threshold, &|visit| each(&mut |key| visit(digest(key))));
        let size = |key| self.grid.listed(&list, digest(key));
        each(&mut |key| visit(key, SizeEstimate::of(Weight::<R>::MEASURE, size(key))));
    }
}

impl<K: FlowKey, R: Rule> Ingest<K> for RowSketch<K, R> {
    fn ingest(&mut self, batch: &mut Batch<K>) {
        batch.digest(&self.digester);
        self.take(batch.keys(), batch.digests(), Weight::<R>::column(batch));
    }

    fn reads(&self) -> Reads {
        Reads::sizes(Weight::<R>::MEASURE)
    }
}

impl<K: FlowKey, R: Rule> Summary<K> for RowSketch<K, R> {
    fn answers(&self) -> &dyn Answers {
        self
    }

    fn merge(&mut self, other: &dyn Summary<K>) -> Result<(), Incompatible> {
        let other = twin(self, other, Self::basis)?;
        self.heavy.note_parts(self.threshold, [self.grid.total, other.grid.total]);
        self.grid.merge(&other.grid);
        let (grid, digester) = (&self.grid, &self.digester);
        let threshold = self.threshold.weight(grid.total);
        self.heavy.merge(&other.heavy, threshold, digester, &|_, key| {
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

    fn rows(&mut self) -> Option<&mut dyn RowIngest<K>> {
        R::sampled(self)
    }

    fn memory_bytes(&self) -> usize {
        self.grid.cells.memory_bytes() + HeavyKeys::<K>::memory_bytes(self.candidates)
    }
}

impl<K: FlowKey, R: Linear> Sums<K> for RowSketch<K, R> {
    type Weight = Weight<R>;
    const SIGNED: bool = R::SIGNED;

    fn shape(&self) -> Rows {
        self.grid.rows
    }

    fn replace(&mut self, total: u64, lost: u64, sums: impl Iterator<Item = u64>) {
        self.grid.replace(total, lost, sums);
    }
}

impl<K: FlowKey, R: Linear> RowSketch<K, R> {
    /// Builds a concurrent sketch.
    fn concurrent(options: &Options) -> Result<Box<dyn ConcurrentIngest<K>>, BuildError> {
        let options = concurrent::without_candidates(options)?;
        let task_bytes_per_cell = options.task_bytes_per_cell + concurrent::CELL_BYTES;
        let options = Options { task_bytes_per_cell, ..options };
        AtomicSums::build(&options, Self::new(&options)?)
    }
}

impl<K: FlowKey, R: Rule> Answers for RowSketch<K, R> {
    fn saturated(&self) -> Size {
        Size::of(Weight::<R>::MEASURE, self.grid.saturated)
    }

    fn size(&self) -> Option<&dyn SizeQuery> {
        Some(self)
    }

    fn candidates(&self) -> Option<&dyn Candidates> {
        if self.candidates > 0 { Some(self) } else { None }
    }

    fn cells(&self) -> Option<&dyn Cells> {
        R::cells(self)
    }
}

impl<K: FlowKey, R: Rule> SizeQuery for RowSketch<K, R> {
    fn estimate(&self, key: &[u8]) -> SizeEstimate {
        let digest = K::matching(key, &self.digester).map(|key| key.digest(&self.digester));
        let size = |digest| SizeEstimate::of(Weight::<R>::MEASURE, self.grid.estimate(digest));
        digest.map_or(SizeEstimate::exact(Size::default()), size)
    }
}

impl<K: FlowKey, R: Rule> Candidates for RowSketch<K, R> {
    fn for_each(&self, visit: &mut dyn FnMut(CanonicalKey, SizeEstimate)) {
        self.list(&|visit| self.heavy.iter().for_each(visit), &mut |key, size| {
            visit(key.to_canonical(&self.digester), size);
        });
    }

    fn overflow(&self) -> u64 {
        self.heavy.overflow()
    }

    /// A key joins when its estimate exceeds the threshold, unless the set has no room for it.
    fn unnamed(&self, by: Measure) -> Option<f64> {
        let is_whole =
            by == Weight::<R>::MEASURE && self.heavy.overflow() == 0 && self.grid.total < u64::MAX;
        is_whole.then(|| self.grid.most(self.threshold.weight(self.grid.total)))
    }
}

/// The cells row by row, then the total, then the noise of estimates from these, then the unit of
/// the sample.
///
/// In a linear combination of epochs, the sample of an epoch with factor a contributes its variance
/// times a². If no a is negative, the sum of these variances is at most the combined unit times the
/// combined weight.
impl<K: FlowKey, R: Linear> Cells for RowSketch<K, R> {
    fn measure(&self) -> Measure {
        Weight::<R>::MEASURE
    }

    fn len(&self) -> usize {
        self.grid.cells.len() + TAIL
    }

    fn sampled(&self) -> bool {
        self.grid.unit > 0
    }

    fn read(&self, cells: &mut [f64]) {
        for (real, cell) in cells.iter_mut().zip(self.grid.cells.iter()) {
            *real = cell.real();
        }
        let tail = self.grid.cells.len();
        cells[tail] = self.grid.total as f64;
        cells[tail + 1] = 0.0;
        cells[tail + 2] = self.grid.unit as f64;
    }

    fn seal(&self, cells: &mut [f64]) {
        let tail = self.grid.cells.len();
        cells[tail + 1] = R::noise(self.grid.rows, cells[tail], |place| cells[place]);
    }

    fn estimate(&self, cells: &[f64], key: &[u8]) -> Estimate {
        let Some(key) = K::matching(key, &self.digester) else { return Estimate::exact(0) };
        let tail = self.grid.cells.len();
        let digest = key.digest(&self.digester);
        let value = R::value(self.grid.rows, digest, cells[tail], |place| cells[place]);
        let (low, high) =
            self.grid.noise_of(cells[tail + 1], cells[tail + 2].max(0.0)).bounds(value);
        Estimate { value, low, high, confidence: Some(CONFIDENCE) }
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
        let limit = R::cell_limit(self.grid.rows, self.threshold).at(self.grid.total);
        let mut heavy = [0; BATCH_PACKETS];
        let found = self.grid.count_rows(digests, weights, rows, limit, &mut heavy);
        if self.candidates == 0 {
            return;
        }
        // A row above the limit is only a hint: the estimate from all rows decides.
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
