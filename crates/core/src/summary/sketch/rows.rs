//! The columns of a key in the rows of a sketch, and its signs, all cut from its one digest.
//!
//! A sketch of d rows of 2ᵇ columns needs d·b bits. Up to 64 they are slices of the digest itself,
//! row 0 at its low end, so that 4 rows of 65536 columns cost no multiply beyond the digest's own.
//! Beyond, each word that is used up is followed by a word mixed from it. Signs are the low bits of
//! another word.

use super::super::remix::remix;
use super::super::{BuildError, Parameters};

/// Rows that a sketch has at most.
pub(crate) const MOST_ROWS: usize = 16;

/// Columns of a row, at most.
const MOST_COLUMNS: f64 = (1u64 << 32) as f64;

/// The words of a digest that follow it in columns, and that give the signs. Structures on top of a
/// sketch that need bits which are independent of both take words below these.
const COLUMNS_WORD: u64 = 16;
const SIGNS_WORD: u64 = 17;

/// Chance that the bounds of a sketch hold at least, whatever its rows.
pub(crate) const CONFIDENCE: f64 = 0.95;

/// Calls `$body` with `$rows` as the constant `$D`, so that its loops over the rows unroll. From 9
/// rows on `$D` is [`MOST_ROWS`], and [`Rows::count`] says how many there are.
macro_rules! with_rows {
    ($rows:expr, $D:ident => $body:expr) => {
        with_rows!(@ $rows, $D => $body, 1 2 3 4 5 6 7 8)
    };
    (@ $rows:expr, $D:ident => $body:expr, $($n:literal)*) => {
        match $rows {
            $($n => { const $D: usize = $n; $body })*
            _ => { const $D: usize = $crate::summary::sketch::MOST_ROWS; $body }
        }
    };
}
pub(crate) use with_rows;

/// A number of rows of a power of two of columns, stored row by row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rows {
    rows: usize,
    /// Base-two logarithm of the columns.
    bits: u32,
}

impl Rows {
    /// 1 to [`MOST_ROWS`] rows of `columns` columns, a power of two up to 2³².
    pub(crate) fn new(rows: usize, columns: usize) -> Self {
        debug_assert!((1..=MOST_ROWS).contains(&rows) && columns.is_power_of_two());
        Self { rows, bits: columns.ilog2() }
    }

    pub(crate) fn rows(self) -> usize {
        self.rows
    }

    pub(crate) fn columns(self) -> usize {
        1 << self.bits
    }

    /// Cells in all.
    pub(crate) fn cells(self) -> usize {
        self.rows << self.bits
    }

    /// The rows, a constant where `D` is.
    #[inline(always)]
    pub(crate) fn count<const D: usize>(self) -> usize {
        if D < MOST_ROWS { D } else { self.rows }
    }

    /// The cells of a key, one in each of the rows; what stands behind those means nothing.
    #[inline(always)]
    pub(crate) fn places<const D: usize>(self, digest: u64) -> [usize; D] {
        let (bits, mask) = (self.bits, (1u64 << self.bits) - 1);
        let mut places = [0; D];
        if D as u32 * bits <= u64::BITS {
            for (row, place) in places.iter_mut().enumerate() {
                *place = row << bits | (digest >> (row as u32 * bits) & mask) as usize;
            }
            return places;
        }
        let (mut word, mut left) = (digest, u64::BITS);
        for (row, place) in places.iter_mut().enumerate().take(self.count::<D>()) {
            if left < bits {
                (word, left) = (remix(word, COLUMNS_WORD), u64::BITS);
            }
            *place = row << bits | (word & mask) as usize;
            word >>= bits;
            left -= bits;
        }
        places
    }

    /// The cell of a key in one row.
    pub(crate) fn place(self, digest: u64, row: usize) -> usize {
        self.places::<MOST_ROWS>(digest)[row]
    }
}

/// The signs of a key: bit `row` is set where its weight is subtracted in that row.
#[inline(always)]
pub(crate) fn signs(digest: u64) -> u64 {
    remix(digest, SIGNS_WORD)
}

/// `weight` with the sign of `row`.
#[inline(always)]
pub(crate) fn signed(signs: u64, row: usize, weight: i64) -> i64 {
    let flip = -((signs >> row & 1) as i64);
    (weight ^ flip).wrapping_sub(flip)
}

/// The median; of an even number the mean of the middle two. Reorders the values.
#[inline]
pub(crate) fn median(values: &mut [f64]) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 {
        values[middle]
    } else {
        f64::midpoint(values[middle - 1], values[middle])
    }
}

/// The chance that at least half of `rows` rows fail, each with chance `p`: only then can their
/// median fail.
pub(crate) fn median_fails(rows: usize, p: f64) -> f64 {
    let (mut term, mut tail) = ((1.0 - p).powi(rows as i32), 0.0);
    for failing in 0..=rows {
        if failing >= rows.div_ceil(2) {
            tail += term;
        }
        term *= (rows - failing) as f64 / (failing + 1) as f64 * p / (1.0 - p);
    }
    tail
}

/// How errors shrink with the shape, for shapes that are asked for as targets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Targets {
    /// The least of the rows is off by more than ε·N in fewer than δ of the cases:
    /// columns = e/ε, rows = ln 1/δ.
    Least,
    /// The median of the rows is off by more than ε·L2 in fewer than δ of the cases:
    /// columns = 8/ε², so that one in 8 rows fails at most by Chebyshev's inequality, and as many
    /// rows as let half of them fail with chance δ.
    Median,
}

impl Targets {
    fn columns(self, epsilon: f64) -> f64 {
        match self {
            Self::Least => std::f64::consts::E / epsilon,
            Self::Median => 8.0 / (epsilon * epsilon),
        }
    }

    /// The rows for this chance of failure, where [`MOST_ROWS`] suffice.
    fn rows(self, delta: f64) -> Option<usize> {
        (1..=MOST_ROWS).find(|&rows| match self {
            Self::Least => rows as f64 >= (1.0 / delta).ln(),
            Self::Median => median_fails(rows, 1.0 / 8.0) <= delta,
        })
    }

    /// The shape that the parameters `rows` or `delta` and `columns` or `epsilon` ask for: 4 rows by
    /// default, and the columns that fit into `memory_bytes` with cells of `cell_bytes` bytes.
    pub(crate) fn shape(
        self,
        parameters: &Parameters,
        memory_bytes: usize,
        cell_bytes: usize,
    ) -> Result<Rows, BuildError> {
        parameters.exclusive("columns", &["epsilon"])?;
        parameters.exclusive("rows", &["delta"])?;
        let out_of_range = |name, range: String| BuildError::OutOfRange {
            name,
            value: parameters.get(name).unwrap_or_default().to_owned(),
            range,
        };
        let rows = match parameters.fraction("delta")? {
            Some(delta) => self.rows(delta).ok_or_else(|| {
                out_of_range("delta", format!("such that {MOST_ROWS} rows suffice"))
            })?,
            None => parameters.integer("rows", 1..=MOST_ROWS as u64)?.unwrap_or(4) as usize,
        };
        let columns = match parameters.fraction("epsilon")? {
            Some(epsilon) if self.columns(epsilon) > MOST_COLUMNS => {
                return Err(out_of_range("epsilon", "such that 2^32 columns suffice".to_owned()));
            }
            Some(epsilon) => (self.columns(epsilon).ceil() as usize).next_power_of_two(),
            None => parameters.power_of_two("columns", memory_bytes, rows * cell_bytes)?,
        };
        Ok(Rows::new(rows, columns))
    }
}
