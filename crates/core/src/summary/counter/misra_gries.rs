//! Misra-Gries with bounds for each key.
//!
//! Papers: Misra, Gries, "Finding repeated elements" (1982); Huang et al., "SketchVisor: robust
//! network measurement for software packet processing" (SIGCOMM 2017), §4.
//!
//! A key without room decrements the counters of all keys, itself included, by the same number, and
//! keys whose counters reach zero leave. SketchVisor chooses the number so that several keys leave
//! at once, which makes decrements rare, and keeps three counters per key: e, a bound of the key's
//! weight before its entry was made; r, the remainder of its weight since then; and d, the sum of
//! the decrements of the key. The key weighs between r + d and r + d + e.
//!
//! With E, the sum of all decrements so far, d = E − e. So only e and r + d are stored.

use std::hint::{black_box, select_unpredictable};
use std::marker::PhantomData;

use bytemuck::Zeroable;
use flowgauge_kernel::{Digester, Zeroed};

use super::space_saving::{BranchFree, Index};
use super::{PARAMETERS, counters, exact_size, size};
use crate::batch::Batch;
use crate::key::{CanonicalKey, FlowKey};
use crate::sorting::order;
use crate::summary::codec::{DecodeError, Reader, Writer};
use crate::summary::describe::form;
use crate::summary::ingest::{Basis, twin};
use crate::summary::{
    Answers, BuildError, Candidates, Counted, Counter, Describe, Estimate, Incompatible, Info,
    Ingest, Laws, Memory, Options, Reads, Setting, SizeEstimate, SizeQuery, Summary,
};
use crate::terms::{Measure, Size};

/// Misra-Gries for packets or bytes, in the catalog as `misra-gries`.
///
/// Cost per packet: one line of the index and one entry; rarely, a scan of all entries. Memory in
/// bytes: `counters × ((size_of::<K>() + 16, rounded up to 8) + 8.9)`, and up to 3 KiB more for
/// fewer than 448 counters.
///
/// ```
/// use flowgauge_core::batch::Batch;
/// use flowgauge_core::catalog;
/// use flowgauge_core::key::{FlowKey, Key8};
/// use flowgauge_core::summary::Options;
///
/// let options = Options::new(64 << 10, 1).for_keys(4).with([("counters", 10)]);
/// let mut summary = catalog::build::<Key8>("misra-gries", &options).unwrap();
/// let mut batch = Batch::new();
/// for packet in 0..200u32 {
///     let flow = if packet % 2 == 0 { 0 } else { packet }; // Half of the packets are of flow 0.
///     batch.push(Key8::from_canonical(&flow.to_be_bytes()).unwrap(), 64, 0);
/// }
/// summary.ingest(&mut batch);
/// let size = summary.answers().size().unwrap().estimate(&0u32.to_be_bytes());
/// assert!(size.packets.is_some_and(|found| found.low <= 100.0 && 100.0 <= found.high));
/// ```
pub struct MisraGries;

impl Describe for MisraGries {
    const INFO: Info = Info {
        name: "misra-gries",
        idea: "a new key without room decrements every key; three counters bound each size",
        paper: "SketchVisor (SIGCOMM 2017), section 4",
        parameters: &PARAMETERS,
        memory: "counters x ((key + 16, rounded up to 8) + 8.9); up to 3 KiB more below 448 \
                 counters",
        forms: &[form![Size(Counted::Asked), Candidates]],
        laws: Laws { commutable: true, aggregatable: true, sizes: true, ..Laws::NONE },
    };

    fn build<K: FlowKey>(options: &Options) -> Result<Box<dyn Summary<K>>, BuildError> {
        let capacity = counters(options, &KeyCounters::<K>::bytes)?;
        let keys = KeyCounters::new(capacity, options.digester, &options.memory)?;
        Ok(match options.by {
            Measure::Packets => {
                Box::new(MisraGriesSummary::<K, u32> { keys, measure: PhantomData })
            }
            Measure::Bytes => Box::new(MisraGriesSummary::<K, u64> { keys, measure: PhantomData }),
        })
    }
}

/// A Misra-Gries summary of the measure that `C` counts.
struct MisraGriesSummary<K, C> {
    keys: KeyCounters<K>,
    measure: PhantomData<fn() -> C>,
}

impl<K: FlowKey, C: Counter> Ingest<K> for MisraGriesSummary<K, C> {
    fn ingest(&mut self, batch: &mut Batch<K>) {
        batch.digest(self.keys.digester());
        self.keys.add_rows(batch.keys(), batch.digests(), C::column(batch));
    }

    fn reads(&self) -> Reads {
        Reads::sizes(C::MEASURE)
    }
}

impl<K: FlowKey, C: Counter> Summary<K> for MisraGriesSummary<K, C> {
    fn answers(&self) -> &dyn Answers {
        self
    }

    fn merge(&mut self, other: &dyn Summary<K>) -> Result<(), Incompatible> {
        let other = twin(self, other, |summary| Basis::of(summary.keys.digester()))?;
        self.keys.merge(&other.keys);
        Ok(())
    }

    fn save(&self, out: &mut Writer) {
        self.keys.save(out);
    }

    fn load(&mut self, from: &mut Reader<'_>) -> Result<(), DecodeError> {
        self.keys.load(from)
    }

    fn clear(&mut self) {
        self.keys.clear();
    }

    fn parameters(&self) -> Vec<(&'static str, Setting)> {
        vec![("counters", Setting::Integer(self.keys.capacity() as u64))]
    }

    fn memory_bytes(&self) -> usize {
        self.keys.memory_bytes()
    }
}

impl<K: FlowKey, C: Counter> Answers for MisraGriesSummary<K, C> {
    fn untracked(&self) -> Size {
        exact_size::<C>(self.keys.untracked())
    }
    fn size(&self) -> Option<&dyn SizeQuery> {
        Some(self)
    }
    fn candidates(&self) -> Option<&dyn Candidates> {
        Some(self)
    }
}

impl<K: FlowKey, C: Counter> SizeQuery for MisraGriesSummary<K, C> {
    fn estimate(&self, key: &[u8]) -> SizeEstimate {
        let weight = K::matching(key, self.keys.digester()).map(|key| self.keys.estimate(key));
        size::<C>(weight.unwrap_or(Estimate::exact(0)))
    }
}

impl<K: FlowKey, C: Counter> Candidates for MisraGriesSummary<K, C> {
    fn for_each(&self, visit: &mut dyn FnMut(CanonicalKey, SizeEstimate)) {
        for (key, weight) in self.keys.iter() {
            visit(key.to_canonical(self.keys.digester()), size::<C>(weight));
        }
    }

    /// None: the bounds of keys without an entry include the sum of all decrements.
    fn overflow(&self) -> u64 {
        0
    }

    fn unnamed(&self, by: Measure) -> Option<f64> {
        (by == C::MEASURE).then(|| self.keys.absent().high)
    }
}

/// δ of the paper: the fraction of keys that should leave at each decrement, and here always do.
const LEAVING: f64 = 0.05;

/// A key with the bound of its weight before its entry was made, and its weight since then.
#[derive(Clone, Copy, Debug, Zeroable)]
#[repr(C)]
struct Entry<K> {
    key: K,
    /// e.
    missed: u64,
    /// r + d.
    counted: u64,
}

impl<K> Entry<K> {
    /// r, if all decrements so far add up to `decrements`.
    fn remainder(&self, decrements: u64) -> u64 {
        self.counted.saturating_add(self.missed).saturating_sub(decrements)
    }
}

/// A fixed number of entries behind an index.
///
/// Cost per packet: one line of the index and one entry; rarely, a scan of all entries. Memory in
/// bytes: see [`Self::bytes`].
pub(super) struct KeyCounters<K> {
    digester: Digester,
    entries: Zeroed<Entry<K>>,
    index: Index,
    len: usize,
    /// E.
    decrements: u64,
}

impl<K: FlowKey> KeyCounters<K> {
    /// Bytes that a number of entries needs.
    pub(super) const fn bytes(keys: usize) -> usize {
        keys * size_of::<Entry<K>>() + Index::memory_bytes(keys)
    }

    pub(super) fn new(
        keys: usize,
        digester: Digester,
        memory: &Memory,
    ) -> Result<Self, BuildError> {
        let (entries, index) = (memory.zeroed(keys)?, Index::new(keys, memory)?);
        Ok(Self { digester, entries, index, len: 0, decrements: 0 })
    }

    /// The maximum number of entries.
    pub(super) fn capacity(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn digester(&self) -> &Digester {
        &self.digester
    }

    #[inline(always)]
    fn find(&self, key: K, digest: u64) -> Option<usize> {
        let entries = &*self.entries;
        self.index.find(digest, |at| entries[at].key == key)
    }

    #[inline(always)]
    pub(super) fn add(&mut self, key: K, digest: u64, weight: u64) {
        match self.find(key, digest) {
            Some(at) => self.entries[at].counted = self.entries[at].counted.saturating_add(weight),
            None => self.admit(key, digest, weight),
        }
    }

    /// Adds an entry for a key that has none; if all are in use, decrements all keys first.
    #[cold]
    fn admit(&mut self, key: K, digest: u64, weight: u64) {
        if !self.index.has_room(digest) {
            return self.index.add_untracked(weight);
        }
        let missed = self.decrements;
        if self.len == self.entries.len() {
            let decrement = self.at_least_leaving(self.decrement(weight));
            self.subtract(decrement);
            if weight <= decrement {
                return;
            }
        }
        self.append(Entry { key, missed, counted: weight }, digest);
    }

    fn append(&mut self, entry: Entry<K>, digest: u64) {
        self.index.insert(digest, self.len);
        self.entries[self.len] = entry;
        self.len += 1;
    }

    /// The decrement of the paper: from the two largest remainders and the smallest one, including
    /// the weight of the new key, on the assumption that weights follow a power law.
    fn decrement(&self, weight: u64) -> u64 {
        let (mut largest, mut second, mut min) = (weight, 0, weight);
        for left in self.remainders() {
            second = second.max(left.min(largest));
            largest = largest.max(left);
            min = min.min(left);
        }
        if second < 2 {
            return min;
        }
        let ratio = (largest - 1) as f64 / (second - 1) as f64;
        let exponent = -(-LEAVING).ln_1p() / std::f64::consts::LN_2;
        // At least the minimum, so that a key leaves or the new one stays out.
        ((min as f64 * ratio.powf(exponent)) as u64).max(min)
    }

    /// `decrement`, or a larger one if fewer keys than [`LEAVING`] would leave. So for any weights
    /// there is at most one scan per that many new keys. The other keys, 95 % of them, lose the
    /// full decrement, so that the sum of all decrements is at most the total weight per
    /// counter, divided by 0.95.
    fn at_least_leaving(&self, decrement: u64) -> u64 {
        let leaving = (self.len as f64 * LEAVING) as usize;
        let gone = self.remainders().filter(|left| *left <= decrement).count();
        match leaving.checked_sub(1) {
            Some(last) if gone < leaving => self.nth_remainder(last),
            _ => decrement,
        }
    }

    /// r of each key.
    fn remainders(&self) -> impl Iterator<Item = u64> {
        self.entries[..self.len].iter().map(|entry| entry.remainder(self.decrements))
    }

    /// The remainder of a rank, 0 being the smallest: a radix selection by bytes that allocates
    /// nothing.
    fn nth_remainder(&self, mut rank: usize) -> u64 {
        let (mut found, bits) =
            (0, u64::BITS - self.remainders().max().unwrap_or(0).leading_zeros());
        for shift in (0..bits).step_by(8).rev() {
            let mut counts = [0; 256];
            for left in self.remainders().filter(|left| left >> shift >> 8 == found) {
                counts[(left >> shift) as usize % 256] += 1;
            }
            let mut byte = 0;
            while byte < 255 && rank >= counts[byte] {
                rank -= counts[byte];
                byte += 1;
            }
            found = found << 8 | byte as u64;
        }
        found
    }

    /// Decrements every key; keys without a remainder leave.
    fn subtract(&mut self, decrement: u64) {
        self.decrements = self.decrements.saturating_add(decrement);
        let mut stay = 0;
        for at in 0..self.len {
            let entry = self.entries[at];
            if entry.remainder(self.decrements) > 0 {
                self.entries[stay] = entry;
                self.index.renumber(at, stay);
                stay += 1;
            } else {
                self.index.remove(at, || entry.key.digest(&self.digester));
            }
        }
        self.len = stay;
    }

    fn bounds(&self, entry: &Entry<K>) -> Estimate {
        let most = entry.counted.saturating_add(entry.missed).saturating_add(self.untracked());
        let counted = entry.counted as f64;
        Estimate::between(counted, counted, most as f64)
    }

    /// Weight of the packets whose keys found no room in the index. All bounds include it.
    pub(super) fn untracked(&self) -> u64 {
        self.index.untracked()
    }

    /// The weight of a key: between r + d and r + d + e, or at most E without an entry, plus
    /// the untracked weight.
    pub(super) fn estimate(&self, key: K) -> Estimate {
        match self.find(key, key.digest(&self.digester)) {
            Some(at) => self.bounds(&self.entries[at]),
            None => self.absent(),
        }
    }

    /// The weight of a key without an entry.
    pub(super) fn absent(&self) -> Estimate {
        Estimate::between(0.0, 0.0, self.decrements.saturating_add(self.untracked()) as f64)
    }

    /// The keys that have entries, with their weights.
    pub(super) fn iter(&self) -> impl Iterator<Item = (K, Estimate)> {
        self.entries[..self.len].iter().map(|entry| (entry.key, self.bounds(entry)))
    }

    /// Adds the remainders of each key, and decrements all keys by the largest one that has no room
    /// (Agarwal et al., "Mergeable summaries", PODS 2012, §3). A key that one side lacks weighs at
    /// most E there.
    pub(super) fn merge(&mut self, other: &Self) {
        let mut sum = Vec::with_capacity(self.len + other.len);
        for entry in &self.entries[..self.len] {
            let there = other.find(entry.key, entry.key.digest(&self.digester));
            let (missed, counted) = there.map_or((other.decrements, 0), |at| {
                (other.entries[at].missed, other.entries[at].counted)
            });
            sum.push(Entry {
                key: entry.key,
                missed: entry.missed.saturating_add(missed),
                counted: entry.counted.saturating_add(counted),
            });
        }
        for entry in &other.entries[..other.len] {
            if self.find(entry.key, entry.key.digest(&self.digester)).is_none() {
                sum.push(Entry { missed: entry.missed.saturating_add(self.decrements), ..*entry });
            }
        }
        let decrements = self.decrements.saturating_add(other.decrements);
        let order = order(sum.len(), &|a, b| {
            sum[b].remainder(decrements).cmp(&sum[a].remainder(decrements))
        });
        let excess = order.get(self.capacity());
        let decrement = excess.map_or(0, |at| sum[*at as usize].remainder(decrements));
        let untracked = self.untracked().saturating_add(other.untracked());
        self.clear();
        self.decrements = decrements.saturating_add(decrement);
        self.index.add_untracked(untracked);
        for entry in order.into_iter().map(|at| sum[at as usize]) {
            let digest = entry.key.digest(&self.digester);
            if entry.remainder(self.decrements) == 0 || self.len == self.entries.len() {
                continue;
            }
            if self.index.has_room(digest) {
                self.append(entry, digest);
            } else {
                self.index.add_untracked(entry.counted.saturating_add(entry.missed));
            }
        }
    }

    pub(super) fn save(&self, out: &mut Writer) {
        out.numbers(&[self.decrements, self.untracked()]);
        out.number(self.len as u64);
        out.sorted(out.key_bytes() + Self::STORED_BYTES, |out| {
            for entry in &self.entries[..self.len] {
                out.key(entry.key);
                out.numbers(&[entry.missed, entry.counted]);
            }
        });
    }

    /// Bytes of the stored weights of a key.
    const STORED_BYTES: usize = 2 * size_of::<u64>();

    pub(super) fn load(&mut self, from: &mut Reader<'_>) -> Result<(), DecodeError> {
        self.decrements = from.number("taken off in all")?;
        self.index.add_untracked(from.number("refused weight")?);
        for _ in 0..from.count("number of keys", self.entries.len())? {
            let key = from.key("key")?;
            let (missed, counted) = (from.number("weight before")?, from.number("weight")?);
            let entry: Entry<K> = Entry { key, missed, counted };
            let digest = key.digest(&self.digester);
            if self.find(key, digest).is_some()
                || !self.index.has_room(digest)
                || missed > self.decrements
                || counted < self.decrements - missed
            {
                let reason =
                    "it occurs twice, collides with others, or weighs less than was subtracted";
                let width = from.key_bytes() + Self::STORED_BYTES;
                return Err(from.invalid("key", width, reason));
            }
            self.append(entry, digest);
        }
        Ok(())
    }

    pub(super) fn clear(&mut self) {
        self.index.clear();
        self.len = 0;
        self.decrements = 0;
    }

    pub(super) fn memory_bytes(&self) -> usize {
        Self::bytes(self.entries.len())
    }
}

impl<K: FlowKey, C: Counter> BranchFree<K, C> for KeyCounters<K> {
    #[inline(always)]
    fn index(&self) -> &Index {
        &self.index
    }

    /// Common rows have a key with an entry, or with room for one. Which of the two is
    /// unpredictable, so both take the same steps.
    #[inline(always)]
    fn add_common<const WIDE: bool>(
        &mut self,
        keys: &[K],
        digests: &[u64],
        weights: &[C],
    ) -> usize {
        let (capacity, decrements, mut len) = (self.entries.len(), self.decrements, self.len);
        let (entries, mut lines) = (&mut self.entries[..capacity], self.index.lines::<WIDE>());
        let mut done = keys.len();
        for (i, ((&key, &digest), &weight)) in keys.iter().zip(digests).zip(weights).enumerate() {
            let probe = lines.probe(digest);
            let first = lines.first(&probe);
            let has = (entries[first].key == key) & probe.is_match();
            let room = (len < capacity) & probe.is_decided();
            // Hides `has` from the compiler, which would branch on it.
            if !black_box(has | room) {
                done = i;
                break;
            }
            let at = select_unpredictable(has, first, len);
            lines.assign(&probe, at, has);
            let Entry { missed, counted, .. } = entries[at];
            entries[at] = Entry {
                key,
                missed: select_unpredictable(has, missed, decrements),
                counted: select_unpredictable(has, counted, 0).saturating_add(weight.get()),
            };
            len += usize::from(!has);
        }
        self.len = len;
        done
    }

    #[inline(always)]
    fn add_one(&mut self, key: K, digest: u64, weight: C) {
        self.add(key, digest, weight.get());
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use flowgauge_kernel::{Isa, Seed};

    use super::*;
    use crate::key::Key8;

    /// The two largest weights are equal, so that the power law has no exponent, and each new
    /// weight is just above the minimum: a scan for each of them would visit all keys.
    #[test]
    #[expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]
    fn scans_are_rare_for_any_weights() {
        let digester = Digester::new(Seed::number(1), Isa::best()).for_keys(Key8::BYTES);
        for (capacity, scans_at_most) in [(1000, 10_000 / 50 + 1), (20, 10_000), (3, 10_000)] {
            let mut counters =
                KeyCounters::<Key8>::new(capacity, digester, &Memory::unlimited()).unwrap();
            let mut truths = BTreeMap::new();
            let (mut scans, mut total) = (0, 0);
            for number in 0..capacity as u32 + 10_000 {
                let key = Key8::from_canonical(&number.to_be_bytes()).unwrap();
                let min = counters.remainders().min().unwrap_or(0);
                let weight = if number < 2 { 1 << 40 } else { min + 1 + u64::from(number % 7) };
                let before = counters.decrements;
                counters.add(key, key.digest(&digester), weight);
                scans += usize::from(counters.decrements > before);
                truths.insert(number, (key, weight));
                total += weight;
            }
            assert!(scans <= scans_at_most, "{scans} scans of {capacity} keys");
            assert!(
                counters.decrements as f64 <= total as f64 / (0.95 * capacity as f64),
                "{capacity}"
            );
            for (key, weight) in truths.into_values() {
                let Estimate { low, high, .. } = counters.estimate(key);
                assert!(low <= weight as f64 && weight as f64 <= high);
            }
        }
    }

    #[test]
    #[expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]
    fn remainders_are_ranked() {
        let digester = Digester::new(Seed::number(1), Isa::best()).for_keys(Key8::BYTES);
        let mut counters = KeyCounters::<Key8>::new(300, digester, &Memory::unlimited()).unwrap();
        let mut random = fastrand::Rng::with_seed(1);
        let mut weights: Vec<u64> = (0..300).map(|_| random.u64(..) >> random.u32(0..64)).collect();
        for (number, weight) in (0..300u32).zip(&weights) {
            let key = Key8::from_canonical(&number.to_be_bytes()).unwrap();
            counters.add(key, key.digest(&digester), *weight);
        }
        weights.sort_unstable();
        assert!(
            weights
                .iter()
                .enumerate()
                .all(|(rank, weight)| counters.nth_remainder(rank) == *weight)
        );
    }
}
