//! Counters that saturate, and return the excess.

use super::codec::Number;
use crate::batch::Batch;
use crate::key::FlowKey;
use crate::terms::Measure;

/// A saturating counter of one measure: 32 bits for packets, 64 for bytes.
///
/// ```
/// use flowgauge_core::summary::Counter;
///
/// let mut packets = u32::MAX - 2;
/// assert_eq!(packets.add(5), 3, "the excess is returned");
/// assert_eq!(packets, u32::MAX);
/// ```
pub trait Counter: Number + Eq + Send + Sync + 'static {
    /// The measure that it counts.
    const MEASURE: Measure;
    /// The largest number.
    const MOST: Self;
    /// The column of a batch that it reads.
    fn column<K: FlowKey>(batch: &Batch<K>) -> &[Self];
    /// Adds `weight`, up to the largest number; returns the excess.
    fn add(&mut self, weight: Self) -> u64;
    /// The number counted.
    fn get(self) -> u64;
    /// The sum of the weights of a batch, at most `u64::MAX`.
    fn sum(weights: &[Self]) -> u64;
}

impl Counter for u32 {
    const MEASURE: Measure = Measure::Packets;
    const MOST: Self = Self::MAX;

    #[inline(always)]
    fn column<K: FlowKey>(batch: &Batch<K>) -> &[Self] {
        batch.packets()
    }

    #[inline(always)]
    fn add(&mut self, weight: Self) -> u64 {
        let (sum, over) = self.overflowing_add(weight);
        *self = sum;
        if over { full(self, Self::MAX, u64::from(sum)) } else { 0 }
    }

    #[inline(always)]
    fn get(self) -> u64 {
        u64::from(self)
    }

    #[inline(always)]
    fn sum(weights: &[Self]) -> u64 {
        // Most weights are single packets, whose sum fits into 32 bits.
        let both = |(sum, bits): (u32, u32), weight| (sum.wrapping_add(weight), bits | weight);
        let (sum, bits) = weights.iter().copied().fold((0, 0), both);
        if u64::from(bits).saturating_mul(weights.len() as u64) <= u64::from(Self::MAX) {
            return u64::from(sum);
        }
        weights.iter().map(|&weight| u64::from(weight)).sum()
    }
}

impl Counter for u64 {
    const MEASURE: Measure = Measure::Bytes;
    const MOST: Self = Self::MAX;

    #[inline(always)]
    fn column<K: FlowKey>(batch: &Batch<K>) -> &[Self] {
        batch.bytes()
    }

    #[inline(always)]
    fn add(&mut self, weight: Self) -> u64 {
        let (sum, over) = self.overflowing_add(weight);
        *self = sum;
        if over { full(self, Self::MAX, sum) } else { 0 }
    }

    #[inline(always)]
    fn get(self) -> u64 {
        self
    }

    #[inline(always)]
    fn sum(weights: &[Self]) -> u64 {
        // Small weights need no check for each addition, so vector instructions sum them up.
        let bits = weights.iter().fold(0, |bits, weight| bits | weight);
        if bits < u64::from(u32::MAX) && weights.len() < 1 << 32 {
            weights.iter().sum()
        } else {
            weights.iter().fold(0, |sum: u64, &weight| sum.saturating_add(weight))
        }
    }
}

/// The sum of these numbers, and the largest of them and `so_far`. Small numbers take one pass:
/// their sum needs no overflow checks, and often their united bits already show that none is
/// larger. Numbers of 31 bits, as most packet lengths are, are compared by vector instructions,
/// which not every processor has for 64 bits.
pub(crate) fn sum_and_largest(so_far: u64, numbers: &[u64]) -> (u64, u64) {
    let both = |(sum, bits): (u64, u64), number| (sum.wrapping_add(number), bits | number);
    let (sum, bits) = numbers.iter().copied().fold((0, 0), both);
    let is_small = bits < u64::from(u32::MAX) && numbers.len() < 1 << 32;
    let sum = if is_small { sum } else { u64::sum(numbers) };
    let largest = if bits <= so_far {
        so_far
    } else if i32::try_from(bits).is_ok() {
        so_far.max(numbers.iter().fold(0, |largest, &number| largest.max(number as i32)) as u64)
    } else {
        numbers.iter().fold(so_far, |largest, &number| largest.max(number))
    };
    (sum, largest)
}

/// Sets a counter that wrapped to `wrapped` to `most`; returns the excess, which is one more than
/// `wrapped`. Out of line, so that counters with room compute nothing of it.
#[cold]
fn full<C>(counter: &mut C, most: C, wrapped: u64) -> u64 {
    *counter = most;
    wrapped.saturating_add(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_and_the_largest_are_found_among_small_and_large_numbers() {
        assert_eq!(sum_and_largest(7, &[]), (0, 7));
        assert_eq!(sum_and_largest(7, &[64, 1514, 1500]), (3078, 1514));
        assert_eq!(sum_and_largest(1513, &[64, 1512, 1500]), (3076, 1513));
        assert_eq!(sum_and_largest(2000, &[1514, 1 << 9]), (2026, 2000));
        let sum = (1 << 32) + 1513;
        assert_eq!(sum_and_largest(7, &[1 << 31, 1514, (1 << 31) - 1]), (sum, 1 << 31));
        assert_eq!(sum_and_largest(1 << 33, &[1 << 32, 1]), ((1 << 32) + 1, 1 << 33));
        assert_eq!(sum_and_largest(0, &[7, u64::MAX, 1 << 40]), (u64::MAX, u64::MAX));
    }

    #[test]
    fn a_full_counter_stays_full_and_returns_the_excess() {
        let mut packets = u32::MAX - 2;
        assert_eq!((packets.add(2), packets), (0, u32::MAX));
        assert_eq!((packets.add(7), packets), (7, u32::MAX));
        let mut bytes = u64::MAX - 1;
        assert_eq!((bytes.add(5), bytes), (4, u64::MAX));
    }
}
