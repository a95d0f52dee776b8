//! LinearTable: open addressing with linear probing.
//!
//! Paper: Alipourfard et al., "A comparison of performance and accuracy of measurement algorithms
//! in software" (SOSR 2018), §3. `layout=inline` is the paper's table: keys and states in the
//! buckets. By default flows are an array in the order of arrival, and the buckets are an index of
//! their numbers. So only memory in proportion to the flows is touched, the large flows, which
//! mostly come first, are together in few cache lines, a visit of all flows is sequential, and
//! growth moves no flow. Probes then compare a group of buckets at once.

use flowgauge_kernel::{GROUP, Home, Isa, Zeroed, equal_in_group, guess_flows, prefetch};

use super::layout::{Index, Records};
use super::probing::{BUCKETS, Inline};
use super::{ExactTable, LAWS};
use crate::batch::BATCH_PACKETS;
use crate::key::FlowKey;
use crate::summary::codec::StepBudget;
use crate::summary::state::{self, Count, Kind, Loaded, Payload, STATE, State, with_state};
use crate::summary::{
    BuildError, Describe, Info, Laws, Memory, Options, Parameter, Parameters, Summary,
};

/// The exact table `linear-table`: linear probing, at most three quarters of the buckets full.
///
/// Cost per packet: a cache line of the index and one of the flows, both prefetched; inline mostly
/// one. Memory in bytes, with `record` for `size_of::<K>() + 12` of counters, rounded up to the
/// key's alignment: `4 × buckets + 3/4 × buckets × record`; inline `buckets × record + 3/4 ×
/// buckets × 4`.
///
/// ```
/// use flowgauge_core::batch::Batch;
/// use flowgauge_core::catalog;
/// use flowgauge_core::key::{FlowKey, Key8};
/// use flowgauge_core::summary::Options;
///
/// let mut table = catalog::build::<Key8>("linear-table", &Options::new(1 << 20, 1).for_keys(4))?;
/// let mut batch = Batch::new();
/// for address in [[10, 0, 0, 1], [10, 0, 0, 2], [10, 0, 0, 1]] {
///     batch.push(Key8::from_canonical(&address).unwrap(), 1500, 0);
/// }
/// table.ingest(&mut batch);
/// let (key, size) = table.answers().flows().unwrap().get(0);
/// assert_eq!((key, size.packets, size.bytes), (&[10, 0, 0, 1][..], 2, 3000));
/// # Ok::<(), flowgauge_core::summary::BuildError>(())
/// ```
pub struct LinearTable;

/// The values of the parameter `layout`, the default first.
pub(in crate::summary) const LAYOUTS: [&str; 2] = ["records", "inline"];

/// Whether the parameters ask for `layout=inline`.
fn is_inline(options: &Options) -> Result<bool, BuildError> {
    Ok(options.parameters.word("layout", &LAYOUTS)? != LAYOUTS[0])
}

/// The default layout.
pub(in crate::summary) type Linear<K, S> = Records<K, S, Segments>;

/// A linear table of counters, for summaries that are built on one.
pub(in crate::summary) type Counts<K> = ExactTable<K, Count, Linear<K, Count>>;

/// Buckets at most: flow numbers have 32 bits.
pub(in crate::summary) const MOST_BUCKETS: u64 = 1 << 32;

impl Describe for LinearTable {
    const INFO: Info = Info {
        name: "linear-table",
        idea: "exact hash table, linear probing, with flows in order of arrival or in the buckets",
        paper: "Simple (SOSR 2018), section 3",
        parameters: &[
            BUCKETS,
            Parameter {
                name: "layout",
                help: "place of keys and states: records (in order of arrival behind an index; \
                       grows with the flows) or inline (in the buckets; all in use from the \
                       start) (default: records)",
            },
            STATE,
        ],
        memory: "4 x buckets + 3/4 x buckets x record; record: key + state (12 or more), rounded \
                 up to 4 or 8; layout=inline: buckets x (record + 3)",
        forms: state::TABLE_FORMS,
        laws: LAWS,
    };

    fn laws(parameters: &Parameters) -> Laws {
        state::laws(Self::INFO.laws, parameters)
    }

    fn fits(options: &Options) -> Result<(), BuildError> {
        is_inline(options)?;
        Kind::fits(Self::INFO.name, &Kind::OF_TABLES, options)
    }

    fn build<K: FlowKey>(options: &Options) -> Result<Box<dyn Summary<K>>, BuildError> {
        let inline = is_inline(options)?;
        with_state!(K, Kind::from_options(Self::INFO.name, &Kind::OF_TABLES, options)?, S =>
            build::<K, S>(inline, options))
    }
}

impl LinearTable {
    /// Builds a table with a payload beside the counter of each flow. It takes the parameters of
    /// the catalog's table, with `state=counter`.
    ///
    /// ```
    /// use flowgauge_core::key::{FlowKey, Key8};
    /// use flowgauge_core::summary::table::{LinearTable, Payload};
    /// use flowgauge_core::{batch::Batch, summary::Options, terms::Size};
    ///
    /// #[derive(Clone, Copy, bytemuck::Zeroable)]
    /// struct Copies([u64; 4]);
    /// impl Payload for Copies {
    ///     fn update(&mut self, size: Size) { self.0 = [size.bytes; 4]; }
    /// }
    /// let options = Options::new(1 << 20, 1).for_keys(4);
    /// let mut table = LinearTable::with_payload::<Key8, Copies>(&options).unwrap();
    /// let mut batch = Batch::new();
    /// batch.push(Key8::from_canonical(&[10, 0, 0, 1]).unwrap(), 1500, 0);
    /// table.ingest(&mut batch);
    /// assert_eq!(table.answers().flows().unwrap().get(0).1.bytes, 1500);
    /// ```
    ///
    /// # Errors
    /// When a parameter is unknown or out of range, or the memory limit is too small.
    pub fn with_payload<K: FlowKey, P: Payload>(
        options: &Options,
    ) -> Result<Box<dyn Summary<K>>, BuildError> {
        let options = Kind::of_payload::<K>(&Self::INFO, options)?;
        build::<K, Loaded<P>>(is_inline(&options)?, &options)
    }
}

fn build<K: FlowKey, S: State>(
    inline: bool,
    options: &Options,
) -> Result<Box<dyn Summary<K>>, BuildError> {
    if inline {
        ExactTable::<K, S, Inline<K, S>>::build(options, MOST_BUCKETS)
    } else {
        ExactTable::<K, S, Linear<K, S>>::build(options, MOST_BUCKETS)
    }
}

/// Groups of a segment, which has 256 buckets. In a full table a segment has 192 flows on average;
/// one in 200,000 is a flow or two short of room (with 128 buckets, one in a thousand would be).
/// Larger segments would make searches longer among flows that collide on purpose.
const SEGMENT: usize = 16;

/// New flows per split while the index doubles. Doubling starts with `128 n` flows in `n` segments,
/// so the last segment splits at `160 n` flows at the latest: fewer per segment than in a full table.
const FLOWS: usize = 32;

/// Segments split ahead of each batch, enough for 256 new flows: so no flow of the batch waits for
/// one.
const SPLITS: usize = BATCH_PACKETS / FLOWS;

/// The index of [`LinearTable`]: linear hashing (Litwin, VLDB 1980) over segments, and linear
/// probing by groups within them.
///
/// The low bits of the digest choose a group. If it is full, the flow goes to the next group of the
/// segment that is not. Groups fill from their first bucket on. A bucket holds the flow's number in
/// place of the bits of the digest that choose the group, and some of those above ([`Home`]).
///
/// The index begins with one segment, and doubles when half of its buckets are occupied, one
/// segment after the other. A split moves the 128 to 160 flows of a segment to it and to a new one,
/// by one more bit of their digests. Buckets hold that bit, so that a split reads no keys but those
/// behind a full group. It takes some 2 µs, and no batch waits for more than nine. A search never
/// leaves its segment: at most 16 groups. A flow whose segment is full finds no room. Between two
/// doublings a mask alone chooses the group.
pub(in crate::summary) struct Segments {
    buckets: Zeroed<u32>,
    /// The number of buckets that was asked for.
    asked: usize,
    /// Groups in use; all others are empty.
    used: usize,
    /// Mask of the digest's bits that choose a group; without its highest bit where that group is
    /// not in use yet.
    bits: usize,
}

impl Segments {
    #[inline(always)]
    fn groups(&self) -> &[[u32; GROUP]] {
        &self.buckets.as_chunks().0[..self.used]
    }

    #[inline(always)]
    fn groups_mut(&mut self) -> &mut [[u32; GROUP]] {
        &mut self.buckets.as_chunks_mut().0[..self.used]
    }

    /// The largest number of groups.
    fn most(&self) -> usize {
        self.buckets.len() / GROUP
    }

    /// Groups of a segment.
    #[inline(always)]
    fn segment(&self) -> usize {
        SEGMENT.min(self.most())
    }

    /// Takes so many empty groups into use that these flows fill at most half of the buckets.
    fn begin(&mut self, flows: usize) {
        let groups = (2 * flows).div_ceil(GROUP).next_power_of_two();
        self.used = groups.clamp(self.segment(), self.most());
        self.bits = self.used - 1;
    }

    /// The group that a digest chooses: by one bit less if its segment is not split yet.
    #[inline(always)]
    fn home(&self, digest: u64) -> Home {
        let unsplit = self.bits >> 1;
        let is_split = (digest as usize & unsplit) < self.used - unsplit - 1;
        Home::new(digest, if is_split { self.bits } else { unsplit })
    }

    /// Whether the index is not doubling right now.
    #[inline(always)]
    fn is_stable(&self) -> bool {
        self.used > self.bits
    }

    /// The groups of a segment in the order of probing, from `home` on.
    #[inline(always)]
    fn probes(&self, home: usize) -> impl Iterator<Item = usize> + use<> {
        let within = self.segment() - 1;
        (home..=home + within).map(move |at| home & !within | at & within)
    }

    /// Inserts a flow; returns whether it found room in its segment.
    #[inline(always)]
    fn put(&mut self, digest: u64, flow: usize) -> bool {
        let home = self.home(digest);
        let bucket = home.bucket(flow);
        let probes = self.probes(home.group);
        let groups = self.groups_mut();
        for at in probes {
            let empty = empty_in(&groups[at]);
            if empty != 0 {
                groups[at][empty.trailing_zeros() as usize & (GROUP - 1)] = bucket;
                return true;
            }
        }
        false
    }

    /// Begins to double if it is time, and splits a segment if too few were split ahead.
    #[inline]
    fn grow(&mut self, flows: usize, ahead: impl Fn(usize), digest_of: impl Fn(usize) -> u64) {
        if self.is_stable() && flows >= self.used * GROUP / 2 && self.used < self.most() {
            self.bits = 2 * self.bits + 1;
        }
        if !self.is_stable() {
            let half = self.bits / 2 + 1;
            let split = (self.used - half) / SEGMENT;
            if flows.saturating_sub(half * GROUP / 2) >= (split + 1) * FLOWS {
                self.split(ahead, digest_of);
            }
        }
    }

    /// Splits the next segment: distributes its flows to it and to a new one.
    #[cold]
    #[inline(never)]
    fn split(&mut self, ahead: impl Fn(usize), digest_of: impl Fn(usize) -> u64) {
        let (flows, len) = self.split_groups();
        let flows = flows[..len].iter().map(|flow| *flow as usize);
        flows.clone().for_each(ahead);
        for flow in flows {
            self.put_again(digest_of(flow), flow);
        }
    }

    /// Splits the groups of the next segment, as far as buckets tell where their flows belong.
    /// Returns the numbers of the other flows, which are in no group then.
    #[inline(never)]
    fn split_groups(&mut self) -> ([u32; SEGMENT * GROUP], usize) {
        let half = self.bits / 2 + 1;
        let first = self.used - half;
        self.used += SEGMENT;
        // The lowest bit above the number chooses the segment, and makes place for a longer number.
        let chooses = (half * GROUP) as u32;
        let (old, new) = self.groups_mut()[first..].split_at_mut(half);
        let (mut others, mut others_len) = ([0; SEGMENT * GROUP], 0);
        let mut before_is_full = is_full(&old[SEGMENT - 1]);
        for (old, new) in old[..SEGMENT].iter_mut().zip(new) {
            let group = std::mem::take(old);
            if before_is_full {
                // Some may belong to the group before.
                for bucket in group.into_iter().filter(|bucket| *bucket != 0) {
                    others[others_len] = (bucket & (chooses - 1)) - 1;
                    others_len += 1;
                }
            } else {
                let (mut halves, mut lens) = ([[0; GROUP]; 2], [0; 2]);
                for bucket in group {
                    let half = usize::from(bucket & chooses != 0);
                    halves[half][lens[half] & (GROUP - 1)] = bucket & !chooses;
                    lens[half] += usize::from(bucket != 0);
                }
                [*old, *new] = halves;
            }
            before_is_full = is_full(&group);
        }
        (others, others_len)
    }

    /// Puts a flow of a segment that was split, which has room in two segments, as it had in one.
    #[inline(never)]
    fn put_again(&mut self, digest: u64, flow: usize) {
        self.put(digest, flow);
    }
}

impl Index for Segments {
    const BUCKET_BYTES: usize = size_of::<u32>();
    const MAX_LOAD: (usize, usize) = (3, 4);
    const DEFERRED: bool = true;

    fn new(buckets: usize, memory: &Memory) -> Result<Self, BuildError> {
        let asked = buckets;
        let buckets = memory.zeroed(asked.max(GROUP))?;
        let mut segments = Self { buckets, asked, used: 0, bits: 0 };
        segments.begin(0);
        Ok(segments)
    }

    fn buckets(&self) -> usize {
        self.asked
    }

    #[inline]
    fn look_up(&self, digests: &[u64], isa: Isa, guesses: &mut [usize]) {
        let groups = self.groups();
        if self.is_stable() {
            return guess_flows(isa, groups, digests, guesses);
        }
        for &digest in digests {
            prefetch(groups, self.home(digest).group);
        }
        for (guess, &digest) in guesses.iter_mut().zip(digests) {
            let home = self.home(digest);
            let group = &groups[home.group];
            *guess = home.flow(group[home.same_in(group).trailing_zeros() as usize % GROUP]);
        }
    }

    #[inline(always)]
    fn find(&self, digest: u64, is: impl Fn(usize) -> bool) -> Option<usize> {
        let (groups, home) = (self.groups(), self.home(digest));
        for at in self.probes(home.group) {
            let group = &groups[at];
            let empty = empty_in(group);
            let mut same = home.same_in(group) & !empty;
            while same != 0 {
                let flow = home.flow(group[same.trailing_zeros() as usize & (GROUP - 1)]);
                if is(flow) {
                    return Some(flow);
                }
                same &= same - 1;
            }
            if empty != 0 {
                return None;
            }
        }
        None
    }

    #[inline(always)]
    fn insert(
        &mut self,
        digest: u64,
        flow: usize,
        ahead: impl Fn(usize),
        digest_of: impl Fn(usize) -> u64,
        _: Option<&mut StepBudget>,
    ) -> bool {
        self.grow(flow, ahead, digest_of);
        self.put(digest, flow)
    }

    #[inline]
    fn grow_ahead(&mut self, ahead: impl Fn(usize), digest_of: impl Fn(usize) -> u64) {
        for _ in 0..SPLITS {
            if !self.is_stable() {
                self.split(&ahead, &digest_of);
            }
        }
    }

    /// Rebuilds the groups, since an emptied bucket would end probes for flows behind it. Each flow
    /// finds room again, as its segment had room for more flows before.
    fn renumber(&mut self, flows: impl Iterator<Item = (u64, Option<usize>)>) {
        self.groups_mut().fill([0; GROUP]);
        for (digest, new) in flows {
            if let Some(flow) = new {
                self.put(digest, flow);
            }
        }
    }

    /// Shrinks the index to the size for as many flows as it held. So a clear costs in proportion
    /// to recent flows, however many there were once.
    fn clear(&mut self, digests: impl ExactSizeIterator<Item = u64>) {
        self.groups_mut().fill([0; GROUP]);
        self.begin(digests.len());
    }

    fn size_for(&mut self, flows: usize) {
        self.begin(flows);
    }

    fn memory_bytes(&self) -> usize {
        self.buckets.memory_bytes()
    }
}

/// The empty buckets of a group, as a bit mask.
#[inline(always)]
fn empty_in(group: &[u32; GROUP]) -> u32 {
    equal_in_group(group, u32::MAX, 0)
}

/// Whether all buckets of a group are occupied: they fill from the first on.
#[inline(always)]
fn is_full(group: &[u32; GROUP]) -> bool {
    group[GROUP - 1] != 0
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]
mod tests {
    use std::cell::Cell;

    use super::super::super::remix::remix;
    use super::*;

    /// Digests like those of random keys.
    fn digest(flow: usize) -> u64 {
        remix(remix(flow as u64, 1), 2)
    }

    /// While a million flows are inserted, none of them reads more keys than a segment has, all of
    /// them together read few, and all are found.
    #[test]
    fn growing_reads_few_keys() {
        let mut index = Segments::new(1 << 21, &Memory::unlimited()).unwrap();
        let (mut most, mut all) = (0, 0);
        for flow in 0..1_000_000 {
            let read = Cell::new(0);
            let count = |before| {
                read.set(read.get() + 1);
                digest(before)
            };
            assert!(index.insert(digest(flow), flow, |_| {}, count, None));
            most = most.max(read.get());
            all += read.get();
        }
        assert!(most <= SEGMENT * GROUP, "{most}");
        assert!(all < 50_000, "{all}");
        assert!((0..1_000_000).all(|flow| index.find(digest(flow), |at| at == flow) == Some(flow)));
        assert!((1_000_000..1_100_000).all(|flow| index.find(digest(flow), |_| false).is_none()));
    }

    /// A batch of new flows waits for at most one split per 64 flows and one more, and each
    /// doubling ends before its last segment has more flows than those of a full table.
    #[test]
    fn a_batch_waits_for_few_splits() {
        let mut index = Segments::new(1 << 21, &Memory::unlimited()).unwrap();
        for batch in 0..4000 {
            let before = index.used;
            index.grow_ahead(|_| {}, digest);
            for flow in batch * BATCH_PACKETS..(batch + 1) * BATCH_PACKETS {
                assert!(index.insert(digest(flow), flow, |_| {}, digest, None));
                let unsplit = if index.is_stable() { index.used } else { index.bits / 2 + 1 };
                assert!(flow <= unsplit * GROUP * 5 / 8, "{flow} {unsplit}");
            }
            assert!((index.used - before) / SEGMENT <= SPLITS + 1, "{before} {}", index.used);
        }
        assert_eq!(SPLITS * FLOWS, BATCH_PACKETS);
    }

    /// A table of three quarters of its buckets has room for every flow.
    #[test]
    fn a_full_table_has_room_in_all_segments() {
        for buckets in [8, 64, 512, 1024, 1 << 16] {
            let mut index = Segments::new(buckets, &Memory::unlimited()).unwrap();
            for flow in 0..buckets * 3 / 4 {
                assert!(index.insert(digest(flow), flow, |_| {}, digest, None), "{buckets}");
            }
        }
    }

    /// Flows of one digest fill a segment, and no other.
    #[test]
    fn colliding_flows_stay_in_their_segment() {
        let mut index = Segments::new(1 << 16, &Memory::unlimited()).unwrap();
        let taken: usize =
            (0..2000).filter(|flow| index.insert(7, *flow, |_| {}, |_| 7, None)).count();
        assert_eq!(taken, SEGMENT * GROUP);
        assert_eq!(index.find(7, |flow| flow == 1999), None);
        let looked = Cell::new(0);
        let none = index.find(7, |_| {
            looked.set(looked.get() + 1);
            false
        });
        assert_eq!((none, looked.get()), (None, SEGMENT * GROUP));
    }
}
