//! What the cells of a sketch count in.

use crate::summary::Counter;
use crate::summary::codec::Number;

/// A cell: unsigned as its weights are, or signed of the same width.
pub trait Cell: Number + Send + Sync + 'static {
    /// The weights of packets.
    type Weight: Counter;
    /// The largest number, of either sign.
    const MOST: u64;
    /// Its number.
    fn real(self) -> f64;
    /// Its number without the sign.
    fn size(self) -> u64;
    /// Its sum with another cell, which is not beyond the largest number.
    fn plus(self, other: Self) -> Self;
    /// Adds another cell, up to the largest number; returns what found no room.
    fn join(&mut self, other: Self) -> u64;
    /// The cell of a sum in 64 bits, of two's complement where it is signed, or of the largest number;
    /// and what found no room.
    fn of_sum(sum: u64) -> (Self, u64);
}

/// Adds cells to as many others; `reach` is what no sum of two exceeds. Returns what found no room.
pub(crate) fn join_all<C: Cell>(cells: &mut [C], others: &[C], reach: u64) -> u64 {
    let pairs = cells.iter_mut().zip(others);
    if reach < C::MOST {
        // Without a check for each they are added by vectors.
        pairs.for_each(|(cell, other)| *cell = cell.plus(*other));
        return 0;
    }
    pairs.fold(0, |lost, (cell, other)| lost.saturating_add(cell.join(*other)))
}

/// A cell that is a counter.
pub(crate) trait Unsigned: Cell<Weight = Self> + Counter {
    /// Adds `weight`, up to the largest number where the cell may be `FULL`; returns what found no
    /// room.
    fn raise<const FULL: bool>(&mut self, weight: Self) -> u64;
}

/// A cell that weights are added to and subtracted from.
pub trait Signed: Cell {
    /// Adds `weight` times `sign`, which is 1 or -1, up to the largest number of either sign where the
    /// cell may be `FULL`; returns what found no room.
    fn add_signed<const FULL: bool>(&mut self, weight: Self::Weight, sign: i64) -> u64;
    /// Its number times `sign`.
    fn signed(self, sign: i64) -> i64;
    /// The cell of this number, or of the largest.
    fn at_most(number: u64) -> Self;
    /// Whether its number times `sign` is over that of `limit`.
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
                    // A product: of signs that are selected compilers make branches, which random
                    // signs mispredict half the time.
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
                // No cell holds the number that has no opposite.
                self.wrapping_mul(sign as $cell) > limit
            }
        }
    )*};
}
signed!(i32, u32; i64, u64);

#[cfg(test)]
mod tests {
    use super::*;

    /// One by one, and by vectors as far as the reach allows, the sums are the same.
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
