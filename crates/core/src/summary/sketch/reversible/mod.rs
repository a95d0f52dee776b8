//! Reversible sketch: a K-ary sketch that can name its heavy keys.
//!
//! Paper: Schweller et al., "Reversible sketches: enabling monitoring and analysis over high-speed
//! data streams" (ToN 2007). Columns come from modular hashing, so that the keys of heavy columns
//! can be recovered from the counters alone; the sketch stores no keys. Further rows, indexed by
//! the digest, verify recovered keys, as the paper suggests.
//!
//! Rows and columns are given as such, or by the wanted error. Errors are those of Count-Min, whose
//! bounds hold for any rows of random columns (Cormode and Muthukrishnan, J. Algorithms 2005, §3):
//! with e/ε columns and ln 1/δ rows, the smallest counter of a key is off by more than ε of the
//! total weight with a chance of at most δ.

mod answers;
mod hashing;
mod search;

use std::marker::PhantomData;

use flowgauge_kernel::{Digester, Zeroed, prefetch};

use super::rows::{Cell, Unsigned};
use crate::batch::{BATCH_PACKETS, Batch};
use crate::key::FlowKey;
use crate::summary::codec::{DecodeError, Reader, Writer};
use crate::summary::describe::form;
use crate::summary::ingest::{Basis, twin};
use crate::summary::{
    Answers, BuildError, BuildErrorKind, Counted, Describe, Incompatible, Info, Ingest, Laws,
    Merge, Options, Parameter, Parameters, Reads, Setting, Summary,
};
use crate::terms::{Measure, Threshold};
use hashing::{BYTES, MOST_COLUMNS, MOST_ROWS, MOST_VERIFY, false_keys, window};
pub(super) use hashing::{FEW_FALSE, Mangled, Modular, load_counters};
pub(super) use search::{Heaviest, recover};

const NAME: &str = "reversible-sketch";

/// A reversible sketch of `u32` counters for packets or `u64` counters for bytes.
///
/// An estimate is the median over the rows of (C − N/w) / (1 − 1/w), and at most the smallest
/// counter. Keys over the threshold are recovered on demand, in at most a second and some 300 KB of
/// temporary memory. Recovered are the heaviest, about w × 2^(−32/5) of either sign with the
/// default rows (776 with 65536 columns; for 64-bit keys w × 2^(−64/9), or 474). Beyond that, a
/// sketch of this size cannot tell keys from chance.
///
/// Cost: the digest, the table look-ups of modular hashing, and a counter per row. Memory in bytes:
/// `(rows + verify) × columns × size_of::<C>()`, and the tables of modular hashing.
///
/// ```
/// use flowgauge_core::batch::Batch;
/// use flowgauge_core::catalog;
/// use flowgauge_core::key::{FlowKey, Key8};
/// use flowgauge_core::summary::Options;
///
/// let options = Options::new(1 << 20, 1).for_keys(4);
/// let mut sketch = catalog::build::<Key8>("reversible-sketch", &options).unwrap();
/// let mut batch = Batch::new();
/// for _ in 0..100 {
///     batch.push(Key8::from_canonical(&[192, 0, 2, 1]).unwrap(), 1500, 0);
/// }
/// sketch.ingest(&mut batch);
/// // The sketch stores no key: this one is recovered from the counters.
/// let mut heavy = Vec::new();
/// sketch.answers().candidates().unwrap().for_each(&mut |key, _| heavy.push(key));
/// assert!(heavy.iter().any(|key| key.as_bytes() == [192, 0, 2, 1]));
/// ```
pub struct ReversibleSketch;

impl Describe for ReversibleSketch {
    const INFO: Info = Info {
        name: NAME,
        idea: "K-ary sketch with modular hashing, which recovers heavy keys from its counters",
        paper: "Schweller et al., Reversible sketches (ToN 2007), sections III and IV",
        parameters: &[
            Parameter {
                name: "rows",
                help: "rows with modular hashing, from which keys are recovered: 4 (the default) \
                       to 8 for keys of 4 bytes, 8 for keys of 8 bytes",
            },
            Parameter {
                name: "verify",
                help: "rows indexed by the digest, which verify recovered keys, 0 to 4 (default: 1)",
            },
            Parameter {
                name: "columns",
                help: "counters in a row, a power of two up to 1048576, enough to recover few \
                       wrong keys (default: what fits into the memory)",
            },
            EPSILON,
            DELTA,
        ],
        memory: "(rows + verify) x columns x (4 by packets, 8 by bytes) + rows x 256 x (4 for keys \
                 of 4 bytes; for keys of 8 bytes 2, or 3 with over 65536 columns)",
        forms: &[form![Size(Counted::Asked), Candidates, Cells { sampled: false }]],
        laws: Laws {
            commutable: true,
            aggregatable: true,
            sizes: true,
            merge: Merge::Equal,
            ..Laws::NONE
        },
    };

    fn fits(options: &Options) -> Result<(), BuildError> {
        fits(options, NAME)
    }

    fn build<K: FlowKey>(options: &Options) -> Result<Box<dyn Summary<K>>, BuildError> {
        if const { !recovers::<K>() } {
            return Err(too_long(options.digester.key_bytes(), NAME));
        }
        Ok(match options.by {
            Measure::Packets => Box::new(ReversibleRows::<K, u32>::from_options(options)?),
            Measure::Bytes => Box::new(ReversibleRows::<K, u64>::from_options(options)?),
        })
    }
}

/// A reversible sketch: `C` is `u32` for packets, `u64` for bytes. Keys have 4 or 8 bytes; longer
/// ones cannot be recovered.
struct ReversibleRows<K, C> {
    digester: Digester,
    modular: Modular,
    /// Row by row: first the rows with modular hashing, then those indexed by the digest.
    counters: Zeroed<C>,
    threshold: Threshold,
    total: u64,
    saturated: u64,
    key: PhantomData<K>,
}

impl<K: FlowKey, C: Unsigned> ReversibleRows<K, C> {
    fn from_options(options: &Options) -> Result<Self, BuildError> {
        let (parameters, memory_bytes) = (&options.parameters, options.memory_bytes);
        let words = options.digester.key_bytes();
        let [rows, verify] = rows(parameters, words)?;
        // Besides the cells, the tasks get the total and the noise.
        let memory_bytes = memory_bytes.saturating_sub(2 * options.task_bytes_per_cell);
        let column_bytes = (rows + verify) * (size_of::<C>() + options.task_bytes_per_cell);
        let columns = columns(parameters, memory_bytes, rows, words, column_bytes)?;
        let shape = [rows, verify];
        check(parameters, shape, words, columns, column_bytes, memory_bytes)?;
        let (digester, memory) = (options.digester, &options.memory);
        Ok(Self {
            digester,
            modular: Modular::new(rows, verify, columns, &digester, memory)?,
            counters: memory.zeroed((rows + verify) * columns)?,
            threshold: options.threshold,
            total: 0,
            saturated: 0,
            key: PhantomData,
        })
    }

    /// The index of a key's counter in each row.
    fn places(&self, key: &K) -> impl Iterator<Item = usize> {
        self.modular.places(key, &self.digester)
    }

    /// Counts a batch row by row. The tables of one row stay in the first-level cache, and its
    /// counters are prefetched while the columns of the batch are computed. The counters may be
    /// `FULL`.
    fn count<const FULL: bool>(&mut self, batch: &Batch<K>, mangled: &Mangled) {
        let (weights, mut columns) = (C::column(batch), [0; BATCH_PACKETS]);
        for (row, counters) in self.counters.chunks_exact_mut(self.modular.columns()).enumerate() {
            self.modular.columns_of(row, batch, mangled, |i, column| {
                prefetch(counters, column as usize);
                columns[i % BATCH_PACKETS] = column;
            });
            for (&column, &weight) in columns.iter().zip(weights) {
                let lost = counters[column as usize].raise::<FULL>(weight);
                if FULL {
                    self.saturated = self.saturated.saturating_add(lost);
                }
            }
        }
    }
}

impl<K: FlowKey, C: Unsigned> Ingest<K> for ReversibleRows<K, C> {
    fn ingest(&mut self, batch: &mut Batch<K>) {
        let mut mangled = [[0; 8]; BATCH_PACKETS];
        self.modular.prepare(batch, &self.digester, &mut mangled);
        self.total = self.total.saturating_add(C::sum(C::column(batch)));
        // No counter exceeds the weight of all packets.
        if self.total < <C as Cell>::MOST {
            self.count::<false>(batch, &mangled);
        } else {
            self.count::<true>(batch, &mangled);
        }
    }

    fn reads(&self) -> Reads {
        Reads::sizes(C::MEASURE)
    }
}

impl<K: FlowKey, C: Unsigned> Summary<K> for ReversibleRows<K, C> {
    fn answers(&self) -> &dyn Answers {
        self
    }

    fn merge(&mut self, other: &dyn Summary<K>) -> Result<(), Incompatible> {
        let other = twin(self, other, |summary| Basis::of(&summary.digester))?;
        for (counter, other) in self.counters.iter_mut().zip(other.counters.iter()) {
            self.saturated = self.saturated.saturating_add(counter.add(*other));
        }
        self.saturated = self.saturated.saturating_add(other.saturated);
        self.total = self.total.saturating_add(other.total);
        Ok(())
    }

    fn save(&self, out: &mut Writer) {
        out.number(self.total);
        out.number(self.saturated);
        out.numbers(&self.counters);
    }

    fn load(&mut self, from: &mut Reader<'_>) -> Result<(), DecodeError> {
        self.total = from.number("total")?;
        self.saturated = from.number("saturated")?;
        load_counters(from, &mut self.counters, self.total)
    }

    fn clear(&mut self) {
        self.counters.fill(C::zeroed());
        self.total = 0;
        self.saturated = 0;
    }

    fn parameters(&self) -> Vec<(&'static str, Setting)> {
        vec![
            ("rows", Setting::Integer(self.modular.rows as u64)),
            ("verify", Setting::Integer(self.modular.verify as u64)),
            ("columns", Setting::Integer(self.modular.columns() as u64)),
        ]
    }

    fn memory_bytes(&self) -> usize {
        self.modular.memory_bytes() + self.counters.memory_bytes()
    }
}

/// The parameter for the wanted error of a size.
pub(super) const EPSILON: Parameter = Parameter {
    name: "epsilon",
    help: "instead of columns: the error of a size as a share of the total weight; columns = e / \
           epsilon, rounded up to a power of two",
};

/// The parameter for the chance of a larger error.
pub(super) const DELTA: Parameter = Parameter {
    name: "delta",
    help: "instead of rows and verify: the probability of a larger error; rows + verify = ln (1 \
           / delta), rounded up, at least the default",
};

/// Longest key that can be recovered, in bytes.
const MOST_BYTES: usize = 8;

/// Whether keys of type `K` can be recovered; for others no code is compiled.
pub(crate) const fn recovers<K: FlowKey>() -> bool {
    K::BYTES <= MOST_BYTES
}

/// Fails if keys of these options cannot be recovered.
pub(super) fn fits(options: &Options, algorithm: &'static str) -> Result<(), BuildError> {
    let bytes = options.digester.key_bytes();
    if bytes <= MOST_BYTES { Ok(()) } else { Err(too_long(bytes, algorithm)) }
}

/// The error for keys that are too long.
pub(super) fn too_long(bytes: usize, algorithm: &'static str) -> BuildError {
    let reason = format!(
        "keys of {bytes} bytes are too long to be recovered from columns; keys of 4 or 8 bytes can \
         be: one or two IPv4 addresses, a protocol or a port; use a table, such as linear-table, \
         for others"
    );
    BuildErrorKind::Unfit { algorithm, reason }.into()
}

/// The number of rows with modular hashing and of rows indexed by the digest. The default is the
/// fewest rows from which keys of `words` bytes can be recovered, and one row by the digest. Of a
/// 64-bit key, each of the eight pairs of neighbouring words has a row; a ninth would repeat one of
/// them.
pub(super) fn rows(parameters: &Parameters, words: usize) -> Result<[usize; 2], BuildError> {
    let fewest = if words == 4 { 4 } else { MOST_ROWS };
    parameters.exclusive("delta", &["rows", "verify"])?;
    if let Some(delta) = parameters.fraction("delta")? {
        let all_rows = (1.0 / delta).ln().ceil() as usize;
        if all_rows > MOST_ROWS + MOST_VERIFY {
            let most = MOST_ROWS + MOST_VERIFY;
            return Err(out_of_range(parameters, "delta", format!("large enough for {most} rows")));
        }
        // Rows by the digest cost less, and tell true keys from false ones.
        let verify = all_rows.saturating_sub(fewest).clamp(1, MOST_VERIFY);
        return Ok([fewest.max(all_rows.saturating_sub(verify)), verify]);
    }
    let rows = parameters.integer("rows", fewest as u64..=MOST_ROWS as u64)?;
    let verify = parameters.integer("verify", 0..=MOST_VERIFY as u64)?.unwrap_or(1);
    Ok([rows.map_or(fewest, |rows| rows as usize), verify as usize])
}

/// The number of columns by the parameters, or else as many as fit into `memory_bytes` at
/// `column_bytes` each, beside the tables of `rows` rows.
pub(super) fn columns(
    parameters: &Parameters,
    memory_bytes: usize,
    rows: usize,
    words: usize,
    column_bytes: usize,
) -> Result<usize, BuildError> {
    parameters.exclusive("epsilon", &["columns"])?;
    if let Some(epsilon) = parameters.fraction("epsilon")? {
        let columns = (std::f64::consts::E / epsilon).ceil();
        if columns > MOST_COLUMNS as f64 {
            let range = format!("large enough for {MOST_COLUMNS} columns");
            return Err(out_of_range(parameters, "epsilon", range));
        }
        return Ok((columns as usize).next_power_of_two());
    }
    let tables = table_bytes(rows, words);
    let rest = memory_bytes.saturating_sub(tables).min(MOST_COLUMNS * column_bytes);
    let columns = parameters.power_of_two("columns", rest, column_bytes)?;
    if columns > MOST_COLUMNS {
        let range = format!("a power of two from 2 to {MOST_COLUMNS}");
        return Err(out_of_range(parameters, "columns", range));
    }
    Ok(columns)
}

/// Bytes of the tables of `rows` rows with the largest number of columns.
fn table_bytes(rows: usize, words: usize) -> usize {
    rows * window(words, MOST_COLUMNS.ilog2()) * BYTES
}

/// Fails if there are so few columns that a heavy key brings more than one false key on average.
pub(super) fn check(
    parameters: &Parameters,
    rows: [usize; 2],
    words: usize,
    columns: usize,
    column_bytes: usize,
    memory_bytes: usize,
) -> Result<(), BuildError> {
    let mut fewest = columns;
    while false_keys(words, rows, fewest) > 1.0 && fewest < MOST_COLUMNS {
        fewest *= 2;
    }
    if fewest == columns {
        return Ok(());
    }
    match ["columns", "epsilon"].into_iter().find(|name| parameters.get(name).is_some()) {
        Some(name) => {
            let more = format!(
                "enough: fewer than {fewest} columns recover more wrong keys than right ones"
            );
            Err(out_of_range(parameters, name, more))
        }
        None => Err(BuildErrorKind::TooLittleMemory {
            needed: table_bytes(rows[0], words) + fewest * column_bytes,
            given: memory_bytes,
        }
        .into()),
    }
}

fn out_of_range(parameters: &Parameters, name: &'static str, range: String) -> BuildError {
    let value = parameters.get(name).unwrap_or_default().to_owned();
    BuildErrorKind::OutOfRange { name, value, range }.into()
}
