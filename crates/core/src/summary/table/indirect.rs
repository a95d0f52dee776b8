//! IndirectTable: open addressing with linear probing over keys, the states behind a number.
//!
//! Paper: Alipourfard et al., "A comparison of performance and accuracy of measurement algorithms
//! in software" (SOSR 2018), §4.2 ("LinearPtr"). Probing walks over keys alone, however large the
//! states are; a state costs a cache line more. The states stand in the order of arrival, so that
//! their memory is touched in proportion to the flows.

use bytemuck::Zeroable;
use flowgauge_kernel::{Digester, Zeroed, prefetch};

use super::super::codec::Patience;
use super::super::state::{self, Kind, State, with_state};
use super::super::{
    BuildError, Describe, Info, Laws, Memory, Merge, Options, Parameter, Parameters, Summary,
};
use super::exact::ExactTable;
use super::layout::Layout;
use crate::key::FlowKey;

/// Share of the buckets that may be occupied: beyond 3/4 the probes for keys that are not there
/// grow from 8 buckets to 32 (at 7/8), which an attacker who fills the table would choose.
const FULL_NUMERATOR: usize = 3;
const FULL_DENOMINATOR: usize = 4;

/// Buckets that are probed for a key. Of keys that do not collide on purpose fewer than one in 10⁸
/// would be further away in a full table.
const MOST_PROBES: usize = 512;

/// Keys by linear probing, their states behind a number.
pub struct IndirectTable;

impl Describe for IndirectTable {
    const INFO: Info = Info {
        name: "indirect-table",
        idea: "exact hash table, linear probing over keys, their states behind a number",
        paper: "Simple (SOSR 2018), section 4.2",
        parameters: &[
            Parameter {
                name: "buckets",
                help: "number of buckets, a power of two; three quarters of them hold a flow \
                       (default: what fits into the memory)",
            },
            state::STATE,
            state::PADDING,
        ],
        memory: "buckets x (key + 4, rounded up to 4 or 8) \
                 + 3/4 x buckets x (4 + state of 12 or more)",
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
        with_state!(K, Kind::from_options(Self::INFO.name, &Kind::OF_TABLES, options)?, S =>
            ExactTable::<K, S, Indirect<K, S>>::build(options, 1 << 32))
    }
}

/// A key and the number of its flow, counted from 1; 0 is empty.
#[derive(Clone, Copy, Zeroable)]
#[repr(C)]
struct Bucket<K> {
    key: K,
    flow: u32,
}

struct Indirect<K, S> {
    buckets: Zeroed<Bucket<K>>,
    states: Zeroed<S>,
    /// The bucket of each flow.
    places: Zeroed<u32>,
    len: usize,
}

impl<K: FlowKey, S: State> Indirect<K, S> {
    /// The bucket of this key, or the empty one where it would go, if there is one near enough.
    #[inline(always)]
    fn bucket(&self, key: K, digest: u64) -> Option<usize> {
        let buckets = &self.buckets[..];
        let home = digest as usize & (buckets.len() - 1);
        let way = (home..home + MOST_PROBES).map(|bucket| bucket & (buckets.len() - 1));
        way.into_iter().find(|at| buckets[*at].flow == 0 || buckets[*at].key == key)
    }

    /// Puts a new flow into an empty bucket, if there is room for its state.
    fn fill(&mut self, bucket: usize, key: K) -> Option<usize> {
        let flow = self.len;
        if flow == self.states.len() {
            return None;
        }
        self.len += 1;
        self.buckets[bucket] = Bucket { key, flow: self.len as u32 };
        self.places[flow] = bucket as u32;
        self.states[flow] = S::zeroed();
        Some(flow)
    }

    /// Empties a bucket, and moves up those behind it whose way to their keys would have a hole.
    fn remove(&mut self, mut hole: usize, digester: &Digester) {
        let mask = self.buckets.len() - 1;
        let mut next = hole;
        loop {
            next = (next + 1) & mask;
            let Bucket { key, flow } = self.buckets[next];
            if flow == 0 {
                break;
            }
            let way = next.wrapping_sub(key.digest(digester) as usize) & mask;
            if way >= next.wrapping_sub(hole) & mask {
                self.buckets[hole] = self.buckets[next];
                self.places[flow as usize - 1] = hole as u32;
                hole = next;
            }
        }
        self.buckets[hole].flow = 0;
    }
}

impl<K: FlowKey, S: State> Layout<K, S> for Indirect<K, S> {
    fn bytes_per_bucket(more: usize) -> usize {
        let per_flow = size_of::<S>() + size_of::<u32>() + more;
        size_of::<Bucket<K>>() + (per_flow * FULL_NUMERATOR).div_ceil(FULL_DENOMINATOR)
    }

    fn new(buckets: usize, memory: &Memory) -> Result<Self, BuildError> {
        let most = (buckets * FULL_NUMERATOR / FULL_DENOMINATOR).max(1);
        Ok(Self {
            buckets: memory.zeroed(buckets)?,
            states: memory.zeroed(most)?,
            places: memory.zeroed(most)?,
            len: 0,
        })
    }

    fn buckets(&self) -> usize {
        self.buckets.len()
    }

    #[inline(always)]
    fn len(&self) -> usize {
        self.len
    }

    fn most(&self) -> usize {
        self.states.len()
    }

    fn key(&self, flow: usize) -> &K {
        &self.buckets[self.places[flow] as usize].key
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
    fn prefetch<const WHOLE: bool>(&self, digest: u64) {
        prefetch(&self.buckets, digest as usize & (self.buckets.len() - 1));
    }

    #[inline(always)]
    fn guess<const WHOLE: bool>(&self, key: K, digest: u64) -> usize {
        let bucket = self.bucket(key, digest).map_or(0, |bucket| self.buckets[bucket].flow);
        let guess = (bucket as usize).wrapping_sub(1);
        prefetch(&self.states, guess);
        guess
    }

    /// No guess is wrong here.
    #[inline(always)]
    fn guessed(&mut self, guess: usize, _: K) -> Option<&mut S> {
        self.states[..self.len].get_mut(guess)
    }

    #[inline(always)]
    fn find(&self, key: K, digest: u64) -> Option<usize> {
        let flow = self.buckets[self.bucket(key, digest)?].flow;
        (flow != 0).then(|| flow as usize - 1)
    }

    #[inline(never)]
    fn insert(
        &mut self,
        key: K,
        digest: u64,
        _: &Digester,
        _: Option<&mut Patience>,
    ) -> Option<usize> {
        let bucket = self.bucket(key, digest)?;
        self.fill(bucket, key)
    }

    /// With one search for both.
    fn place(&mut self, key: K, digest: u64, _: &Digester) -> Option<usize> {
        let bucket = self.bucket(key, digest)?;
        match self.buckets[bucket].flow {
            0 => self.fill(bucket, key),
            flow => Some(flow as usize - 1),
        }
    }

    fn retain(&mut self, digester: &Digester, stays: &mut dyn FnMut(&mut S) -> bool) {
        let mut kept = 0;
        for flow in 0..self.len {
            let (place, mut state) = (self.places[flow], self.states[flow]);
            if stays(&mut state) {
                self.states[kept] = state;
                self.places[kept] = place;
                kept += 1;
                self.buckets[place as usize].flow = kept as u32;
            } else {
                self.remove(place as usize, digester);
            }
        }
        self.len = kept;
    }

    fn clear(&mut self, _: &Digester) {
        for &place in &self.places[..self.len] {
            self.buckets[place as usize].flow = 0;
        }
        self.len = 0;
    }

    fn memory_bytes(&self) -> usize {
        self.buckets.memory_bytes() + self.states.memory_bytes() + self.places.memory_bytes()
    }
}
