//! Two-level sketch: finds superspreaders by their counters.
//!
//! Paper: Zhou et al., "Accelerating network measurement in software" (CCR 2018), §4.1, after
//! OpenSketch's superspreaders (NSDI 2013). The first level is a reversible sketch of packets. The
//! second is a Count-Min sketch with bitmaps for cells, in which each packet sets the bit of its
//! element (the peer of the address). Here the bitmaps use the same columns, shortened, so that a
//! column is known to be heavy before any key is: its counter has over `spread` packets and its
//! bitmap over `spread` elements. So an address with many packets to one peer hides no
//! superspreader.

use std::marker::PhantomData;

use flowgauge_kernel::{Digester, Zeroed, prefetch};

use super::reversible::{
    self, DELTA, EPSILON, FEW_FALSE, Heaviest, Mangled, Modular, load_counters,
};
use super::rows::Unsigned;
use crate::batch::{BATCH_PACKETS, Batch};
use crate::key::{CanonicalKey, FlowKey};
use crate::summary::codec::{DecodeError, Reader, Writer};
use crate::summary::describe::form;
use crate::summary::ingest::{Basis, twin};
use crate::summary::{
    Answers, BuildError, BuildErrorKind, Counted, Counter, Describe, Estimate, Incompatible, Info,
    Ingest, Laws, Memory, Merge, Options, Parameter, Reads, Setting, SizeEstimate, SizeQuery,
    Spread, Summary,
};
use crate::terms::Size;

const NAME: &str = "two-level";

/// Default number of counters per bitmap.
const COUNTERS_PER_BITMAP: usize = 4;

/// Largest number of bits of a bitmap.
const MOST_BITS: u64 = 1 << 16;

/// Width of the bounds in standard errors.
const DEVIATIONS: f64 = 3.0;

/// The chance that a normal variable exceeds its mean by as many.
const BEYOND: f64 = 0.001_35;

/// A two-level sketch, which lists superspreaders and counts packets.
///
/// A bitmap of m bits counts up to m ln m elements, with a standard error of 5 % at m/2; a full one
/// gives a lower bound. Superspreaders are recovered on demand, as in a [`ReversibleSketch`]: at
/// most about w × 2^(−32/5), or w × 2^(−64/9) for 64-bit keys.
///
/// Cost: the table look-ups of modular hashing, and a counter and a bit per row. Memory in bytes:
/// `(rows + verify) × (columns × 4 + ⌈bitmaps × bits / 64⌉ × 8)`, and the tables of modular
/// hashing.
///
/// [`ReversibleSketch`]: super::ReversibleSketch
///
/// ```
/// use flowgauge_core::batch::Batch;
/// use flowgauge_core::catalog;
/// use flowgauge_core::key::{FlowKey, Key8};
/// use flowgauge_core::summary::Options;
///
/// let options = Options::new(1 << 20, 1).for_keys(4);
/// let mut sketch = catalog::build::<Key8>("two-level", &options).unwrap();
/// let scanner = Key8::from_canonical(&[192, 0, 2, 1]).unwrap();
/// let mut batch = Batch::new();
/// for peer in 0..200_u64 {
///     batch.push_with_element(scanner, 64, 0, peer.wrapping_mul(0x9e37_79b9_7f4a_7c15));
/// }
/// sketch.ingest(&mut batch);
/// let mut found = Vec::new();
/// sketch.answers().spread().unwrap().for_each(&mut |key, _| found.push(key));
/// assert!(found.iter().any(|key| key.as_bytes() == [192, 0, 2, 1]));
/// ```
pub struct TwoLevel;

impl Describe for TwoLevel {
    const INFO: Info = Info {
        name: NAME,
        idea: "reversible sketch with bitmaps of distinct peers, which lists superspreaders",
        paper: "Agg-Evict (CCR 2018), section 4.1; OpenSketch (NSDI 2013)",
        parameters: &[
            Parameter {
                name: "rows",
                help: "rows of each level with modular hashing, from which keys are recovered: 4 \
                       (the default) to 8 for keys of 4 bytes, 8 for keys of 8 bytes",
            },
            Parameter {
                name: "verify",
                help: "rows of each level indexed by the digest, which verify recovered keys, 0 \
                       to 4 (default: 1)",
            },
            Parameter {
                name: "columns",
                help: "counters in a row, a power of two up to 1048576 (default: what fits into \
                       the memory)",
            },
            Parameter {
                name: "bitmaps",
                help: "bitmaps in a row, a power of two, at most columns (default: a quarter of \
                       columns)",
            },
            Parameter {
                name: "bits",
                help: "bits of a bitmap, 8 to 65536 (default: at least twice the spread, at \
                       least 256)",
            },
            EPSILON,
            DELTA,
        ],
        memory: "(rows + verify) x (columns x 4 + bitmaps x bits / 8) + rows x 256 x (4 for keys of 4 bytes; \
                 for keys of 8 bytes 2, or 3 with over 65536 columns)",
        forms: &[form![Size(Counted::Packets), Spread]],
        laws: Laws { commutable: true, aggregatable: true, merge: Merge::Equal, ..Laws::NONE },
    };

    fn fits(options: &Options) -> Result<(), BuildError> {
        reversible::fits(options, NAME)
    }

    fn build<K: FlowKey>(options: &Options) -> Result<Box<dyn Summary<K>>, BuildError> {
        if const { !reversible::recovers::<K>() } {
            return Err(reversible::too_long(options.digester.key_bytes(), NAME));
        }
        let (parameters, words) = (&options.parameters, options.digester.key_bytes());
        let [rows, verify] = reversible::rows(parameters, words)?;
        let enough = options.spread.clamp(128, MOST_BITS / 2).next_power_of_two() * 2;
        let bits = parameters.integer("bits", 8..=MOST_BITS)?.unwrap_or(enough) as usize;
        let all_rows = rows + verify;
        let counter = all_rows * size_of::<u32>();
        let (columns, bitmaps) = if parameters.get("bitmaps").is_some() {
            let bitmaps = parameters.power_of_two("bitmaps", usize::MAX, 1)?;
            let taken = all_rows * (bitmaps * bits).div_ceil(8);
            let rest = options.memory_bytes.saturating_sub(taken);
            (reversible::columns(parameters, rest, rows, words, counter)?, bitmaps)
        } else {
            let bitmap = (all_rows * bits).div_ceil(8 * COUNTERS_PER_BITMAP);
            let columns = reversible::columns(
                parameters,
                options.memory_bytes,
                rows,
                words,
                counter + bitmap,
            )?;
            (columns, (columns / COUNTERS_PER_BITMAP).max(2))
        };
        if bitmaps > columns {
            return Err(BuildErrorKind::OutOfRange {
                name: "bitmaps",
                value: bitmaps.to_string(),
                range: format!("a power of two up to the {columns} columns"),
            }
            .into());
        }
        let shape = Shape { rows, verify, columns, bitmaps, bits };
        let (digester, memory) = (options.digester, &options.memory);
        Ok(Box::new(SpreadRows::<K>::new(shape, options.spread, digester, memory)?))
    }
}

/// A two-level sketch: counters of packets and bitmaps of elements, in the same rows.
struct SpreadRows<K> {
    digester: Digester,
    modular: Modular,
    /// Row by row.
    counters: Zeroed<u32>,
    /// The bitmaps, row by row; a row begins with a new word.
    words: Zeroed<u64>,
    /// Number of bitmaps in a row.
    bitmaps: usize,
    bits: usize,
    spread: u64,
    total: u64,
    saturated: u64,
    key: PhantomData<K>,
}

/// The shape of a two-level sketch.
#[derive(Clone, Copy)]
struct Shape {
    /// Rows with modular hashing.
    rows: usize,
    /// Rows indexed by the digest.
    verify: usize,
    /// Counters of a row, a power of two.
    columns: usize,
    /// Bitmaps of a row, a power of two up to the columns.
    bitmaps: usize,
    /// Bits of a bitmap.
    bits: usize,
}

impl<K: FlowKey> SpreadRows<K> {
    /// Reserves both levels, to find addresses with more than `spread` elements.
    fn new(
        shape: Shape,
        spread: u64,
        digester: Digester,
        memory: &Memory,
    ) -> Result<Self, BuildError> {
        let Shape { rows, verify, columns, bitmaps, bits } = shape;
        Ok(Self {
            digester,
            modular: Modular::new(rows, verify, columns, &digester, memory)?,
            counters: memory.zeroed((rows + verify) * columns)?,
            words: memory.zeroed((rows + verify) * (bitmaps * bits).div_ceil(64))?,
            bitmaps,
            bits,
            spread,
            total: 0,
            saturated: 0,
            key: PhantomData,
        })
    }

    /// Number of low bits of a column that its bitmap ignores.
    fn bitmap_shift(&self) -> u32 {
        self.modular.columns().ilog2() - self.bitmaps.ilog2()
    }

    fn row_words(&self) -> usize {
        self.words.len() / self.modular.all_rows()
    }

    /// Number of zero bits of a bitmap.
    fn zeros(&self, row: usize, bitmap: usize) -> usize {
        let row = &self.words[row * self.row_words()..];
        let (mut at, end) = (bitmap * self.bits, (bitmap + 1) * self.bits);
        let mut ones = 0;
        while at < end {
            let count = (64 - at % 64).min(end - at);
            ones += (row[at / 64] >> (at % 64) & (u64::MAX >> (64 - count))).count_ones();
            at += count;
        }
        self.bits - ones as usize
    }
}

impl<K: FlowKey> SpreadRows<K> {
    /// Counts a batch row by row, as a reversible sketch does. The counters may be `FULL`.
    fn count<const FULL: bool>(&mut self, batch: &Batch<K>, mangled: &Mangled) {
        let (shift, bits) = (self.bitmap_shift(), self.bits);
        // The bit of each element in its bitmap, then in its row.
        let (mut bit_of, mut places) = ([0; BATCH_PACKETS], [0; BATCH_PACKETS]);
        for (bit, element) in bit_of.iter_mut().zip(batch.elements()) {
            *bit = ((u128::from(*element) * bits as u128) >> 64) as usize;
        }
        let (mut columns, row_words) = ([0; BATCH_PACKETS], self.row_words());
        let counters = self.counters.chunks_exact_mut(self.modular.columns());
        let rows = counters.zip(self.words.chunks_exact_mut(row_words));
        for (row, (counters, words)) in rows.enumerate() {
            self.modular.columns_of(row, batch, mangled, |i, column| {
                let place = (column >> shift) as usize * bits + bit_of[i % BATCH_PACKETS];
                prefetch(counters, column as usize);
                prefetch(words, place / 64);
                columns[i % BATCH_PACKETS] = column;
                places[i % BATCH_PACKETS] = place;
            });
            for ((&column, place), &packets) in columns.iter().zip(&places).zip(batch.packets()) {
                let lost = counters[column as usize].raise::<FULL>(packets);
                if FULL {
                    self.saturated = self.saturated.saturating_add(lost);
                }
                words[place / 64] |= 1 << (place % 64);
            }
        }
    }
}

impl<K: FlowKey> Ingest<K> for SpreadRows<K> {
    fn ingest(&mut self, batch: &mut Batch<K>) {
        let mut mangled = [[0; 8]; BATCH_PACKETS];
        self.modular.prepare(batch, &self.digester, &mut mangled);
        self.total = self.total.saturating_add(u32::sum(batch.packets()));
        // No counter exceeds the number of all packets.
        if self.total < u64::from(u32::MAX) {
            self.count::<false>(batch, &mangled);
        } else {
            self.count::<true>(batch, &mangled);
        }
    }

    fn reads(&self) -> Reads {
        Reads { elements: true, ..Reads::NOTHING }
    }
}

impl<K: FlowKey> Summary<K> for SpreadRows<K> {
    fn answers(&self) -> &dyn Answers {
        self
    }

    fn merge(&mut self, other: &dyn Summary<K>) -> Result<(), Incompatible> {
        let other = twin(self, other, |summary| Basis::of(&summary.digester))?;
        for (counter, other) in self.counters.iter_mut().zip(other.counters.iter()) {
            self.saturated = self.saturated.saturating_add(counter.add(*other));
        }
        self.words.iter_mut().zip(other.words.iter()).for_each(|(word, other)| *word |= other);
        self.saturated = self.saturated.saturating_add(other.saturated);
        self.total = self.total.saturating_add(other.total);
        Ok(())
    }

    fn save(&self, out: &mut Writer) {
        out.number(self.total);
        out.number(self.saturated);
        out.numbers(&self.counters);
        out.numbers(&self.words);
    }

    /// Bits after the last bitmap of a row are ignored.
    fn load(&mut self, from: &mut Reader<'_>) -> Result<(), DecodeError> {
        self.total = from.number("total")?;
        self.saturated = from.number("saturated")?;
        load_counters(from, &mut self.counters, self.total)?;
        from.numbers("bitmaps", &mut self.words)
    }

    fn clear(&mut self) {
        self.counters.fill(0);
        self.words.fill(0);
        self.total = 0;
        self.saturated = 0;
    }

    fn parameters(&self) -> Vec<(&'static str, Setting)> {
        let [rows, verify, columns] = self.modular.shape();
        let sizes = [
            ("rows", rows),
            ("verify", verify),
            ("columns", columns),
            ("bitmaps", self.bitmaps),
            ("bits", self.bits),
        ];
        sizes.map(|(name, value)| (name, Setting::Integer(value as u64))).to_vec()
    }

    fn memory_bytes(&self) -> usize {
        self.modular.memory_bytes() + self.counters.memory_bytes() + self.words.memory_bytes()
    }
}

impl<K: FlowKey> SpreadRows<K> {
    /// The distinct count of a bitmap by linear counting: m ln(m/z) for m bits with z zeros. A full
    /// bitmap is counted as if it had one zero, which is a lower bound.
    fn elements(&self, row: usize, bitmap: usize) -> f64 {
        let bits = self.bits as f64;
        bits * (bits / self.zeros(row, bitmap).max(1) as f64).ln()
    }

    /// Whether a bitmap counts more than the threshold, or is full.
    fn may_spread(&self, row: usize, bitmap: usize) -> bool {
        self.elements(row, bitmap) > self.spread as f64 || self.zeros(row, bitmap) == 0
    }

    /// The mean count of the bitmaps of the first row: what other addresses add to an address's
    /// elements.
    fn mean_elements(&self) -> f64 {
        let elements: f64 = (0..self.bitmaps).map(|bitmap| self.elements(0, bitmap)).sum();
        elements / self.bitmaps as f64
    }

    fn places(&self, key: &K) -> impl Iterator<Item = usize> {
        self.modular.places(key, &self.digester)
    }

    /// The row and index of each bitmap of a key.
    fn bitmaps_of(&self, key: &K) -> impl Iterator<Item = (usize, usize)> {
        let columns = self.modular.columns();
        let shift = self.bitmap_shift();
        self.places(key).map(move |place| (place / columns, (place % columns) >> shift))
    }

    /// The smallest counter of a key.
    fn packets(&self, key: &K) -> u64 {
        self.places(key).map(|place| u64::from(self.counters[place])).min().unwrap_or(0)
    }

    /// The distinct count of an address: the smallest of its bitmaps, and at most its packets.
    /// Other addresses in its bitmaps add e times the mean in all rows with a chance of e⁻ʳᵒʷˢ. In
    /// addition, linear counting errs by √(m (eᵗ − t − 1)), with t elements per bit. A full bitmap
    /// gives no upper bound but the packets.
    fn distinct(&self, key: &K, mean_elements: f64) -> Estimate {
        let packets = self.packets(key);
        let full = self.bitmaps_of(key).all(|(row, bitmap)| self.zeros(row, bitmap) == 0);
        let elements = self.bitmaps_of(key).map(|(row, bitmap)| self.elements(row, bitmap));
        let value = elements.fold(packets as f64, f64::min);
        let bits = self.bits as f64;
        let filled = value / bits;
        let error = DEVIATIONS * (bits * (filled.exp_m1() - filled).max(0.0)).sqrt();
        let most = packets.saturating_add(self.saturated) as f64;
        let others = std::f64::consts::E * mean_elements;
        let (below, high) = if full { (others, most) } else { (others + error, value + error) };
        let rows = self.modular.all_rows() as f64;
        Estimate {
            value,
            low: (value - below).max(0.0),
            high: high.clamp(value, most),
            confidence: Some(1.0 - f64::exp(-rows) - (rows + 1.0) * BEYOND),
        }
    }

    /// The columns of a row that a superspreader may have, with the elements of their bitmaps.
    fn heavy_columns(&self, row: usize) -> impl Iterator<Item = (usize, f64)> {
        let columns = self.modular.columns();
        let bitmaps = (0..self.bitmaps).filter(move |bitmap| self.may_spread(row, *bitmap));
        bitmaps.flat_map(move |bitmap| {
            let elements = self.elements(row, bitmap);
            let first = bitmap << self.bitmap_shift();
            let own = first..first + (1 << self.bitmap_shift());
            let heavy = move |column: &usize| {
                u64::from(self.counters[row * columns + column]) > self.spread
            };
            own.filter(heavy).map(move |column| (column, elements))
        })
    }

    /// The expected number of recovered addresses without a packet.
    fn false_keys(&self) -> f64 {
        let rows = self.modular.all_rows();
        let heavy: usize = (0..rows).map(|row| self.heavy_columns(row).count()).sum();
        self.modular.keys_within(heavy as f64 / (rows * self.modular.columns()) as f64)
    }

    /// Visits the addresses that may be superspreaders by all rows. Returns the number of columns
    /// that the fullest row left out, plus one if the search was given up.
    fn recover(&self, visit: &mut dyn FnMut(K)) -> u64 {
        let heavy_columns = |row: usize, heaviest: &mut Heaviest| {
            for (column, elements) in self.heavy_columns(row) {
                heaviest.push(elements, column);
            }
        };
        reversible::recover(&self.modular, heavy_columns, &mut |key| {
            if self.packets(&key) > self.spread
                && self.bitmaps_of(&key).all(|(row, bitmap)| self.may_spread(row, bitmap))
            {
                visit(key);
            }
        })
    }
}

impl<K: FlowKey> Answers for SpreadRows<K> {
    fn saturated(&self) -> Size {
        Size { packets: self.saturated, bytes: 0 }
    }
    fn size(&self) -> Option<&dyn SizeQuery> {
        Some(self)
    }
    fn spread(&self) -> Option<&dyn Spread> {
        Some(self)
    }
}

/// Packets by the first level, with Count-Min's bounds. Bytes are not counted.
impl<K: FlowKey> SizeQuery for SpreadRows<K> {
    fn estimate(&self, key: &[u8]) -> SizeEstimate {
        let Some(key) = K::matching(key, &self.digester) else { return SizeEstimate::default() };
        let least = self.packets(&key);
        let excess = std::f64::consts::E * self.total as f64 / self.modular.columns() as f64;
        let value = least as f64;
        let packets = Estimate {
            value,
            low: (value - excess).max(0.0),
            high: least.saturating_add(self.saturated) as f64,
            confidence: Some(1.0 - f64::exp(-(self.modular.all_rows() as f64))),
        };
        SizeEstimate { packets: Some(packets), bytes: None }
    }
}

/// Recovers the addresses from counters and bitmaps at each call.
impl<K: FlowKey> Spread for SpreadRows<K> {
    fn for_each(&self, visit: &mut dyn FnMut(CanonicalKey, Estimate)) {
        let mean_elements = self.mean_elements();
        let may_be_false = self.false_keys() > FEW_FALSE;
        self.recover(&mut |key| {
            let distinct = self.distinct(&key, mean_elements);
            let low = if may_be_false { 0.0 } else { distinct.low };
            visit(key.to_canonical(&self.digester), Estimate { low, ..distinct });
        });
    }

    /// Columns beyond the number that can be told from chance.
    fn overflow(&self) -> u64 {
        self.recover(&mut |_| ())
    }
}
