//! Segments of buckets that hold the numbers of flows, split one by one as flows come.

use flowgauge_kernel::{Zeroed, equal_in_group, prefetch};

use super::super::codec::Patience;
use super::super::{BuildError, Memory};
use super::layout::Index;
use crate::batch::BATCH_PACKETS;

/// Buckets of a group, all of which are compared at once: half a cache line. Where half of all
/// buckets are occupied, one group in twenty is full.
const GROUP: usize = 8;

/// Groups of a segment: 256 buckets. In a full table a segment has 192 flows, and one in 200,000 has
/// more than there is room for, a flow or two; of 128 buckets one in a thousand would have. Flows that
/// collide on purpose are compared one by one, which takes as long as the segment is large.
const SEGMENT: usize = 32;

/// New flows per split while the index doubles. Doubling starts with `128 n` flows in `n` segments, so the
/// last segment splits at `192 n` flows at the latest: as many per segment as in a full table.
const FLOWS: usize = 64;

/// Segments that are split ahead of each batch of packets, so that its flows need not wait for one: enough
/// for 256 new flows.
const SPLITS: usize = BATCH_PACKETS / FLOWS;

/// The index of [`LinearTable`](super::LinearTable): linear hashing (Litwin, VLDB 1980) over segments,
/// linear probing by groups within them.
///
/// A bucket holds a flow's number, counted from 1, in the bits that the largest number needs, and
/// bits of the digest in the others; 0 is empty. The low bits of the digest name a group; where it
/// is full, the flow is in the next one of the segment that is not. Groups fill from their first bucket
/// on.
///
/// The index begins with one segment, and doubles when half of its buckets are occupied: segment by
/// segment, whose flows, 128 to 192 of them, one bit more of their digests distributes to it and to a
/// new one. A split takes some 5 µs, no batch waits for more than five, and a search never leaves its
/// segment: 32 groups at most. A flow whose segment is full finds no room. Between two doublings a group
/// is named by a mask alone.
pub(in crate::summary) struct Segments {
    buckets: Zeroed<u32>,
    /// Groups that are in use; those behind are empty.
    used: usize,
    /// The bits of a digest that name a group, or all but the upper one where that group is not in use
    /// yet.
    bits: usize,
    /// The bits of a bucket that hold the number.
    number: u32,
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

    /// Groups that there are at most.
    fn most(&self) -> usize {
        self.buckets.len() / GROUP
    }

    /// Groups of a segment.
    #[inline(always)]
    fn segment(&self) -> usize {
        SEGMENT.min(self.most())
    }

    /// Takes so many groups into use that half of the buckets are enough for these flows; all are empty.
    fn begin(&mut self, flows: usize) {
        let groups = (2 * flows).div_ceil(GROUP).next_power_of_two();
        self.used = groups.clamp(self.segment(), self.most());
        self.bits = self.used - 1;
    }

    /// The group that a digest names.
    #[inline(always)]
    fn home(&self, digest: u64) -> usize {
        let wide = digest as usize & self.bits;
        if wide < self.used { wide } else { wide & (self.bits >> 1) }
    }

    /// The same, where it is known whether the index [is whole](Index::is_whole).
    #[inline(always)]
    fn home_in<const WHOLE: bool>(&self, digest: u64) -> usize {
        if WHOLE { digest as usize & (self.used - 1) } else { self.home(digest) }
    }

    /// The groups of a segment from this one on, in the order of probing.
    #[inline(always)]
    fn way(&self, home: usize) -> impl Iterator<Item = usize> + use<> {
        let within = self.segment() - 1;
        (home..=home + within).map(move |at| home & !within | at & within)
    }

    /// The bits of the digest that a bucket holds: the last of them is bit 47.
    #[inline(always)]
    fn tag(&self, digest: u64) -> u32 {
        (digest >> 16) as u32 & !self.number
    }

    /// Returns whether the flow found room in its segment.
    #[inline(always)]
    fn put(&mut self, digest: u64, flow: usize) -> bool {
        let bucket = self.tag(digest) | (flow as u32 + 1);
        let way = self.way(self.home(digest));
        let groups = self.groups_mut();
        for at in way {
            let empty = empty_in(&groups[at]);
            if empty != 0 {
                groups[at][empty.trailing_zeros() as usize & (GROUP - 1)] = bucket;
                return true;
            }
        }
        false
    }

    /// Begins to double where it is time for that, and splits a segment where none was split ahead.
    #[inline]
    fn grow(&mut self, flows: usize, ahead: impl Fn(usize), digest_of: impl Fn(usize) -> u64) {
        if self.is_whole() && flows >= self.used * GROUP / 2 && self.used < self.most() {
            self.bits = 2 * self.bits + 1;
        }
        if !self.is_whole() {
            let half = self.bits / 2 + 1;
            let split = (self.used - half) / SEGMENT;
            if flows.saturating_sub(half * GROUP / 2) >= (split + 1) * FLOWS {
                self.split(ahead, digest_of);
            }
        }
    }

    /// Distributes the flows of the next segment to it and to a new one.
    #[cold]
    #[inline(never)]
    fn split(&mut self, ahead: impl Fn(usize), digest_of: impl Fn(usize) -> u64) {
        let first = self.used & (self.bits >> 1);
        self.used += SEGMENT;
        let number = self.number;
        let segment = self.groups_mut()[first..first + SEGMENT].as_flattened_mut();
        let (mut before, mut flows) = ([0; SEGMENT * GROUP], 0);
        for bucket in segment.iter() {
            before[flows] = *bucket;
            flows += usize::from(*bucket != 0);
        }
        segment.fill(0);
        let flows = before[..flows].iter().map(|bucket| (bucket & number) as usize - 1);
        flows.clone().for_each(ahead);
        for flow in flows {
            // It found room in one segment, and now has two.
            self.put(digest_of(flow), flow);
        }
    }
}

impl Index for Segments {
    const BUCKET_BYTES: usize = size_of::<u32>();
    const FULL: (usize, usize) = (3, 4);

    fn new(buckets: usize, memory: &Memory) -> Result<Self, BuildError> {
        let number = (buckets - 1) as u32;
        let buckets = memory.zeroed(buckets.max(GROUP))?;
        let mut segments = Self { buckets, used: 0, bits: 0, number };
        segments.begin(0);
        Ok(segments)
    }

    fn buckets(&self) -> usize {
        self.number as usize + 1
    }

    #[inline(always)]
    fn is_whole(&self) -> bool {
        self.used > self.bits
    }

    #[inline(always)]
    fn prefetch<const WHOLE: bool>(&self, digest: u64) {
        prefetch(self.groups(), self.home_in::<WHOLE>(digest));
    }

    #[inline(always)]
    fn guess<const WHOLE: bool>(&self, digest: u64) -> usize {
        let group = &self.groups()[self.home_in::<WHOLE>(digest)];
        let same = equal_in_group(group, !self.number, self.tag(digest));
        let bucket = group[same.trailing_zeros() as usize & (GROUP - 1)];
        ((bucket & self.number) as usize).wrapping_sub(1)
    }

    #[inline(always)]
    fn find(&self, digest: u64, is: impl Fn(usize) -> bool) -> Option<usize> {
        let (groups, tag) = (self.groups(), self.tag(digest));
        for at in self.way(self.home(digest)) {
            let group = &groups[at];
            let empty = empty_in(group);
            let mut same = equal_in_group(group, !self.number, tag) & !empty;
            while same != 0 {
                let bucket = group[same.trailing_zeros() as usize & (GROUP - 1)];
                let flow = (bucket & self.number) as usize - 1;
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
        _: Option<&mut Patience>,
    ) -> bool {
        self.grow(flow, ahead, digest_of);
        self.put(digest, flow)
    }

    #[inline]
    fn go_on(&mut self, ahead: impl Fn(usize), digest_of: impl Fn(usize) -> u64) {
        for _ in 0..SPLITS {
            if !self.is_whole() {
                self.split(&ahead, &digest_of);
            }
        }
    }

    /// Anew, since a bucket emptied in between would cut the ways to others. No flow finds its segment
    /// full that found room in it before, when more were there.
    fn renumber(&mut self, flows: impl Iterator<Item = (u64, Option<usize>)>) {
        self.groups_mut().fill([0; GROUP]);
        for (digest, new) in flows {
            if let Some(flow) = new {
                self.put(digest, flow);
            }
        }
    }

    /// Makes the index so small that as many flows as before just find room: the cost is in
    /// proportion to them, however many there were once.
    fn clear(&mut self, digests: impl ExactSizeIterator<Item = u64>) {
        self.groups_mut().fill([0; GROUP]);
        self.begin(digests.len());
    }

    fn expect(&mut self, flows: usize) {
        self.begin(flows);
    }

    fn memory_bytes(&self) -> usize {
        self.buckets.memory_bytes()
    }
}

/// The empty buckets of a group, as bits.
#[inline(always)]
fn empty_in(group: &[u32; GROUP]) -> u32 {
    equal_in_group(group, u32::MAX, 0)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]
mod tests {
    use std::cell::Cell;

    use super::super::super::remix::remix;
    use super::*;

    /// Digests that differ in all bits, as those of random keys.
    fn digest(flow: usize) -> u64 {
        remix(remix(flow as u64, 1), 2)
    }

    /// While a million flows come, no one of them has more than a segment's flows put elsewhere, and all
    /// are found by as many groups as one has.
    #[test]
    fn growing_moves_no_more_than_a_segment_at_once() {
        let mut index = Segments::new(1 << 21, &Memory::unlimited()).unwrap();
        let (mut most, mut all) = (0, 0);
        for flow in 0..1_000_000 {
            let moved = Cell::new(0);
            let count = |before| {
                moved.set(moved.get() + 1);
                digest(before)
            };
            assert!(index.insert(digest(flow), flow, |_| {}, count, None));
            most = most.max(moved.get());
            all += moved.get();
        }
        assert!(most <= SEGMENT * GROUP, "{most}");
        assert!(all < 2_000_000, "{all}");
        assert!((0..1_000_000).all(|flow| index.find(digest(flow), |at| at == flow) == Some(flow)));
        assert!((1_000_000..1_100_000).all(|flow| index.find(digest(flow), |_| false).is_none()));
    }

    /// While batches of new flows come, none waits for more than a split for each 64 flows and one more,
    /// and each doubling ends before its last segment has more flows than those of a full table.
    #[test]
    fn a_batch_waits_for_few_splits() {
        let mut index = Segments::new(1 << 21, &Memory::unlimited()).unwrap();
        for batch in 0..4000 {
            let before = index.used;
            index.go_on(|_| {}, digest);
            for flow in batch * BATCH_PACKETS..(batch + 1) * BATCH_PACKETS {
                assert!(index.insert(digest(flow), flow, |_| {}, digest, None));
                let unsplit = if index.is_whole() { index.used } else { index.bits / 2 + 1 };
                assert!(flow <= unsplit * GROUP * 3 / 4, "{flow} {unsplit}");
            }
            assert!((index.used - before) / SEGMENT <= SPLITS + 1, "{before} {}", index.used);
        }
        assert_eq!(SPLITS * FLOWS, BATCH_PACKETS);
    }

    /// A full table has three quarters of its buckets occupied, and no segment is full.
    #[test]
    fn a_full_table_has_room_in_all_segments() {
        for buckets in [8, 64, 512, 1024, 1 << 16] {
            let mut index = Segments::new(buckets, &Memory::unlimited()).unwrap();
            for flow in 0..buckets * 3 / 4 {
                assert!(index.insert(digest(flow), flow, |_| {}, digest, None), "{buckets}");
            }
        }
    }

    /// Flows of one digest fill a segment, and no other has less room for it.
    #[test]
    fn what_collides_stays_within_its_segment() {
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
