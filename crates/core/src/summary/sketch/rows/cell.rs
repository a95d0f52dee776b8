//! Cells: the counters of a sketch.

use crate::summary::Counter;
use crate::summary::codec::{DecodeError, Number, Reader, Writer};

/// A counter: unsigned like its weights, or signed and of the same width.
pub trait Cell: Number + Send + Sync + 'static {
    /// The weights of packets.
    type Weight: Counter;
    /// The largest absolute value.
    const MOST: u64;
    /// Whether it may be negative.
    const SIGNED: bool;
    /// The value.
    fn real(self) -> f64;
    /// The absolute value.
    fn size(self) -> u64;
    /// The sum of two cells, which must not exceed the largest value.
    fn plus(self, other: Self) -> Self;
    /// Adds another cell, up to the largest value; returns the excess.
    fn join(&mut self, other: Self) -> u64;
    /// The cell for a sum in 64 bits (two's complement if signed), clamped to the largest value,
    /// and the excess.
    fn of_sum(sum: u64) -> (Self, u64);
    /// Writes cells in `width` bytes each, which hold them.
    fn save(cells: &[Self], width: usize, out: &mut Writer);
    /// Reads cells of `width` bytes each.
    ///
    /// # Errors
    /// When the bytes end.
    fn load(cells: &mut [Self], width: usize, from: &mut Reader<'_>) -> Result<(), DecodeError>;
}

/// Adds cells to as many others; returns the excess. No sum of two cells exceeds `reach`.
pub(crate) fn join_all<C: Cell>(cells: &mut [C], others: &[C], reach: u64) -> u64 {
    let pairs = cells.iter_mut().zip(others);
    if reach < C::MOST {
        // Without a check for each cell, the additions are vectorized.
        pairs.for_each(|(cell, other)| *cell = cell.plus(*other));
        return 0;
    }
    pairs.fold(0, |lost, (cell, other)| lost.saturating_add(cell.join(*other)))
}

/// [`Cell::save`] and [`Cell::load`] of cells that may be stored as one of these numbers.
macro_rules! stored_as {
    ($($width:literal: $number:ty),*) => {
        fn save(cells: &[Self], width: usize, out: &mut Writer) {
            match width {
                $($width => out.each(cells.iter().map(|cell| *cell as $number)),)*
                _ => out.numbers(cells),
            }
        }

        fn load(
            cells: &mut [Self],
            width: usize,
            from: &mut Reader<'_>,
        ) -> Result<(), DecodeError> {
            match width {
                $($width => {
                    let numbers = from.each::<$number>("cells", cells.len())?;
                    cells.iter_mut().zip(numbers).for_each(|(cell, number)| *cell = number.into());
                })*
                _ => from.numbers("cells", cells)?,
            }
            Ok(())
        }
    };
}

/// An unsigned cell.
pub(crate) trait Unsigned: Cell<Weight = Self> + Counter {
    /// Adds `weight`; if the cell may be `FULL`, up to the largest value. Returns the excess.
    fn raise<const FULL: bool>(&mut self, weight: Self) -> u64;
}

/// A signed cell, which weights are added to and subtracted from.
pub trait Signed: Cell {
    /// Adds `weight` times `sign`, which is 1 or -1; if the cell may be `FULL`, up to the largest
    /// absolute value. Returns the excess.
    fn add_signed<const FULL: bool>(&mut self, weight: Self::Weight, sign: i64) -> u64;
    /// The value times `sign`.
    fn signed(self, sign: i64) -> i64;
    /// The cell for this number, or the largest value.
    fn at_most(number: u64) -> Self;
    /// Whether the value times `sign` exceeds `limit`.
    fn exceeds(self, sign: i64, limit: Self) -> bool;
}

macro_rules! unsigned {
    ($($cell:ty: $stored:tt);*) => {$(
        impl Cell for $cell {
            type Weight = Self;
            const MOST: u64 = <$cell>::MAX as u64;
            const SIGNED: bool = false;
            stored_as!$stored;

            #[inline(always)]
            fn real(self) -> f64 {
                self.get() as f64
            }

            #[inline(always)]
            fn size(self) -> u64 {
                self.get()
            }

            #[inline(always)]
            fn plus(self, other: Self) -> Self {
                self.wrapping_add(other)
            }

            #[inline(always)]
            fn join(&mut self, other: Self) -> u64 {
                self.add(other)
            }

            fn of_sum(sum: u64) -> (Self, u64) {
                let cell = <$cell>::try_from(sum).unwrap_or(<$cell>::MAX);
                (cell, sum - cell.get())
            }
        }

        impl Unsigned for $cell {
            #[inline(always)]
            fn raise<const FULL: bool>(&mut self, weight: Self) -> u64 {
                if FULL {
                    return self.add(weight);
                }
                *self = self.wrapping_add(weight);
                0
            }
        }
    )*};
}
unsigned!(u32: (1: u8, 2: u16); u64: (1: u8, 2: u16, 4: u32));

macro_rules! signed {
    ($($cell:ty, $weight:ty: $stored:tt);*) => {$(
        impl Cell for $cell {
            type Weight = $weight;
            const MOST: u64 = <$cell>::MAX as u64;
            const SIGNED: bool = true;
            stored_as!$stored;

            #[inline(always)]
            fn real(self) -> f64 {
                i64::from(self) as f64
            }

            #[inline(always)]
            fn size(self) -> u64 {
                self.unsigned_abs().into()
            }

            #[inline(always)]
            fn plus(self, other: Self) -> Self {
                self.wrapping_add(other)
            }

            fn join(&mut self, other: Self) -> u64 {
                let sum = i128::from(*self) + i128::from(other);
                let most = i128::from(Self::MAX);
                *self = sum.clamp(-most, most) as $cell;
                (sum - i128::from(*self)).unsigned_abs() as u64
            }

            fn of_sum(sum: u64) -> (Self, u64) {
                let (sum, most) = (i128::from(sum.cast_signed()), i128::from(Self::MAX));
                let cell = sum.clamp(-most, most) as $cell;
                (cell, (sum - i128::from(cell)).unsigned_abs() as u64)
            }
        }

        impl Signed for $cell {
            #[inline(always)]
            fn add_signed<const FULL: bool>(&mut self, weight: $weight, sign: i64) -> u64 {
                if !FULL {
                    // A product instead of a selected sign: compilers turn the selection into a
                    // branch, which random signs mispredict half the time.
                    let signed = weight.cast_signed().wrapping_mul(sign as $cell);
                    *self = self.wrapping_add(signed);
                    return 0;
                }
                let sum = i128::from(*self) + i128::from(weight) * i128::from(sign);
                let most = i128::from(Self::MAX);
                *self = sum.clamp(-most, most) as $cell;
                (sum - i128::from(*self)).unsigned_abs() as u64
            }

            #[inline(always)]
            fn signed(self, sign: i64) -> i64 {
                i64::from(self).wrapping_mul(sign)
            }

            #[inline(always)]
            fn at_most(number: u64) -> Self {
                <$cell>::try_from(number).unwrap_or(<$cell>::MAX)
            }

            #[inline(always)]
            fn exceeds(self, sign: i64, limit: Self) -> bool {
                // No cell holds the smallest integer, which has no opposite.
                self.wrapping_mul(sign as $cell) > limit
            }
        }
    )*};
}
signed!(i32, u32: (1: i8, 2: i16); i64, u64: (1: i8, 2: i16, 4: i32));

/// A bound that no cell exceeds: the bits of all sizes, which vector instructions join faster than
/// they find the largest.
fn reach<C: Cell>(cells: &[C]) -> u64 {
    cells.iter().fold(0, |bits, cell| bits | cell.size())
}

/// Bytes of a stored cell: the fewest of 1, 2, 4 and 8 that hold every size up to `reach`.
fn stored_bytes<C: Cell>(reach: u64) -> usize {
    let bits = u64::BITS - reach.leading_zeros() + u32::from(C::SIGNED);
    let bytes = bits.div_ceil(u8::BITS).max(1).next_power_of_two() as usize;
    bytes.min(size_of::<C>())
}

/// Writes cells in as few bytes as the largest needs, after their number of bytes.
pub(crate) fn save_cells<C: Cell>(cells: &[C], out: &mut Writer) {
    let width = stored_bytes::<C>(reach(cells));
    out.number(width as u8);
    C::save(cells, width, out);
}

/// Reads cells that [`save_cells`] wrote. Returns a bound that no cell exceeds, and the sum of the
/// sizes in each row of `columns` cells.
pub(crate) fn load_cells<C: Cell>(
    cells: &mut [C],
    columns: usize,
    from: &mut Reader<'_>,
) -> Result<(u64, Vec<u128>), DecodeError> {
    /// Cells that fit into the cache with their stored form.
    const BLOCK: usize = 1 << 12;
    let wide = from.has_wide_cells();
    let width = if wide { size_of::<C>() } else { from.number::<u8>("width of cells")?.into() };
    if !width.is_power_of_two() || width > size_of::<C>() {
        return Err(from.invalid("width of cells", 1, "no cell has this width"));
    }
    let bytes = cells.len() * width;
    let mut stored = Reader::new(from.take(bytes, "cells")?);
    let (mut reach_of_all, mut sums) = (0, Vec::new());
    for cells in cells.chunks_mut(columns) {
        let mut sum_of_row = 0;
        for cells in cells.chunks_mut(BLOCK) {
            C::load(cells, width, &mut stored)?;
            // Sums of 64 bits are vectorized; that of the upper halves does not overflow. One loop
            // does the work of `reach`, too.
            let (mut sum, mut upper, mut bits) = (0u64, 0u64, 0);
            for size in cells.iter().map(|cell| cell.size()) {
                sum = sum.wrapping_add(size);
                upper += size >> 32;
                bits |= size;
            }
            let lower = sum.wrapping_sub(upper << 32);
            sum_of_row += (u128::from(upper) << 32) + u128::from(lower);
            reach_of_all |= bits;
        }
        sums.push(sum_of_row);
    }
    if !wide && width != stored_bytes::<C>(reach_of_all) {
        return Err(from.invalid("cells", bytes, "narrower ones can hold these counts"));
    }
    Ok((reach_of_all, sums))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]
mod tests {
    use super::*;

    /// Vectorized sums, taken where `reach` allows, equal the checked ones.
    fn join_as_one_by_one<C: Cell + PartialEq + std::fmt::Debug>(cells: [C; 4], others: [C; 4]) {
        let (mut sums, mut lost) = (cells, 0);
        for (sum, other) in sums.iter_mut().zip(others) {
            lost += sum.join(other);
        }
        let mut all = cells;
        let reach = reach(&cells).saturating_add(reach(&others));
        assert_eq!((join_all(&mut all, &others, reach), all), (lost, sums), "{cells:?} {others:?}");
    }

    #[test]
    fn sums_are_kept_below_the_largest_number() {
        let most = u32::MAX;
        join_as_one_by_one([0, 1, 2, most - 10], [0, 5, 7, 9_u32]);
        join_as_one_by_one([0, 1, 2, most - 9], [0, 5, 7, 9_u32]);
        join_as_one_by_one([0, 1, 2, most - 8], [0, 5, 7, 9_u32]);
        join_as_one_by_one([most; 4], [0, 1, 7, most]);
        join_as_one_by_one([u64::MAX, 1, 2, 3], [0, 1, u64::MAX - 2, 9]);
        join_as_one_by_one([i32::MAX, -i32::MAX, 2, -3], [1, -1, -5, i32::MAX]);
        join_as_one_by_one([i32::MAX - 9, 9 - i32::MAX, 2, -3], [8, -8, -5, 6]);
        join_as_one_by_one([i64::MAX, -i64::MAX, 2, -3], [1, -1, -5, i64::MAX]);
    }

    /// Cells are stored in `width` bytes each, and read with the sums of rows and a bound.
    fn loads_as_stored<C: Cell + PartialEq + std::fmt::Debug>(cells: &[C], width: usize) {
        let mut out = Writer::default();
        save_cells(cells, &mut out);
        let (bytes, columns) = (out.into_bytes(), cells.len() / 2);
        assert_eq!(bytes.len(), 1 + cells.len() * width, "{:?}", cells[0]);
        let load = |bytes: &[u8]| {
            let mut loaded = vec![C::zeroed(); cells.len()];
            let read = load_cells(&mut loaded, columns, &mut Reader::new(bytes));
            read.map(|read| (loaded, read))
        };
        let (loaded, (reach, sums)) = load(&bytes).unwrap();
        assert_eq!(loaded, cells);
        let sum = |row: &[C]| row.iter().map(|cell| u128::from(cell.size())).sum::<u128>();
        assert_eq!(sums, cells.chunks(columns).map(sum).collect::<Vec<_>>());
        let largest = cells.iter().map(|cell| cell.size()).max().unwrap();
        assert!((largest..=2 * largest).contains(&reach), "{largest} {reach}");
        let error = |bytes: &[u8]| load(bytes).unwrap_err().to_string();
        assert_eq!(error(&bytes[..bytes.len() - 1]), "truncated in cells, at offset 1");
        let mut other = bytes;
        other[0] = 3;
        assert!(error(&other).starts_with("invalid width of cells at offset 0: "));
    }

    #[test]
    fn cells_are_stored_in_as_few_bytes_as_the_largest_needs() {
        loads_as_stored(&(0..10_000u32).collect::<Vec<_>>(), 2);
        loads_as_stored(&[255u32; 4], 1);
        loads_as_stored(&[256u64; 4], 2);
        loads_as_stored(&vec![u32::MAX; 10_000], 4);
        loads_as_stored(&[u64::from(u32::MAX), 1], 4);
        loads_as_stored(&vec![u64::MAX >> 1; 10_000], 8);
        loads_as_stored(&[-127i64, 127], 1);
        loads_as_stored(&[128i32, -3], 2);
        loads_as_stored(&(-9_992..8).collect::<Vec<i32>>(), 2);
        loads_as_stored(&[i32::MAX, 1 - i32::MAX], 4);
        loads_as_stored(&[i64::from(i32::MAX) + 1, 5], 8);
    }

    #[test]
    fn cells_in_more_bytes_than_needed_are_refused() {
        let bytes = [2, 7, 0, 9, 0];
        let error = load_cells(&mut [0u32; 2], 2, &mut Reader::new(&bytes)).unwrap_err();
        let reason = "invalid cells at offset 1: narrower ones can hold these counts";
        assert_eq!(error.to_string(), reason);
    }
}
