//! Exact tables.

use std::hint::{black_box, select_unpredictable as select};

use bytemuck::Zeroable;
use flowgauge_core::key::Key8;
use flowgauge_kernel::{Digester, Zeroed, equal_in_group};

use super::{AHEAD, BATCH, ByHand, FRAME, ask, digest, mix, zeroed};

/// A key with its packets and bytes.
#[derive(Clone, Copy, Zeroable)]
#[repr(C)]
struct Flow {
    key: u64,
    count: Count,
}

#[derive(Clone, Copy, Zeroable)]
#[repr(C, packed(4))]
struct Count {
    packets: u32,
    bytes: u64,
}

impl Count {
    #[inline(always)]
    fn add(&mut self) {
        self.packets = self.packets.saturating_add(1);
        self.bytes = self.bytes.saturating_add(FRAME);
    }
}

/// Linear probing over keys with packets and bytes, and a list of occupied buckets.
pub(super) struct LinearTable<const BUCKETS: usize> {
    buckets: Zeroed<Flow>,
    occupied: Zeroed<u32>,
    flows: usize,
    untracked: u64,
}

impl<const BUCKETS: usize> LinearTable<BUCKETS> {
    pub(super) fn new() -> Self {
        Self { buckets: zeroed(BUCKETS), occupied: zeroed(BUCKETS / 4 * 3), flows: 0, untracked: 0 }
    }
}

impl<const BUCKETS: usize> ByHand for LinearTable<BUCKETS> {
    fn clear(&mut self) {
        self.buckets.fill(Flow::zeroed());
        self.flows = 0;
    }

    #[inline(always)]
    fn update(&mut self, keys: &[u64], digests: &[u64]) {
        let buckets = &mut self.buckets[..BUCKETS];
        for &digest in digests.iter().take(4 * AHEAD) {
            ask(buckets, digest as usize % BUCKETS);
        }
        for (i, (&key, &digest)) in keys.iter().zip(digests).enumerate() {
            if let Some(&ahead) = digests.get(i + 4 * AHEAD) {
                ask(buckets, ahead as usize % BUCKETS);
            }
            let mut at = digest as usize % BUCKETS;
            while buckets[at].count.packets != 0 && buckets[at].key != key {
                at = (at + 1) % BUCKETS;
            }
            let bucket = &mut buckets[at];
            if bucket.count.packets == 0 {
                if self.flows == self.occupied.len() {
                    self.untracked += 1;
                    continue;
                }
                self.occupied[self.flows] = at as u32;
                self.flows += 1;
                bucket.key = key;
            }
            bucket.count.add();
        }
    }
}

/// A key and its flow number, counted from 1.
#[derive(Clone, Copy, Zeroable)]
#[repr(C)]
struct Numbered {
    key: u64,
    flow: u32,
}

/// Linear probing over keys, with packets and bytes in order of arrival.
pub(super) struct IndirectTable<const BUCKETS: usize> {
    buckets: Zeroed<Numbered>,
    counts: Zeroed<Count>,
    places: Zeroed<u32>,
    flows: usize,
    untracked: u64,
}

impl<const BUCKETS: usize> IndirectTable<BUCKETS> {
    const MOST: usize = BUCKETS / 4 * 3;

    pub(super) fn new() -> Self {
        let (counts, places) = (zeroed(Self::MOST), zeroed(Self::MOST));
        Self { buckets: zeroed(BUCKETS), counts, places, flows: 0, untracked: 0 }
    }

    #[inline(always)]
    fn bucket(buckets: &[Numbered], key: u64, digest: u64) -> usize {
        let mut at = digest as usize % BUCKETS;
        while buckets[at].flow != 0 && buckets[at].key != key {
            at = (at + 1) % BUCKETS;
        }
        at
    }
}

impl<const BUCKETS: usize> ByHand for IndirectTable<BUCKETS> {
    fn clear(&mut self) {
        self.buckets.fill(Numbered::zeroed());
        self.flows = 0;
    }

    #[inline(always)]
    fn update(&mut self, keys: &[u64], digests: &[u64]) {
        let buckets = &mut self.buckets[..BUCKETS];
        let counts = &mut self.counts[..Self::MOST];
        for &digest in digests {
            ask(buckets, digest as usize % BUCKETS);
        }
        let mut found = [0_u32; BATCH];
        for ((found, &key), &digest) in found.iter_mut().zip(keys).zip(digests) {
            *found = buckets[Self::bucket(buckets, key, digest)].flow;
            ask(counts, (*found as usize).wrapping_sub(1));
        }
        for (i, &found) in found[..keys.len()].iter().enumerate() {
            if let Some(count) = counts.get_mut((found as usize).wrapping_sub(1)) {
                count.add();
                continue;
            }
            let at = Self::bucket(buckets, keys[i], digests[i]);
            if buckets[at].flow == 0 {
                if self.flows == Self::MOST {
                    self.untracked += 1;
                    continue;
                }
                self.places[self.flows] = at as u32;
                counts[self.flows] = Count::zeroed();
                self.flows += 1;
                buckets[at] = Numbered { key: keys[i], flow: self.flows as u32 };
            }
            counts[buckets[at].flow as usize - 1].add();
        }
    }
}

/// Maximum number of moves to insert a flow.
const STEPS: usize = 512;

/// A cuckoo table with two buckets per key. Slots hold a flow number and a tag.
pub(super) struct Cuckoo<const BUCKETS: usize, const SLOTS: usize> {
    digester: Digester,
    buckets: Zeroed<[u32; SLOTS]>,
    flows: Zeroed<Flow>,
    len: usize,
    untracked: u64,
}

impl<const BUCKETS: usize, const SLOTS: usize> Cuckoo<BUCKETS, SLOTS> {
    /// The bits of a slot that hold the flow number, counted from 1.
    const NUMBER: u32 = (BUCKETS * SLOTS - 1) as u32;
    const MOST: usize = if SLOTS == 1 { BUCKETS / 2 } else { BUCKETS * SLOTS / 64 * 61 };

    pub(super) fn new(digester: Digester) -> Self {
        let (buckets, flows) = (zeroed(BUCKETS), zeroed(Self::MOST));
        Self { digester, buckets, flows, len: 0, untracked: 0 }
    }

    #[inline(always)]
    fn places(digest: u64) -> [usize; 2] {
        let first = digest as usize % BUCKETS;
        [first, first ^ (mix(digest, 0) as usize % BUCKETS).max(1)]
    }

    /// The flow whose slot has the same tag, otherwise an arbitrary one.
    #[inline(always)]
    fn guess(&self, digest: u64, places: [usize; 2]) -> usize {
        let tag = (digest >> 16) as u32 & !Self::NUMBER;
        let buckets = places.map(|place| self.buckets[..BUCKETS][place]);
        let slots = buckets.as_flattened();
        let slot = if let Some(slots) = slots.first_chunk::<8>() {
            let same = equal_in_group(slots, !Self::NUMBER, tag);
            slots[same.trailing_zeros() as usize % 8]
        } else {
            select(slots[0] & !Self::NUMBER == tag, slots[0], slots[1])
        };
        ((slot & Self::NUMBER) as usize).wrapping_sub(1)
    }

    #[inline(never)]
    fn add(&mut self, key: u64, digest: u64) {
        let places = Self::places(digest);
        for slot in places.iter().flat_map(|&place| self.buckets[place]) {
            let flow = ((slot & Self::NUMBER) as usize).wrapping_sub(1);
            if slot != 0 && self.flows[flow].key == key {
                return self.flows[flow].count.add();
            }
        }
        if self.len == Self::MOST || !self.insert(digest, places) {
            self.untracked += 1;
            return;
        }
        self.flows[self.len] = Flow { key, count: Count { packets: 1, bytes: FRAME } };
        self.len += 1;
    }

    fn put(&mut self, bucket: usize, slot: u32) -> bool {
        let empty = self.buckets[bucket].iter_mut().find(|slot| **slot == 0);
        empty.map(|empty| *empty = slot).is_some()
    }

    /// Inserts the next flow into one of its buckets, moving others.
    fn insert(&mut self, mut digest: u64, places: [usize; 2]) -> bool {
        let (new, mut bucket) = (digest, places[1]);
        let mut slot = (digest >> 16) as u32 & !Self::NUMBER | (self.len as u32 + 1);
        if self.put(places[0], slot) || self.put(bucket, slot) {
            return true;
        }
        let mut path = [(0, 0); STEPS];
        for (step, moved) in path.iter_mut().enumerate() {
            let at = (mix(digest, step as u64 + 1) >> 32) as usize % SLOTS;
            std::mem::swap(&mut slot, &mut self.buckets[bucket][at]);
            *moved = (bucket, at);
            let displaced = (slot & Self::NUMBER) as usize - 1;
            digest = if displaced == self.len {
                new
            } else {
                self::digest(self.flows[displaced].key, &self.digester)
            };
            let [first, second] = Self::places(digest);
            bucket = if bucket == first { second } else { first };
            if self.put(bucket, slot) {
                return true;
            }
        }
        for &(bucket, at) in path.iter().rev() {
            std::mem::swap(&mut slot, &mut self.buckets[bucket][at]);
        }
        false
    }
}

impl<const BUCKETS: usize, const SLOTS: usize> ByHand for Cuckoo<BUCKETS, SLOTS> {
    fn clear(&mut self) {
        self.buckets.fill([0; SLOTS]);
        self.len = 0;
    }

    #[inline(always)]
    fn update(&mut self, keys: &[u64], digests: &[u64]) {
        let mut places = [[0; 2]; BATCH];
        for (places, &digest) in places.iter_mut().zip(digests) {
            *places = Self::places(digest);
            for &bucket in &*places {
                ask(&self.buckets, bucket);
            }
        }
        let mut guesses = [0; BATCH];
        for ((guess, &places), &digest) in guesses.iter_mut().zip(&places).zip(digests) {
            *guess = self.guess(digest, places);
            ask(&self.flows, *guess);
        }
        let mut at = 0;
        loop {
            let flows = &mut self.flows[..self.len];
            at += keys[at..]
                .iter()
                .zip(&guesses[at..])
                .take_while(|&(&key, &guess)| {
                    let flow = flows.get_mut(guess).filter(|flow| flow.key == key);
                    flow.map(|flow| flow.count.add()).is_some()
                })
                .count();
            if at == keys.len() {
                return;
            }
            self.add(keys[at], digests[at]);
            at += 1;
        }
    }
}

const SAMPLE: f64 = 100.0;

/// NetFlow. It draws the number of packets to skip.
pub(super) struct NetFlow {
    digester: Digester,
    table: LinearTable<{ 1 << 15 }>,
    random: fastrand::Rng,
    skip: usize,
    /// Totals of all packets, sampled or not.
    total: (u64, u64),
    largest: u64,
    sizes: [u64; BATCH],
}

impl NetFlow {
    pub(super) fn new(digester: Digester) -> Self {
        let random = fastrand::Rng::with_seed(1);
        Self {
            digester,
            table: LinearTable::new(),
            random,
            skip: 0,
            total: (0, 0),
            largest: 0,
            sizes: [FRAME; BATCH],
        }
    }
}

impl ByHand for NetFlow {
    const DIGESTS: bool = false;

    fn clear(&mut self) {
        self.table.clear();
    }

    #[inline(always)]
    fn update(&mut self, keys: &[u64], _: &[u64]) {
        while let Some(key) = keys.get(self.skip) {
            let mut digest = [0];
            self.digester.digest_batch(&[*key], size_of::<Key8>(), &mut digest);
            self.table.update(&[*key], &digest);
            let uniform = (self.random.u64(..) >> 11) as f64 + 0.5;
            let log = (uniform / (1_u64 << 53) as f64).ln();
            self.skip += 1 + (log / (-1.0 / SAMPLE).ln_1p()) as usize;
        }
        let sizes = &black_box(&self.sizes)[..keys.len()];
        let both = |(sum, bits): (u64, u64), size: &u64| (sum + size, bits | size);
        let (sum, bits) = sizes.iter().fold((0, 0), both);
        self.total = (self.total.0 + keys.len() as u64, self.total.1 + sum);
        if bits > self.largest {
            self.largest = sizes.iter().copied().fold(self.largest, u64::max);
        }
        self.skip -= keys.len();
    }
}
