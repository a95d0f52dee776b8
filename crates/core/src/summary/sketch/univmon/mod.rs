//! UnivMon: nested levels of Count Sketches with their heavy keys, for any sum over the flows.
//!
//! Paper: Liu, Manousis, Vorsanger, Sekar, Braverman, "One sketch to rule them all: rethinking
//! network flow monitoring with UnivMon" (SIGCOMM 2016), §4 and §5. Half of the flows of a level
//! are in the next one, too. Each level keeps the heaviest of its keys, and Σ g(f) over all flows
//! follows from these by a recursion from the deepest level.
//!
//! Here a packet is counted once, at the *depth* of its key, the deepest level that the key is in.
//! Count Sketches are linear: with columns and signs common to all depths, a level's sketch is the
//! sum of the sketches of its depth and of the deeper ones, and its heaviest keys are among theirs.
//! A key's size is read at its own depth alone, without the noise of the other flows of a level.

mod answers;
mod grids;
mod top_keys;
mod trials;

use flowgauge_kernel::{Digester, prefetch};

use super::rows::{MOST_ROWS, Rows, Signed, Targets, ask_first, signs, with_rows};
use crate::batch::{BATCH_PACKETS, Batch};
use crate::key::FlowKey;
use crate::summary::codec::{DecodeError, Reader, Writer};
use crate::summary::describe::form;
use crate::summary::ingest::{Basis, twin};
use crate::summary::{
    Answers, BuildError, BuildErrorKind, Counted, Counter, Describe, Incompatible, Info, Ingest,
    Laws, LevelIngest, LevelSample, MOST_LEVELS, Options, Parameter, Reads, RowIngest, Setting,
    Summary,
};
use crate::terms::Measure;
use answers::Samples;
use grids::{Grids, Shape};
use top_keys::TopKeys;

/// Default number of levels: with 1024 keys each, for 8 million flows.
const LEVELS: usize = 14;

/// Default shape of depth 0: with a chance of 99 %, a size is off by at most 1.7 % of L2.
const FIRST: Rows = Rows::of(5, 15);

/// Default number of keys per depth.
const MOST_TOP: usize = 1 << 10;

/// The columns halve this many times, to an eighth, as in the four levels of the Agg-Evict paper.
const HALVINGS: usize = 3;

/// How the number of columns depends on the depth.
const SIZES: &[&str] = &["halving", "equal"];

/// The number of columns of a depth.
fn columns_of(sizes: &str, depth: usize, columns: usize) -> usize {
    let halvings = if sizes == SIZES[0] { depth.min(HALVINGS) } else { 0 };
    (columns >> halvings).max(1)
}

/// A UnivMon of one measure: `C` is `i32` for packets, `i64` for bytes.
pub struct UniversalSketch<K, C> {
    digester: Digester,
    grids: Grids<C>,
    /// The heaviest keys of each depth.
    tops: Box<[TopKeys<K>]>,
    top: usize,
    sizes: &'static str,
    samples: Samples,
}

/// A UnivMon of packets or bytes.
///
/// Cost: a cache line per row and two multiplies per packet, and a look at a heap; a second one if
/// the estimate exceeds the smallest of the heap. Memory in bytes: `rows × (columns of all depths)
/// × size_of::<C>() + levels × top × (key + 28)`, with the key and 20 rounded up to 8.
///
/// ```
/// use flowgauge_core::batch::Batch;
/// use flowgauge_core::catalog;
/// use flowgauge_core::key::{FlowKey, Key8};
/// use flowgauge_core::summary::Options;
///
/// let options = Options::new(4 << 20, 1).for_keys(4);
/// let mut univmon = catalog::build::<Key8>("univmon", &options).unwrap();
/// let mut batch = Batch::new();
/// for packet in 0..200 {
///     batch.push(Key8::from_canonical(&[10, 0, 0, packet % 50]).unwrap(), 64, 0);
/// }
/// univmon.ingest(&mut batch);
/// assert_eq!(univmon.answers().cardinality().unwrap().value, 50.0);
/// ```
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
        // The heaps hold the heaviest keys in any order of packets, but for keys of nearly equal
        // size.
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

/// The sizes of a UnivMon.
struct Plan {
    shape: Shape,
    /// Heavy keys of each depth.
    top: usize,
    /// How the number of columns depends on the depth.
    sizes: &'static str,
}

impl Plan {
    /// The sizes by the parameters, or what fits into the memory, for a cell of `cell_bytes` bytes
    /// and `key_bytes` bytes for each heavy key.
    #[inline(never)]
    fn new(options: &Options, key_bytes: usize, cell_bytes: usize) -> Result<Self, BuildError> {
        let parameters = &options.parameters;
        let levels = parameters.integer("levels", 1..=MOST_LEVELS as u64)?;
        let levels = levels.map_or(LEVELS, |levels| levels as usize);
        let per_key = levels * key_bytes;
        let for_top = (options.memory_bytes / 4).min(MOST_TOP * per_key);
        let top = parameters.power_of_two("top", for_top, per_key)?;
        let rest = options.memory_bytes.saturating_sub(top.saturating_mul(per_key));
        // The columns of all depths, in eighths of the first one's.
        let sizes = parameters.word("sizes", SIZES)?;
        let eighths: usize = (0..levels).map(|depth| columns_of(sizes, depth, 1 << 8) >> 5).sum();
        // Besides the cells, the tasks get what estimates need.
        let cell_bytes = cell_bytes + options.task_bytes_per_cell;
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
        Ok(Self { shape, top, sizes })
    }
}

impl<K: FlowKey, C: Signed> UniversalSketch<K, C> {
    fn new(options: &Options) -> Result<Self, BuildError> {
        let Plan { shape, top, sizes } =
            Plan::new(options, TopKeys::<K>::KEY_BYTES, size_of::<C>())?;
        Ok(Self {
            digester: options.digester,
            grids: Grids::new(shape, &options.memory)?,
            tops: (0..shape.levels)
                .map(|_| TopKeys::new(top, &options.memory))
                .collect::<Result<_, _>>()?,
            top,
            sizes,
            samples: Samples::default(),
        })
    }
}

impl<K: FlowKey, C: Signed> Ingest<K> for UniversalSketch<K, C> {
    fn ingest(&mut self, batch: &mut Batch<K>) {
        batch.digest(&self.digester);
        self.take(batch);
    }

    fn reads(&self) -> Reads {
        Reads::sizes(C::Weight::MEASURE)
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

/// Distance in packets between a prefetch and its use.
const PREFETCH_AHEAD: usize = 12;

/// The median of integers; of an even number of values, the midpoint of the middle two.
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

/// The estimate by which heaps order keys.
#[inline]
fn estimate<C: Signed>(shape: &Shape, cells: &[C], digest: u64) -> i64 {
    let (signs, places) = (signs(digest), shape.places(digest, shape.depth(digest)));
    let mut values = [0; MOST_ROWS];
    for (row, value) in values.iter_mut().enumerate().take(shape.first.rows()) {
        *value = cells[places[row]].signed(sign(signs, row));
    }
    middle(&mut values[..shape.first.rows()])
}

/// The bars that the packets of a batch must pass to be admitted to a heap.
struct Bars {
    /// The value that an estimate must exceed at each depth.
    least: [i64; MOST_LEVELS],
    /// Number of rows of each packet that must exceed it.
    enough: [u8; BATCH_PACKETS],
}

/// The packets of a batch, as the cells count them.
struct Updates<'a, W> {
    digests: &'a [u64],
    depths: &'a [u8; BATCH_PACKETS],
    weights: &'a [W],
}

/// Called with the cells, the index of a packet, and its estimate, which passes the bar.
type Admit<'a, C> = dyn FnMut(&[C], usize, i64, &mut Bars) + 'a;

impl<C: Signed> Grids<C> {
    /// Counts packets in `D` rows, whose cells may be `FULL`.
    #[inline(never)]
    fn count<const D: usize, const FULL: bool>(
        &mut self,
        updates: &Updates<'_, C::Weight>,
        bars: &mut Bars,
        admit: &mut Admit<'_, C>,
    ) {
        let (shape, cells) = (&self.shape, &mut self.cells[..]);
        let (count, mut places) = (shape.first.count::<D>(), [[0; BATCH_PACKETS]; D]);
        shape.place_batch(updates.digests, updates.depths, &mut places[..count]);
        ask_first(cells, &places[..count], PREFETCH_AHEAD);
        // In a register: in memory, each packet would wait for the store of the one before.
        let mut saturated = self.saturated;
        for (i, (&digest, &weight)) in updates.digests.iter().zip(updates.weights).enumerate() {
            if i + PREFETCH_AHEAD < BATCH_PACKETS {
                for places in &places[..count] {
                    prefetch(cells, places[i + PREFETCH_AHEAD] as usize);
                }
            }
            let signs = signs(digest);
            let depth = usize::from(updates.depths[i]) % MOST_LEVELS;
            let (mut values, mut over) = ([0; D], 0u8);
            for row in 0..count {
                let (cell, sign) = (&mut cells[places[row][i] as usize], sign(signs, row));
                let lost = cell.add_signed::<FULL>(weight, sign);
                if FULL {
                    saturated = u64::saturating_add(saturated, lost);
                }
                values[row] = cell.signed(sign);
                over += u8::from(values[row] > bars.least[depth]);
            }
            // The median can exceed the bar only if enough rows do.
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
    /// Counts a batch, and admits its keys to the heaps.
    fn take(&mut self, batch: &Batch<K>) {
        let (keys, digests, weights) = (batch.keys(), batch.digests(), C::Weight::column(batch));
        let (shape, tops) = (self.grids.shape, &mut self.tops);
        let mut depths = [0; BATCH_PACKETS];
        for (depth, digest) in depths.iter_mut().zip(digests) {
            *depth = shape.depth(*digest) as u8;
        }
        // Keys in a heap need nothing more, and they are known before their estimates are. That
        // leaves one rare branch; a branch at every heavy packet would be mispredicted too often.
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
        let updates = Updates { digests, depths: &depths, weights };
        if self.grids.may_fill(C::Weight::sum(weights)) {
            self.grids.count::<MOST_ROWS, true>(&updates, &mut bars, admit);
        } else {
            with_rows!(shape.first.rows(), D => {
                self.grids.count::<D, false>(&updates, &mut bars, admit);
            });
        }
    }

    /// Counts each packet in one row, and admits its key to a heap.
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
            let lost = cell.add_signed::<FULL>(weights[i], sign);
            if FULL {
                saturated = u64::saturating_add(saturated, lost);
            }
            // Always written, but kept only if it counts: a branch would be mispredicted too often.
            over[found % BATCH_PACKETS] = i as u8;
            found += usize::from(cell.signed(sign) > least[shape.depth(digest)]);
        }
        self.grids.saturated = saturated;
        // A row above the smallest of the heap is only a hint: the estimate from all rows decides.
        // Most keys are in the heap already and need no estimate.
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
        if self.grids.may_fill(C::Weight::sum(C::Weight::column(batch))) {
            self.count_rows::<true>(batch, rows);
        } else {
            self.count_rows::<false>(batch, rows);
        }
    }

    fn sampled_from(&mut self, total: u64, unit: u64) {
        self.samples = Samples::of_rows(total, unit);
        self.grids.forget();
    }

    fn squared_l2(&self) -> f64 {
        self.grids.squared_l2(0..self.tops.len())
    }
}

impl<K: FlowKey, C: Signed> LevelIngest<K> for UniversalSketch<K, C> {
    fn levels(&self) -> usize {
        self.tops.len()
    }

    /// The level of a key is its depth, the only one that counts it.
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
        self.grids.forget();
    }
}
