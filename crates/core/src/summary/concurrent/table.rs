//! A concurrent linear table: an entry for each flow, found by buckets that workers claim without a
//! lock.
//!
//! An entry holds a flow's key and two counters. A worker that finds no entry of a key writes the
//! key into an unused entry, and then claims the first empty bucket on the key's probe sequence by
//! a compare-and-swap that publishes the entry's number. A bucket never changes after that. Two
//! workers that bring the same key probe the same buckets: the second one finds the bucket taken,
//! compares the key, and uses that entry, so no flow has two entries. The entry that it wrote in
//! vain is its spare for the next new flow. No worker ever waits for another.

use std::marker::PhantomData;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use flowgauge_kernel::{Digester, prefetch};

use super::atomic::{AtomicU32, AtomicU64, Column, column};
use super::{Concurrent, ConcurrentIngest, Total, add_saturating};
use crate::batch::Batch;
use crate::key::FlowKey;
use crate::summary::state::Kind;
use crate::summary::table::{Counts, LAYOUTS, LinearTable, MOST_BUCKETS};
use crate::summary::{BuildError, BuildErrorKind, Counter, Describe, Memory, Options, Summary};
use crate::terms::Size;

/// The flows, and the ordinary table that they move to.
///
/// Once all entries are taken, packets of further flows are untracked. The last entry may be a
/// spare that a worker is about to leave; another worker then counts packets as untracked of a flow
/// that finds room later. So the bounds of every flow include all untracked packets.
///
/// Cost per packet: a cache line of buckets and one or two of entries, all prefetched, and two
/// atomic additions. Two compare-and-swaps per batch, and two per flow. Memory in bytes: that of
/// [`AtomicFlows`] and of the ordinary table.
struct AtomicTable<K: FlowKey> {
    digester: Digester,
    flows: AtomicFlows<K>,
    packets: Total,
    bytes: Total,
    untracked: AtomicSize,
    /// Packets of the batches that the totals did not take.
    refused: AtomicSize,
    ordinary: Counts<K>,
}

impl Concurrent for LinearTable {
    fn build_concurrent<K: FlowKey>(
        options: &Options,
    ) -> Result<Box<dyn ConcurrentIngest<K>>, BuildError> {
        let counters = &Kind::OF_TABLES[..1];
        Kind::from_options(Self::INFO.name, counters, options)?;
        if options.parameters.word("layout", &LAYOUTS)? != LAYOUTS[0] {
            return Err(BuildErrorKind::OutOfRange {
                name: "layout",
                value: LAYOUTS[1].to_owned(),
                range: format!("supported in a concurrent table: use layout={}", LAYOUTS[0]),
            }
            .into());
        }
        // The memory limit covers an atomic entry for each flow, too.
        let task_bytes_per_flow = options.task_bytes_per_flow + AtomicFlows::<K>::bytes_per_flow();
        let options = Options { task_bytes_per_flow, ..options.clone() };
        let ordinary = Counts::<K>::new(&options, MOST_BUCKETS)?;
        let (buckets, most) = (ordinary.buckets(), ordinary.most());
        Ok(Box::new(AtomicTable {
            digester: options.digester,
            flows: AtomicFlows::new(buckets, most, &options.memory)?,
            packets: Total::new(u64::MAX),
            bytes: Total::new(u64::MAX),
            untracked: AtomicSize::default(),
            refused: AtomicSize::default(),
            ordinary,
        }))
    }
}

impl<K: FlowKey> ConcurrentIngest<K> for AtomicTable<K> {
    fn ingest(&self, batch: &mut Batch<K>) {
        batch.digest(&self.digester);
        let (keys, digests) = (batch.keys(), batch.digests());
        let (packets, bytes) = (batch.packets(), batch.bytes());
        let all = Size { packets: u32::sum(packets), bytes: u64::sum(bytes) };
        if !(self.packets.takes(all.packets) && self.bytes.takes(all.bytes)) {
            return self.refused.add(all);
        }
        for &digest in digests {
            self.flows.prefetch_bucket(digest);
        }
        for &digest in digests {
            self.flows.prefetch_entry(digest);
        }
        let (mut spare, mut untracked) = (None, Size::default());
        for (i, (&key, &digest)) in keys.iter().zip(digests).enumerate() {
            let size = Size { packets: packets[i].into(), bytes: bytes[i] };
            if !self.flows.add(key, digest, size, &mut spare) {
                untracked += size;
            }
        }
        self.flows.leave(spare);
        self.untracked.add(untracked);
    }

    fn collect(&mut self) -> &mut dyn Summary<K> {
        let ordinary = &mut self.ordinary;
        ordinary.clear();
        let digester = &self.digester;
        self.flows.drain(|key, size| ordinary.add_flow(key, key.digest(digester), size));
        // The flows of these packets are no longer known.
        ordinary.lose(self.untracked.take() + self.refused.take(), Size::default());
        self.packets.reset();
        self.bytes.reset();
        ordinary
    }

    fn ordinary(&self) -> &dyn Summary<K> {
        &self.ordinary
    }

    fn memory_bytes(&self) -> usize {
        self.flows.memory_bytes() + self.ordinary.memory_bytes()
    }
}

/// Packets and bytes that saturate.
#[derive(Default)]
struct AtomicSize {
    packets: AtomicU64,
    bytes: AtomicU64,
}

impl AtomicSize {
    fn add(&self, size: Size) {
        add_saturating(&self.packets, size.packets);
        add_saturating(&self.bytes, size.bytes);
    }

    /// Returns the size, and sets it to 0.
    fn take(&mut self) -> Size {
        Size { packets: self.packets.swap(0, Relaxed), bytes: self.bytes.swap(0, Relaxed) }
    }
}

/// Entries beyond the number of flows: each worker may hold a spare one. The model has two workers.
const SPARES: usize = if cfg!(all(loom, test)) { 2 } else { 64 };

/// Probes for a flow at most. Of keys that do not collide on purpose, fewer than one in 10⁸ would
/// need more in a full table.
const MOST_PROBES: usize = 512;

/// Buckets at least: with all spares in use nearly a fifth of them is still empty.
const LEAST_BUCKETS: usize = 1024;

/// Words of the largest key.
const MOST_WORDS: usize = 5;

/// Counters of an entry, after the words of its key: packets and bytes.
const COUNTERS: usize = 2;

/// The number of an unpublished entry, which its worker may use for its next new flow.
type Spare = Option<u32>;

/// Entries in the order of arrival, and buckets that hold their numbers.
///
/// Memory in bytes: `4 × buckets + (flows + 64) × (size_of::<K>(), rounded up to 8, + 16)`.
struct AtomicFlows<K> {
    /// An entry's number, counted from 1, in the low bits, and bits of the digest above; 0 is
    /// empty.
    buckets: Column<AtomicU32>,
    /// Mask of a bucket's bits that hold the number.
    number: u32,
    words: Column<AtomicU64>,
    entries: u32,
    /// Entries handed out to workers so far.
    given: AtomicU32,
    /// Numbers, counted from 1, of spare entries that workers left at the end of a batch; 0 is
    /// none.
    spares: [AtomicU32; SPARES],
    keys: PhantomData<fn() -> K>,
}

impl<K: FlowKey> AtomicFlows<K> {
    const KEY_WORDS: usize = size_of::<K>().div_ceil(size_of::<u64>());
    const ENTRY_WORDS: usize = Self::KEY_WORDS + COUNTERS;

    /// Bytes per flow of a table whose flows fill three quarters of its buckets.
    const fn bytes_per_flow() -> usize {
        (size_of::<u32>() * 4).div_ceil(3) + Self::ENTRY_WORDS * size_of::<u64>()
    }

    /// Reserves room for `most` flows, at most three quarters of the buckets.
    fn new(buckets: usize, most: usize, memory: &Memory) -> Result<Self, BuildError> {
        Self::with_entries(buckets.max(LEAST_BUCKETS), most + SPARES, memory)
    }

    /// Reserves `entries` entries, fewer than the buckets.
    fn with_entries(buckets: usize, entries: usize, memory: &Memory) -> Result<Self, BuildError> {
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

    fn memory_bytes(&self) -> usize {
        self.buckets.len() * size_of::<u32>() + self.words.len() * size_of::<u64>()
    }

    /// The first bucket of a digest's probe sequence.
    #[inline(always)]
    fn home(&self, digest: u64) -> usize {
        digest as usize & (self.buckets.len() - 1)
    }

    /// The bits of the digest that a bucket holds, up to bit 47.
    #[inline(always)]
    fn tag(&self, digest: u64) -> u32 {
        (digest >> 16) as u32 & !self.number
    }

    /// Prefetches the first bucket of a digest's probe sequence.
    #[inline(always)]
    fn prefetch_bucket(&self, digest: u64) {
        prefetch(&self.buckets, self.home(digest));
    }

    /// Prefetches the entry of that bucket.
    #[inline(always)]
    fn prefetch_entry(&self, digest: u64) {
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

    /// Adds packets of a flow. Returns whether it has an entry, or got one.
    #[inline(always)]
    fn add(&self, key: K, digest: u64, size: Size, spare: &mut Spare) -> bool {
        let Some(entry) = self.find_or_claim(key, digest, spare) else { return false };
        let counters = &self.entry(entry)[Self::KEY_WORDS..];
        counters[0].fetch_add(size.packets, Relaxed);
        counters[1].fetch_add(size.bytes, Relaxed);
        true
    }

    /// The number of the flow's entry, claimed if it has none; `None` without room.
    #[inline(always)]
    fn find_or_claim(&self, key: K, digest: u64, spare: &mut Spare) -> Option<u32> {
        let (words, tag) = (words_of(&key), self.tag(digest));
        let (home, mut written) = (self.home(digest), None);
        for step in 0..MOST_PROBES {
            let at = (home + step) & (self.buckets.len() - 1);
            // Acquire: the key that was written before the bucket was published is visible.
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
                // Either `write` took the spare, or nothing was written: one of the two is None.
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

    /// Writes a key into an unpublished entry.
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

    /// Takes a spare entry that another batch left. Acquire: its earlier writes are visible.
    fn take_spare(&self) -> Option<u32> {
        let left = |spare: &AtomicU32| match spare.load(Relaxed) {
            0 => None,
            _ => spare.swap(0, Acquire).checked_sub(1),
        };
        self.spares.iter().find_map(left)
    }

    /// Leaves a spare entry to other batches. With more than [`SPARES`] workers it may be lost, and
    /// one flow fewer finds room.
    fn leave(&self, spare: Spare) {
        if let Some(entry) = spare {
            let left =
                |spare: &AtomicU32| spare.compare_exchange(0, entry + 1, Release, Relaxed).is_ok();
            let _ = self.spares.iter().any(left);
        }
    }

    /// Calls `flow` with all flows in the order of arrival, and removes them.
    fn drain(&mut self, mut flow: impl FnMut(K, Size)) {
        for entry in 0..self.given.swap(0, Relaxed) {
            let (key, counters) = self.entry(entry).split_at(Self::KEY_WORDS);
            let [packets, bytes] = [0, 1].map(|i: usize| counters[i].swap(0, Relaxed));
            // A spare entry has no packets.
            if packets > 0 {
                flow(key_of(key), Size { packets, bytes });
            }
        }
        self.buckets.iter().for_each(|bucket| bucket.store(0, Relaxed));
        self.spares.iter().for_each(|spare| spare.store(0, Relaxed));
    }
}

/// The words of a key, followed by zeros.
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

/// All interleavings in which two workers claim entries, by loom:
/// `RUSTFLAGS="--cfg loom" cargo test -p flowgauge-core --release --lib model`.
#[cfg(all(loom, test))]
mod model {
    use std::collections::BTreeMap;

    use loom::sync::Arc;
    use loom::thread;

    use super::*;
    use crate::key::Key16;

    /// A key that differs from others in both words.
    fn key(flow: u8) -> Key16 {
        let bytes = [flow; 13];
        Key16::from_canonical(&bytes).expect("it has the bytes of a key")
    }

    /// Two workers each add one packet of their flows in turn, given as flow and digest, to a table
    /// of `entries` entries. Returns the sizes of the flows, and the number of untracked packets.
    fn race(entries: usize, workers: [&'static [(u8, u64)]; 2]) -> (BTreeMap<u8, Size>, usize) {
        let flows = Arc::new(
            AtomicFlows::<Key16>::with_entries(4, entries, &Memory::unlimited())
                .expect("it is small"),
        );
        let work = |flows: &AtomicFlows<Key16>, packets: &[(u8, u64)]| {
            let (mut spare, mut untracked) = (None, 0);
            for &(flow, digest) in packets {
                let size = Size { packets: 1, bytes: 100 };
                untracked += usize::from(!flows.add(key(flow), digest, size, &mut spare));
            }
            flows.leave(spare);
            untracked
        };
        let other = {
            let flows = Arc::clone(&flows);
            thread::spawn(move || work(&flows, workers[1]))
        };
        let untracked = work(&flows, workers[0]);
        let untracked = untracked + other.join().expect("it does not panic");
        let Ok(mut flows) = Arc::try_unwrap(flows) else { panic!("somebody else has it") };
        let mut found = BTreeMap::new();
        flows.drain(|own, size| {
            let before = found.insert(own.canonical(1)[0], size);
            assert!(before.is_none(), "a flow has two entries");
            assert!(own == key(own.canonical(1)[0]), "a key was published before it was written");
        });
        (found, untracked)
    }

    fn packets(count: u64) -> Size {
        Size { packets: count, bytes: 100 * count }
    }

    #[test]
    fn model_of_the_same_new_key() {
        loom::model(|| {
            let (found, untracked) = race(3, [&[(1, 0)], &[(1, 0)]]);
            assert_eq!((found, untracked), (BTreeMap::from([(1, packets(2))]), 0));
        });
    }

    /// Both probe sequences begin at the same bucket, with the same tag.
    #[test]
    fn model_of_different_keys_on_one_way() {
        loom::model(|| {
            let (found, untracked) = race(3, [&[(1, 0)], &[(2, 0)]]);
            assert_eq!((found, untracked), (BTreeMap::from([(1, packets(1)), (2, packets(1))]), 0));
        });
    }

    /// An entry written in vain is used for the next flow: three entries suffice for four writes.
    #[test]
    fn model_of_a_spare_entry() {
        loom::model(|| {
            let (found, untracked) = race(3, [&[(1, 0), (2, 0)], &[(1, 0), (3, 0)]]);
            let all = BTreeMap::from([(1, packets(2)), (2, packets(1)), (3, packets(1))]);
            assert_eq!((found, untracked), (all, 0));
        });
    }

    /// One entry for two flows: one of them is untracked, and no packet is counted for both.
    #[test]
    fn model_of_the_last_entry() {
        loom::model(|| {
            let (found, untracked) = race(1, [&[(1, 0)], &[(2, 1)]]);
            assert_eq!((found.len(), untracked), (1, 1));
            assert!(found.values().all(|size| *size == packets(1)));
        });
    }
}
