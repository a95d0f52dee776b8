//! Elastic Sketch: heavy flows in keyed buckets, the others in a small Count-Min.
//!
//! Paper: Yang et al., "Elastic sketch: adaptive and fast network-wide measurements" (SIGCOMM
//! 2018), §3. A bucket has a few slots and counts the packets of flows without a slot. When these
//! are 8 times the packets of its lightest slot, that slot's flow moves to the light part, and the
//! packet's flow takes the slot, marked as possibly having packets in the light part. The sizes of
//! flows that share a light counter are recovered as in MRAC (§3.3 of the paper).

mod answers;

use std::cell::OnceCell;
use std::hint::select_unpredictable;

use bytemuck::Zeroable;
use flowgauge_kernel::{Digester, Zeroed, prefetch};

use crate::batch::{BATCH_PACKETS, Batch};
use crate::key::FlowKey;
use crate::summary::codec::{DecodeError, Number, Reader, Writer};
use crate::summary::describe::form;
use crate::summary::ingest::{Basis, twin};
use crate::summary::remix::{remix, remix_batch};
use crate::summary::{
    Answers, BuildError, CACHED_BYTES, Counted, Counter, Describe, Incompatible, Info, Ingest,
    Laws, Memory, Options, Parameter, Reads, Setting, Summary,
};
use crate::terms::Measure;

/// Number of slots of a bucket. With keys of 4 bytes and packets, a bucket is one cache line.
const SLOTS: usize = 7;

/// A slot is evicted when the votes against it are this many times those for it.
const EVICTION: u64 = 8;

/// The words of a digest that select the bucket and the light counter.
const BUCKET_WORD: u64 = 0;
const LIGHT_WORD: u64 = 1;

/// Default number of buckets and of light counters: 28,672 heavy flows, and a counter for each of
/// two million others.
const BUCKETS: usize = 1 << 12;
const LIGHT: usize = 1 << 21;

/// In a small memory, the size of the light part in multiples of the heavy part.
const LIGHT_RATIO: usize = 3;

/// Distance in packets between a prefetch and its use.
const PREFETCH_AHEAD: usize = 16;

/// An Elastic Sketch of packets or bytes.
///
/// Cost: one cache line per packet, or as many as a bucket spans, and one of the light part for
/// packets of light flows. At the close of an epoch, entropy or the size distribution takes some
/// 0.1 s, and temporarily one bit per light counter. Memory in bytes: `buckets × (7 ×
/// size_of::<K>() + 8 × size_of::<C>() + 4, rounded up to the alignment) + light × (1 or 4)`.
///
/// ```
/// use flowgauge_core::batch::Batch;
/// use flowgauge_core::catalog;
/// use flowgauge_core::key::{FlowKey, Key8};
/// use flowgauge_core::summary::Options;
///
/// let options = Options::new(1 << 20, 1).for_keys(4);
/// let mut sketch = catalog::build::<Key8>("elastic-sketch", &options).unwrap();
/// let mut batch = Batch::new();
/// for packet in 0..200 {
///     batch.push(Key8::from_canonical(&[10, 0, 0, packet % 20]).unwrap(), 64, 0);
/// }
/// sketch.ingest(&mut batch);
/// let size = sketch.answers().size().unwrap().estimate(&[10, 0, 0, 7]).packets.unwrap();
/// assert_eq!((size.low, size.high), (10.0, 10.0));
/// assert_eq!(sketch.answers().cardinality().unwrap().value, 20.0);
/// ```
pub struct ElasticSketch;

impl Describe for ElasticSketch {
    const INFO: Info = Info {
        name: "elastic-sketch",
        idea: "buckets that keep heavy flows by vote, and 8-bit counters for the others",
        paper: "Elastic Sketch (SIGCOMM 2018), section 3",
        parameters: &[
            Parameter {
                name: "buckets",
                help: "buckets of the heavy part, of 7 flows each, a power of two (default: 4096, or \
                       what fits into a quarter of the memory)",
            },
            Parameter {
                name: "light",
                help: "counters of the light part, of 8 bits by packets and 32 by bytes, a power of \
                       two (default: 2097152, or what fits into the rest)",
            },
        ],
        memory: "buckets x (7 x key + 8 x (4 by packets, 8 by bytes) + 4, rounded up) \
                 + light x (1 by packets, 4 by bytes)",
        forms: &[form![
            Size(Counted::Asked),
            Candidates,
            Cardinality,
            WeightLogs(Counted::Asked),
            Distribution(Counted::Asked)
        ]],
        laws: Laws { sizes: true, ..Laws::NONE },
    };

    fn build<K: FlowKey>(options: &Options) -> Result<Box<dyn Summary<K>>, BuildError> {
        Ok(match options.by {
            Measure::Packets => Box::new(Elastic::<K, u32>::from_options(options)?),
            Measure::Bytes => Box::new(Elastic::<K, u64>::from_options(options)?),
        })
    }
}

/// A measure with the counters of its light part.
pub(super) trait Light: Counter {
    /// A light counter: 8 bits for packets, as in the paper; they would not hold the bytes of one
    /// packet.
    type Small: Number + Into<u64> + Send;
    /// Largest value of a light counter.
    const LIGHT_MOST: u64;
    /// A light counter with a value up to that.
    fn small(number: u64) -> Self::Small;
}

impl Light for u32 {
    type Small = u8;
    const LIGHT_MOST: u64 = u8::MAX as u64;

    #[inline(always)]
    fn small(number: u64) -> u8 {
        number as u8
    }
}

impl Light for u64 {
    type Small = u32;
    const LIGHT_MOST: u64 = u32::MAX as u64;

    #[inline(always)]
    fn small(number: u64) -> u32 {
        number as u32
    }
}

/// A bucket of the heavy part. A slot without votes is empty, so that the zero key is a key like
/// any other.
#[derive(Clone, Copy, Zeroable)]
#[repr(C)]
struct Bucket<K, C> {
    votes: [C; SLOTS],
    against: C,
    /// One bit per slot, set if its flow may have packets in the light part.
    marked: u32,
    keys: [K; SLOTS],
}

const _: () = assert!(size_of::<Bucket<u32, u32>>() == 64);

/// The heavy and the light part; `C` is `u32` for packets, `u64` for bytes.
pub(super) struct Elastic<K, C: Light> {
    digester: Digester,
    buckets: Zeroed<Bucket<K, C>>,
    /// One row of small counters.
    light: Zeroed<C::Small>,
    /// Total of the light part.
    light_total: u64,
    saturated: u64,
    /// Expected number of flows of each size among those only in the light part, computed on demand
    /// after the last packet.
    flows: OnceCell<Vec<(u64, f64)>>,
}

impl<K: FlowKey, C: Light> Elastic<K, C> {
    fn from_options(options: &Options) -> Result<Self, BuildError> {
        let bucket = size_of::<Bucket<K, C>>();
        let for_heavy = options.memory_bytes / (1 + LIGHT_RATIO);
        let parameters = &options.parameters;
        let buckets =
            parameters.power_of_two("buckets", for_heavy.min(BUCKETS * bucket), bucket)?;
        let rest = options.memory_bytes.saturating_sub(buckets.saturating_mul(bucket));
        let light = parameters.power_of_two(
            "light",
            rest.min(LIGHT * size_of::<C::Small>()),
            size_of::<C::Small>(),
        )?;
        Self::new(buckets, light, options.digester, &options.memory)
    }

    fn new(
        buckets: usize,
        light: usize,
        digester: Digester,
        memory: &Memory,
    ) -> Result<Self, BuildError> {
        Ok(Self {
            digester,
            buckets: memory.zeroed(buckets)?,
            light: memory.zeroed(light)?,
            light_total: 0,
            saturated: 0,
            flows: OnceCell::new(),
        })
    }

    #[inline(always)]
    fn bucket_of(&self, digest: u64) -> usize {
        remix(digest, BUCKET_WORD) as usize & (self.buckets.len() - 1)
    }

    #[inline(always)]
    fn light_of(&self, digest: u64) -> usize {
        remix(digest, LIGHT_WORD) as usize & (self.light.len() - 1)
    }

    /// Adds weight to the light part, up to its largest value.
    #[inline(always)]
    fn add_to_light(&mut self, digest: u64, weight: u64) {
        let place = self.light_of(digest);
        let counter = &mut self.light[place];
        let sum = (*counter).into().saturating_add(weight);
        *counter = C::small(sum.min(C::LIGHT_MOST));
        self.saturated = self.saturated.saturating_add(sum - sum.min(C::LIGHT_MOST));
        self.light_total = self.light_total.saturating_add(weight);
    }

    #[inline(always)]
    fn add(&mut self, at: usize, key: K, digest: u64, weight: C) {
        let bucket = &mut self.buckets[at];
        // The slot cannot be predicted, so all are compared without a branch.
        let same = (0..SLOTS).fold(0, |same, slot| {
            let taken = bucket.votes[slot].get() > 0;
            same | (u32::from(bucket.keys[slot] == key) & u32::from(taken)) << slot
        });
        if same != 0 {
            let slot = same.trailing_zeros() as usize % SLOTS;
            self.saturated = self.saturated.saturating_add(bucket.votes[slot].add(weight));
            return;
        }
        let mut least = 0;
        for slot in 1..SLOTS {
            let less = bucket.votes[slot].get() < bucket.votes[least].get();
            least = select_unpredictable(less, slot, least);
        }
        let votes = bucket.votes[least].get();
        if votes == 0 {
            // Before all slots are taken, no packet goes to the light part, so this flow has
            // nothing there.
            bucket.keys[least] = key;
            bucket.votes[least] = weight;
            bucket.marked &= !(1 << least);
            return;
        }
        // If this counter is full, the slot is only evicted later.
        let _ = bucket.against.add(weight);
        if bucket.against.get() / EVICTION < votes {
            self.add_to_light(digest, weight.get());
            return;
        }
        let evicted = bucket.keys[least];
        bucket.keys[least] = key;
        bucket.votes[least] = weight;
        bucket.marked |= 1 << least;
        bucket.against = C::zeroed();
        self.add_to_light(evicted.digest(&self.digester), votes);
    }

    /// The votes of a key's slot, and whether it may have more in the light part.
    fn slot(&self, key: K, digest: u64) -> Option<(u64, bool)> {
        let bucket = &self.buckets[self.bucket_of(digest)];
        let slot = (0..SLOTS).find(|s| bucket.keys[*s] == key && bucket.votes[*s].get() > 0)?;
        Some((bucket.votes[slot].get(), bucket.marked >> slot & 1 == 1))
    }

    /// The keys of the heavy part, and whether they are marked.
    fn heavy(&self) -> impl Iterator<Item = (K, bool)> {
        self.buckets.iter().flat_map(|bucket| {
            let taken = (0..SLOTS).filter(|slot| bucket.votes[*slot].get() > 0);
            taken.map(|slot| (bucket.keys[slot], bucket.marked >> slot & 1 == 1))
        })
    }
}

impl<K: FlowKey, C: Light> Ingest<K> for Elastic<K, C> {
    fn ingest(&mut self, batch: &mut Batch<K>) {
        if self.flows.get().is_some() {
            self.forget_flows();
        }
        batch.digest(&self.digester);
        let (keys, digests, weights) = (batch.keys(), batch.digests(), C::column(batch));
        let mut words = [0; BATCH_PACKETS];
        let words = &mut words[..keys.len()];
        remix_batch(&self.digester, digests, BUCKET_WORD, words);
        let mask = self.buckets.len() - 1;
        let cached = self.light.memory_bytes() <= CACHED_BYTES;
        for i in 0..keys.len() {
            let ahead = i + PREFETCH_AHEAD;
            if let Some(&word) = words.get(ahead) {
                prefetch(&self.buckets, word as usize & mask);
            }
            if let Some(&digest) = digests.get(ahead).filter(|_| !cached) {
                prefetch(&self.light, self.light_of(digest));
            }
            // A packet without weight would leave a slot that looks empty.
            if weights[i].get() > 0 {
                self.add(words[i] as usize & mask, keys[i], digests[i], weights[i]);
            }
        }
    }

    fn reads(&self) -> Reads {
        Reads::sizes(C::MEASURE)
    }
}

impl<K: FlowKey, C: Light> Summary<K> for Elastic<K, C> {
    fn answers(&self) -> &dyn Answers {
        self
    }

    /// Adds slots of the same flow. Of all slots of a bucket the heaviest stay; the others move to
    /// the light part, as if evicted.
    fn merge(&mut self, other: &dyn Summary<K>) -> Result<(), Incompatible> {
        let other = twin(self, other, |summary| Basis::of(&summary.digester))?;
        self.forget_flows();
        for (counter, other) in self.light.iter_mut().zip(other.light.iter()) {
            let sum = (*counter).into() + (*other).into();
            *counter = C::small(sum.min(C::LIGHT_MOST));
            self.saturated = self.saturated.saturating_add(sum - sum.min(C::LIGHT_MOST));
        }
        self.light_total = self.light_total.saturating_add(other.light_total);
        self.saturated = self.saturated.saturating_add(other.saturated);
        for (at, theirs) in other.buckets.iter().enumerate() {
            // A flow with a slot in one sketch may be in the light part of the other.
            self.buckets[at].marked = (1 << SLOTS) - 1;
            self.saturated =
                self.saturated.saturating_add(self.buckets[at].against.add(theirs.against));
            for slot in 0..SLOTS {
                if theirs.votes[slot].get() > 0 {
                    self.take(at, theirs.keys[slot], theirs.votes[slot]);
                }
            }
        }
        Ok(())
    }

    fn save(&self, out: &mut Writer) {
        out.number(self.light_total);
        out.number(self.saturated);
        for bucket in self.buckets.iter() {
            out.numbers(&bucket.votes);
            out.number(bucket.against);
            out.number(bucket.marked);
            bucket.keys.iter().for_each(|key| out.key(*key));
        }
        out.numbers(&self.light);
    }

    fn load(&mut self, from: &mut Reader<'_>) -> Result<(), DecodeError> {
        self.light_total = from.number("total of the light part")?;
        self.saturated = from.number("saturated")?;
        for bucket in self.buckets.iter_mut() {
            from.numbers("votes", &mut bucket.votes)?;
            bucket.against = from.number("votes against")?;
            bucket.marked = from.number("marks")?;
            for key in &mut bucket.keys {
                *key = from.key("key")?;
            }
        }
        from.numbers("light part", &mut self.light)
    }

    fn clear(&mut self) {
        self.buckets.fill(Bucket::zeroed());
        self.light.fill(C::small(0));
        self.forget_flows();
        self.light_total = 0;
        self.saturated = 0;
    }

    fn parameters(&self) -> Vec<(&'static str, Setting)> {
        vec![
            ("buckets", Setting::Integer(self.buckets.len() as u64)),
            ("light", Setting::Integer(self.light.len() as u64)),
        ]
    }

    fn memory_bytes(&self) -> usize {
        self.buckets.memory_bytes() + self.light.memory_bytes()
    }
}

impl<K: FlowKey, C: Light> Elastic<K, C> {
    /// Adds another sketch's slot to a bucket; the lighter of two flows moves to the light part.
    fn take(&mut self, at: usize, key: K, votes: C) {
        let bucket = &mut self.buckets[at];
        let same = |s: &usize| bucket.keys[*s] == key && bucket.votes[*s].get() > 0;
        if let Some(slot) = (0..SLOTS).find(same) {
            self.saturated = self.saturated.saturating_add(bucket.votes[slot].add(votes));
            return;
        }
        let Some(least) = (0..SLOTS).min_by_key(|slot| bucket.votes[*slot].get()) else { return };
        let (mut lighter, mut weight) = (key, votes);
        if bucket.votes[least].get() < votes.get() {
            std::mem::swap(&mut bucket.keys[least], &mut lighter);
            std::mem::swap(&mut bucket.votes[least], &mut weight);
        }
        if weight.get() > 0 {
            self.add_to_light(lighter.digest(&self.digester), weight.get());
        }
    }
}
