//! UnivMon: nested levels of Count Sketches with their heavy keys, for any sum over the flows.
//!
//! Paper: Liu, Manousis, Vorsanger, Sekar, Braverman, "One sketch to rule them all: rethinking
//! network flow monitoring with UnivMon" (SIGCOMM 2016), §4 and §5. Half of the flows of a level
//! are in the next one too, each level keeps the heaviest of its keys, and Σ g(f) over all flows
//! follows from those by a recursion from the deepest level.

mod level;
mod sampled;
mod sum;

use flowgauge_kernel::Digester;

use super::super::basis::{Basis, twin};
use super::super::codec::{DecodeError, Reader, Writer};
use super::super::remix::remix;
use super::super::{
    Answers, BuildError, Candidates, Cells, Counter, Describe, Estimate, Incompatible, Info,
    Ingest, Laws, Options, Parameter, RowIngest, Setting, SizeEstimate, SizeQuery, Summary,
};
use super::cell::{Cell, Signed};
use super::rows::{Rows, Targets, with_rows};
use super::top_keys::TopKeys;
use crate::batch::{BATCH_PACKETS, Batch};
use crate::key::{CanonicalKey, FlowKey};
use crate::summary::Counted;
use crate::summary::forms::form;
use crate::terms::{Measure, Size};
use level::{Level, Selected, median_of};

/// The word of a digest whose low zeros say in how many levels a key is. The levels behind the
/// first take their own digest from the words that follow.
const LEVELS_WORD: u64 = 0;

/// Levels at most, and unless asked otherwise: with 1024 keys each for 8 million flows.
const MOST_LEVELS: usize = 16;
const LEVELS: usize = 14;

/// The first level, unless asked otherwise or the memory is small: a size is off by more than 1.7 %
/// of L2 with a chance of 1 % at most.
const FIRST: Rows = Rows::of(5, 15);

/// Keys that a level keeps, unless asked otherwise or the memory is small.
const MOST_TOP: usize = 1 << 10;

/// The sizes of levels halve until an eighth is reached, as the four levels of the Agg-Evict paper.
const HALVINGS: usize = 3;

/// Numbers beside the cells that estimates from cells need.
const TAIL: usize = 2;

/// How the columns of the levels go on from the first one's.
const SIZES: &[&str] = &["halving", "equal"];

/// Columns of a level.
fn columns_of(sizes: &str, level: usize, columns: usize) -> usize {
    let halvings = if sizes == SIZES[0] { level.min(HALVINGS) } else { 0 };
    (columns >> halvings).max(2)
}

/// Universal monitoring of one measure: `C` is `i32` for packets, `i64` for bytes.
pub struct UniversalSketch<K, C> {
    digester: Digester,
    levels: Box<[Level<K, C>]>,
    top: usize,
    sizes: &'static str,
    /// What the rows are samples of, once they are: the weight of all packets, and the variance of a
    /// flow's sampled weight over that weight.
    total: u64,
    unit: u64,
}

/// UnivMon, as the catalog has it.
///
/// Cost: a packet is in two levels on average, with a cache line for each row and a look at the
/// heap where its estimate passes the heap's least. Memory in bytes:
/// `rows × (columns of all levels) × size_of::<C>() + levels × top × (key + 28)`, the key and 20
/// rounded up to 8.
pub struct UnivMon;

impl Describe for UnivMon {
    const INFO: Info = Info {
        name: "univmon",
        idea: "nested Count Sketches with heaps: heavy keys, entropy, number of flows from one",
        paper: "UnivMon (SIGCOMM 2016), sections 4 and 5",
        parameters: &[
            Parameter {
                name: "levels",
                help: "number of levels, 1 to 16 (default 14); the deepest must have fewer flows \
                       than its top: about log2 (flows / top) levels",
            },
            Parameter { name: "rows", help: "rows of each level, 1 to 16 (default 5)" },
            Parameter {
                name: "columns",
                help: "columns of the first level, a power of two (default: 32768, or what fits \
                       into the memory)",
            },
            Parameter {
                name: "sizes",
                help: "halving: each of the next three levels has half of the columns, and the \
                       others as many as the last of them; or equal (default: halving)",
            },
            Parameter {
                name: "top",
                help: "heaviest keys that each level keeps, a power of two (default: 1024, or \
                       what a quarter of the memory holds)",
            },
            Parameter {
                name: "epsilon",
                help: "instead of columns: the error of a size as a share of the root of the sum \
                       of all sizes' squares; columns = 8 / epsilon^2, rounded up to a power of two",
            },
            Parameter { name: "delta", help: "instead of rows: the chance of a larger error" },
        ],
        memory: "rows x columns x (levels, or 1 + 1/2 + 1/4 + 1/8 for each further level) x (4 by \
                 packets, 8 by bytes) + levels x top x (key + 20, rounded up to 8, + 8)",
        // The heaps hold the heaviest keys whatever the order, but for keys of nearly equal size.
        forms: &[form![
            Size(Counted::Asked),
            Candidates,
            Cardinality,
            WeightLogs(Counted::Asked),
            Cells { sampled: false }
        ]],
        laws: Laws { commutable: true, aggregatable: true, sizes: true, rows: true, ..Laws::NONE },
    };

    fn build<K: FlowKey>(options: &Options) -> Result<Box<dyn Summary<K>>, BuildError> {
        Ok(match options.by {
            Measure::Packets => Box::new(UniversalSketch::<K, i32>::new(options)?),
            Measure::Bytes => Box::new(UniversalSketch::<K, i64>::new(options)?),
        })
    }
}

/// What a level does with its packets.
type Take<'a, K, C> = dyn FnMut(&mut Level<K, C>, &Selected<'_, K, <C as Cell>::Weight>) + 'a;

impl<K: FlowKey, C: Signed> UniversalSketch<K, C> {
    fn new(options: &Options) -> Result<Self, BuildError> {
        let parameters = &options.parameters;
        let levels = parameters.integer("levels", 1..=MOST_LEVELS as u64)?;
        let levels = levels.map_or(LEVELS, |levels| levels as usize);
        let per_key = levels * TopKeys::<K>::KEY_BYTES;
        let for_top = (options.memory_bytes / 4).min(MOST_TOP * per_key);
        let top = parameters.power_of_two("top", for_top, per_key)?;
        let rest = options.memory_bytes.saturating_sub(top.saturating_mul(per_key));
        // The levels' columns as eighths of the first one's.
        let sizes = parameters.word("sizes", SIZES)?;
        let eighths: usize = (0..levels).map(|level| columns_of(sizes, level, 1 << 8) >> 5).sum();
        // The tasks get the cells of the first level, and beside them what estimates need.
        let (first_eighths, task_bytes) = (1 << HALVINGS, options.task_bytes_per_cell);
        let bytes = eighths * size_of::<C>() + first_eighths * task_bytes;
        let rest = rest.saturating_sub(TAIL * task_bytes);
        let for_first = (rest / bytes).saturating_mul(first_eighths * size_of::<C>());
        let first = Targets::Median.shape(parameters, for_first, size_of::<C>(), FIRST)?;
        let level = |level| {
            let rows = Rows::new(first.rows(), columns_of(sizes, level, first.columns()));
            Level::new(rows, top, &options.memory)
        };
        let levels = (0..levels).map(level).collect::<Result<_, _>>()?;
        Ok(Self { digester: options.digester, levels, top, sizes, total: 0, unit: 0 })
    }

    /// The number of the deepest level that a key is in.
    #[inline(always)]
    fn depth(&self, digest: u64) -> usize {
        let deepest = 1 << (self.levels.len() - 1);
        (remix(digest, LEVELS_WORD) | deepest).trailing_zeros() as usize
    }

    /// Hands each level its packets of a batch.
    fn each_level(&mut self, batch: &Batch<K>, take: &mut Take<'_, K, C>) {
        let (keys, weights) = (batch.keys(), C::Weight::column(batch));
        let mut depths = [0; BATCH_PACKETS];
        for (depth, digest) in depths.iter_mut().zip(batch.digests()) {
            *depth = self.depth(*digest);
        }
        let mut rows: [u8; BATCH_PACKETS] = std::array::from_fn(|row| row as u8);
        let mut digests = [0; BATCH_PACKETS];
        digests[..keys.len()].copy_from_slice(batch.digests());
        let mut count = keys.len();
        // Level by level, since what a level does depends on no other.
        for (number, level) in self.levels.iter_mut().enumerate() {
            if number > 0 {
                let mut kept = 0;
                for i in 0..count {
                    let row = rows[i];
                    rows[kept] = row;
                    kept += usize::from(depths[usize::from(row)] >= number);
                }
                count = kept;
                for (digest, row) in digests.iter_mut().zip(&rows[..count]) {
                    *digest = level_digest(batch.digests()[usize::from(*row)], number);
                }
            }
            let selected = Selected { keys, weights, rows: &rows[..count], digests: &digests };
            take(level, &selected);
        }
    }

    fn estimate_of(&self, digest: u64) -> Estimate {
        let estimate = self.levels[0].bounded(digest, self.unit);
        if self.unit > 0 { estimate.within(self.total) } else { estimate }
    }

    fn size_of(estimate: Estimate) -> SizeEstimate {
        let estimate = Some(estimate);
        match C::Weight::MEASURE {
            Measure::Packets => SizeEstimate { packets: estimate, bytes: None },
            Measure::Bytes => SizeEstimate { packets: None, bytes: estimate },
        }
    }
}

/// What a key is known by in a level.
#[inline(always)]
fn level_digest(digest: u64, level: usize) -> u64 {
    if level == 0 { digest } else { remix(digest, LEVELS_WORD + level as u64) }
}

impl<K: FlowKey, C: Signed> Ingest<K> for UniversalSketch<K, C> {
    fn ingest(&mut self, batch: &mut Batch<K>) {
        batch.digest(&self.digester);
        with_rows!(self.levels[0].rows.rows(), D => {
            self.each_level(batch, &mut Level::ingest::<D>);
        });
    }

    fn wants_bytes(&self) -> bool {
        C::Weight::MEASURE == Measure::Bytes
    }
}

impl<K: FlowKey, C: Signed> Summary<K> for UniversalSketch<K, C> {
    fn answers(&self) -> &dyn Answers {
        self
    }

    fn merge(&mut self, other: &dyn Summary<K>) -> Result<(), Incompatible> {
        let other = twin(self, other, |summary| Basis::of(&summary.digester))?;
        for (level, other) in self.levels.iter_mut().zip(&other.levels) {
            level.merge(other);
        }
        // Both samples may be of the same places.
        self.total = self.total.saturating_add(other.total);
        self.unit = self.unit.saturating_add(other.unit);
        Ok(())
    }

    fn save(&self, out: &mut Writer) {
        self.levels.iter().for_each(|level| level.save(out));
    }

    fn load(&mut self, from: &mut Reader<'_>) -> Result<(), DecodeError> {
        for number in 0..self.levels.len() {
            let digester = self.digester;
            let deepest = self.levels.len() - 1;
            self.levels[number].load(from, |key| {
                let digest = key.digest(&digester);
                let zeros = remix(digest, LEVELS_WORD).trailing_zeros() as usize;
                (zeros.min(deepest) >= number).then(|| level_digest(digest, number))
            })?;
        }
        Ok(())
    }

    fn clear(&mut self) {
        self.levels.iter_mut().for_each(Level::clear);
        (self.total, self.unit) = (0, 0);
    }

    fn parameters(&self) -> Vec<(&'static str, Setting)> {
        vec![
            ("levels", Setting::Integer(self.levels.len() as u64)),
            ("rows", Setting::Integer(self.levels[0].rows.rows() as u64)),
            ("columns", Setting::Integer(self.levels[0].rows.columns() as u64)),
            ("sizes", Setting::Word(self.sizes)),
            ("top", Setting::Integer(self.top as u64)),
        ]
    }

    fn rows(&mut self) -> Option<&mut dyn RowIngest<K>> {
        Some(self)
    }

    fn memory_bytes(&self) -> usize {
        let cells: usize = self.levels.iter().map(|level| level.cells.memory_bytes()).sum();
        cells + self.levels.len() * self.top * TopKeys::<K>::KEY_BYTES
    }
}

impl<K: FlowKey, C: Signed> Answers for UniversalSketch<K, C> {
    fn saturated(&self) -> Size {
        let saturated = self.levels[0].saturated;
        match C::Weight::MEASURE {
            Measure::Packets => Size { packets: saturated, bytes: 0 },
            Measure::Bytes => Size { packets: 0, bytes: saturated },
        }
    }

    fn size(&self) -> Option<&dyn SizeQuery> {
        Some(self)
    }

    fn candidates(&self) -> Option<&dyn Candidates> {
        Some(self)
    }

    fn cardinality(&self) -> Option<Estimate> {
        self.sum(|_| 1.0)
    }

    fn weight_logs(&self, by: Measure) -> Option<Estimate> {
        if by == C::Weight::MEASURE { self.sum(|size| size * size.log2()) } else { None }
    }

    fn cells(&self) -> Option<&dyn Cells> {
        Some(self)
    }
}

impl<K: FlowKey, C: Signed> SizeQuery for UniversalSketch<K, C> {
    fn estimate(&self, key: &[u8]) -> SizeEstimate {
        let digest = K::matching(key, &self.digester).map(|key| key.digest(&self.digester));
        let size = |digest| Self::size_of(self.estimate_of(digest));
        digest.map_or(SizeEstimate::exact(Size::default()), size)
    }
}

/// The heavy keys of the first level.
impl<K: FlowKey, C: Signed> Candidates for UniversalSketch<K, C> {
    fn for_each(&self, visit: &mut dyn FnMut(CanonicalKey, SizeEstimate)) {
        let level = &self.levels[0];
        for (key, digest) in level.top.iter() {
            let (asked, noise) = (self.estimate_of(digest), level.noise(self.unit));
            let listed = noise.listed(asked, self.total, level.rows.rows());
            visit(key.to_canonical(&self.digester), Self::size_of(listed));
        }
    }

    /// A heap leaves out the lightest keys, and a heavy one only where too many collide with it.
    fn overflow(&self) -> u64 {
        self.levels[0].top.refused()
    }
}

/// The cells of the first level, then how far estimates from them are off, then the unit of the sample.
impl<K: FlowKey, C: Signed> Cells for UniversalSketch<K, C> {
    fn measure(&self) -> Measure {
        C::Weight::MEASURE
    }

    fn len(&self) -> usize {
        self.levels[0].cells.len() + TAIL
    }

    fn sampled(&self) -> bool {
        self.unit > 0
    }

    fn read(&self, cells: &mut [f64]) {
        for (out, cell) in cells.iter_mut().zip(self.levels[0].cells.iter()) {
            *out = cell.real();
        }
        let tail = self.levels[0].cells.len();
        cells[tail] = 0.0;
        cells[tail + 1] = self.unit as f64;
    }

    fn seal(&self, cells: &mut [f64]) {
        let tail = self.levels[0].cells.len();
        cells[tail] = level::margin(self.levels[0].rows, |place| cells[place]);
    }

    fn estimate(&self, cells: &[f64], key: &[u8]) -> Estimate {
        let level = &self.levels[0];
        let Some(key) = K::matching(key, &self.digester) else { return Estimate::exact(0) };
        let value = median_of(level.rows, key.digest(&self.digester), |place| cells[place]);
        let tail = level.cells.len();
        let noise = level::noise(cells[tail], cells[tail + 1].max(0.0));
        let (low, high) = noise.bounds(value);
        Estimate { value, low, high, confidence: Some(level.confidence()) }
    }
}
