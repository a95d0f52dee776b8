//! CuckooTable: each key has two buckets, and makes room in them by moving others to their second.
//!
//! Paper: Alipourfard et al., "A comparison of performance and accuracy of measurement algorithms
//! in software" (SOSR 2018), §3.2, with one slot a bucket and with four. As in DPDK's table, which
//! the paper follows, a slot holds a flow's number and a tag, so that a displacement moves four
//! bytes; nothing is kept for deletions.

use std::hint::select_unpredictable;

use flowgauge_kernel::{Zeroed, equal_in_group, prefetch};

use super::super::codec::Patience;
use super::super::remix::remix;
use super::super::state::{self, Kind, with_state};
use super::super::{
    BuildError, Describe, Info, Laws, Memory, Merge, Options, Parameter, Parameters, Summary,
};
use super::exact::ExactTable;
use super::layout::{Index, Records};
use crate::key::FlowKey;

/// Flows that a key moves at most to find room. With four slots a bucket, walks to 95 % take 3 on
/// average; with one, they get long only where half of the slots are taken.
const MOST_STEPS: usize = 512;

/// The same while a summary is read that did find room for all of its flows, and there is patience.
const PATIENT_STEPS: usize = 1 << 18;

/// Walks that may be in vain at first. Then each key that finds no room earns some steps, so that
/// an untracked flow with many packets costs a walk only now and then.
const VAIN_WALKS: usize = 64;
const STEPS_EARNED: usize = 4;

/// One slot a bucket.
pub struct Cuckoo1;

/// Four slots a bucket.
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
        parameters: &[BUCKETS, state::STATE, state::PADDING],
        memory: "4 x buckets + 1/2 x buckets x (key + state of 12 or more, rounded up to 4 or 8)",
        forms: state::TABLE_FORMS,
        laws: Laws {
            flows: true,
            commutable: true,
            aggregatable: true,
            sizes: true,
            merge: Merge::Equal,
            ..Laws::NONE
        },
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
        parameters: &[BUCKETS, state::STATE, state::PADDING],
        memory: "16 x buckets + 61/16 x buckets x (key + state of 12 or more, rounded up to 4 or 8)",
        forms: state::TABLE_FORMS,
        laws: Laws {
            flows: true,
            commutable: true,
            aggregatable: true,
            sizes: true,
            merge: Merge::Equal,
            ..Laws::NONE
        },
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
    // All slots have a number of 32 bits.
    let most = (1 << 32) / SLOTS as u64;
    with_state!(K, Kind::from_options(name, &Kind::OF_TABLES, options)?, S =>
        ExactTable::<K, S, Records<K, S, Cuckoo<SLOTS>>>::build(options, most))
}

/// Buckets of slots: a slot holds a flow's number, counted from 1, in the bits that the largest
/// number needs, and bits of the digest in the others; 0 is empty.
struct Cuckoo<const SLOTS: usize> {
    buckets: Zeroed<[u32; SLOTS]>,
    /// The bits of a slot that hold the number.
    number: u32,
    /// Steps that walks may still take in vain.
    credit: usize,
}

impl<const SLOTS: usize> Cuckoo<SLOTS> {
    /// The two buckets of a digest, which differ.
    #[inline(always)]
    fn places(&self, digest: u64) -> [usize; 2] {
        let mask = self.buckets.len() - 1;
        let first = digest as usize & mask;
        [first, first ^ (remix(digest, 0) as usize & mask).max(1)]
    }

    /// The bits of the digest that a slot holds end with bit 47, the last of those for tags.
    #[inline(always)]
    fn slot(&self, digest: u64, flow: usize) -> u32 {
        (digest >> 16) as u32 & !self.number | (flow as u32 + 1)
    }

    #[inline(always)]
    fn flow(&self, slot: u32) -> usize {
        ((slot & self.number) as usize).wrapping_sub(1)
    }

    /// Fills an empty slot of the bucket, if there is one.
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

    /// Puts the flow into the full `bucket`, from where another moves to its other bucket, and so
    /// on at random until one finds an empty slot; returns how many moved. After `steps` in vain all
    /// move back, where they are not more than the walk remembers.
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
        let mut bucket = self.places(digest)[1];
        let mut path = [(0u32, 0u8); MOST_STEPS];
        for step in 0..steps {
            // A draw by digest needs no state of its own, and the digest's seed is secret.
            let at = (remix(digest, step as u64 + 1) >> 32) as usize % SLOTS;
            std::mem::swap(&mut slot, &mut self.buckets[bucket][at]);
            if let Some(place) = path.get_mut(step) {
                *place = (bucket as u32, at as u8);
            }
            let displaced = self.flow(slot);
            digest = if displaced == flow { new } else { digest_of(displaced) };
            let [first, second] = self.places(digest);
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
}

impl<const SLOTS: usize> Index for Cuckoo<SLOTS> {
    const BUCKET_BYTES: usize = size_of::<[u32; SLOTS]>();
    const FULL: (usize, usize) = if SLOTS == 1 { (1, 2) } else { (61 * SLOTS, 64) };

    fn new(buckets: usize, memory: &Memory) -> Result<Self, BuildError> {
        Ok(Self {
            buckets: memory.zeroed(buckets)?,
            number: (buckets * SLOTS - 1) as u32,
            credit: VAIN_WALKS * MOST_STEPS,
        })
    }

    fn buckets(&self) -> usize {
        self.buckets.len()
    }

    #[inline(always)]
    fn prefetch<const WHOLE: bool>(&self, digest: u64) {
        for bucket in self.places(digest) {
            prefetch(&self.buckets, bucket);
        }
    }

    #[inline(always)]
    fn guess<const WHOLE: bool>(&self, digest: u64) -> usize {
        let tag = self.slot(digest, 0) & !self.number;
        let buckets = self.places(digest).map(|bucket| self.buckets[bucket]);
        let slots = buckets.as_flattened();
        if let Some(slots) = slots.first_chunk() {
            let same = equal_in_group(slots, !self.number, tag);
            return self.flow(slots[same.trailing_zeros() as usize % slots.len()]);
        }
        let (mut guess, others) = (slots[0], &slots[1..]);
        for &slot in others {
            guess = select_unpredictable(guess & !self.number == tag, guess, slot);
        }
        self.flow(guess)
    }

    #[inline(always)]
    fn find(&self, digest: u64, is: impl Fn(usize) -> bool) -> Option<usize> {
        let tag = self.slot(digest, 0) & !self.number;
        let slots = self.places(digest).map(|bucket| self.buckets[bucket]);
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
        patience: Option<&mut Patience>,
    ) -> bool {
        let slot = self.slot(digest, flow);
        let [first, second] = self.places(digest);
        if self.put(first, slot) || self.put(second, slot) {
            return true;
        }
        if let Some(patience) = patience {
            let most = PATIENT_STEPS.min(patience.left());
            let steps = self.walk(digest, flow, most, &digest_of);
            return patience.take(steps.unwrap_or(most)) && steps.is_some();
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
            // No flow before has this number, and none behind has the new one yet.
            let old = self.slot(digest, flow);
            let new = new.map_or(0, |new| self.slot(digest, new));
            for bucket in self.places(digest) {
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
                for bucket in self.places(digest) {
                    self.buckets[bucket] = [0; SLOTS];
                }
            }
        }
        self.credit = VAIN_WALKS * MOST_STEPS;
    }

    fn memory_bytes(&self) -> usize {
        self.buckets.memory_bytes()
    }
}
