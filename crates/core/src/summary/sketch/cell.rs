//! What the cells of a sketch count in.

use super::super::Counter;
use super::super::codec::Number;

/// A cell: unsigned as its weights are, or signed of the same width.
pub(crate) trait Cell: Number + Send + 'static {
    /// The weights of packets.
    type Weight: Counter;
    /// The largest number, of either sign.
    const MOST: u64;
    /// Its number.
    fn real(self) -> f64;
    /// Its number without the sign.
    fn size(self) -> u64;
    /// Adds another cell, up to the largest number; returns what found no room.
    fn join(&mut self, other: Self) -> u64;
}

/// A cell that is a counter.
pub(crate) trait Unsigned: Cell<Weight = Self> + Counter {
    /// Adds `weight`, up to the largest number where the cell may be `FULL`; returns what found no
    /// room.
    fn raise<const FULL: bool>(&mut self, weight: Self) -> u64;
}

/// A cell that weights are added to and subtracted from.
pub(crate) trait Signed: Cell {
    /// Adds `weight`, or subtracts it where it is `negative`, up to the largest number of either
    /// sign where the cell may be `FULL`; returns what found no room.
    fn turn<const FULL: bool>(&mut self, weight: Self::Weight, negative: bool) -> u64;
    /// Its number, or the negative of it.
    fn turned(self, negative: bool) -> i64;
}

macro_rules! unsigned {
    ($($cell:ty),*) => {$(
        impl Cell for $cell {
            type Weight = Self;
            const MOST: u64 = <$cell>::MAX as u64;

            #[inline(always)]
            fn real(self) -> f64 {
                self as f64
            }

            #[inline(always)]
            fn size(self) -> u64 {
                self.get()
            }

            #[inline(always)]
            fn join(&mut self, other: Self) -> u64 {
                self.add(other)
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
                self as f64
            }

            #[inline(always)]
            fn size(self) -> u64 {
                self.unsigned_abs().into()
            }

            fn join(&mut self, other: Self) -> u64 {
                let sum = i128::from(*self) + i128::from(other);
                let most = i128::from(Self::MAX);
                *self = sum.clamp(-most, most) as $cell;
                (sum - i128::from(*self)).unsigned_abs() as u64
            }
        }

        impl Signed for $cell {
            #[inline(always)]
            fn turn<const FULL: bool>(&mut self, weight: $weight, negative: bool) -> u64 {
                if !FULL {
                    let flip = -<$cell>::from(negative);
                    *self = self.wrapping_add((weight as $cell ^ flip).wrapping_sub(flip));
                    return 0;
                }
                let weight = i128::from(weight);
                let sum = i128::from(*self) + if negative { -weight } else { weight };
                let most = i128::from(Self::MAX);
                *self = sum.clamp(-most, most) as $cell;
                (sum - i128::from(*self)).unsigned_abs() as u64
            }

            #[inline(always)]
            fn turned(self, negative: bool) -> i64 {
                let flip = -i64::from(negative);
                (i64::from(self) ^ flip).wrapping_sub(flip)
            }
        }
    )*};
}
signed!(i32, u32; i64, u64);
