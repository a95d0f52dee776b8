//! The paper's aggregator: 2,000 rows of 16 pairs. A key's row is the XOR of its words modulo the
//! number of rows. Each evicted pair is passed on at once.

use flowgauge_core::batch::Batch;
use flowgauge_core::key::FlowKey;
use flowgauge_kernel::equal_in_group;

use super::solutions::Solution;
use crate::experiment::latency::Runner;

/// Number of rows, and pairs per row.
const ROWS: usize = 2000;
const PAIRS: usize = 16;

/// Eviction policy for a full row.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Policy {
    /// Round robin, with one position shared by all rows.
    RoundRobin,
    /// The pair that was not accessed for the longest time.
    LeastRecent,
}

/// How a row is searched.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Search {
    /// All pairs at once, with vector instructions.
    Vector,
    /// One pair after the other.
    Linear,
}

/// A row of pairs: keys and packet counts.
struct Row<K> {
    tags: [[u32; 8]; 2],
    packets: [u32; PAIRS],
    met: [u32; PAIRS],
    keys: [K; PAIRS],
    /// Number of occupied pairs, at the front.
    held: usize,
}

/// The aggregator in front of a solution.
pub(super) struct Aggregator<K, S> {
    rows: Vec<Row<K>>,
    policy: Policy,
    search: Search,
    next: usize,
    clock: u32,
    behind: S,
}

impl<K: FlowKey, S: Solution<K>> Aggregator<K, S> {
    pub(super) fn new(behind: S, policy: Policy, search: Search) -> Self {
        let mut aggregator =
            Self { rows: Vec::with_capacity(ROWS), policy, search, next: 0, clock: 0, behind };
        aggregator.clear();
        aggregator
    }

    fn clear(&mut self) {
        self.rows.clear();
        self.rows.extend((0..ROWS).map(|_| Row {
            tags: [[0; 8]; 2],
            packets: [0; PAIRS],
            met: [0; PAIRS],
            keys: [K::zeroed(); PAIRS],
            held: 0,
        }));
    }

    fn aggregate(&mut self, key: K) {
        let tag = tag(&key);
        let row = &mut self.rows[tag as usize % ROWS];
        self.clock = self.clock.wrapping_add(1);
        let found = match self.search {
            Search::Vector => vector(row, tag),
            Search::Linear => linear(row, tag),
        };
        if let Some(at) = found {
            if row.keys[at] == key {
                row.packets[at] += 1;
            } else {
                // Another key with the same tag is evicted.
                self.behind.update(&row.keys[at], row.packets[at]);
                (row.keys[at], row.packets[at]) = (key, 1);
            }
            row.met[at] = self.clock;
            return;
        }
        let at = if row.held < PAIRS {
            row.held += 1;
            row.held - 1
        } else {
            let at = match self.policy {
                Policy::RoundRobin => {
                    self.next = (self.next + 1) % PAIRS;
                    self.next
                }
                Policy::LeastRecent => {
                    let ages = row.met.map(|met| self.clock.wrapping_sub(met));
                    (0..PAIRS).max_by_key(|at| ages[*at]).unwrap_or(0)
                }
            };
            self.behind.update(&row.keys[at], row.packets[at]);
            at
        };
        row.tags.as_flattened_mut()[at] = tag;
        (row.keys[at], row.packets[at], row.met[at]) = (key, 1, self.clock);
    }
}

/// The XOR of a key's 4-byte words.
fn tag<K: FlowKey>(key: &K) -> u32 {
    let words = key.canonical(K::SHORTEST).chunks(4);
    words.fold(0, |tag, word| {
        let mut bytes = [0; 4];
        bytes[..word.len()].copy_from_slice(word);
        tag ^ u32::from_le_bytes(bytes)
    })
}

fn vector<K>(row: &Row<K>, tag: u32) -> Option<usize> {
    let [first, second] = row.tags.each_ref().map(|tags| equal_in_group(tags, u32::MAX, tag));
    // Free pairs have tags too; ignore them.
    let equal = (first | second << 8) & ((1 << row.held) - 1);
    (equal > 0).then(|| equal.trailing_zeros() as usize)
}

fn linear<K>(row: &Row<K>, tag: u32) -> Option<usize> {
    let tags = row.tags.as_flattened();
    (0..row.held).find(|at| tags[*at] == tag)
}

impl<K: FlowKey, S: Solution<K>> Runner<K> for Aggregator<K, S> {
    fn begin(&mut self) {
        self.clear();
        self.behind.clear();
    }

    fn take(&mut self, batch: &mut Batch<K>) {
        for key in batch.keys() {
            self.aggregate(*key);
        }
    }

    fn end(&mut self) {
        for row in &mut self.rows {
            for (key, packets) in row.keys.iter().zip(row.packets).take(row.held) {
                self.behind.update(key, packets);
            }
            row.held = 0;
        }
    }
}

/// A solution without an aggregator: one update per packet.
pub(super) struct Alone<S>(pub(super) S);

impl<K: FlowKey, S: Solution<K>> Runner<K> for Alone<S> {
    fn begin(&mut self) {
        self.0.clear();
    }

    fn take(&mut self, batch: &mut Batch<K>) {
        for key in batch.keys() {
            self.0.update(key, 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use flowgauge_core::key::Key8;

    use super::*;

    struct Sums(HashMap<u128, u32>, usize);

    impl Solution<Key8> for Sums {
        fn clear(&mut self) {
            self.0.clear();
        }

        fn update(&mut self, key: &Key8, packets: u32) {
            *self.0.entry(crate::exact::number(key.canonical(8))).or_default() += packets;
            self.1 += 1;
        }
    }

    /// For every policy and search, each packet is passed on once, most of them in sums.
    #[test]
    fn nothing_is_lost() {
        let mut random = fastrand::Rng::with_seed(1);
        let mut numbers = Vec::new();
        for _ in 0..100_000 {
            let most = random.u64(1..30_000);
            numbers.push(random.u64(0..most));
        }
        let mut truth = HashMap::<u128, u32>::new();
        for number in &numbers {
            *truth.entry(u128::from(*number) << 64).or_default() += 1;
        }
        for policy in [Policy::RoundRobin, Policy::LeastRecent] {
            for search in [Search::Vector, Search::Linear] {
                let mut aggregator = Aggregator::new(Sums(HashMap::new(), 0), policy, search);
                let mut batch = Batch::new();
                for numbers in numbers.chunks(32) {
                    batch.clear();
                    for number in numbers {
                        if let Some(key) = Key8::from_canonical(&number.to_be_bytes()) {
                            batch.push(key, 64, 0);
                        }
                    }
                    aggregator.take(&mut batch);
                }
                aggregator.end();
                assert!(aggregator.behind.1 < 90_000, "{}", aggregator.behind.1);
                assert_eq!(aggregator.behind.0, truth);
            }
        }
    }
}
