//! The flows of a shared table: an entry each, found by buckets that are claimed without a lock.
//!
//! A flow's entry is its key and two counters. Whoever finds no entry of a key writes the key into one
//! that nobody knows, and then claims the first empty bucket on the key's way by a compare-and-swap
//! that publishes the entry's number. A bucket never changes after that. So of two that bring the same
//! key, which go the same way, one finds the bucket taken, looks at who is there, and finds the key:
//! no flow has two entries. The entry that it wrote in vain is its spare for the next new flow.
//! Nobody ever waits for another.

use std::marker::PhantomData;

use flowgauge_kernel::prefetch;

use super::super::{BuildError, Memory};
use super::atomic::{Acquire, AtomicU32, AtomicU64, Column, Relaxed, Release, column};
use crate::key::FlowKey;
use crate::terms::Size;

/// Entries beside those of the flows that there is room for: each worker may have a spare one. The
/// model has two workers.
const SPARES: usize = if cfg!(all(loom, test)) { 2 } else { 64 };

/// Buckets that are looked at for a flow. Of keys that do not collide on purpose fewer than one in 10⁸
/// would be further away in a full table.
const MOST_PROBES: usize = 512;

/// Buckets at least: with all spares in use nearly a fifth is empty still.
const LEAST_BUCKETS: usize = 1024;

/// Words of the largest key.
const MOST_WORDS: usize = 5;

/// Words of an entry behind those of its key: packets and bytes.
const COUNTERS: usize = 2;

/// An entry that nobody knows, which a worker wrote in vain and may use again.
pub(super) type Spare = Option<u32>;

/// Entries in the order of arrival, behind buckets with their numbers.
///
/// Memory in bytes: `4 × buckets + (flows + 64) × (size_of::<K>(), rounded up to 8, + 16)`.
pub(super) struct Flows<K> {
    /// The number of an entry, counted from 1, in the low bits, and bits of the digest above; 0 is
    /// empty.
    buckets: Column<AtomicU32>,
    /// The bits of a bucket that hold the number.
    number: u32,
    words: Column<AtomicU64>,
    entries: u32,
    /// Entries given to workers so far.
    given: AtomicU32,
    /// Numbers, counted from 1, of spare entries whose workers are done with their batch.
    spares: [AtomicU32; SPARES],
    keys: PhantomData<fn() -> K>,
}

impl<K: FlowKey> Flows<K> {
    const KEY_WORDS: usize = size_of::<K>().div_ceil(size_of::<u64>());
    const ENTRY_WORDS: usize = Self::KEY_WORDS + COUNTERS;

    /// Bytes for each flow that there is room for, in a table of three quarters of its buckets.
    pub(super) const fn bytes_per_flow() -> usize {
        (size_of::<u32>() * 4).div_ceil(3) + Self::ENTRY_WORDS * size_of::<u64>()
    }

    /// Reserves room for `most` flows, three quarters of the buckets at most.
    pub(super) fn new(buckets: usize, most: usize, memory: &Memory) -> Result<Self, BuildError> {
        Self::with_entries(buckets.max(LEAST_BUCKETS), most + SPARES, memory)
    }

    /// Reserves entries, fewer than the buckets.
    pub(super) fn with_entries(
        buckets: usize,
        entries: usize,
        memory: &Memory,
    ) -> Result<Self, BuildError> {
        Ok(Self {
            buckets: column(buckets, memory)?,
            number: (buckets - 1) as u32,
            words: column(entries * Self::ENTRY_WORDS, memory)?,
            entries: entries as u32,
            given: AtomicU32::new(0),
            spares: std::array::from_fn(|_| AtomicU32::new(0)),
            keys: PhantomData,
        })
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.buckets.len() * size_of::<u32>() + self.words.len() * size_of::<u64>()
    }

    /// Where the way of a digest begins.
    #[inline(always)]
    fn home(&self, digest: u64) -> usize {
        digest as usize & (self.buckets.len() - 1)
    }

    /// The bits of the digest that a bucket holds: the last of them is bit 47.
    #[inline(always)]
    fn tag(&self, digest: u64) -> u32 {
        (digest >> 16) as u32 & !self.number
    }

    /// Asks for the bucket where the way of a digest begins.
    #[inline(always)]
    pub(super) fn prefetch_bucket(&self, digest: u64) {
        prefetch(&self.buckets, self.home(digest));
    }

    /// Asks for the entry of that bucket.
    #[inline(always)]
    pub(super) fn prefetch_entry(&self, digest: u64) {
        let bucket = self.buckets[self.home(digest)].load(Relaxed);
        let entry = (bucket & self.number).wrapping_sub(1) as usize;
        let start = entry.wrapping_mul(Self::ENTRY_WORDS);
        prefetch(&self.words, start);
        prefetch(&self.words, start.wrapping_add(Self::ENTRY_WORDS - 1));
    }

    #[inline(always)]
    fn entry(&self, entry: u32) -> &[AtomicU64] {
        &self.words[entry as usize * Self::ENTRY_WORDS..][..Self::ENTRY_WORDS]
    }

    /// Adds packets of a flow. Returns whether it has an entry: all may be taken.
    #[inline(always)]
    pub(super) fn add(&self, key: K, digest: u64, size: Size, spare: &mut Spare) -> bool {
        let Some(entry) = self.find_or_claim(key, digest, spare) else { return false };
        let counters = &self.entry(entry)[Self::KEY_WORDS..];
        counters[0].fetch_add(size.packets, Relaxed);
        counters[1].fetch_add(size.bytes, Relaxed);
        true
    }

    /// The entry of a flow, given to it where it has none.
    #[inline(always)]
    fn find_or_claim(&self, key: K, digest: u64, spare: &mut Spare) -> Option<u32> {
        let (words, tag) = (words_of(&key), self.tag(digest));
        let (home, mut written) = (self.home(digest), None);
        for step in 0..MOST_PROBES {
            let at = (home + step) & (self.buckets.len() - 1);
            // What its owner wrote before it is seen after it.
            let mut bucket = self.buckets[at].load(Acquire);
            if bucket == 0 {
                let entry = match written {
                    Some(entry) => entry,
                    None => self.write(&words, spare)?,
                };
                written = Some(entry);
                let own = tag | (entry + 1);
                match self.buckets[at].compare_exchange(0, own, Release, Acquire) {
                    Ok(_) => return Some(entry),
                    Err(other) => bucket = other,
                }
            }
            let entry = (bucket & self.number) - 1;
            if bucket & !self.number == tag && self.has(entry, &words) {
                // There is no spare left where one was written, or none was.
                *spare = spare.or(written);
                return Some(entry);
            }
        }
        *spare = spare.or(written);
        None
    }

    #[inline(always)]
    fn has(&self, entry: u32, words: &[u64; MOST_WORDS]) -> bool {
        let key = self.entry(entry)[..Self::KEY_WORDS].iter();
        key.zip(words).all(|(own, word)| own.load(Relaxed) == *word)
    }

    /// Writes a key into an entry that nobody knows.
    #[cold]
    fn write(&self, words: &[u64; MOST_WORDS], spare: &mut Spare) -> Option<u32> {
        let next = |given: u32| (given < self.entries).then_some(given + 1);
        let entry = match spare.take().or_else(|| self.take_spare()) {
            Some(entry) => entry,
            None => self.given.fetch_update(Relaxed, Relaxed, next).ok()?,
        };
        for (own, word) in self.entry(entry)[..Self::KEY_WORDS].iter().zip(words) {
            own.store(*word, Relaxed);
        }
        Some(entry)
    }

    /// A spare entry that another batch left. Its owner wrote to it before.
    fn take_spare(&self) -> Option<u32> {
        let left = |spare: &AtomicU32| match spare.load(Relaxed) {
            0 => None,
            _ => spare.swap(0, Acquire).checked_sub(1),
        };
        self.spares.iter().find_map(left)
    }

    /// Leaves a spare entry to other batches. With more workers than [`SPARES`] it may be lost, and a
    /// flow less finds room.
    pub(super) fn leave(&self, spare: Spare) {
        if let Some(entry) = spare {
            let left =
                |spare: &AtomicU32| spare.compare_exchange(0, entry + 1, Release, Relaxed).is_ok();
            let _ = self.spares.iter().any(left);
        }
    }

    /// Hands all flows over in the order of arrival, and forgets them.
    pub(super) fn drain(&mut self, mut flow: impl FnMut(K, Size)) {
        for entry in 0..self.given.swap(0, Relaxed) {
            let (key, counters) = self.entry(entry).split_at(Self::KEY_WORDS);
            let [packets, bytes] = [0, 1].map(|i: usize| counters[i].swap(0, Relaxed));
            // A spare one has no packets.
            if packets > 0 {
                flow(key_of(key), Size { packets, bytes });
            }
        }
        self.buckets.iter().for_each(|bucket| bucket.store(0, Relaxed));
        self.spares.iter().for_each(|spare| spare.store(0, Relaxed));
    }
}

/// The words of a key, zeros behind them.
#[inline(always)]
fn words_of<K: FlowKey>(key: &K) -> [u64; MOST_WORDS] {
    let mut words = [0; MOST_WORDS];
    bytemuck::bytes_of_mut(&mut words)[..size_of::<K>()].copy_from_slice(bytemuck::bytes_of(key));
    words
}

/// The key of these words.
fn key_of<K: FlowKey>(words: &[AtomicU64]) -> K {
    let mut key = [0; MOST_WORDS];
    for (word, own) in key.iter_mut().zip(words) {
        *word = own.load(Relaxed);
    }
    bytemuck::pod_read_unaligned(&bytemuck::bytes_of(&key)[..size_of::<K>()])
}
