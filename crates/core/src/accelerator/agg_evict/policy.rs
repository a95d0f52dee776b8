//! Eviction policies: which pair of a row is evicted for a new flow.

use flowgauge_kernel::Zeroed;

use super::pairs::PAIRS;
use crate::summary::remix::remix;
use crate::summary::{BuildError, Options};

/// An eviction policy.
pub(super) trait Policy: Sized + Send + 'static {
    /// Whether it is the default, for which batches of single packets have a loop of their own.
    const IS_DEFAULT: bool;

    /// The policy of this name for `rows` rows.
    ///
    /// # Errors
    /// When the memory does not suffice.
    fn new(name: &str, rows: usize, options: &Options) -> Result<Self, BuildError>;
    /// The name on the command line.
    fn name(&self) -> &'static str;
    /// Chooses the pair of a row to evict.
    fn victim(&mut self, row: usize) -> usize;
    /// Records the pair that a packet was added to.
    fn used(&mut self, row: usize, pair: usize);
    fn clear(&mut self);
    fn memory_bytes(&self) -> usize;
}

/// The names of the policies, the default first.
pub(super) const NAMES: [&str; 3] = [RoundRobin::NAME, LEAST_RECENT, RANDOM];
const LEAST_RECENT: &str = "lru";
const RANDOM: &str = "random";

/// Evicts the pairs in turn, with one position for all rows, so that a packet of a known flow
/// writes nothing.
#[derive(Default)]
pub(super) struct RoundRobin {
    next: usize,
}

impl RoundRobin {
    pub(super) const NAME: &'static str = "round-robin";
}

impl Policy for RoundRobin {
    const IS_DEFAULT: bool = true;

    fn new(_: &str, _: usize, _: &Options) -> Result<Self, BuildError> {
        Ok(Self::default())
    }

    fn name(&self) -> &'static str {
        Self::NAME
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

    fn memory_bytes(&self) -> usize {
        0
    }
}

/// Maximum memory of [`Chosen`] for each row, in bytes.
pub(super) const MOST_ROW_BYTES: usize = LeastRecent::ROW_BYTES;

/// Memory of the policy of this name for each row, in bytes.
pub(super) fn row_bytes(name: &str) -> usize {
    if name == LEAST_RECENT { LeastRecent::ROW_BYTES } else { 0 }
}

/// The chosen policy, in one type for all of them: a predictable branch is cheaper than the code
/// size of a type for each.
pub(super) enum Chosen {
    RoundRobin(RoundRobin),
    LeastRecent(LeastRecent),
    Random(Random),
}

impl Policy for Chosen {
    const IS_DEFAULT: bool = false;

    #[inline(never)]
    fn new(name: &str, rows: usize, options: &Options) -> Result<Self, BuildError> {
        Ok(match name {
            LEAST_RECENT => Self::LeastRecent(LeastRecent { orders: options.memory.zeroed(rows)? }),
            RANDOM => {
                let seed = remix(options.digester.seed().draws(), VICTIM_WORD);
                Self::Random(Random { seed, draws: fastrand::Rng::with_seed(seed) })
            }
            _ => Self::RoundRobin(RoundRobin::default()),
        })
    }

    fn name(&self) -> &'static str {
        match self {
            Self::RoundRobin(_) => RoundRobin::NAME,
            Self::LeastRecent(_) => LEAST_RECENT,
            Self::Random(_) => RANDOM,
        }
    }

    #[inline(always)]
    fn victim(&mut self, row: usize) -> usize {
        match self {
            Self::RoundRobin(policy) => policy.victim(row),
            Self::LeastRecent(policy) => policy.victim(row),
            Self::Random(policy) => policy.draws.usize(..PAIRS),
        }
    }

    #[inline(always)]
    fn used(&mut self, row: usize, pair: usize) {
        if let Self::LeastRecent(policy) = self {
            policy.used(row, pair);
        }
    }

    fn clear(&mut self) {
        match self {
            Self::RoundRobin(policy) => policy.clear(),
            Self::LeastRecent(policy) => policy.orders.fill(0),
            Self::Random(policy) => policy.draws = fastrand::Rng::with_seed(policy.seed),
        }
    }

    fn memory_bytes(&self) -> usize {
        match self {
            Self::LeastRecent(policy) => policy.orders.memory_bytes(),
            Self::RoundRobin(_) | Self::Random(_) => 0,
        }
    }
}

/// The remixing word of the seed for drawing victims.
const VICTIM_WORD: u64 = 22;

/// Evicts a random pair of the row.
pub(super) struct Random {
    seed: u64,
    draws: fastrand::Rng,
}

/// Evicts the pair of the row whose flow was seen least recently.
pub(super) struct LeastRecent {
    /// For each row, its pairs in order of their last packets, the latest in the lowest four bits,
    /// XORed with [`ORDER`].
    orders: Zeroed<u64>,
}

/// The pairs in numeric order.
const ORDER: u64 = 0xfedc_ba98_7654_3210;

/// The lowest bit of each group of four.
const ONES: u64 = 0x1111_1111_1111_1111;

impl LeastRecent {
    const ROW_BYTES: usize = size_of::<u64>();

    #[inline(always)]
    fn victim(&self, row: usize) -> usize {
        ((self.orders[row] ^ ORDER) >> 60) as usize
    }

    #[inline(always)]
    fn used(&mut self, row: usize, pair: usize) {
        self.orders[row] = to_front(self.orders[row] ^ ORDER, pair as u64) ^ ORDER;
    }
}

/// Moves a pair to the lowest group of an order.
#[inline(always)]
fn to_front(order: u64, pair: u64) -> u64 {
    // The bit of the lowest zero group is correct; borrows disturb only groups above it.
    let differs = order ^ (ONES * pair);
    let zero = differs.wrapping_sub(ONES) & !differs & (ONES << 3);
    // All groups up to the pair's.
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
