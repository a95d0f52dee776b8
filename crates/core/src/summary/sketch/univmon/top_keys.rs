//! The keys with the largest estimates so far, in a heap with the smallest at its root.
//!
//! A key's estimate is refreshed only when the key is the root and about to be replaced: it may
//! have grown meanwhile. A packet of a key in the heap costs one look-up in an index.

use flowgauge_kernel::Zeroed;

use crate::key::FlowKey;
use crate::summary::codec::{DecodeError, Reader, Writer};
use crate::summary::{BuildError, Memory};

/// Largest distance of a key from its home in the index, half of which is empty. Of keys that do
/// not collide on purpose, one in 200,000 would be further away. Keys that do are searched for in
/// vain at each level of a UnivMon.
const MOST_PROBES: usize = 64;

/// A key in the heap.
#[derive(Clone, Copy, bytemuck::Zeroable)]
#[repr(C)]
struct Entry<K> {
    digest: u64,
    /// An earlier estimate of the key.
    value: i64,
    /// The key's position in the index.
    place: u32,
    key: K,
}

impl<K> Entry<K> {
    /// Orders by estimate, and equal ones by digest, so that the same keys make the same heap.
    #[inline(always)]
    fn rank(&self) -> (i64, u64) {
        (self.value, self.digest)
    }
}

/// A heap of bounded size with an index. Memory in bytes: `most × (size_of::<K>() + 28, of which
/// the key and 20 are rounded up to 8)`.
pub(super) struct TopKeys<K> {
    heap: Zeroed<Entry<K>>,
    /// Open addressing with linear probing, at most half full: a position in the heap, counted from
    /// 1.
    index: Zeroed<u32>,
    len: usize,
    /// Times that a key was refused because it collides with too many others.
    refused: u64,
    /// Bound on the estimates of absent keys in the heaps that this one was merged from.
    floor: i64,
    /// The digest refused last: until a key leaves, no other key of that digest finds a place.
    refused_digest: Option<u64>,
}

impl<K: FlowKey> TopKeys<K> {
    /// Bytes reserved per key.
    pub(super) const KEY_BYTES: usize = size_of::<Entry<K>>() + 2 * size_of::<u32>();

    /// Reserves `most` keys, a power of two.
    pub(super) fn new(most: usize, memory: &Memory) -> Result<Self, BuildError> {
        debug_assert!(most.is_power_of_two());
        let (heap, index) = (memory.zeroed(most)?, memory.zeroed(2 * most)?);
        Ok(Self { heap, index, len: 0, refused: 0, floor: 0, refused_digest: None })
    }

    #[inline(always)]
    fn home(&self, digest: u64) -> usize {
        digest as usize & (self.index.len() - 1)
    }

    /// The index position of a key, or the empty one where it would go, if there is one near
    /// enough.
    #[inline(always)]
    fn find(&self, key: &K, digest: u64) -> Option<usize> {
        let home = self.home(digest);
        let way = (home..home + MOST_PROBES).map(|place| place & (self.index.len() - 1));
        way.into_iter().find(|place| match self.index[*place] {
            0 => true,
            at => self.heap[at as usize - 1].key == *key,
        })
    }

    /// Whether the key is in the heap.
    #[inline(always)]
    pub(super) fn holds(&self, key: &K, digest: u64) -> bool {
        self.find(key, digest).is_some_and(|place| self.index[place] != 0)
    }

    /// Whether the key is certainly in the heap: without branches, and probing only as far as most
    /// keys are from their home.
    #[expect(clippy::needless_bitwise_bool, reason = "lazy operators are branches")]
    #[inline(always)]
    pub(super) fn surely_holds(&self, key: &K, digest: u64) -> bool {
        let is_at = |home: u64| {
            let at = self.index[home as usize & (self.index.len() - 1)] as usize;
            // In an empty index, the last heap entry is compared but ignored.
            (at != 0) & (self.heap[at.wrapping_sub(1) & (self.heap.len() - 1)].key == *key)
        };
        is_at(digest) | is_at(digest.wrapping_add(1))
    }

    /// Whether the heap is full.
    pub(super) fn is_full(&self) -> bool {
        self.len == self.heap.len()
    }

    /// The value that the estimate of a key must exceed to be admitted.
    #[inline(always)]
    pub(super) fn least(&self) -> i64 {
        if self.is_full() { self.heap[0].value } else { i64::MIN }
    }

    /// Bound on the estimates that absent keys had at their last packet, unless they were refused.
    pub(super) fn floor(&self) -> i64 {
        self.floor.max(self.least())
    }

    /// Whether the key has the digest refused last; if so, refuses it without another search, since
    /// no key has left. Counts keys of that digest that are in the heap, too.
    #[inline(always)]
    pub(super) fn refuses_again(&mut self, digest: u64) -> bool {
        let again = self.refused_digest == Some(digest);
        self.refused = self.refused.saturating_add(u64::from(again));
        again
    }

    /// Times that a key was refused because it collides with too many others.
    pub(super) fn refused(&self) -> u64 {
        self.refused
    }

    /// The keys and their digests.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&K, u64)> {
        self.heap[..self.len].iter().map(|entry| (&entry.key, entry.digest))
    }

    /// Admits a key that is not in the heap. If the heap is full, the key replaces the smallest
    /// one, if the latter's refreshed `estimate` is less.
    #[inline(never)]
    pub(super) fn offer(&mut self, key: K, digest: u64, value: i64, estimate: impl Fn(u64) -> i64) {
        if self.find(&key, digest).is_none() {
            self.refused = self.refused.saturating_add(1);
            self.refused_digest = Some(digest);
            return;
        }
        let entry = Entry { digest, value, place: 0, key };
        if !self.is_full() {
            self.len += 1;
            self.put(self.len - 1, entry);
            self.rise(self.len - 1);
            return;
        }
        // Ends, since each root either leaves or sinks with a fresh estimate.
        while self.heap[0].value < value {
            let now = estimate(self.heap[0].digest);
            if now > self.heap[0].value {
                self.heap[0].value = now;
                self.sink(0);
                continue;
            }
            self.forget(self.heap[0].place as usize);
            self.put(0, entry);
            self.sink(0);
            return;
        }
    }

    /// Writes a key to heap position `at` and to the index, if the index has a place for it.
    fn put(&mut self, at: usize, mut entry: Entry<K>) {
        let Some(place) = self.find(&entry.key, entry.digest) else { return };
        entry.place = place as u32;
        self.heap[at] = entry;
        self.index[place] = at as u32 + 1;
    }

    /// Empties a position of the index, and closes the gap.
    fn forget(&mut self, mut gap: usize) {
        self.refused_digest = None;
        let mask = self.index.len() - 1;
        let mut place = gap;
        loop {
            place = (place + 1) & mask;
            let at = self.index[place];
            if at == 0 {
                break;
            }
            let home = self.home(self.heap[at as usize - 1].digest);
            // Its probe sequence must cross the gap.
            if place.wrapping_sub(home) & mask >= place.wrapping_sub(gap) & mask {
                self.index[gap] = at;
                self.heap[at as usize - 1].place = gap as u32;
                gap = place;
            }
        }
        self.index[gap] = 0;
    }

    fn swap(&mut self, a: usize, b: usize) {
        self.heap.swap(a, b);
        for at in [a, b] {
            self.index[self.heap[at].place as usize] = at as u32 + 1;
        }
    }

    fn rise(&mut self, mut at: usize) {
        while at > 0 && self.heap[at].rank() < self.heap[(at - 1) / 2].rank() {
            self.swap(at, (at - 1) / 2);
            at = (at - 1) / 2;
        }
    }

    fn sink(&mut self, mut at: usize) {
        loop {
            let children = 2 * at + 1..(2 * at + 3).min(self.len);
            let Some(least) = children.min_by_key(|child| self.heap[*child].rank()) else { return };
            if self.heap[at].rank() <= self.heap[least].rank() {
                return;
            }
            self.swap(at, least);
            at = least;
        }
    }

    /// Adds the keys of `other`, and refreshes all estimates.
    pub(super) fn merge(&mut self, other: &Self, estimate: impl Fn(u64) -> i64 + Copy) {
        self.floor = self.floor().max(0).saturating_add(other.floor().max(0));
        for entry in &mut self.heap[..self.len] {
            entry.value = estimate(entry.digest);
        }
        (0..self.len / 2).rev().for_each(|at| self.sink(at));
        for (key, digest) in other.iter() {
            if !self.holds(key, digest) {
                self.offer(*key, digest, estimate(digest), estimate);
            }
        }
        self.refused = self.refused.saturating_add(other.refused);
    }

    pub(super) fn clear(&mut self) {
        self.index.fill(0);
        (self.len, self.refused, self.floor, self.refused_digest) = (0, 0, 0, None);
    }

    pub(super) fn save(&self, out: &mut Writer) {
        out.number(self.refused);
        out.number(self.floor);
        out.number(self.len as u64);
        out.sorted(out.key_bytes() + size_of::<i64>(), |out| {
            for entry in &self.heap[..self.len] {
                out.key(entry.key);
                out.number(entry.value);
            }
        });
    }

    /// Loads saved keys into an empty heap; `digest` returns a key's digest, or `None` if the key
    /// cannot be here.
    pub(super) fn load(
        &mut self,
        from: &mut Reader<'_>,
        digest: impl Fn(&K) -> Option<u64>,
    ) -> Result<(), DecodeError> {
        self.refused = from.number("keys refused")?;
        self.floor = from.number("floor of the heavy keys")?;
        for _ in 0..from.count("number of heavy keys", self.heap.len())? {
            let key: K = from.key("heavy key")?;
            let value = from.number("estimate of a heavy key")?;
            match digest(&key) {
                Some(digest)
                    if self.find(&key, digest).is_some_and(|place| self.index[place] == 0) =>
                {
                    self.offer(key, digest, value, |_| value);
                }
                _ => {
                    let width = from.key_bytes() + size_of::<i64>();
                    return Err(from.invalid("heavy key", width, "it cannot be here"));
                }
            }
        }
        Ok(())
    }
}
