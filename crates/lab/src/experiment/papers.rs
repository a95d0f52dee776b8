//! Parts of the papers' structures: their heap and their hash functions.
//!
//! The heap is a hash index and a binary min-heap, for Space-Saving and for the heaviest keys of a
//! sketch. Moving an entry updates its stored position.

use flowgauge_core::batch::Batch;
use flowgauge_kernel::{Digester, Isa, Seed, prefetch};

use super::latency::Runner;
use crate::keys::Keys;

/// A key with a 12-byte counter and `PAYLOAD` bytes of its latest packet.
#[derive(Clone, Copy)]
struct Entry<K, const PAYLOAD: usize> {
    key: K,
    digest: u32,
    /// Its position in the heap.
    place: u32,
    bytes: u64,
    payload: [u8; PAYLOAD],
}

/// A binary min-heap of counters by packets.
pub(super) struct Heap<K: Keys, const PAYLOAD: usize> {
    digester: Digester,
    /// Entries by number.
    entries: Vec<Entry<K::Key, PAYLOAD>>,
    /// Packets and entry number, in heap order.
    order: Vec<(u32, u32)>,
    /// Entry numbers plus one, by digest; 0 is free.
    index: Vec<u32>,
    most: usize,
}

impl<K: Keys, const PAYLOAD: usize> Heap<K, PAYLOAD> {
    /// As many counters as fit into `bytes`, at least one.
    pub(super) fn new(bytes: usize) -> Self {
        Self::with_counters((bytes / Self::entry_bytes()).max(1))
    }

    /// A heap with this many counters.
    pub(super) fn with_counters(most: usize) -> Self {
        Self {
            digester: Digester::new(Seed::number(1), Isa::best()).for_keys(K::BYTES),
            entries: Vec::with_capacity(most),
            order: Vec::with_capacity(most),
            index: vec![0; (2 * most).next_power_of_two()],
            most,
        }
    }

    /// Bytes per entry, including heap and index.
    fn entry_bytes() -> usize {
        size_of::<Entry<K::Key, PAYLOAD>>() + size_of::<(u32, u32)>() + 2 * size_of::<u32>()
    }

    /// The number of counters.
    pub(super) fn counters(&self) -> usize {
        self.most
    }

    /// Counts packets of a key. A new key replaces the smallest one if the heap is full.
    pub(super) fn count(&mut self, key: K::Key, digest: u32, packets: u32, bytes: u64) {
        let place = match self.find(key, digest) {
            Some(number) => self.entries[number].place as usize,
            None if self.entries.len() < self.most => self.join(key, digest),
            None => self.replace(key, digest),
        };
        let (sum, number) = &mut self.order[place];
        *sum += packets;
        let entry = &mut self.entries[*number as usize];
        entry.bytes += bytes;
        entry.payload = [bytes as u8; PAYLOAD];
        self.sink(place);
    }

    /// Reports the current size of a key, which is kept if it is among the largest.
    pub(super) fn offer(&mut self, key: K::Key, digest: u32, packets: u32) {
        let place = match self.find(key, digest) {
            Some(number) => self.entries[number].place as usize,
            None if self.entries.len() < self.most => self.join(key, digest),
            None if packets > self.order[0].0 => self.replace(key, digest),
            None => return,
        };
        self.order[place].0 = packets;
        let place = self.rise(place);
        self.sink(place);
    }

    /// The packets of the largest key.
    #[cfg(test)]
    pub(super) fn largest(&self) -> u32 {
        self.order.iter().map(|(packets, _)| *packets).max().unwrap_or(0)
    }

    /// Removes all entries.
    pub(super) fn clear(&mut self) {
        self.entries.clear();
        self.order.clear();
        self.index.fill(0);
    }

    /// Adds an entry without packets for a key; returns its position.
    fn join(&mut self, key: K::Key, digest: u32) -> usize {
        let (number, place) = (self.entries.len() as u32, self.order.len());
        let payload = [0; PAYLOAD];
        self.entries.push(Entry { key, digest, place: place as u32, bytes: 0, payload });
        self.order.push((0, number));
        self.insert(digest, number);
        self.rise(place)
    }

    /// Reassigns the smallest entry to a key; returns its position.
    fn replace(&mut self, key: K::Key, digest: u32) -> usize {
        let number = self.order[0].1;
        self.remove(self.entries[number as usize].digest, number);
        self.insert(digest, number);
        let entry = &mut self.entries[number as usize];
        (entry.key, entry.digest) = (key, digest);
        0
    }

    fn find(&self, key: K::Key, digest: u32) -> Option<usize> {
        let mask = self.index.len() - 1;
        let mut at = digest as usize & mask;
        while self.index[at] != 0 {
            let number = self.index[at] as usize - 1;
            if self.entries[number].key == key {
                return Some(number);
            }
            at = (at + 1) & mask;
        }
        None
    }

    fn insert(&mut self, digest: u32, number: u32) {
        let mask = self.index.len() - 1;
        let mut at = digest as usize & mask;
        while self.index[at] != 0 {
            at = (at + 1) & mask;
        }
        self.index[at] = number + 1;
    }

    /// Frees an entry's index slot, and shifts back the entries after it.
    fn remove(&mut self, digest: u32, number: u32) {
        let mask = self.index.len() - 1;
        let mut free = digest as usize & mask;
        while self.index[free] != number + 1 {
            free = (free + 1) & mask;
        }
        let mut at = (free + 1) & mask;
        while self.index[at] != 0 {
            let home = self.entries[self.index[at] as usize - 1].digest as usize & mask;
            // An entry whose home lies between both slots stays.
            if at.wrapping_sub(home) & mask >= at.wrapping_sub(free) & mask {
                self.index[free] = self.index[at];
                free = at;
            }
            at = (at + 1) & mask;
        }
        self.index[free] = 0;
    }

    fn swap(&mut self, one: usize, other: usize) {
        self.order.swap(one, other);
        for place in [one, other] {
            let number = self.order[place].1 as usize;
            self.entries[number].place = place as u32;
        }
    }

    fn rise(&mut self, mut place: usize) -> usize {
        while place > 0 && self.order[place].0 < self.order[(place - 1) / 2].0 {
            self.swap(place, (place - 1) / 2);
            place = (place - 1) / 2;
        }
        place
    }

    fn sink(&mut self, mut place: usize) {
        while let Some(left) = self.order.get(2 * place + 1) {
            let right = self.order.get(2 * place + 2).is_some_and(|right| right.0 < left.0);
            let least = 2 * place + 1 + usize::from(right);
            if self.order[least].0 >= self.order[place].0 {
                break;
            }
            self.swap(place, least);
            place = least;
        }
    }
}

impl<K: Keys, const PAYLOAD: usize> Runner<K> for Heap<K, PAYLOAD> {
    fn begin(&mut self) {
        self.clear();
    }

    fn take(&mut self, batch: &mut Batch<K::Key>) {
        batch.digest(&self.digester);
        let mask = self.index.len() - 1;
        for digest in batch.digests() {
            prefetch(&self.index, *digest as u32 as usize & mask);
        }
        let rows = batch.keys().iter().zip(batch.digests()).zip(batch.bytes());
        for ((key, digest), bytes) in rows {
            self.count(*key, *digest as u32, 1, *bytes);
        }
    }
}

const PRIMES: [u32; 5] = [0x9e37_79b1, 0x85eb_ca77, 0xc2b2_ae3d, 0x27d4_eb2f, 0x1656_67b1];

/// xxHash32 for inputs shorter than 16 bytes, as NitroSketch uses it. Like a library function, it
/// is called once per row and not inlined into a loop over rows.
#[inline(never)]
pub(super) fn xxhash32(bytes: &[u8], seed: u32) -> u32 {
    debug_assert!(bytes.len() < 16, "longer inputs are mixed in lanes");
    let mut hash = seed.wrapping_add(PRIMES[4]).wrapping_add(bytes.len() as u32);
    let words = bytes.chunks_exact(4);
    let rest = words.remainder();
    for word in words {
        let word = u32::from_le_bytes([word[0], word[1], word[2], word[3]]);
        hash = hash.wrapping_add(word.wrapping_mul(PRIMES[2]));
        hash = hash.rotate_left(17).wrapping_mul(PRIMES[3]);
    }
    for byte in rest {
        hash = hash.wrapping_add(u32::from(*byte).wrapping_mul(PRIMES[4]));
        hash = hash.rotate_left(11).wrapping_mul(PRIMES[0]);
    }
    hash = (hash ^ (hash >> 15)).wrapping_mul(PRIMES[1]);
    hash = (hash ^ (hash >> 13)).wrapping_mul(PRIMES[2]);
    hash ^ (hash >> 16)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use flowgauge_core::key::{FlowKey, Key8};

    use super::*;
    use crate::keys::Pairs;

    /// The invariants of Space-Saving: counters sum to the packets, each is at least the true
    /// count, the index finds every entry, and no entry is smaller than its parent.
    #[test]
    fn the_heap_counts() {
        let mut random = fastrand::Rng::with_seed(1);
        let mut heap = Heap::<Pairs, 4>::new(50 * Heap::<Pairs, 4>::entry_bytes());
        assert_eq!(heap.counters(), 50);
        let mut truth = HashMap::<u64, u32>::new();
        let mut batch = Batch::new();
        for _ in 0..200 {
            batch.clear();
            for _ in 0..50 {
                let most = random.u64(1..200);
                let flow = random.u64(0..most);
                *truth.entry(flow).or_default() += 1;
                if let Some(key) = Key8::from_canonical(&flow.to_ne_bytes()) {
                    batch.push(key, 64, 0);
                }
            }
            heap.take(&mut batch);
        }
        assert_eq!(heap.order.iter().map(|(packets, _)| *packets).sum::<u32>(), 10_000);
        for (place, (packets, number)) in heap.order.iter().enumerate() {
            let entry = &heap.entries[*number as usize];
            assert_eq!(entry.place as usize, place);
            assert!(place == 0 || heap.order[(place - 1) / 2].0 <= *packets);
            assert_eq!(heap.find(entry.key, entry.digest), Some(*number as usize));
            let flow: u64 = bytemuck::cast(entry.key);
            assert!(*packets >= truth[&flow]);
        }
        heap.begin();
        assert!(heap.order.is_empty() && heap.index.iter().all(|number| *number == 0));
    }

    #[test]
    fn the_largest_are_kept() {
        let mut heap = Heap::<Pairs, 0>::with_counters(10);
        let mut random = fastrand::Rng::with_seed(1);
        let mut last = [0; 100];
        for _ in 0..2000 {
            let flow = random.usize(0..100);
            last[flow] += flow as u32;
            if let Some(key) = Key8::from_canonical(&(flow as u64).to_be_bytes()) {
                heap.offer(key, flow as u32, last[flow]);
            }
        }
        last.sort_unstable();
        let mut kept: Vec<u32> = heap.order.iter().map(|(packets, _)| *packets).collect();
        kept.sort_unstable();
        assert_eq!(kept, last[90..]);
    }

    /// Values of the reference implementation.
    #[test]
    fn hashes_are_the_published_ones() {
        assert_eq!(xxhash32(b"", 0), 0x02cc_5d05);
        assert_eq!(xxhash32(b"a", 0), 0x550d_7456);
        assert_eq!(xxhash32(b"abc", 0), 0x32d1_53ff);
        assert_eq!(xxhash32(b"", 1), 0x0b2c_b792);
    }
}
