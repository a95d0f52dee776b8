//! What the two forms of Space-Saving have in common: keys with a count and its maximal error, and
//! what follows for the estimates and for merging.

use bytemuck::Zeroable;
use flowgauge_kernel::Digester;

use super::super::codec::{DecodeError, Reader, Writer};
use super::super::{BuildError, Counter, Estimate, Memory, SizeEstimate};
use super::index::Index;
use super::sweep::Sweep;
use super::tournament::Tournament;
use crate::key::FlowKey;
use crate::sorting::order;
use crate::terms::{Measure, Size};

/// Packets whose lines of the index are asked for ahead of the one in hand.
const PREFETCH_AHEAD: usize = 16;

/// A key whose weight is at most `count`, and at least `count - error`.
#[derive(Clone, Copy, Debug, Zeroable)]
#[repr(C)]
pub(in crate::summary) struct Entry<K, C> {
    pub(in crate::summary) key: K,
    pub(in crate::summary) count: C,
    /// The count that the entry took over with its counter.
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

/// A bounded set of entries; no key without one weighs more than the least of them.
pub(in crate::summary) trait Monitor<K: FlowKey, C: Counter>:
    Sized + Send + 'static
{
    /// Bytes reserved for so many entries.
    fn bytes(entries: usize) -> usize;
    /// Reserves so many entries.
    fn new(entries: usize, digester: Digester, memory: &Memory) -> Result<Self, BuildError>;
    /// The digest that keys are found by.
    fn digester(&self) -> &Digester;
    /// Entries at most.
    fn most(&self) -> usize;
    /// Where entries are found by the digests of their keys.
    fn index(&self) -> &Index;
    /// The same, to change it.
    fn index_mut(&mut self) -> &mut Index;
    /// Counts are about to change, once for all that [`Self::add_all`] adds.
    fn change(&mut self) {}
    /// Adds weight to a key, which takes over the least entry where it has none, unless the index
    /// refuses it; in [`Self::add_all`].
    fn add(&mut self, key: K, digest: u64, weight: C);
    /// Adds the weights of these packets, one after the other.
    #[inline(always)]
    fn add_all(&mut self, keys: &[K], digests: &[u64], weights: &[C]) {
        self.change();
        for i in 0..keys.len() {
            if let Some(&digest) = digests.get(i + PREFETCH_AHEAD) {
                self.index().prefetch(digest);
            }
            self.add(keys[i], digests[i], weights[i]);
        }
    }
    /// The same of sums of packets.
    #[inline(always)]
    fn add_sums(&mut self, keys: &[K], digests: &[u64], weights: &[C]) {
        self.add_all(keys, digests, weights);
    }
    /// Adds an entry of a key that has none; there is room.
    fn append(&mut self, entry: Entry<K, C>, digest: u64);
    /// The entries, in any order.
    fn entries(&self) -> impl Iterator<Item = Entry<K, C>>;
    /// The entries in the order in which they are stored, and appended again, so that the same goes
    /// first of equal counts.
    fn stored(&self) -> impl Iterator<Item = Entry<K, C>> {
        self.entries()
    }
    /// Whether an entry can come after those that are there, in that order.
    fn follows(&self, entry: &Entry<K, C>) -> bool {
        let _ = entry;
        true
    }
    /// The entry of a key.
    fn entry(&self, key: K) -> Option<Entry<K, C>>;
    /// The most that a key without an entry weighs: the least count where all entries are taken.
    /// All of them may be looked at, once until it is changed again.
    fn unheld(&self) -> C;
    /// Weight that full counters could not take.
    fn excess(&self) -> u64;
    /// Changes that.
    fn set_excess(&mut self, excess: u64);
    /// Forgets everything.
    fn clear(&mut self);

    /// Takes these entries, the heaviest first, instead of its own, after so much weight was refused.
    fn replace(&mut self, entries: &[Entry<K, C>], excess: u64, refused: u64) {
        self.clear();
        self.change();
        self.set_excess(excess);
        self.index_mut().refuse(refused);
        for entry in entries {
            let digest = entry.key.digest(self.digester());
            if self.index().has_room(digest) {
                self.append(*entry, digest);
            } else {
                self.index_mut().refuse(entry.count.get());
            }
        }
    }

    /// Writes its contents, with the order that decides among equal counts.
    fn save(&self, out: &mut Writer) {
        out.numbers(&[self.excess(), self.index().refused()]);
        out.number(self.entries().count() as u64);
        self.stored().for_each(|entry| entry.save(out));
    }

    /// Takes over saved contents; it is empty.
    fn load(&mut self, from: &mut Reader<'_>) -> Result<(), DecodeError> {
        self.set_excess(from.number("excess")?);
        self.index_mut().refuse(from.number("refused weight")?);
        for _ in 0..from.count("number of keys", self.most())? {
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

    /// Bytes of memory reserved.
    fn memory_bytes(&self) -> usize {
        Self::bytes(self.most())
    }

    /// The weight of a key; surely within the bounds.
    fn weight(&self, key: K) -> Estimate {
        if let Some(entry) = self.entry(key) {
            return self.bounds(&entry);
        }
        let unheld = self.unheld().get();
        Estimate::between(0.0, unheld as f64, self.highest(unheld))
    }

    /// The weight of the key of an entry.
    fn bounds(&self, entry: &Entry<K, C>) -> Estimate {
        let (count, error) = (entry.count.get(), entry.error.get());
        Estimate::between((count - error) as f64, count as f64, self.highest(count))
    }

    /// A full counter may lack all of the excess, and any key all that was refused.
    fn highest(&self, count: u64) -> f64 {
        count.saturating_add(self.excess()).saturating_add(self.index().refused()) as f64
    }

    /// Adds another one of the same seed and size.
    fn merge(&mut self, other: &Self) {
        let (entries, excess) = united(self, other, self.most());
        let sum = excess.saturating_add(self.excess()).saturating_add(other.excess());
        let refused = self.index().refused().saturating_add(other.index().refused());
        self.replace(&entries, sum, refused);
    }
}

/// A counter with the monitor that suits what it counts.
pub(in crate::summary) trait Monitored: Counter {
    /// Finds the least entry at once for packets, and soon for weights of any size.
    type Monitor<K: FlowKey>: Monitor<K, Self>;
}

impl Monitored for u32 {
    type Monitor<K: FlowKey> = Sweep<K>;
}

impl Monitored for u64 {
    type Monitor<K: FlowKey> = Tournament<K>;
}

/// The `most` heaviest entries of the union of both, heaviest first, and the excess of their sums.
///
/// A key that one side lacks counts there as much as it can weigh. This keeps the bounds (Agarwal
/// et al., "Mergeable summaries", PODS 2012, §3): the least count stays within the `most`-th part of
/// all weight.
fn united<K: FlowKey, C: Counter>(
    a: &impl Monitor<K, C>,
    b: &impl Monitor<K, C>,
    most: usize,
) -> (Vec<Entry<K, C>>, u64) {
    let mut excess = 0u64;
    let (a_unheld, b_unheld) = (a.unheld(), b.unheld());
    let mut sum = |mut entry: Entry<K, C>, other: Option<Entry<K, C>>, unheld: C| {
        let (count, error) = other.map_or((unheld, unheld), |other| (other.count, other.error));
        excess = excess.saturating_add(entry.count.add(count));
        // An error is no larger than its count, whose excess is counted.
        let _ = entry.error.add(error);
        entry
    };
    let mut entries: Vec<Entry<K, C>> =
        a.entries().map(|entry| sum(entry, b.entry(entry.key), b_unheld)).collect();
    let in_one = b.entries().filter(|entry| a.entry(entry.key).is_none());
    entries.extend(in_one.map(|entry| sum(entry, None, a_unheld)));
    // Heaviest first, and keys are looked at only of those that are as heavy.
    let key = |entry: &Entry<K, C>| entry.key.to_canonical(a.digester());
    let weights = |a: &Entry<K, C>, b: &Entry<K, C>| b.count.get().cmp(&a.count.get());
    let order = order(entries.len(), &|a, b| {
        let (a, b) = (&entries[a], &entries[b]);
        weights(a, b).then_with(|| key(a).cmp(&key(b)))
    });
    let heaviest = order.iter().take(most).map(|at| entries[*at as usize]);
    (heaviest.collect(), excess)
}

/// An estimate of the measure `C` counts.
pub(in crate::summary) fn size<C: Counter>(weight: Estimate) -> SizeEstimate {
    match C::MEASURE {
        Measure::Packets => SizeEstimate { packets: Some(weight), bytes: None },
        Measure::Bytes => SizeEstimate { packets: None, bytes: Some(weight) },
    }
}

/// An excess in the measure `C` counts.
pub(in crate::summary) fn excess<C: Counter>(excess: u64) -> Size {
    match C::MEASURE {
        Measure::Packets => Size { packets: excess, bytes: 0 },
        Measure::Bytes => Size { packets: 0, bytes: excess },
    }
}
