//! The paper's structures: key and value side by side with one entry per bucket, and sketches with
//! a hash per row and a set of heavy keys.

use std::collections::HashSet;

use bytemuck::Zeroable;
use flowgauge_core::batch::Batch;
use flowgauge_core::key::FlowKey;
use flowgauge_kernel::{Digester, Isa, Seed, Zeroed, prefetch};

use crate::experiment::latency::Runner;
use crate::experiment::papers::xxhash32;
use crate::keys::Keys;
use crate::machine::zeroed;
use crate::trial::THRESHOLD;

/// Maximum probes for a key: a search in a table that is too small would not end.
const PROBES: usize = 128;

/// Maximum moves to insert an entry.
const MOVES: usize = 64;

/// A key with its value, in whole machine words; free if it has no packets.
#[derive(Clone, Copy, Zeroable)]
#[repr(align(8))]
struct Entry<K, const PAYLOAD: usize> {
    key: K,
    value: Value<PAYLOAD>,
}

/// A 12-byte counter and `PAYLOAD` bytes of the latest packet.
#[derive(Clone, Copy, Zeroable)]
struct Value<const PAYLOAD: usize> {
    packets: u32,
    bytes: [u32; 2],
    payload: [u8; PAYLOAD],
}

impl<const PAYLOAD: usize> Value<PAYLOAD> {
    fn add(&mut self, bytes: u64) {
        self.packets += 1;
        let sum = u64::from(self.bytes[0]) | u64::from(self.bytes[1]) << 32;
        let sum = sum + bytes;
        self.bytes = [sum as u32, (sum >> 32) as u32];
        self.payload = [bytes as u8; PAYLOAD];
    }
}

/// Where a key may be stored.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Rule {
    /// In the first free bucket from its own on: the linear table.
    Linear,
    /// In its own bucket, replacing any other key: the paper's count array.
    Overwriting,
    /// In one of two groups of this many buckets.
    Cuckoo(usize),
}

/// Entries of key and value in a power of two of buckets.
pub(super) struct Inline<K: Keys, const PAYLOAD: usize> {
    rule: Rule,
    digester: Digester,
    entries: Zeroed<Entry<K::Key, PAYLOAD>>,
    random: fastrand::Rng,
    untracked: u64,
}

impl<K: Keys, const PAYLOAD: usize> Inline<K, PAYLOAD> {
    /// As many buckets as fit into `bytes`, a power of two.
    pub(super) fn new(rule: Rule, bytes: usize) -> Self {
        Self {
            rule,
            digester: Digester::new(Seed::number(1), Isa::best()).for_keys(K::BYTES),
            entries: zeroed(Self::buckets(bytes)),
            random: fastrand::Rng::with_seed(1),
            untracked: 0,
        }
    }

    /// The number of buckets in `bytes` bytes.
    pub(super) fn buckets(bytes: usize) -> usize {
        1 << (bytes / size_of::<Entry<K::Key, PAYLOAD>>()).max(8).ilog2()
    }

    /// Both groups of a digest, identical if there is no choice.
    fn groups(&self, digest: u64) -> [usize; 2] {
        let mask = self.entries.len() - 1;
        match self.rule {
            Rule::Cuckoo(slots) => {
                [digest, digest >> 32].map(|digest| digest as usize & mask & !(slots - 1))
            }
            _ => [digest as usize & mask; 2],
        }
    }

    fn count(&mut self, key: K::Key, digest: u64, bytes: u64) {
        let [home, other] = self.groups(digest);
        let entry = match self.rule {
            Rule::Overwriting => {
                let entry = &mut self.entries[home];
                if entry.key != key {
                    *entry = Entry { key, value: Value::zeroed() };
                }
                Some(home)
            }
            Rule::Linear => self.probe(key, home),
            Rule::Cuckoo(slots) => {
                let found = self.find(key, home, slots);
                let found = found.or_else(|| self.find(key, other, slots));
                found.or_else(|| Some(self.insert(key, [home, other], slots)))
            }
        };
        match entry {
            Some(at) => self.entries[at].value.add(bytes),
            None => self.untracked += 1,
        }
    }

    fn probe(&mut self, key: K::Key, home: usize) -> Option<usize> {
        let mask = self.entries.len() - 1;
        let at = (home..home + PROBES).map(|at| at & mask).find(|at| {
            let entry = &self.entries[*at];
            entry.value.packets == 0 || entry.key == key
        })?;
        self.entries[at].key = key;
        Some(at)
    }

    fn find(&self, key: K::Key, group: usize, slots: usize) -> Option<usize> {
        (group..group + slots).find(|at| {
            let entry = &self.entries[*at];
            entry.value.packets > 0 && entry.key == key
        })
    }

    /// A bucket for a new key: a free one in its groups, or one whose entry moves to its other
    /// group.
    fn insert(&mut self, key: K::Key, groups: [usize; 2], slots: usize) -> usize {
        let free = |entries: &[Entry<K::Key, PAYLOAD>], group: usize| {
            (group..group + slots).find(|at| entries[*at].value.packets == 0)
        };
        for group in groups {
            if let Some(at) = free(&self.entries, group) {
                self.entries[at].key = key;
                return at;
            }
        }
        let at = groups[0] + self.random.usize(0..slots);
        let mut moved =
            std::mem::replace(&mut self.entries[at], Entry { key, value: Value::zeroed() });
        let mut from = groups[0];
        for _ in 0..MOVES {
            let [one, two] = self.groups(moved.key.digest(&self.digester));
            let to = if one == from { two } else { one };
            if let Some(place) = free(&self.entries, to).filter(|place| *place != at) {
                self.entries[place] = moved;
                return at;
            }
            let place = to + self.random.usize(0..slots);
            if place == at {
                continue;
            }
            moved = std::mem::replace(&mut self.entries[place], moved);
            from = to;
        }
        self.untracked += u64::from(moved.value.packets);
        at
    }
}

impl<K: Keys, const PAYLOAD: usize> Runner<K> for Inline<K, PAYLOAD> {
    fn begin(&mut self) {
        self.entries.fill(Entry::zeroed());
        self.untracked = 0;
    }

    fn take(&mut self, batch: &mut Batch<K::Key>) {
        batch.digest(&self.digester);
        for digest in batch.digests() {
            let [home, other] = self.groups(*digest);
            prefetch(&self.entries, home);
            if other != home {
                prefetch(&self.entries, other);
            }
        }
        for ((key, digest), bytes) in batch.keys().iter().zip(batch.digests()).zip(batch.bytes()) {
            self.count(*key, *digest, *bytes);
        }
    }

    fn untracked(&self) -> u64 {
        self.untracked
    }
}

/// Reports which bytes of its memory a packet touches.
pub(super) trait Traced<K: Keys>: Runner<K> {
    /// Bytes of memory.
    fn memory_bytes(&self) -> usize;
    /// The load factor; `None` if keys do not occupy entries.
    fn load(&self) -> Option<f64>;
    /// Processes a packet, and reports the first byte and length of each entry it reads.
    fn trace(&mut self, key: K::Key, touch: &mut dyn FnMut(usize, usize));
}

/// For linear tables and overwriting arrays.
impl<K: Keys, const PAYLOAD: usize> Traced<K> for Inline<K, PAYLOAD> {
    fn memory_bytes(&self) -> usize {
        self.entries.memory_bytes()
    }

    fn load(&self) -> Option<f64> {
        let held = self.entries.iter().filter(|entry| entry.value.packets > 0).count();
        Some(held as f64 / self.entries.len() as f64)
    }

    fn trace(&mut self, key: K::Key, touch: &mut dyn FnMut(usize, usize)) {
        let mask = self.entries.len() - 1;
        let digest = key.digest(&self.digester);
        let [home, _] = self.groups(digest);
        let buckets = match self.rule {
            Rule::Linear => match self.probe(key, home) {
                Some(at) => 1 + (at.wrapping_sub(home) & mask),
                None => PROBES,
            },
            _ => 1,
        };
        let bytes = size_of::<Entry<K::Key, PAYLOAD>>();
        (home..home + buckets).for_each(|at| touch((at & mask) * bytes, bytes));
        self.count(key, digest, 64);
    }
}

/// Counters need not be counted: a packet's accesses depend only on its key.
impl<K: Keys, const ROWS: usize> Traced<K> for Rows<K, ROWS> {
    fn memory_bytes(&self) -> usize {
        self.counters.memory_bytes()
    }

    fn load(&self) -> Option<f64> {
        None
    }

    fn trace(&mut self, key: K::Key, touch: &mut dyn FnMut(usize, usize)) {
        self.places(&key).into_iter().for_each(|place| touch(4 * place, 4));
    }
}

/// A linear table with buckets of a key and a pointer to its value. Values are in order of arrival.
pub(super) struct Apart<K: Keys, const PAYLOAD: usize> {
    digester: Digester,
    /// Keys with the number of their value plus one; 0 is free.
    buckets: Zeroed<(K::Key, u64)>,
    values: Zeroed<Value<PAYLOAD>>,
    /// Number of values.
    held: usize,
    untracked: u64,
}

impl<K: Keys, const PAYLOAD: usize> Apart<K, PAYLOAD> {
    /// A table with this many buckets (a power of two), each of which may have a value.
    pub(super) fn new(buckets: usize) -> Self {
        Self {
            digester: Digester::new(Seed::number(1), Isa::best()).for_keys(K::BYTES),
            buckets: zeroed(buckets),
            values: zeroed(buckets),
            held: 0,
            untracked: 0,
        }
    }

    fn count(&mut self, key: K::Key, digest: u64, bytes: u64) {
        let mask = self.buckets.len() - 1;
        let home = digest as usize & mask;
        let free = |(have, number): &(K::Key, u64)| *number == 0 || *have == key;
        let at = (home..home + PROBES).map(|at| at & mask).find(|at| free(&self.buckets[*at]));
        let Some(at) = at else {
            self.untracked += 1;
            return;
        };
        if self.buckets[at].1 == 0 {
            self.values[self.held] = Value::zeroed();
            self.held += 1;
            self.buckets[at] = (key, self.held as u64);
        }
        let value = &mut self.values[self.buckets[at].1 as usize - 1];
        value.packets += 1;
        value.bytes[0] = value.bytes[0].wrapping_add(bytes as u32);
        value.payload = [bytes as u8; PAYLOAD];
    }
}

impl<K: Keys, const PAYLOAD: usize> Runner<K> for Apart<K, PAYLOAD> {
    fn begin(&mut self) {
        self.buckets.fill((K::Key::zeroed(), 0));
        self.held = 0;
        self.untracked = 0;
    }

    fn take(&mut self, batch: &mut Batch<K::Key>) {
        batch.digest(&self.digester);
        let mask = self.buckets.len() - 1;
        for digest in batch.digests() {
            prefetch(&self.buckets, *digest as usize & mask);
        }
        for ((key, digest), bytes) in batch.keys().iter().zip(batch.digests()).zip(batch.bytes()) {
            self.count(*key, *digest, *bytes);
        }
    }

    fn untracked(&self) -> u64 {
        self.untracked
    }
}

/// Rows of counters, each with its own hash, and a set of keys that exceed the threshold in all
/// rows. The count array has one row, Count-Min three.
pub(super) struct Rows<K: Keys, const ROWS: usize> {
    counters: Zeroed<[u32; ROWS]>,
    columns: usize,
    threshold: u32,
    heavy: HashSet<u128>,
    keys: std::marker::PhantomData<K>,
}

impl<K: Keys, const ROWS: usize> Rows<K, ROWS> {
    /// As many counters as fit into `bytes`, with a power of two per row. A key is heavy with a
    /// thousandth of `packets`.
    pub(super) fn new(bytes: usize, packets: usize) -> Self {
        let columns = 1_usize << (bytes / size_of::<[u32; ROWS]>()).max(8).ilog2();
        let threshold = (THRESHOLD * packets as f64) as u32;
        Self {
            counters: zeroed(columns),
            columns,
            threshold,
            heavy: HashSet::new(),
            keys: std::marker::PhantomData,
        }
    }

    /// The counter indices of a key, by row; each row is contiguous.
    fn places(&self, key: &K::Key) -> [usize; ROWS] {
        let bytes = key.canonical(K::BYTES);
        std::array::from_fn(|row| {
            row * self.columns + (xxhash32(bytes, row as u32) as usize & (self.columns - 1))
        })
    }
}

impl<K: Keys, const ROWS: usize> Runner<K> for Rows<K, ROWS> {
    fn begin(&mut self) {
        self.counters.fill([0; ROWS]);
        self.heavy.clear();
    }

    fn take(&mut self, batch: &mut Batch<K::Key>) {
        let mut places = [[0; ROWS]; super::BATCH];
        for keys in batch.keys().chunks(super::BATCH) {
            for (key, places) in keys.iter().zip(&mut places) {
                *places = self.places(key);
                for place in *places {
                    prefetch(self.counters.as_flattened(), place);
                }
            }
            for (key, places) in keys.iter().zip(&places) {
                let counters = self.counters.as_flattened_mut();
                let mut least = u32::MAX;
                for place in *places {
                    counters[place] += 1;
                    least = least.min(counters[place]);
                }
                if least == self.threshold {
                    self.heavy.insert(crate::exact::number(key.canonical(K::BYTES)));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use flowgauge_core::key::Key8;

    use super::*;
    use crate::keys::Pairs;

    fn fill(batch: &mut Batch<Key8>, numbers: impl Iterator<Item = u64>) {
        batch.clear();
        for number in numbers {
            if let Some(key) = Key8::from_canonical(&number.to_be_bytes()) {
                batch.push(key, 64, 0);
            }
        }
    }

    /// A table with enough room counts every packet of every flow once.
    #[test]
    fn tables_are_exact_where_they_have_room() {
        for rule in [Rule::Linear, Rule::Cuckoo(1), Rule::Cuckoo(4)] {
            let mut table = Inline::<Pairs, 12>::new(rule, 1 << 17);
            let (mut batch, mut truth) = (Batch::new(), [0; 700]);
            table.begin();
            for round in 0..300 {
                let numbers = (0..100).map(|i| (i * 31 + round * 17 + i * round) % 700);
                numbers.clone().for_each(|number| truth[number as usize] += 1);
                fill(&mut batch, numbers);
                table.take(&mut batch);
            }
            assert_eq!(table.untracked(), 0);
            let held: Vec<_> =
                table.entries.iter().filter(|entry| entry.value.packets > 0).collect();
            assert_eq!(held.len(), truth.iter().filter(|count| **count > 0).count());
            for entry in held {
                let mut number = [0; 8];
                number.copy_from_slice(entry.key.canonical(8));
                assert_eq!(entry.value.packets, truth[u64::from_be_bytes(number) as usize]);
                assert_eq!(entry.value.bytes, [64 * entry.value.packets, 0]);
            }
        }
    }

    #[test]
    fn packets_without_room_are_counted() {
        let mut batch = Batch::new();
        let mut runners: [Box<dyn Runner<Pairs>>; 3] = [
            Box::new(Inline::<Pairs, 0>::new(Rule::Linear, 1 << 12)),
            Box::new(Inline::<Pairs, 0>::new(Rule::Cuckoo(4), 1 << 12)),
            Box::new(Apart::<Pairs, 0>::new(1 << 8)),
        ];
        for runner in &mut runners {
            runner.begin();
            for round in 0..100 {
                fill(&mut batch, (0..100).map(|i| 100 * round + i));
                runner.take(&mut batch);
            }
            assert!(runner.untracked() > 5000, "{}", runner.untracked());
            runner.begin();
            assert_eq!(runner.untracked(), 0);
        }
    }

    #[test]
    fn heavy_keys_are_set_apart() {
        let mut rows = Rows::<Pairs, 3>::new(1 << 16, 20_000);
        let mut batch = Batch::new();
        for round in 0..100 {
            fill(&mut batch, (0..200).map(|i| if i < 20 { 7 } else { 1000 + 200 * round + i }));
            rows.take(&mut batch);
        }
        assert_eq!(rows.heavy.len(), 1);
        let counters = rows.counters.as_flattened();
        assert_eq!(counters.iter().map(|count| u64::from(*count)).sum::<u64>(), 3 * 20_000);
    }
}
