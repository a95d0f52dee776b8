//! The paper's aggregator and its nine solutions, at its sizes.

use bytemuck::Zeroable;
use flowgauge_core::batch::Batch;
use flowgauge_core::key::FlowKey;
use flowgauge_kernel::{Zeroed, equal_in_group};

use crate::experiment::latency::Runner;
use crate::experiment::papers::{Heap, xxhash32};
use crate::keys::Keys;
use crate::machine::zeroed;

/// Number of rows, and pairs per row.
const AGGREGATOR_ROWS: usize = 2000;
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

/// The aggregator in front of a solution: 2,000 rows of 16 pairs. A key's row is the XOR of its words
/// modulo the number of rows. Each evicted pair is passed on at once.
pub(super) struct Aggregator<K: Keys, S> {
    rows: Vec<Row<K::Key>>,
    policy: Policy,
    search: Search,
    next: usize,
    clock: u32,
    behind: S,
}

impl<K: Keys, S: Solution<K>> Aggregator<K, S> {
    pub(super) fn new(behind: S, policy: Policy, search: Search) -> Self {
        let mut aggregator = Self {
            rows: Vec::with_capacity(AGGREGATOR_ROWS),
            policy,
            search,
            next: 0,
            clock: 0,
            behind,
        };
        aggregator.clear();
        aggregator
    }

    fn clear(&mut self) {
        self.rows.clear();
        self.rows.extend((0..AGGREGATOR_ROWS).map(|_| Row {
            tags: [[0; 8]; 2],
            packets: [0; PAIRS],
            met: [0; PAIRS],
            keys: [K::Key::zeroed(); PAIRS],
            held: 0,
        }));
    }

    fn aggregate(&mut self, key: K::Key) {
        let tag = tag::<K>(&key);
        let row = &mut self.rows[tag as usize % AGGREGATOR_ROWS];
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
fn tag<K: Keys>(key: &K::Key) -> u32 {
    let words = key.canonical(K::BYTES).chunks(4);
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

impl<K: Keys, S: Solution<K>> Runner<K> for Aggregator<K, S> {
    fn begin(&mut self) {
        self.clear();
        self.behind.clear();
    }

    fn take(&mut self, batch: &mut Batch<K::Key>) {
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

impl<K: Keys, S: Solution<K>> Runner<K> for Alone<S> {
    fn begin(&mut self) {
        self.0.clear();
    }

    fn take(&mut self, batch: &mut Batch<K::Key>) {
        for key in batch.keys() {
            self.0.update(key, 1);
        }
    }
}

/// Counts packets of flows, possibly several of one flow at once, with one hash per row.
pub(super) trait Solution<K: Keys>: Send {
    fn clear(&mut self);
    fn update(&mut self, key: &K::Key, packets: u32);
}

/// Rows, and columns per row.
const ROWS: usize = 4;
const COLUMNS: usize = 65536;

/// Count-Min, and MRAC: rows of counters.
pub(super) struct Counters(Zeroed<u32>);

impl Counters {
    pub(super) fn new() -> Self {
        Self(zeroed(ROWS * COLUMNS))
    }
}

impl<K: Keys> Solution<K> for Counters {
    fn clear(&mut self) {
        self.0.fill(0);
    }

    fn update(&mut self, key: &K::Key, packets: u32) {
        let bytes = key.canonical(K::BYTES);
        for row in 0..ROWS {
            let column = xxhash32(bytes, row as u32) as usize % COLUMNS;
            self.0[row * COLUMNS + column] += packets;
        }
    }
}

/// Number of FlowRadar cells.
const CELLS: usize = 262_144;

/// FlowRadar for keys of `BYTES` bytes. Each cell holds the XOR of its keys, the number of flows
/// and the number of packets; a third of the memory is a Bloom filter.
pub(super) struct FlowRadar<const BYTES: usize> {
    filter: Zeroed<u64>,
    cells: Zeroed<([u8; BYTES], u32, u32)>,
}

impl<const BYTES: usize> FlowRadar<BYTES> {
    const FILTER_BITS: usize = CELLS * (BYTES + 8) * 8 / 3;

    pub(super) fn new() -> Self {
        Self { filter: zeroed(Self::FILTER_BITS.div_ceil(64)), cells: zeroed(CELLS) }
    }
}

impl<K: Keys, const BYTES: usize> Solution<K> for FlowRadar<BYTES> {
    fn clear(&mut self) {
        self.filter.fill(0);
        self.cells.fill(([0; BYTES], 0, 0));
    }

    fn update(&mut self, key: &K::Key, packets: u32) {
        let bytes = key.canonical(K::BYTES);
        let mut known = true;
        for hash in 0..ROWS {
            let bit = xxhash32(bytes, hash as u32) as usize % Self::FILTER_BITS;
            let word = &mut self.filter[bit / 64];
            known &= *word >> (bit % 64) & 1 == 1;
            *word |= 1 << (bit % 64);
        }
        for hash in ROWS..2 * ROWS {
            let cell = &mut self.cells[xxhash32(bytes, hash as u32) as usize % CELLS];
            if !known {
                cell.0.iter_mut().zip(bytes).for_each(|(cell, byte)| *cell ^= byte);
                cell.1 += 1;
            }
            cell.2 += packets;
        }
    }
}

/// Number of tracked largest flows.
const TOP: usize = 128;

/// Space-Saving with a binary heap.
pub(super) struct SpaceSaving<K: Keys>(Heap<K, 0>);

impl<K: Keys> SpaceSaving<K> {
    pub(super) fn new() -> Self {
        Self(Heap::with_counters(TOP))
    }
}

impl<K: Keys> Solution<K> for SpaceSaving<K> {
    fn clear(&mut self) {
        self.0.clear();
    }

    fn update(&mut self, key: &K::Key, packets: u32) {
        let hash = xxhash32(key.canonical(K::BYTES), 0);
        self.0.count(*key, hash, packets, 0);
    }
}

/// Levels of UnivMon. The first has all columns, each next one half as many.
const LEVELS: usize = 4;

/// UnivMon: Count Sketches over successively halved key sets, each with a heap of its heaviest
/// keys.
pub(super) struct UnivMon<K: Keys> {
    levels: Vec<(Zeroed<i32>, Heap<K, 0>)>,
}

impl<K: Keys> UnivMon<K> {
    pub(super) fn new() -> Self {
        let level = |level: usize| (zeroed(ROWS * (COLUMNS >> level)), Heap::with_counters(TOP));
        Self { levels: (0..LEVELS).map(level).collect() }
    }
}

impl<K: Keys> Solution<K> for UnivMon<K> {
    fn clear(&mut self) {
        for (counters, heap) in &mut self.levels {
            counters.fill(0);
            heap.clear();
        }
    }

    fn update(&mut self, key: &K::Key, packets: u32) {
        let bytes = key.canonical(K::BYTES);
        let depth = xxhash32(bytes, u32::MAX).trailing_ones() as usize;
        for (level, (counters, heap)) in self.levels.iter_mut().enumerate().take(1 + depth) {
            let columns = COLUMNS >> level;
            let mut estimates = [0; ROWS];
            let mut hash = 0;
            for (row, estimate) in estimates.iter_mut().enumerate() {
                hash = xxhash32(bytes, (level * ROWS + row) as u32);
                let sign = if hash >> 31 == 1 { 1 } else { -1 };
                let counter = &mut counters[row * columns + hash as usize % columns];
                *counter += sign * packets.cast_signed();
                *estimate = sign * *counter;
            }
            estimates.sort_unstable();
            let median = i32::midpoint(estimates[1], estimates[2]).max(0) as u32;
            heap.offer(*key, hash, median);
        }
    }
}

/// A reversible sketch. The bytes of a key are its words, each hashed to half as many bits.
pub(super) struct Reversible {
    tables: Vec<[[u8; 256]; 4]>,
    counters: Zeroed<u32>,
}

impl Reversible {
    pub(super) fn new() -> Self {
        let mut random = fastrand::Rng::with_seed(1);
        let mut table = || std::array::from_fn(|_| random.u8(0..16));
        let tables = (0..ROWS).map(|_| std::array::from_fn(|_| table())).collect();
        Self { tables, counters: zeroed(ROWS * COLUMNS) }
    }

    /// Counts packets of a key of four bytes.
    fn count(&mut self, bytes: &[u8], packets: u32) {
        // Mangling, so that similar keys do not collide in all rows.
        let mangled = [0, 1, 2, 3].map(|at| bytes.get(at).copied().unwrap_or(0));
        let mangled = u32::from_le_bytes(mangled).wrapping_mul(0x9e37_79b1).to_le_bytes();
        for (row, tables) in self.tables.iter().enumerate() {
            let words = tables.iter().zip(mangled);
            let column = words.fold(0, |column, (table, byte)| {
                column << 4 | usize::from(table[usize::from(byte)])
            });
            self.counters[row * COLUMNS + column] += packets;
        }
    }
}

impl<K: Keys> Solution<K> for Reversible {
    fn clear(&mut self) {
        self.counters.fill(0);
    }

    fn update(&mut self, key: &K::Key, packets: u32) {
        self.count(key.canonical(K::BYTES), packets);
    }
}

/// Number of bitmaps in TwoLevel, and bits per bitmap.
const BITMAPS: usize = 4096;
const BITS: u32 = 12;

/// TwoLevel: a reversible sketch of sources, and bitmaps of their destinations. Keys hold both
/// addresses.
pub(super) struct TwoLevel {
    sources: Reversible,
    bitmaps: Vec<u16>,
}

impl TwoLevel {
    pub(super) fn new() -> Self {
        Self { sources: Reversible::new(), bitmaps: vec![0; ROWS * BITMAPS] }
    }
}

impl<K: Keys> Solution<K> for TwoLevel {
    fn clear(&mut self) {
        self.sources.counters.fill(0);
        self.bitmaps.fill(0);
    }

    fn update(&mut self, key: &K::Key, packets: u32) {
        let bytes = key.canonical(K::BYTES);
        let (source, destination) = bytes.split_at(bytes.len() / 2);
        self.sources.count(source, packets);
        for row in 0..ROWS {
            let bitmap = xxhash32(source, row as u32) as usize % BITMAPS;
            let bit = xxhash32(destination, row as u32) % BITS;
            self.bitmaps[row * BITMAPS + bitmap] |= 1 << bit;
        }
    }
}

/// FM: four bitmaps, each with its own hash.
pub(super) struct Fm([u32; ROWS]);

impl Fm {
    pub(super) fn new() -> Self {
        Self([0; ROWS])
    }
}

impl<K: Keys> Solution<K> for Fm {
    fn clear(&mut self) {
        self.0 = [0; ROWS];
    }

    fn update(&mut self, key: &K::Key, _: u32) {
        let bytes = key.canonical(K::BYTES);
        for (row, bitmap) in self.0.iter_mut().enumerate() {
            *bitmap |= 1 << xxhash32(bytes, row as u32).trailing_zeros().min(31);
        }
    }
}

/// Linear counting: four bit arrays, each with its own hash.
pub(super) struct LinearCounting(Zeroed<u32>);

impl LinearCounting {
    pub(super) fn new() -> Self {
        Self(zeroed(ROWS * COLUMNS))
    }
}

impl<K: Keys> Solution<K> for LinearCounting {
    fn clear(&mut self) {
        self.0.fill(0);
    }

    fn update(&mut self, key: &K::Key, _: u32) {
        let bytes = key.canonical(K::BYTES);
        for row in 0..ROWS {
            let hash = xxhash32(bytes, row as u32);
            self.0[row * COLUMNS + (hash >> 16) as usize] |= 1 << (hash % 32);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use flowgauge_core::key::Key8;

    use super::*;
    use crate::keys::Pairs;

    struct Sums(HashMap<u128, u32>, usize);

    impl Solution<Pairs> for Sums {
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

    fn key(number: u64) -> Key8 {
        match Key8::from_canonical(&number.to_be_bytes()) {
            Some(key) => key,
            None => panic!("eight bytes are a key"),
        }
    }

    fn update(solution: &mut impl Solution<Pairs>, number: u64, packets: u32) {
        solution.update(&key(number), packets);
    }

    /// One update with a sum equals one update per packet.
    #[test]
    fn sums_add_up() {
        let (mut sums, mut each) = (FlowRadar::<8>::new(), FlowRadar::<8>::new());
        let (mut univmon, mut univmon_each) = (UnivMon::new(), UnivMon::new());
        let (mut two, mut two_each) = (TwoLevel::new(), TwoLevel::new());
        for number in 1..200 {
            let packets = 1 + number as u32 % 7;
            update(&mut sums, number, packets);
            update(&mut univmon, number, packets);
            update(&mut two, number, packets);
            for _ in 0..packets {
                update(&mut each, number, 1);
                update(&mut univmon_each, number, 1);
                update(&mut two_each, number, 1);
            }
        }
        assert!(*sums.cells == *each.cells && *sums.filter == *each.filter);
        let counters = |univmon: &UnivMon<Pairs>| {
            univmon.levels.iter().map(|(counters, _)| counters.to_vec()).collect::<Vec<_>>()
        };
        assert_eq!(counters(&univmon), counters(&univmon_each));
        assert!(two.bitmaps == two_each.bitmaps);
        assert!(*two.sources.counters == *two_each.sources.counters);
        let flows: u32 = sums.cells.iter().map(|cell| cell.1).sum();
        assert_eq!(flows, 4 * 199);
    }
}
