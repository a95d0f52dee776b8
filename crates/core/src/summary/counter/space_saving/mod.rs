//! Space-Saving: the heaviest keys in a fixed number of counters, for any weights.
//!
//! Paper: Metwally, Agrawal, El Abbadi, "Efficient computation of frequent and top-k elements in
//! data streams" (ICDT 2005), §3; with a heap, as "SSH" of Cormode, Hadjieleftheriou, "Finding
//! frequent items in data streams" (VLDB 2008), §3. A key without a counter replaces the key with
//! the minimum count, and that count becomes its error. With m counters and total weight N, the
//! estimate of a key of weight f is between f and f + N/m, and every key above N/m has a counter.
//!
//! A [`Monitor`] holds the counters and finds the minimum. By packets it is a [`sweep`], by bytes a
//! [`tournament`]; both replace the heap of the paper. [`StreamSummary`](super::StreamSummary) uses
//! the linked buckets of the paper instead.

mod answers;
mod index;
mod sweep;
mod tournament;
mod weighted;

use std::marker::PhantomData;

use bytemuck::Zeroable;
use flowgauge_kernel::Digester;

use super::{PARAMETERS, counters};
use crate::batch::Batch;
use crate::key::FlowKey;
use crate::sorting::order;
use crate::summary::codec::{DecodeError, Reader, Writer};
use crate::summary::describe::form;
use crate::summary::ingest::{Basis, twin};
use crate::summary::{
    Answers, BuildError, Counted, Counter, Describe, Estimate, Incompatible, Info, Ingest, Laws,
    Memory, Options, Reads, Setting, Summary,
};
use crate::terms::Measure;
pub(super) use index::{BranchFree, Index};
use sweep::Sweep;
use tournament::Tournament;

/// Packets between the prefetch of an index line and its use.
const PREFETCH_AHEAD: usize = 16;

/// Space-Saving for packets or bytes, in the catalog as `space-saving`.
///
/// Cost per packet: one line of the index and one entry. By packets the sweep passes at most
/// one more entry; by bytes a key without a counter replays log₄(counters) matches of the
/// tournament. Memory in bytes: `counters × (size_of::<K>() + 17)` by packets, `counters ×
/// (size_of::<K>() + 30.2)` by bytes, and up to 3 KiB more for fewer than 448 counters.
///
/// ```
/// use flowgauge_core::batch::Batch;
/// use flowgauge_core::catalog;
/// use flowgauge_core::key::{FlowKey, Key8};
/// use flowgauge_core::summary::Options;
///
/// let options = Options::new(64 << 10, 1).for_keys(4).with([("counters", 3)]);
/// let mut summary = catalog::build::<Key8>("space-saving", &options).unwrap();
/// let mut batch = Batch::new();
/// for (time_ns, flow) in (0..).zip([1, 1, 1, 2, 2, 3, 4u32]) {
///     batch.push(Key8::from_canonical(&flow.to_be_bytes()).unwrap(), 64, time_ns);
/// }
/// summary.ingest(&mut batch);
/// // Flow 4 replaced flow 3, which had the minimum count of 1: it has 1 to 2 packets.
/// let size = summary.answers().size().unwrap().estimate(&4u32.to_be_bytes());
/// assert_eq!(size.packets.map(|found| (found.low, found.high)), Some((1.0, 2.0)));
/// ```
pub struct SpaceSaving;

impl Describe for SpaceSaving {
    const INFO: Info = Info {
        name: "space-saving",
        idea: "a new key takes over the smallest counter (any weights)",
        paper: "Metwally et al. (ICDT 2005), section 3",
        parameters: &PARAMETERS,
        memory: "counters x (key + 17 by packets, key + 30.2 by bytes, rounded up to 4 or 8); up \
                 to 3 KiB more below 448 counters",
        // The bounds hold in any order and for weighted updates; entries near the minimum count
        // differ.
        forms: &[form![Size(Counted::Asked), Candidates]],
        laws: Laws { commutable: true, aggregatable: true, sizes: true, ..Laws::NONE },
    };

    fn build<K: FlowKey>(options: &Options) -> Result<Box<dyn Summary<K>>, BuildError> {
        fn tracked<K: FlowKey, C: Monitored>(
            options: &Options,
        ) -> Result<Box<dyn Summary<K>>, BuildError> {
            let entries = counters(options, &C::Monitor::<K>::bytes)?;
            let monitor = C::Monitor::<K>::new(entries, options.digester, &options.memory)?;
            Ok(Box::new(Tracked::<K, C, _>::new(monitor)))
        }
        match options.by {
            Measure::Packets => tracked::<K, u32>(options),
            Measure::Bytes => tracked::<K, u64>(options),
        }
    }
}

/// A summary of the keys in the monitor `M`.
pub(super) struct Tracked<K, C, M> {
    monitor: M,
    types: PhantomData<fn(K) -> C>,
}

impl<K, C, M> Tracked<K, C, M> {
    pub(super) fn new(monitor: M) -> Self {
        Self { monitor, types: PhantomData }
    }
}

impl<K: FlowKey, C: Counter, M: Monitor<K, C>> Ingest<K> for Tracked<K, C, M> {
    fn ingest(&mut self, batch: &mut Batch<K>) {
        batch.digest(self.monitor.digester());
        let (keys, digests, weights) = (batch.keys(), batch.digests(), C::column(batch));
        if batch.is_plain() {
            self.monitor.add_packets(keys, digests, weights);
        } else {
            self.monitor.add_weighted(keys, digests, weights);
        }
    }

    fn reads(&self) -> Reads {
        Reads::sizes(C::MEASURE)
    }
}

impl<K: FlowKey, C: Counter, M: Monitor<K, C>> Summary<K> for Tracked<K, C, M> {
    fn answers(&self) -> &dyn Answers {
        self
    }

    fn merge(&mut self, other: &dyn Summary<K>) -> Result<(), Incompatible> {
        let other = twin(self, other, |summary| Basis::of(summary.monitor.digester()))?;
        self.monitor.merge(&other.monitor);
        Ok(())
    }

    fn save(&self, out: &mut Writer) {
        self.monitor.save(out);
    }

    fn load(&mut self, from: &mut Reader<'_>) -> Result<(), DecodeError> {
        self.monitor.load(from)
    }

    fn clear(&mut self) {
        self.monitor.clear();
    }

    fn parameters(&self) -> Vec<(&'static str, Setting)> {
        vec![("counters", Setting::Integer(self.monitor.capacity() as u64))]
    }

    fn memory_bytes(&self) -> usize {
        self.monitor.memory_bytes()
    }
}

/// A key whose weight is at most `count`, and at least `count - error`.
#[derive(Clone, Copy, Debug, Zeroable)]
#[repr(C)]
pub(in crate::summary) struct Entry<K, C> {
    pub(in crate::summary) key: K,
    pub(in crate::summary) count: C,
    /// The count of the key that this key replaced.
    pub(in crate::summary) error: C,
}

impl<K: FlowKey, C: Counter> Entry<K, C> {
    pub(super) fn save(&self, out: &mut Writer) {
        out.key(self.key);
        out.number(self.count);
        out.number(self.error);
    }

    pub(super) fn load(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let (key, count, error) = (from.key("key")?, from.number("count")?, from.number("error")?);
        if C::get(error) > C::get(count) {
            return Err(from.invalid("error", size_of::<C>(), "it is larger than the count"));
        }
        Ok(Self { key, count, error })
    }
}

/// A bounded set of entries. A key without an entry weighs at most the minimum count.
pub(in crate::summary) trait Monitor<K: FlowKey, C: Counter>:
    Sized + Send + 'static
{
    /// Bytes that a number of entries needs.
    fn bytes(entries: usize) -> usize;
    /// Reserves the entries.
    fn new(entries: usize, digester: Digester, memory: &Memory) -> Result<Self, BuildError>;
    fn digester(&self) -> &Digester;
    /// The maximum number of entries.
    fn capacity(&self) -> usize;
    /// The index of the entries by the digests of their keys.
    fn index(&self) -> &Index;
    fn index_mut(&mut self) -> &mut Index;
    /// Drops the cached minimum count, since counts are about to change. [`Self::add_packets`]
    /// calls it once for all rows.
    fn invalidate(&mut self) {}
    /// Adds weight to a key. A key without an entry replaces the key with the minimum count, or
    /// stays untracked if the index has no room. [`Self::invalidate`] must have been called.
    fn add(&mut self, key: K, digest: u64, weight: C);
    /// Adds the weights of single packets in order.
    #[inline(always)]
    fn add_packets(&mut self, keys: &[K], digests: &[u64], weights: &[C]) {
        self.invalidate();
        for i in 0..keys.len() {
            if let Some(&digest) = digests.get(i + PREFETCH_AHEAD) {
                self.index().prefetch(digest);
            }
            self.add(keys[i], digests[i], weights[i]);
        }
    }
    /// Adds weighted updates in order: rows that stand for several packets each.
    #[inline(always)]
    fn add_weighted(&mut self, keys: &[K], digests: &[u64], weights: &[C]) {
        self.add_packets(keys, digests, weights);
    }
    /// Adds an entry for a key that has none. There must be room.
    fn append(&mut self, entry: Entry<K, C>, digest: u64);
    /// The entries, in any order.
    fn entries(&self) -> impl Iterator<Item = Entry<K, C>>;
    /// The entries in stored order. Appending them in this order restores which of several equal
    /// counts is replaced first.
    fn stored(&self) -> impl Iterator<Item = Entry<K, C>> {
        self.entries()
    }
    /// Whether an entry may follow the present ones in stored order.
    fn follows(&self, entry: &Entry<K, C>) -> bool {
        let _ = entry;
        true
    }
    fn entry(&self, key: K) -> Option<Entry<K, C>>;
    /// The maximum weight of a key without an entry: the minimum count, or 0 while entries are
    /// free. May scan all entries; the result is cached until [`Self::invalidate`].
    fn min_count(&self) -> C;
    /// Weight that full counters could not add.
    fn saturated(&self) -> u64;
    fn set_saturated(&mut self, saturated: u64);
    fn clear(&mut self);

    /// Replaces all entries by `entries`, heaviest first, and both lost weights.
    fn replace(&mut self, entries: &[Entry<K, C>], saturated: u64, untracked: u64) {
        self.clear();
        self.invalidate();
        self.set_saturated(saturated);
        self.index_mut().add_untracked(untracked);
        for entry in entries {
            let digest = entry.key.digest(self.digester());
            if self.index().has_room(digest) {
                self.append(*entry, digest);
            } else {
                self.index_mut().add_untracked(entry.count.get());
            }
        }
    }

    /// Writes the contents in stored order.
    fn save(&self, out: &mut Writer) {
        out.numbers(&[self.saturated(), self.index().untracked()]);
        out.number(self.entries().count() as u64);
        self.stored().for_each(|entry| entry.save(out));
    }

    /// Reads saved contents into an empty monitor.
    fn load(&mut self, from: &mut Reader<'_>) -> Result<(), DecodeError> {
        self.set_saturated(from.number("excess")?);
        self.index_mut().add_untracked(from.number("refused weight")?);
        for _ in 0..from.count("number of keys", self.capacity())? {
            let entry = Entry::<K, C>::load(from)?;
            let width = from.key_bytes() + 2 * size_of::<C>();
            if self.entry(entry.key).is_some() {
                return Err(from.invalid("key", width, "it occurs twice"));
            }
            if !self.follows(&entry) {
                return Err(from.invalid("count", width, "it is more than the one before"));
            }
            let digest = entry.key.digest(self.digester());
            if !self.index().has_room(digest) {
                return Err(from.invalid("key", width, "it collides with others"));
            }
            self.append(entry, digest);
        }
        Ok(())
    }

    fn memory_bytes(&self) -> usize {
        Self::bytes(self.capacity())
    }

    /// The weight of a key, with bounds that always hold.
    fn estimate(&self, key: K) -> Estimate {
        if let Some(entry) = self.entry(key) {
            return self.bounds(&entry);
        }
        let min = self.min_count().get();
        Estimate::between(0.0, min as f64, self.upper_bound(min))
    }

    /// The weight of the key of an entry.
    fn bounds(&self, entry: &Entry<K, C>) -> Estimate {
        let (count, error) = (entry.count.get(), entry.error.get());
        Estimate::between((count - error) as f64, count as f64, self.upper_bound(count))
    }

    /// The maximum weight of a key with this count: it may lack all saturated and all untracked
    /// weight.
    fn upper_bound(&self, count: u64) -> f64 {
        count.saturating_add(self.saturated()).saturating_add(self.index().untracked()) as f64
    }

    /// Adds the contents of another monitor of the same seed and capacity.
    fn merge(&mut self, other: &Self) {
        let (entries, lost) = merged_entries(self, other, self.capacity());
        let saturated = lost.saturating_add(self.saturated()).saturating_add(other.saturated());
        let untracked = self.index().untracked().saturating_add(other.index().untracked());
        self.replace(&entries, saturated, untracked);
    }
}

/// A counter type with the monitor for its measure.
pub(in crate::summary) trait Monitored: Counter {
    type Monitor<K: FlowKey>: Monitor<K, Self>;
}

impl Monitored for u32 {
    type Monitor<K: FlowKey> = Sweep<K>;
}

impl Monitored for u64 {
    type Monitor<K: FlowKey> = Tournament<K>;
}

/// The `capacity` heaviest entries of both monitors, heaviest first, and the weight that full
/// counters could not add.
///
/// A key that one side lacks is added there with the maximum weight it can have. This keeps the
/// bounds (Agarwal et al., "Mergeable summaries", PODS 2012, §3): the minimum count stays below the
/// total weight divided by `capacity`.
fn merged_entries<K: FlowKey, C: Counter>(
    a: &impl Monitor<K, C>,
    b: &impl Monitor<K, C>,
    capacity: usize,
) -> (Vec<Entry<K, C>>, u64) {
    let mut lost = 0u64;
    let (a_min, b_min) = (a.min_count(), b.min_count());
    let mut sum = |mut entry: Entry<K, C>, other: Option<Entry<K, C>>, min: C| {
        let (count, error) = other.map_or((min, min), |other| (other.count, other.error));
        lost = lost.saturating_add(entry.count.add(count));
        // An error is at most its count, whose loss is counted.
        let _ = entry.error.add(error);
        entry
    };
    let mut entries: Vec<Entry<K, C>> =
        a.entries().map(|entry| sum(entry, b.entry(entry.key), b_min)).collect();
    let in_one = b.entries().filter(|entry| a.entry(entry.key).is_none());
    entries.extend(in_one.map(|entry| sum(entry, None, a_min)));
    // Heaviest first; keys decide only between equal counts.
    let key = |entry: &Entry<K, C>| entry.key.to_canonical(a.digester());
    let weights = |a: &Entry<K, C>, b: &Entry<K, C>| b.count.get().cmp(&a.count.get());
    let order = order(entries.len(), &|a, b| {
        let (a, b) = (&entries[a], &entries[b]);
        weights(a, b).then_with(|| key(a).cmp(&key(b)))
    });
    let heaviest = order.iter().take(capacity).map(|at| entries[*at as usize]);
    (heaviest.collect(), lost)
}
