//! What the row sketches have in common: Count-Min, Count Sketch, K-ary and their kin.
//!
//! - This module: the cells and signs of a key in rows of columns, and how a shape follows from
//!   targets.
//! - [`cell`]: counters, with and without sign.
//! - [`grid`]: the cells with their totals, and the rule by which a sketch fills and reads them.
//! - [`sketch`]: a grid with the heavy keys beside it, as a summary.
//! - [`bounds`]: the errors of estimates.
//! - [`peeled`]: the cells without the heaviest listed keys, for the errors of listed ones.
//!
//! A sketch of d rows of 2ᵇ columns needs d·b bits of a key. Up to 64 bits are slices of the digest
//! itself, row 0 at its low end: 4 rows of 65536 columns cost no multiply beyond the digest's own.
//! Beyond 64 bits, each used-up word is followed by a word mixed from it. Signs are the low bits of
//! another word.

mod bounds;
mod cell;
mod grid;
mod peeled;
mod sketch;

use std::ops::Range;

use flowgauge_kernel::{prefetch, scalar};

use crate::batch::BATCH_PACKETS;
use crate::summary::remix::remix;
use crate::summary::{BuildError, BuildErrorKind, Parameters, Setting};

pub(crate) use bounds::{Counts, Listed, Noise, UPPER, seldom_exceeded, seldom_short};
pub(crate) use cell::{Cell, Signed, Unsigned, join_all, load_cells, save_cells};
pub(crate) use grid::{Grid, Limit, Linear, Rule, Weight};
pub(crate) use peeled::{MOST_WEIGHT, Peeled, Peeling};
pub(crate) use sketch::{
    L2_PARAMETERS, MEMORY, RowSketch, TOTAL_PARAMETERS, build, build_concurrent, info,
};

/// Largest number of rows.
pub(crate) const MOST_ROWS: usize = 16;

/// Largest number of cells: their indices have 32 bits.
const MOST_CELLS: usize = 1 << 32;

/// Words mixed from a digest: for further columns, and for the signs. Structures on top of a sketch
/// that need bits independent of both use smaller word numbers.
const COLUMNS_WORD: u64 = 16;
const SIGNS_WORD: u64 = 17;

/// Confidence of the bounds of a sketch with any number of rows, at least.
pub(crate) const CONFIDENCE: f64 = 0.95;

/// Evaluates `$body` with `$rows` as the constant `$D`, so that its loops over the rows unroll.
/// From 9 rows on, `$D` is [`MOST_ROWS`], and [`Rows::count`] gives the actual number.
macro_rules! with_rows {
    ($rows:expr, $D:ident => $body:expr) => {
        with_rows!(@ $rows, $D => $body, 1 2 3 4 5 6 7 8)
    };
    (@ $rows:expr, $D:ident => $body:expr, $($n:literal)*) => {
        match $rows {
            $($n => { const $D: usize = $n; $body })*
            _ => { const $D: usize = $crate::summary::sketch::rows::MOST_ROWS; $body }
        }
    };
}
pub(crate) use with_rows;

/// Prefetches the cells of the first `ahead` keys of a batch. Not inlined: unrolled, it would be
/// the larger part of each loop over packets.
#[inline(never)]
pub(crate) fn ask_first<C>(cells: &[C], places: &[[u32; BATCH_PACKETS]], ahead: usize) {
    for place in places.iter().flat_map(|places| &places[..ahead]) {
        prefetch(cells, *place as usize);
    }
}

/// Rows of columns, a power of two, stored row by row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rows {
    rows: usize,
    /// Base-two logarithm of the columns.
    bits: u32,
}

impl Rows {
    /// 1 to [`MOST_ROWS`] rows of `columns` columns, a power of two; up to 2³² cells.
    pub(crate) fn new(rows: usize, columns: usize) -> Self {
        debug_assert!((1..=MOST_ROWS).contains(&rows) && columns.is_power_of_two());
        Self { rows, bits: columns.ilog2() }
    }

    /// `rows` rows of 2 to the power of `bits` columns.
    pub(crate) const fn of(rows: usize, bits: u32) -> Self {
        Self { rows, bits }
    }

    pub(crate) fn rows(self) -> usize {
        self.rows
    }

    pub(crate) fn columns(self) -> usize {
        1 << self.bits
    }

    /// Number of cells.
    pub(crate) fn cells(self) -> usize {
        self.rows << self.bits
    }

    /// The number of rows: the constant `D`, or the field from 9 rows on.
    #[inline(always)]
    pub(crate) fn count<const D: usize>(self) -> usize {
        if D < MOST_ROWS { D } else { self.rows }
    }

    /// The cells of a key, one per row; entries beyond the last row are 0.
    #[inline(always)]
    pub(crate) fn places<const D: usize>(self, digest: u64) -> [usize; D] {
        let mut places = [0; D];
        let (mut word, mut shift) = (digest, 0);
        for (row, place) in places.iter_mut().enumerate().take(self.count::<D>()) {
            if shift + self.bits > u64::BITS {
                (word, shift) = (remix(word, COLUMNS_WORD), 0);
            }
            *place = self.cell(row, word >> shift) as usize;
            shift += self.bits;
        }
        places
    }

    /// The cell of a key in one row.
    #[inline(always)]
    pub(crate) fn place(self, digest: u64, row: usize) -> usize {
        let (mut word, mut shift) = (digest, row as u32 * self.bits);
        if shift + self.bits > u64::BITS {
            let in_word = u64::BITS / self.bits;
            for _ in 0..row as u32 / in_word {
                word = remix(word, COLUMNS_WORD);
            }
            shift = row as u32 % in_word * self.bits;
        }
        self.cell(row, word >> shift) as usize
    }

    /// Writes the cells of many keys in the first rows: `places[row][i]` is the cell of
    /// `digests[i]`. It goes row by row, so that the loops are simple enough to be vectorized and
    /// one function serves any number of rows.
    #[inline(never)]
    pub(crate) fn place_batch(self, digests: &[u64], places: &mut [[u32; BATCH_PACKETS]]) {
        let mut words = [0; BATCH_PACKETS];
        let words = &mut words[..digests.len()];
        words.copy_from_slice(digests);
        let mut shift = 0;
        for (row, places) in places.iter_mut().enumerate() {
            if shift + self.bits > u64::BITS {
                for word in words.iter_mut() {
                    *word = remix(scalar::read_alone(word), COLUMNS_WORD);
                }
                shift = 0;
            }
            for (place, word) in places.iter_mut().zip(words.iter()) {
                *place = self.cell(row, word >> shift);
            }
            shift += self.bits;
        }
    }

    /// The cell of `row` in the column that the low bits of `word` select.
    #[inline(always)]
    fn cell(self, row: usize, word: u64) -> u32 {
        ((row as u64) << self.bits | word & ((1 << self.bits) - 1)) as u32
    }
}

/// The cells that a flow's weight goes to, one per row, each with whether the weight is subtracted
/// there; for estimates outside of this program, such as in a database that holds the cells.
/// `parameters` are those in force.
///
/// Returns `None` unless the algorithm is `count-min`, `count-sketch` or `k-ary`. Cells are
/// numbered row by row, as [`Cells::read`](crate::summary::Cells::read) writes them.
pub fn places(
    algorithm: &str,
    parameters: &[(&str, Setting)],
    digest: u64,
) -> Option<Vec<(usize, bool)>> {
    let signs = match algorithm {
        "count-min" | "k-ary" => 0,
        "count-sketch" => signs(digest),
        _ => return None,
    };
    let number = |name: &str| match parameters.iter().find(|(known, _)| *known == name) {
        Some((_, Setting::Integer(number))) => usize::try_from(*number).ok(),
        _ => None,
    };
    let rows = Rows::new(number("rows")?, number("columns")?);
    let places = rows.places::<MOST_ROWS>(digest);
    let place = |(row, place): (usize, &usize)| (*place, signs >> row & 1 == 1);
    Some(places[..rows.rows()].iter().enumerate().map(place).collect())
}

/// The signs of a key: bit `row` is set if its weight is subtracted in that row.
#[inline(always)]
pub(crate) fn signs(digest: u64) -> u64 {
    remix(digest, SIGNS_WORD)
}

/// The median; of an even number of values, the mean of the middle two. May reorder the values.
#[inline]
pub(crate) fn median(values: &mut [f64]) -> f64 {
    if let Ok(five) = <&[f64; 5]>::try_from(&*values) {
        return median_of_five(five);
    }
    values.sort_unstable_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 {
        values[middle]
    } else {
        f64::midpoint(values[middle - 1], values[middle])
    }
}

/// The median of five values, as many as most sketches have rows, without branches. The least and
/// the greatest of the first four are not the median.
#[inline]
fn median_of_five(of: &[f64; 5]) -> f64 {
    let low = greater(lesser(of[0], of[1]), lesser(of[2], of[3]));
    let high = lesser(greater(of[0], of[1]), greater(of[2], of[3]));
    greater(lesser(low, high), lesser(greater(low, high), of[4]))
}

fn lesser(a: f64, b: f64) -> f64 {
    if a.total_cmp(&b).is_lt() { a } else { b }
}

fn greater(a: f64, b: f64) -> f64 {
    if a.total_cmp(&b).is_lt() { b } else { a }
}

/// The median over the rows of `measure`, called with each row's range of cells.
pub(crate) fn median_of_rows(rows: Rows, measure: impl Fn(Range<usize>) -> f64) -> f64 {
    median_over(rows.rows, |row| measure(row << rows.bits..(row + 1) << rows.bits))
}

/// The median of `measure` over row numbers.
pub(crate) fn median_over(rows: usize, measure: impl Fn(usize) -> f64) -> f64 {
    let mut values = [0.0; MOST_ROWS];
    for (row, value) in values[..rows].iter_mut().enumerate() {
        *value = measure(row);
    }
    median(&mut values[..rows])
}

/// Partial sums added up in parallel, since each addition waits for the previous one.
const LANES: usize = 8;

/// The sum of a function over a range of cells.
#[inline]
pub(crate) fn sum_over(mut places: Range<usize>, of: impl Fn(usize) -> f64) -> f64 {
    let mut sums = [0.0; LANES];
    while places.len() >= LANES {
        for (lane, sum) in sums.iter_mut().enumerate() {
            *sum += of(places.start + lane);
        }
        places.start += LANES;
    }
    places.map(of).sum::<f64>() + sums.iter().sum::<f64>()
}

/// The chance that at least half of `rows` rows fail, each with chance `p`. Only then can their
/// median fail.
pub(crate) fn median_fails(rows: usize, p: f64) -> f64 {
    if p >= 1.0 {
        return 1.0;
    }
    let (mut term, mut tail) = ((1.0 - p).powf(rows as f64), 0.0);
    for failing in 0..=rows {
        if failing >= rows.div_ceil(2) {
            tail += term;
        }
        term *= (rows - failing) as f64 / (failing + 1) as f64 * p / (1.0 - p);
    }
    tail
}

/// Largest error of the median of `rows` rows, in standard deviations of a row, with [`CONFIDENCE`]
/// by Chebyshev's inequality.
pub(crate) fn deviations(rows: usize) -> f64 {
    let (mut low, mut high) = (0.0, 0.5);
    for _ in 0..50 {
        let middle = f64::midpoint(low, high);
        if median_fails(rows, middle) <= 1.0 - CONFIDENCE {
            low = middle;
        } else {
            high = middle;
        }
    }
    1.0 / low.sqrt()
}

/// How the error depends on the shape, for shapes requested by their error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Targets {
    /// The smallest counter is off by more than ε·N with a chance below δ: columns = e/ε, rows = ln
    /// 1/δ.
    Least,
    /// The median counter is off by more than ε·L2 with a chance below δ: columns = 8/ε², so that a
    /// row fails with a chance of at most 1/8 by Chebyshev's inequality, and enough rows that half
    /// of them fail with chance δ.
    Median,
}

impl Targets {
    fn columns(self, epsilon: f64) -> f64 {
        match self {
            Self::Least => std::f64::consts::E / epsilon,
            Self::Median => 8.0 / (epsilon * epsilon),
        }
    }

    /// The rows for this chance of failure, if [`MOST_ROWS`] suffice.
    fn rows(self, delta: f64) -> Option<usize> {
        (1..=MOST_ROWS).find(|&rows| match self {
            Self::Least => rows as f64 >= (1.0 / delta).ln(),
            Self::Median => median_fails(rows, 1.0 / 8.0) <= delta,
        })
    }

    /// The default shape. With a chance of at least 99 %, its error is at most 0.01 % of the total
    /// weight by Markov's inequality, or 1.2 % of L2 by Chebyshev's.
    pub(crate) const fn default_shape(self) -> Rows {
        match self {
            Self::Least => Rows::of(4, 15),
            Self::Median => Rows::of(5, 16),
        }
    }

    /// The shape given by the parameters `rows` or `delta`, and `columns` or `epsilon`. Missing
    /// ones come from `default`, with fewer columns if cells of `cell_bytes` bytes do not fit into
    /// `memory_bytes`.
    pub(crate) fn shape(
        self,
        parameters: &Parameters,
        memory_bytes: usize,
        cell_bytes: usize,
        default: Rows,
    ) -> Result<Rows, BuildError> {
        parameters.exclusive("columns", &["epsilon"])?;
        parameters.exclusive("rows", &["delta"])?;
        let out_of_range = |name, range: String| {
            BuildErrorKind::OutOfRange {
                name,
                value: parameters.get(name).unwrap_or_default().to_owned(),
                range,
            }
            .into()
        };
        let rows = match parameters.fraction("delta")? {
            Some(delta) => self.rows(delta).ok_or_else(|| {
                out_of_range("delta", format!("large enough for {MOST_ROWS} rows"))
            })?,
            None => parameters
                .integer("rows", 1..=MOST_ROWS as u64)?
                .map_or(default.rows(), |rows| rows as usize),
        };
        let most = 1 << (MOST_CELLS / rows).ilog2();
        let columns = if let Some(epsilon) = parameters.fraction("epsilon")? {
            self.columns(epsilon).min(2.0 * most as f64).ceil() as usize
        } else {
            let row_bytes = rows * cell_bytes;
            let memory_bytes = memory_bytes.min(default.columns() * row_bytes);
            parameters.power_of_two("columns", memory_bytes, row_bytes)?
        };
        let columns = columns.next_power_of_two();
        if columns > most {
            let name = if parameters.get("epsilon").is_some() { "epsilon" } else { "columns" };
            let range = match name {
                "epsilon" => format!("large enough for {most} columns"),
                _ => format!("{most} or less"),
            };
            return Err(out_of_range(name, range));
        }
        Ok(Rows::new(rows, columns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_fails_if_all_rows_do() {
        for rows in 1..=MOST_ROWS {
            assert_eq!(median_fails(rows, 1.0).to_bits(), 1.0_f64.to_bits());
            assert!((median_fails(rows, 0.999_999) - 1.0).abs() < 0.001, "{rows}");
            assert_eq!(median_fails(rows, 0.0).to_bits(), 0.0_f64.to_bits());
        }
    }

    /// All sequences of five of these values, in which each may occur several times.
    #[test]
    fn the_median_of_five_values_is_that_of_their_order() {
        let values = [-7.5, -0.0, 0.0, 1.0, f64::INFINITY];
        for number in 0..values.len().pow(5) {
            let of = [1, 5, 25, 125, 625].map(|place| values[number / place % values.len()]);
            let mut sorted = of;
            sorted.sort_unstable_by(f64::total_cmp);
            assert_eq!(median_of_five(&of).to_bits(), sorted[2].to_bits(), "{of:?}");
        }
    }
}
