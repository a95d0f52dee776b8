//! What the cells of a sketch count in.

use super::super::Counter;
use super::super::codec::Number;

/// A cell: unsigned as its weights are, or signed of the same width.
pub(crate) trait Cell: Number + Send + 'static {
    /// The weights of packets.
    type Weight: Counter;
    /// Its number.
    fn real(self) -> f64;
    /// Adds another cell, up to the largest number; returns what found no room.
    fn join(&mut self, other: Self) -> u64;
}

macro_rules! unsigned {
    ($($cell:ty),*) => {$(
        impl Cell for $cell {
            type Weight = Self;

            #[inline(always)]
            fn real(self) -> f64 {
                self as f64
            }

            #[inline(always)]
            fn join(&mut self, other: Self) -> u64 {
                Counter::add(self, other)
            }
        }
    )*};
}
unsigned!(u32, u64);
