//! TwoLevel: the addresses that speak with many others, found by their counters.
//!
//! Paper: Zhou et al., "Accelerating network measurement in software" (CCR 2018), section 4.1, after
//! OpenSketch's superspreaders (NSDI 2013). The first level is a reversible sketch of packets, the
//! second a Count-Min sketch whose cells are bitmaps, in which each packet sets the bit of its
//! element (whom the address speaks with). Here the bitmaps hang by the same columns, shortened, so
//! that what makes a column heavy is known before any key is: over `spread` packets in its counter
//! and over `spread` elements in its bitmap. The packets of a talker with one peer hide nobody.

use std::marker::PhantomData;

use flowgauge_kernel::{Digester, Zeroed, prefetch};

use super::super::basis::{Basis, twin};
use super::super::codec::{DecodeError, Reader, Writer};
use super::super::{
    Answers, BuildError, BuildErrorKind, Counter, Describe, Incompatible, Info, Ingest, Laws,
    Memory, Merge, Options, Parameter, Setting, Summary,
};
use super::cell::Unsigned;
use super::modular::{Mangled, Modular, load_counters};
use super::reversible_shape::{self, DELTA, EPSILON};
use crate::batch::{BATCH_PACKETS, Batch};
use crate::key::FlowKey;
use crate::summary::Counted;
use crate::summary::forms::form;

const NAME: &str = "two-level";

/// Counters for each bitmap of a row, unless asked otherwise.
const COUNTERS_PER_BITMAP: usize = 4;

/// A bitmap can be asked to have as many bits.
const MOST_BITS: u64 = 1 << 16;

/// Counters of packets and bitmaps of elements, both in rows by modular hashing.
pub(super) struct SpreadRows<K> {
    pub(super) digester: Digester,
    pub(super) modular: Modular,
    /// Row by row.
    pub(super) counters: Zeroed<u32>,
    /// Row by row; a row begins with a word.
    words: Zeroed<u64>,
    /// Bitmaps of a row.
    pub(super) bitmaps: usize,
    pub(super) bits: usize,
    pub(super) spread: u64,
    pub(super) total: u64,
    pub(super) saturated: u64,
    key: PhantomData<K>,
}

/// The two-level sketch, as the catalog has it.
///
/// A bitmap of m bits tells up to m ln m elements, with a standard error of 5 % at m/2; a full one
/// says "at least". Spreaders are recovered when they are asked for, as in a [`ReversibleSketch`],
/// about w × 2^(−32/5) of them at most (w × 2^(−64/9) of 64-bit keys).
///
/// Cost: the look-ups of its hashing of words, a counter and a bit a row. Memory in
/// bytes: `(rows + verify) × (columns × 4 + ⌈bitmaps × bits / 64⌉ × 8)`, and the tables of its hashing of words.
///
/// [`ReversibleSketch`]: super::ReversibleSketch
pub struct TwoLevel;

impl Describe for TwoLevel {
    const INFO: Info = Info {
        name: NAME,
        idea: "reversible sketch with bitmaps of distinct peers, which lists spreaders",
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
        reversible_shape::fits(options, NAME)
    }

    fn build<K: FlowKey>(options: &Options) -> Result<Box<dyn Summary<K>>, BuildError> {
        if const { !reversible_shape::recovers::<K>() } {
            return Err(reversible_shape::too_long(options.digester.key_bytes(), NAME));
        }
        let parameters = &options.parameters;
        let [rows, verify] = reversible_shape::rows::<K>(parameters)?;
        let enough = options.spread.clamp(128, MOST_BITS / 2).next_power_of_two() * 2;
        let bits = parameters.integer("bits", 8..=MOST_BITS)?.unwrap_or(enough) as usize;
        let all_rows = rows + verify;
        let counter = all_rows * size_of::<u32>();
        let (columns, bitmaps) = if parameters.get("bitmaps").is_some() {
            let bitmaps = parameters.power_of_two("bitmaps", usize::MAX, 1)?;
            let taken = all_rows * (bitmaps * bits).div_ceil(8);
            let rest = options.memory_bytes.saturating_sub(taken);
            (reversible_shape::columns::<K>(parameters, rest, rows, counter)?, bitmaps)
        } else {
            let bitmap = (all_rows * bits).div_ceil(8 * COUNTERS_PER_BITMAP);
            let columns = reversible_shape::columns::<K>(
                parameters,
                options.memory_bytes,
                rows,
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

/// The sizes of a [`TwoLevel`].
#[derive(Clone, Copy)]
struct Shape {
    /// Rows by modular hashing, of both levels.
    rows: usize,
    /// Rows by the digest, of both levels.
    verify: usize,
    /// Counters of a row, a power of two.
    columns: usize,
    /// Bitmaps of a row, a power of two up to the columns.
    bitmaps: usize,
    /// Bits of a bitmap.
    bits: usize,
}

impl<K: FlowKey> SpreadRows<K> {
    /// Reserves both levels, for addresses with more than `spread` elements.
    fn new(
        shape: Shape,
        spread: u64,
        digester: Digester,
        memory: &Memory,
    ) -> Result<Self, BuildError> {
        let Shape { rows, verify, columns, bitmaps, bits } = shape;
        Ok(Self {
            digester,
            modular: Modular::new::<K>(rows, verify, columns, &digester, memory)?,
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

    /// The columns that share a bitmap differ in these lowest bits.
    pub(super) fn bitmap_shift(&self) -> u32 {
        self.modular.columns().ilog2() - self.bitmaps.ilog2()
    }

    fn row_words(&self) -> usize {
        self.words.len() / self.modular.all_rows()
    }

    /// Bits of a bitmap that are 0.
    pub(super) fn zeros(&self, row: usize, bitmap: usize) -> usize {
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
    /// Row by row, as a reversible sketch does. Counters may be `FULL`, or surely are not.
    fn count<const FULL: bool>(&mut self, batch: &Batch<K>, mangled: &Mangled) {
        let (shift, bits) = (self.bitmap_shift(), self.bits);
        // Which bit of a bitmap is an element's, and then which of a row.
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
        // No counter holds more than all packets.
        if self.total < u64::from(u32::MAX) {
            self.count::<false>(batch, &mangled);
        } else {
            self.count::<true>(batch, &mangled);
        }
    }

    fn wants_elements(&self) -> bool {
        true
    }

    fn wants_bytes(&self) -> bool {
        false
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

    /// Bits that no bitmap has, at the end of a row, are ignored.
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
