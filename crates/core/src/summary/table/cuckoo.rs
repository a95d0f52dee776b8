//! Cuckoo hashing: each key has two buckets. A new key may move other keys to their second bucket.
//!
//! Paper: Alipourfard et al., "A comparison of performance and accuracy of measurement algorithms
//! in software" (SOSR 2018), §3.2, with one slot per bucket and with four. As in DPDK's table,
//! which the paper follows, a slot holds a flow's number and a tag, so that a move copies four
//! bytes; there is nothing for deletions.

use std::hint::select_unpredictable;

use flowgauge_kernel::{Isa, Zeroed, equal_in_group, prefetch};

use super::layout::{Index, Records};
use super::{ExactTable, LAWS};
use crate::key::FlowKey;
use crate::summary::codec::StepBudget;
use crate::summary::remix::remix;
use crate::summary::state::{self, Kind, with_state};
use crate::summary::{
    BuildError, Describe, Info, Laws, Memory, Options, Parameter, Parameters, Summary,
};

/// Flows that a new key moves at most. With four slots per bucket, a walk takes 3 steps on average
/// up to a load of 95 %; with one slot, walks get long near a load of one half.
const MOST_STEPS: usize = 512;

/// The same while a stored summary is read, whose flows all had room, within the step budget.
const DECODE_STEPS: usize = 1 << 18;

/// Walks that may fail at first. After these, each packet without room earns a few steps, so that
/// an untracked flow with many packets costs a walk only now and then.
const FAILED_WALKS: usize = 64;
const STEPS_EARNED: usize = 4;

/// The exact table `cuckoo-1`: cuckoo hashing with one slot per bucket, at most half of them full.
///
/// Cost per packet: two buckets and the state; a new key moves at most 512 flows. Memory in
/// bytes: 4 × buckets, and 1/2 × buckets × (key + state of 12 or more).
///
/// ```
/// use flowgauge_core::batch::Batch;
/// use flowgauge_core::catalog;
/// use flowgauge_core::key::{FlowKey, Key8};
/// use flowgauge_core::summary::Options;
///
/// let options = Options::new(1 << 20, 1).for_keys(4).with([("buckets", 2)]);
/// let mut table = catalog::build::<Key8>("cuckoo-1", &options)?;
/// let mut batch = Batch::new();
/// batch.push(Key8::from_canonical(&[10, 0, 0, 1]).unwrap(), 1500, 0);
/// batch.push(Key8::from_canonical(&[10, 0, 0, 2]).unwrap(), 40, 0);
/// table.ingest(&mut batch);
/// assert_eq!(table.answers().flows().unwrap().len(), 1);
/// assert_eq!(table.answers().untracked().bytes, 40);
/// # Ok::<(), flowgauge_core::summary::BuildError>(())
/// ```
pub struct Cuckoo1;

/// The exact table `cuckoo-4`: cuckoo hashing with four slots per bucket, at most 95 % of them
/// full.
///
/// Cost per packet: as [`Cuckoo1`]. Memory in bytes: 16 × buckets, and 61/16 × buckets ×
/// (key + state of 12 or more).
///
/// ```
/// use flowgauge_core::batch::Batch;
/// use flowgauge_core::catalog;
/// use flowgauge_core::key::{FlowKey, Key8};
/// use flowgauge_core::summary::Options;
///
/// let options = Options::new(1 << 20, 1).for_keys(4);
/// let mut table = catalog::build::<Key8>("cuckoo-4", &options)?;
/// let mut other = catalog::build::<Key8>("cuckoo-4", &options)?;
/// let mut batch = Batch::new();
/// batch.push(Key8::from_canonical(&[10, 0, 0, 1]).unwrap(), 1500, 0);
/// table.ingest(&mut batch);
/// other.ingest(&mut batch);
/// table.merge(&*other)?;
/// assert_eq!(table.answers().flows().unwrap().get(0).1.bytes, 3000);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Cuckoo4;

const BUCKETS: Parameter = Parameter {
    name: "buckets",
    help: "number of buckets, a power of two (default: what fits into the memory)",
};

impl Describe for Cuckoo1 {
    const INFO: Info = Info {
        name: "cuckoo-1",
        idea: "exact hash table, two buckets of one slot for each key, at most half of them full",
        paper: "Simple (SOSR 2018), section 3.2",
        parameters: &[BUCKETS, state::STATE],
        memory: "4 x buckets + 1/2 x buckets x (key + state of 12 or more, rounded up to 4 or 8)",
        forms: state::TABLE_FORMS,
        laws: LAWS,
    };

    fn laws(parameters: &Parameters) -> Laws {
        state::laws(Self::INFO.laws, parameters)
    }

    fn fits(options: &Options) -> Result<(), BuildError> {
        Kind::fits(Self::INFO.name, &Kind::OF_TABLES, options)
    }

    fn build<K: FlowKey>(options: &Options) -> Result<Box<dyn Summary<K>>, BuildError> {
        build::<K, 1>(Self::INFO.name, options)
    }
}

impl Describe for Cuckoo4 {
    const INFO: Info = Info {
        name: "cuckoo-4",
        idea: "exact hash table, two buckets of four slots for each key, at most 95 % of them full",
        paper: "Simple (SOSR 2018), section 3.2",
        parameters: &[BUCKETS, state::STATE],
        memory: "16 x buckets + 61/16 x buckets x (key + state of 12 or more, rounded up to 4 or 8)",
        forms: state::TABLE_FORMS,
        laws: LAWS,
    };

    fn laws(parameters: &Parameters) -> Laws {
        state::laws(Self::INFO.laws, parameters)
    }

    fn fits(options: &Options) -> Result<(), BuildError> {
        Kind::fits(Self::INFO.name, &Kind::OF_TABLES, options)
    }

    fn build<K: FlowKey>(options: &Options) -> Result<Box<dyn Summary<K>>, BuildError> {
        build::<K, 4>(Self::INFO.name, options)
    }
}

fn build<K: FlowKey, const SLOTS: usize>(
    name: &'static str,
    options: &Options,
) -> Result<Box<dyn Summary<K>>, BuildError> {
    // The number of any slot fits into 32 bits.
    let most = (1 << 32) / SLOTS as u64;
    with_state!(K, Kind::from_options(name, &Kind::OF_TABLES, options)?, S =>
        ExactTable::<K, S, Records<K, S, Cuckoo<SLOTS>>>::build(options, most))
}

/// The index of the cuckoo tables. A slot holds a flow's number, counted from 1, in as many low
/// bits as the largest number needs, and bits of the digest above; 0 is empty.
struct Cuckoo<const SLOTS: usize> {
    buckets: Zeroed<[u32; SLOTS]>,
    /// Mask of a slot's bits that hold the number.
    number: u32,
    /// Steps that failing walks may still take.
    credit: usize,
}

impl<const SLOTS: usize> Cuckoo<SLOTS> {
    /// The two buckets of a digest, which differ.
    #[inline(always)]
    fn buckets_of(&self, digest: u64) -> [usize; 2] {
        let mask = self.buckets.len() - 1;
        let first = digest as usize & mask;
        [first, first ^ (remix(digest, 0) as usize & mask).max(1)]
    }

    /// The slot of a flow. Its bits of the digest end with bit 47, the last one for tags.
    #[inline(always)]
    fn slot(&self, digest: u64, flow: usize) -> u32 {
        (digest >> 16) as u32 & !self.number | (flow as u32 + 1)
    }

    #[inline(always)]
    fn flow(&self, slot: u32) -> usize {
        ((slot & self.number) as usize).wrapping_sub(1)
    }

    /// Writes to an empty slot of the bucket; returns whether there was one.
    #[inline(always)]
    fn put(&mut self, bucket: usize, slot: u32) -> bool {
        match self.buckets[bucket].iter_mut().find(|slot| **slot == 0) {
            Some(empty) => {
                *empty = slot;
                true
            }
            None => false,
        }
    }

    /// Inserts the flow into its second bucket, which is full. A random flow of that bucket moves
    /// to its other bucket, and so on until one finds an empty slot; returns the number of steps.
    /// After `steps` without success it moves all flows back, if the walk recorded that many.
    #[cold]
    #[inline(never)]
    fn walk(
        &mut self,
        mut digest: u64,
        flow: usize,
        steps: usize,
        digest_of: &dyn Fn(usize) -> u64,
    ) -> Option<usize> {
        let (new, mut slot) = (digest, self.slot(digest, flow));
        let mut bucket = self.buckets_of(digest)[1];
        let mut path = [(0u32, 0u8); MOST_STEPS];
        for step in 0..steps {
            // The digest's seed is secret, so it serves as a source of random numbers.
            let at = (remix(digest, step as u64 + 1) >> 32) as usize % SLOTS;
            std::mem::swap(&mut slot, &mut self.buckets[bucket][at]);
            if let Some(place) = path.get_mut(step) {
                *place = (bucket as u32, at as u8);
            }
            let displaced = self.flow(slot);
            digest = if displaced == flow { new } else { digest_of(displaced) };
            let [first, second] = self.buckets_of(digest);
            bucket = if bucket == first { second } else { first };
            if self.put(bucket, slot) {
                return Some(step);
            }
        }
        for &(bucket, at) in path[..steps.min(MOST_STEPS)].iter().rev() {
            std::mem::swap(&mut slot, &mut self.buckets[bucket as usize][usize::from(at)]);
        }
        None
    }

    /// The number of the flow that probably has this digest.
    #[inline(always)]
    fn guess(&self, digest: u64) -> usize {
        let tag = self.slot(digest, 0) & !self.number;
        let buckets = self.buckets_of(digest).map(|bucket| self.buckets[bucket]);
        let slots = buckets.as_flattened();
        if let Some(slots) = slots.first_chunk::<8>() {
            let same = equal_in_group(slots, !self.number, tag);
            return self.flow(slots[same.trailing_zeros() as usize % slots.len()]);
        }
        let (mut guess, others) = (slots[0], &slots[1..]);
        for &slot in others {
            guess = select_unpredictable(guess & !self.number == tag, guess, slot);
        }
        self.flow(guess)
    }
}

impl<const SLOTS: usize> Index for Cuckoo<SLOTS> {
    const BUCKET_BYTES: usize = size_of::<[u32; SLOTS]>();
    const MAX_LOAD: (usize, usize) = if SLOTS == 1 { (1, 2) } else { (61 * SLOTS, 64) };

    fn new(buckets: usize, memory: &Memory) -> Result<Self, BuildError> {
        Ok(Self {
            buckets: memory.zeroed(buckets)?,
            number: (buckets * SLOTS - 1) as u32,
            credit: FAILED_WALKS * MOST_STEPS,
        })
    }

    fn buckets(&self) -> usize {
        self.buckets.len()
    }

    #[inline(always)]
    fn look_up(&self, digests: &[u64], _: Isa, guesses: &mut [usize]) {
        for &digest in digests {
            for bucket in self.buckets_of(digest) {
                prefetch(&self.buckets, bucket);
            }
        }
        for (guess, &digest) in guesses.iter_mut().zip(digests) {
            *guess = self.guess(digest);
        }
    }

    #[inline(always)]
    fn find(&self, digest: u64, is: impl Fn(usize) -> bool) -> Option<usize> {
        let tag = self.slot(digest, 0) & !self.number;
        let slots = self.buckets_of(digest).map(|bucket| self.buckets[bucket]);
        let same = |slot: &&u32| **slot & !self.number == tag && **slot != 0;
        let flows = slots.iter().flatten().filter(same).map(|slot| self.flow(*slot));
        flows.into_iter().find(|flow| is(*flow))
    }

    fn insert(
        &mut self,
        digest: u64,
        flow: usize,
        _: impl Fn(usize),
        digest_of: impl Fn(usize) -> u64,
        budget: Option<&mut StepBudget>,
    ) -> bool {
        let slot = self.slot(digest, flow);
        let [first, second] = self.buckets_of(digest);
        if self.put(first, slot) || self.put(second, slot) {
            return true;
        }
        if let Some(budget) = budget {
            let most = DECODE_STEPS.min(budget.left());
            let steps = self.walk(digest, flow, most, &digest_of);
            return budget.take(steps.unwrap_or(most)) && steps.is_some();
        }
        if self.credit < MOST_STEPS {
            self.credit += STEPS_EARNED;
            return false;
        }
        let found = self.walk(digest, flow, MOST_STEPS, &digest_of).is_some();
        if !found {
            self.credit -= MOST_STEPS;
        }
        found
    }

    fn renumber(&mut self, flows: impl Iterator<Item = (u64, Option<usize>)>) {
        for (flow, (digest, new)) in flows.enumerate() {
            // No earlier flow still has this number, and no later flow has the new one yet.
            let old = self.slot(digest, flow);
            let new = new.map_or(0, |new| self.slot(digest, new));
            for bucket in self.buckets_of(digest) {
                for slot in self.buckets[bucket].iter_mut().filter(|slot| **slot == old) {
                    *slot = new;
                }
            }
        }
    }

    fn clear(&mut self, digests: impl ExactSizeIterator<Item = u64>) {
        if digests.len() > self.buckets.len() / 2 {
            self.buckets.fill([0; SLOTS]);
        } else {
            for digest in digests {
                for bucket in self.buckets_of(digest) {
                    self.buckets[bucket] = [0; SLOTS];
                }
            }
        }
        self.credit = FAILED_WALKS * MOST_STEPS;
    }

    fn memory_bytes(&self) -> usize {
        self.buckets.memory_bytes()
    }
}
