//! UnivMon: nested levels of Count Sketches with their heavy keys, for any sum over the flows.
//!
//! Paper: Liu, Manousis, Vorsanger, Sekar, Braverman, "One sketch to rule them all: rethinking
//! network flow monitoring with UnivMon" (SIGCOMM 2016), §4 and §5. Half of the flows of a level
//! are in the next one too, each level keeps the heaviest of its keys, and Σ g(f) over all flows
//! follows from those by a recursion from the deepest level.
//!
//! Here a packet is counted once, at the *depth* of its key, the deepest level that the key is in. Count
//! Sketches are linear: with columns and signs that all depths share, a level's sketch is the sum of
//! those of its depth and of the deeper ones, and its heaviest keys are among theirs. A key's own depth
//! tells its size alone, without the noise of the other flows of the level.

mod grids;
mod ingest;
mod samples;
mod sum;

use flowgauge_kernel::Digester;

use super::super::basis::{Basis, twin};
use super::super::codec::{DecodeError, Reader, Writer};
use super::super::{
    Answers, BuildError, BuildErrorKind, Candidates, Cells, Counter, Describe, Estimate,
    Incompatible, Info, Ingest, Laws, LevelIngest, MOST_LEVELS, Options, Parameter, RowIngest,
    Setting, SizeEstimate, SizeQuery, Summary,
};
use super::cell::Signed;
use super::rows::{Rows, Targets};
use super::top_keys::TopKeys;
use crate::batch::Batch;
use crate::key::{CanonicalKey, FlowKey};
use crate::summary::Counted;
use crate::summary::forms::form;
use crate::terms::{Measure, Size};
use grids::{Grids, Shape};
use ingest::estimate;
use samples::Samples;

/// Levels, unless asked otherwise: with 1024 keys each for 8 million flows.
const LEVELS: usize = 14;

/// Depth 0, unless asked otherwise or the memory is small: a size is off by more than 1.7 % of L2 with a
/// chance of 1 % at most.
const FIRST: Rows = Rows::of(5, 15);

/// Keys that a depth keeps, unless asked otherwise or the memory is small.
const MOST_TOP: usize = 1 << 10;

/// The columns halve until an eighth is reached, as in the four levels of the Agg-Evict paper.
const HALVINGS: usize = 3;

/// How the columns of the depths go on from the first one's.
const SIZES: &[&str] = &["halving", "equal"];

/// Columns of a depth.
fn columns_of(sizes: &str, depth: usize, columns: usize) -> usize {
    let halvings = if sizes == SIZES[0] { depth.min(HALVINGS) } else { 0 };
    (columns >> halvings).max(1)
}

/// Universal monitoring of one measure: `C` is `i32` for packets, `i64` for bytes.
pub struct UniversalSketch<K, C> {
    digester: Digester,
    grids: Grids<C>,
    /// The heaviest keys of each depth.
    tops: Box<[TopKeys<K>]>,
    top: usize,
    sizes: &'static str,
    samples: Samples,
}

/// UnivMon, as the catalog has it.
///
/// Cost: a cache line for each row and two multiplies a packet, and a look at a heap, another one where
/// the estimate passes the heap's least. Memory in bytes:
/// `rows × (columns of all depths) × size_of::<C>() + levels × top × (key + 28)`, the key and 20
/// rounded up to 8.
pub struct UnivMon;

impl Describe for UnivMon {
    const INFO: Info = Info {
        name: "univmon",
        idea: "nested Count Sketches with heaps, for heavy keys, entropy and the number of flows",
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
                help: "columns for keys of only the first level, a power of two (default: 32768, \
                       or what fits into the memory)",
            },
            Parameter {
                name: "sizes",
                help: "columns of deeper levels: halving (each of the next three levels has half \
                       of the columns, the others as many as the last of these) or equal \
                       (default: halving)",
            },
            Parameter {
                name: "top",
                help: "heaviest keys to keep of each level, a power of two (default: 1024, or \
                       what a quarter of the memory holds)",
            },
            Parameter {
                name: "epsilon",
                help: "instead of columns: the error of a size as a share of L2, the square root \
                       of the sum of squared sizes; columns = 8 / epsilon^2, rounded up to a \
                       power of two",
            },
            Parameter { name: "delta", help: "instead of rows: the probability of a larger error" },
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
        laws: Laws {
            commutable: true,
            aggregatable: true,
            sizes: true,
            rows: true,
            levels: true,
            ..Laws::NONE
        },
    };

    fn build<K: FlowKey>(options: &Options) -> Result<Box<dyn Summary<K>>, BuildError> {
        Ok(match options.by {
            Measure::Packets => Box::new(UniversalSketch::<K, i32>::new(options)?),
            Measure::Bytes => Box::new(UniversalSketch::<K, i64>::new(options)?),
        })
    }
}

impl<K: FlowKey, C: Signed> UniversalSketch<K, C> {
    fn new(options: &Options) -> Result<Self, BuildError> {
        let parameters = &options.parameters;
        let levels = parameters.integer("levels", 1..=MOST_LEVELS as u64)?;
        let levels = levels.map_or(LEVELS, |levels| levels as usize);
        let per_key = levels * TopKeys::<K>::KEY_BYTES;
        let for_top = (options.memory_bytes / 4).min(MOST_TOP * per_key);
        let top = parameters.power_of_two("top", for_top, per_key)?;
        let rest = options.memory_bytes.saturating_sub(top.saturating_mul(per_key));
        // The depths' columns as eighths of the first one's.
        let sizes = parameters.word("sizes", SIZES)?;
        let eighths: usize = (0..levels).map(|depth| columns_of(sizes, depth, 1 << 8) >> 5).sum();
        // The tasks get all cells, and beside them what estimates need.
        let cell_bytes = size_of::<C>() + options.task_bytes_per_cell;
        let rest = rest.saturating_sub((levels + 1) * options.task_bytes_per_cell);
        let for_first = (rest / (eighths * cell_bytes)).saturating_mul(cell_bytes << HALVINGS);
        let first = Targets::Median.shape(parameters, for_first, cell_bytes, FIRST)?;
        let columns = |depth| columns_of(sizes, depth, first.columns());
        let shape =
            Shape::new(first, levels, columns).ok_or_else(|| BuildErrorKind::OutOfRange {
                name: "columns",
                value: first.columns().to_string(),
                range: "small enough to number all cells with 32 bits".to_owned(),
            })?;
        Ok(Self {
            digester: options.digester,
            grids: Grids::new(shape, &options.memory)?,
            tops: (0..levels)
                .map(|_| TopKeys::new(top, &options.memory))
                .collect::<Result<_, _>>()?,
            top,
            sizes,
            samples: Samples::default(),
        })
    }

    fn estimate_of(&self, digest: u64) -> Estimate {
        let (grids, depth) = (&self.grids, self.grids.shape.depth(digest));
        let unit = self.samples.depth(depth).most as f64;
        let (noise, confidence) = (grids.noise(depth), grids.shape.confidence());
        let estimate = self.samples.bounds(grids.size(digest), noise, unit, confidence);
        let (low, high) = (estimate.low.max(0.0), estimate.high + grids.saturated as f64);
        self.samples.within(Estimate { low, high, ..estimate })
    }

    fn size_of(estimate: Estimate) -> SizeEstimate {
        let estimate = Some(estimate);
        match C::Weight::MEASURE {
            Measure::Packets => SizeEstimate { packets: estimate, bytes: None },
            Measure::Bytes => SizeEstimate { packets: None, bytes: estimate },
        }
    }
}

impl<K: FlowKey, C: Signed> Ingest<K> for UniversalSketch<K, C> {
    fn ingest(&mut self, batch: &mut Batch<K>) {
        batch.digest(&self.digester);
        self.take(batch);
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
        self.grids.merge(&other.grids);
        let Grids { shape, cells, .. } = &self.grids;
        for (top, other) in self.tops.iter_mut().zip(&other.tops) {
            top.merge(other, |digest| estimate(shape, cells, digest));
        }
        self.samples.merge(&other.samples);
        Ok(())
    }

    fn save(&self, out: &mut Writer) {
        self.grids.save(out);
        self.tops.iter().for_each(|top| top.save(out));
    }

    fn load(&mut self, from: &mut Reader<'_>) -> Result<(), DecodeError> {
        self.grids.load(from)?;
        let (digester, shape) = (self.digester, self.grids.shape);
        for (depth, top) in self.tops.iter_mut().enumerate() {
            top.load(from, |key| {
                Some(key.digest(&digester)).filter(|digest| shape.depth(*digest) == depth)
            })?;
        }
        Ok(())
    }

    fn clear(&mut self) {
        self.grids.clear();
        self.tops.iter_mut().for_each(TopKeys::clear);
        self.samples = Samples::default();
    }

    fn parameters(&self) -> Vec<(&'static str, Setting)> {
        let first = self.grids.shape.first;
        vec![
            ("levels", Setting::Integer(self.tops.len() as u64)),
            ("rows", Setting::Integer(first.rows() as u64)),
            ("columns", Setting::Integer(first.columns() as u64)),
            ("sizes", Setting::Word(self.sizes)),
            ("top", Setting::Integer(self.top as u64)),
        ]
    }

    fn rows(&mut self) -> Option<&mut dyn RowIngest<K>> {
        Some(self)
    }

    fn levels(&mut self) -> Option<&mut dyn LevelIngest<K>> {
        Some(self)
    }

    fn memory_bytes(&self) -> usize {
        self.grids.cells.memory_bytes() + self.tops.len() * self.top * TopKeys::<K>::KEY_BYTES
    }
}

impl<K: FlowKey, C: Signed> Answers for UniversalSketch<K, C> {
    fn saturated(&self) -> Size {
        let saturated = self.grids.saturated;
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
        self.sum(&|_| 1.0)
    }

    fn weight_logs(&self, by: Measure) -> Option<Estimate> {
        if by == C::Weight::MEASURE { self.sum(&|size| size * size.log2()) } else { None }
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

/// The heavy keys of all depths.
impl<K: FlowKey, C: Signed> Candidates for UniversalSketch<K, C> {
    fn for_each(&self, visit: &mut dyn FnMut(CanonicalKey, SizeEstimate)) {
        let rows = self.grids.shape.first.rows();
        let keys = self.cardinality().map_or(f64::INFINITY, |keys| keys.high);
        for (depth, top) in self.tops.iter().enumerate() {
            let noise = self.grids.noise(depth);
            let digests = top.iter().map(|(_, digest)| digest);
            let list = (!self.samples.is_sample()).then(|| self.grids.list(depth, digests, keys));
            for (key, digest) in top.iter() {
                let asked = self.estimate_of(digest);
                let listed = match &list {
                    None => self.samples.listed(asked, noise, depth, rows),
                    Some(list) => {
                        let over = list.over(asked.value) + self.grids.saturated as f64;
                        Estimate { low: asked.low.min((asked.value - over).max(0.0)), ..asked }
                    }
                };
                visit(key.to_canonical(&self.digester), Self::size_of(listed));
            }
        }
    }

    /// A heap leaves out the lightest keys, and a heavy one only where too many collide with it.
    fn overflow(&self) -> u64 {
        self.tops.iter().map(TopKeys::refused).fold(0, u64::saturating_add)
    }
}

/// All cells, then how far estimates from them are off at each depth, then the largest unit of a sample.
impl<K: FlowKey, C: Signed> Cells for UniversalSketch<K, C> {
    fn measure(&self) -> Measure {
        C::Weight::MEASURE
    }

    fn len(&self) -> usize {
        self.grids.cells.len() + self.tops.len() + 1
    }

    fn sampled(&self) -> bool {
        self.samples.is_sample()
    }

    fn read(&self, cells: &mut [f64]) {
        for (out, cell) in cells.iter_mut().zip(self.grids.cells.iter()) {
            *out = cell.real();
        }
        let margins = self.grids.cells.len();
        cells[margins..].fill(0.0);
        cells[margins + self.tops.len()] = self.samples.unit() as f64;
    }

    fn seal(&self, cells: &mut [f64]) {
        let (cells, tail) = cells.split_at_mut(self.grids.cells.len());
        for (depth, margin) in tail[..self.tops.len()].iter_mut().enumerate() {
            *margin = self.grids.shape.margin(depth, |place| cells[place]);
        }
    }

    fn estimate(&self, cells: &[f64], key: &[u8]) -> Estimate {
        let Some(key) = K::matching(key, &self.digester) else { return Estimate::exact(0) };
        let (shape, digest) = (&self.grids.shape, key.digest(&self.digester));
        let (cells, tail) = cells.split_at(self.grids.cells.len());
        let depth = shape.depth(digest);
        let value = shape.value(digest, depth, |place| cells[place]);
        let (noise, unit) = (grids::noise(tail[depth]), tail[self.tops.len()].max(0.0));
        self.samples.bounds(value, noise, unit, shape.confidence())
    }
}
