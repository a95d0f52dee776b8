//! Which pair of a full row makes room.

use flowgauge_kernel::Zeroed;

use super::pairs::PAIRS;
use crate::summary::{BuildError, Memory};

/// Chooses pairs.
pub(super) trait Policy: Sized + Send + 'static {
    /// The word for it on the command line.
    const NAME: &'static str;
    /// Bytes for each row.
    const ROW_BYTES: usize;

    fn new(rows: usize, memory: &Memory) -> Result<Self, BuildError>;
    /// The pair that would have to leave this row.
    fn victim(&mut self, row: usize) -> usize;
    /// Takes note of the pair that a packet went to.
    fn used(&mut self, row: usize, pair: usize);
    fn clear(&mut self);
}

/// The next pair of whichever row, around and around: one number for all rows, and nothing to write
/// down of a packet whose flow is there.
pub(super) struct RoundRobin {
    next: usize,
}

impl Policy for RoundRobin {
    const NAME: &'static str = "round-robin";
    const ROW_BYTES: usize = 0;

    fn new(_: usize, _: &Memory) -> Result<Self, BuildError> {
        Ok(Self { next: 0 })
    }

    #[inline(always)]
    fn victim(&mut self, _: usize) -> usize {
        self.next = (self.next + 1) % PAIRS;
        self.next
    }

    #[inline(always)]
    fn used(&mut self, _: usize, _: usize) {}

    fn clear(&mut self) {
        self.next = 0;
    }
}

/// The pair of the row whose flow was seen least recently.
pub(super) struct LeastRecent {
    /// The pairs of each row in the order of their last packets, the latest lowest, four bits each,
    /// exclusive or [`ORDER`].
    orders: Zeroed<u64>,
}

/// Pairs in the order of their numbers.
const ORDER: u64 = 0xfedc_ba98_7654_3210;

/// A bit in each group of four.
const ONES: u64 = 0x1111_1111_1111_1111;

impl Policy for LeastRecent {
    const NAME: &'static str = "lru";
    const ROW_BYTES: usize = size_of::<u64>();

    fn new(rows: usize, memory: &Memory) -> Result<Self, BuildError> {
        Ok(Self { orders: memory.zeroed(rows)? })
    }

    #[inline(always)]
    fn victim(&mut self, row: usize) -> usize {
        ((self.orders[row] ^ ORDER) >> 60) as usize
    }

    #[inline(always)]
    fn used(&mut self, row: usize, pair: usize) {
        self.orders[row] = to_front(self.orders[row] ^ ORDER, pair as u64) ^ ORDER;
    }

    fn clear(&mut self) {
        self.orders.fill(0);
    }
}

/// Moves a pair to the lowest place of an order.
#[inline(always)]
fn to_front(order: u64, pair: u64) -> u64 {
    // The lowest group of zeros has its bit set here, whatever borrows above it.
    let differs = order ^ (ONES * pair);
    let zero = differs.wrapping_sub(ONES) & !differs & (ONES << 3);
    // All groups up to that of the pair.
    let below = zero ^ zero.wrapping_sub(1);
    order & !below | (order << 4 | pair) & below
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_is_that_of_the_last_use() {
        let mut random = fastrand::Rng::with_seed(1);
        let (mut order, mut model) = (ORDER, (0..16).collect::<Vec<u64>>());
        for _ in 0..10_000 {
            let pair = random.u64(0..16);
            order = to_front(order, pair);
            model.retain(|other| *other != pair);
            model.insert(0, pair);
            let all: Vec<u64> = (0..16).map(|place| order >> (4 * place) & 15).collect();
            assert_eq!(all, model);
        }
    }
}
