//! IndirectTable: linear probing over keys, which hold the numbers of their states.
//!
//! Paper: Alipourfard et al., "A comparison of performance and accuracy of measurement algorithms
//! in software" (SOSR 2018), §4.2 ("LinearPtr"). Probes read keys alone, however large the states
//! are; a state costs one more cache line. States are in the order of arrival, so that only memory
//! in proportion to the flows is touched.

use bytemuck::Zeroable;
use flowgauge_kernel::{Digester, Isa, Zeroed, prefetch};

use super::layout::Layout;
use super::probing::{BUCKETS, Bucket, Probed};
use super::{ExactTable, LAWS, MOST_BUCKETS};
use crate::key::FlowKey;
use crate::summary::codec::StepBudget;
use crate::summary::state::{self, Kind, Loaded, Payload, State, with_state};
use crate::summary::{BuildError, Describe, Info, Laws, Memory, Options, Parameters, Summary};

/// The exact table `indirect-table`: linear probing over keys, with states in a second array.
///
/// Cost per packet: a cache line of the keys and one of the states. Memory in bytes: buckets × (key + 4),
/// and 3/4 × buckets × (4 + state of 12 or more).
///
/// ```
/// use flowgauge_core::batch::Batch;
/// use flowgauge_core::catalog;
/// use flowgauge_core::key::{FlowKey, Key8};
/// use flowgauge_core::summary::{Estimate, Options};
///
/// let options = Options::new(1 << 20, 1).for_keys(4);
/// let mut table = catalog::build::<Key8>("indirect-table", &options)?;
/// let mut batch = Batch::new();
/// batch.push(Key8::from_canonical(&[10, 0, 0, 1]).unwrap(), 1500, 0);
/// table.ingest(&mut batch);
/// let sizes = table.answers().size().unwrap();
/// assert_eq!(sizes.estimate(&[10, 0, 0, 1]).bytes, Some(Estimate::exact(1500)));
/// assert_eq!(sizes.estimate(&[10, 0, 0, 2]).bytes, Some(Estimate::exact(0)));
/// # Ok::<(), flowgauge_core::summary::BuildError>(())
/// ```
pub struct IndirectTable;

impl Describe for IndirectTable {
    const INFO: Info = Info {
        name: "indirect-table",
        idea: "exact hash table, linear probing over keys, with states in a second array",
        paper: "Simple (SOSR 2018), section 4.2",
        parameters: &[BUCKETS, state::STATE],
        memory: "buckets x (key + 4, rounded up to 4 or 8) \
                 + 3/4 x buckets x (4 + state of 12 or more)",
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
        with_state!(K, Kind::from_options(Self::INFO.name, &Kind::OF_TABLES, options)?, S =>
            ExactTable::<K, S, Indirect<K, S>>::build(options, MOST_BUCKETS))
    }
}

impl IndirectTable {
    /// Builds a table with a payload beside the counter of each flow, as
    /// [`LinearTable::with_payload`](super::LinearTable::with_payload) does.
    ///
    /// # Errors
    /// When a parameter is unknown or out of range, or the memory limit is too small.
    pub fn with_payload<K: FlowKey, P: Payload>(
        options: &Options,
    ) -> Result<Box<dyn Summary<K>>, BuildError> {
        let options = Kind::of_payload::<K>(&Self::INFO, options)?;
        ExactTable::<K, Loaded<P>, Indirect<K, Loaded<P>>>::build(&options, MOST_BUCKETS)
    }
}

/// A key and the number of its flow, counted from 1; 0 is empty.
#[derive(Clone, Copy, Zeroable)]
#[repr(C)]
struct Numbered<K> {
    key: K,
    flow: u32,
}

impl<K: FlowKey> Bucket for Numbered<K> {
    type Key = K;

    #[inline(always)]
    fn key(&self) -> &K {
        &self.key
    }

    #[inline(always)]
    fn is_empty(&self) -> bool {
        self.flow == 0
    }
}

/// The guess for a key with no bucket within reach. No insertion makes room for it, and so it is not
/// searched again: keys that collide on purpose would take twice as long.
const NO_ROOM: usize = usize::MAX - 1;

/// Buckets of keys and flow numbers, and an array of states in the order of arrival.
struct Indirect<K, S> {
    keys: Probed<Numbered<K>>,
    states: Zeroed<S>,
}

impl<K: FlowKey, S: State> Indirect<K, S> {
    /// The flow of a bucket; an unused number if it is empty.
    #[inline(always)]
    fn flow_in(&self, bucket: usize) -> usize {
        (self.keys.get(bucket).flow as usize).wrapping_sub(1)
    }

    /// Writes a new flow to an empty bucket, if there is room for it.
    fn fill(&mut self, bucket: usize, key: K) -> Option<usize> {
        let flow = self.keys.len();
        if !self.keys.fill(bucket, Numbered { key, flow: flow as u32 + 1 }) {
            return None;
        }
        self.states[flow] = S::zeroed();
        Some(flow)
    }
}

impl<K: FlowKey, S: State> Layout<K, S> for Indirect<K, S> {
    fn bytes_per_bucket(more: usize) -> usize {
        Probed::<Numbered<K>>::bytes_per_bucket(size_of::<S>() + more)
    }

    fn new(buckets: usize, memory: &Memory) -> Result<Self, BuildError> {
        let keys = Probed::new(buckets, memory)?;
        let states = memory.zeroed(keys.most())?;
        Ok(Self { keys, states })
    }

    fn buckets(&self) -> usize {
        self.keys.buckets()
    }

    #[inline(always)]
    fn len(&self) -> usize {
        self.keys.len()
    }

    fn most(&self) -> usize {
        self.keys.most()
    }

    fn key(&self, flow: usize) -> &K {
        &self.keys.get(self.keys.bucket_of(flow)).key
    }

    #[inline(always)]
    fn state(&self, flow: usize) -> &S {
        &self.states[flow]
    }

    #[inline(always)]
    fn state_mut(&mut self, flow: usize) -> &mut S {
        &mut self.states[flow]
    }

    #[inline(always)]
    fn look_up(&self, keys: &[K], digests: &[u64], _: Isa, guesses: &mut [usize]) {
        for &digest in digests {
            self.keys.prefetch(digest);
        }
        for ((guess, &key), &digest) in guesses.iter_mut().zip(keys).zip(digests) {
            let bucket = self.keys.bucket(key, digest);
            *guess = bucket.map_or(NO_ROOM, |bucket| self.flow_in(bucket));
            prefetch(&self.states, *guess);
        }
    }

    fn may_have(guess: usize) -> bool {
        guess != NO_ROOM
    }

    /// A guess is never wrong.
    #[inline(always)]
    fn guessed(&mut self, guess: usize, _: K) -> Option<&mut S> {
        self.states[..self.keys.len()].get_mut(guess)
    }

    #[inline(always)]
    fn find(&self, key: K, digest: u64) -> Option<usize> {
        self.keys.find(key, digest).map(|bucket| self.flow_in(bucket))
    }

    #[inline(never)]
    fn insert(
        &mut self,
        key: K,
        digest: u64,
        _: &Digester,
        _: Option<&mut StepBudget>,
    ) -> Option<usize> {
        let bucket = self.keys.bucket(key, digest)?;
        self.fill(bucket, key)
    }

    /// One search both finds the flow and the bucket where it would go.
    fn find_or_insert(&mut self, key: K, digest: u64, _: &Digester) -> Option<usize> {
        let bucket = self.keys.bucket(key, digest)?;
        if self.keys.get(bucket).is_empty() {
            return self.fill(bucket, key);
        }
        Some(self.flow_in(bucket))
    }

    fn retain(&mut self, digester: &Digester, stays: &mut dyn FnMut(&mut S) -> bool) {
        let states = &mut self.states;
        self.keys.retain(digester, |number, bucket| {
            let mut state = states[bucket.flow as usize - 1];
            let stays = stays(&mut state);
            if stays {
                states[number] = state;
                bucket.flow = number as u32 + 1;
            }
            stays
        });
    }

    fn clear(&mut self, _: &Digester) {
        self.keys.clear();
    }

    fn memory_bytes(&self) -> usize {
        self.keys.memory_bytes() + self.states.memory_bytes()
    }
}
