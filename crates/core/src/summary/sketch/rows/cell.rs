//! Cells: the counters of a sketch.

use crate::summary::Counter;
use crate::summary::codec::Number;

/// A counter: unsigned like its weights, or signed and of the same width.
pub trait Cell: Number + Send + Sync + 'static {
    /// The weights of packets.
    type Weight: Counter;
    /// The largest absolute value.
    const MOST: u64;
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
    ($($cell:ty),*) => {$(
        impl Cell for $cell {
            type Weight = Self;
            const MOST: u64 = <$cell>::MAX as u64;

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
unsigned!(u32, u64);

macro_rules! signed {
    ($($cell:ty, $weight:ty);*) => {$(
        impl Cell for $cell {
            type Weight = $weight;
            const MOST: u64 = <$cell>::MAX as u64;

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
signed!(i32, u32; i64, u64);

/// The sum of the sizes of a row's cells. A row has fewer than 2³² cells.
pub(crate) fn sum_of_sizes<C: Cell>(row: &[C]) -> u128 {
    let sizes = row.iter().map(|cell| cell.size());
    // Sums of narrow cells fit into 64 bits, which vector instructions add.
    if C::MOST <= u32::MAX.into() {
        u128::from(sizes.sum::<u64>())
    } else {
        sizes.map(u128::from).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Vectorized sums, taken where `reach` allows, equal the checked ones.
    fn join_as_one_by_one<C: Cell + PartialEq + std::fmt::Debug>(cells: [C; 4], others: [C; 4]) {
        let reach = |cells: &[C]| cells.iter().map(|cell| cell.size()).max().unwrap_or(0);
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
}
