//! The keys with the largest estimates so far, in a heap whose root is the least of them.
//!
//! A key's estimate is looked at again only when the key is the root and is to be replaced: until
//! then it may have grown, and packets of a key that is there cost one look into an index.

use flowgauge_kernel::Zeroed;

use crate::key::FlowKey;
use crate::summary::codec::{DecodeError, Reader, Writer};
use crate::summary::{BuildError, Memory};

/// Places of the index that a key may be away from its home, half of which are empty: of keys that do
/// not collide on purpose one in 200,000 would be further away. Keys that do are looked for in vain at
/// each level of a UnivMon.
const MOST_PROBES: usize = 64;

/// A key of the heap.
#[derive(Clone, Copy, bytemuck::Zeroable)]
#[repr(C)]
struct Entry<K> {
    digest: u64,
    /// An estimate that the key had.
    value: i64,
    /// Its place in the index.
    place: u32,
    key: K,
}

impl<K> Entry<K> {
    /// Estimates in order; equal ones by digest, so that the same keys make the same heap.
    #[inline(always)]
    fn rank(&self) -> (i64, u64) {
        (self.value, self.digest)
    }
}

/// At most so many keys. Memory in bytes: `most × (size_of::<K>() + 28, of which the key and 20
/// are rounded up to 8)`.
pub(super) struct TopKeys<K> {
    heap: Zeroed<Entry<K>>,
    /// Open addressing by linear probing, half full at most: a place in the heap, counted from 1.
    index: Zeroed<u32>,
    len: usize,
    /// Keys that collide with so many others that they found no place in the index.
    refused: u64,
    /// What keys that are not there were estimated at in the heaps that this one was merged from.
    floor: i64,
    /// The digest of the last of them: until a key leaves, no other of that digest finds a place.
    refused_digest: Option<u64>,
}

impl<K: FlowKey> TopKeys<K> {
    /// Bytes reserved for each key.
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

    /// The place in the index of a key, or the empty one where it would go, if there is one near
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

    /// Whether the key is there.
    #[inline(always)]
    pub(super) fn holds(&self, key: &K, digest: u64) -> bool {
        self.find(key, digest).is_some_and(|place| self.index[place] != 0)
    }

    /// Whether the key is surely there: without branches, and only as far as most keys are from
    /// their home.
    #[expect(clippy::needless_bitwise_bool, reason = "lazy operators are branches")]
    #[inline(always)]
    pub(super) fn surely_holds(&self, key: &K, digest: u64) -> bool {
        let is_at = |home: u64| {
            let at = self.index[home as usize & (self.index.len() - 1)] as usize;
            // What stands in the last place of an empty index is not looked at.
            (at != 0) & (self.heap[at.wrapping_sub(1) & (self.heap.len() - 1)].key == *key)
        };
        is_at(digest) | is_at(digest.wrapping_add(1))
    }

    /// Whether there is no room for another key.
    pub(super) fn is_full(&self) -> bool {
        self.len == self.heap.len()
    }

    /// What the estimate of a key must pass to be admitted.
    #[inline(always)]
    pub(super) fn least(&self) -> i64 {
        if self.is_full() { self.heap[0].value } else { i64::MIN }
    }

    /// What keys that are not there, and were not refused, were estimated at most when their last packet
    /// came.
    pub(super) fn floor(&self) -> i64 {
        self.floor.max(self.least())
    }

    /// Refuses a key of the digest refused last without another search, since no key has left: whether
    /// it is of that digest. Keys of that digest that are there are counted, too.
    #[inline(always)]
    pub(super) fn refuses_again(&mut self, digest: u64) -> bool {
        let again = self.refused_digest == Some(digest);
        self.refused = self.refused.saturating_add(u64::from(again));
        again
    }

    /// Times that a key was not admitted since it collides with too many others.
    pub(super) fn refused(&self) -> u64 {
        self.refused
    }

    /// The keys and their digests.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&K, u64)> {
        self.heap[..self.len].iter().map(|entry| (&entry.key, entry.digest))
    }

    /// Admits a key that is not there, in the place of the least one where there is no room and
    /// that one's `estimate`, asked for anew, is less.
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
        // Ends, since each root either goes, or sinks with an estimate that is up to date.
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

    /// Puts a key into the heap's place `at`, and into the index, where there is a place for it.
    fn put(&mut self, at: usize, mut entry: Entry<K>) {
        let Some(place) = self.find(&entry.key, entry.digest) else { return };
        entry.place = place as u32;
        self.heap[at] = entry;
        self.index[place] = at as u32 + 1;
    }

    /// Empties a place of the index, and closes the gap.
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
            // Its way from home must lead over the gap.
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

    /// Takes over the keys of `other`, all estimates anew.
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

    /// Takes over saved keys, of which `digest` gives the digest where they may be there; this heap
    /// is empty.
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
