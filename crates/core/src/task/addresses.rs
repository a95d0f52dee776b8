//! `top-sources` and `top-destinations`: the addresses with the most traffic, from a table of
//! flows.
//!
//! Time: one pass sums the flows in buckets chosen by a hash of the address, a second pass collects
//! the flows of the heaviest buckets, and these are sorted. A skipped bucket weighs less than the
//! last listed address, so no address is missed. Evenly spread traffic takes a few more passes.

use std::ops::Range;

use super::largest::{self, Largest, Listed};
use super::order;
use super::registry::TaskEntry;
use super::{AddressItem, EpochContext, Lane, Lists, Report, Task, Unsupported};
use super::{Side, exact};
use crate::key::{CanonicalKey, KeyKind};
use crate::summary::{Flows, SizeEstimate};
use crate::terms::{Measure, Size};

pub(super) const SOURCES: TaskEntry = TaskEntry {
    name: "top-sources",
    question: "the sources with the most traffic",
    by_default: false,
    timeline: false,
    build: |_| Ok(Box::new(TopAddresses { name: "top-sources", side: Side::Source })),
};

pub(super) const DESTINATIONS: TaskEntry = TaskEntry {
    name: "top-destinations",
    question: "the destinations with the most traffic",
    by_default: false,
    timeline: false,
    build: |_| Ok(Box::new(TopAddresses { name: "top-destinations", side: Side::Destination })),
};

struct TopAddresses {
    name: &'static str,
    side: Side,
}

impl TopAddresses {
    fn address(&self, lane: &Lane<'_>) -> Result<Range<usize>, Unsupported> {
        let address = self.side.address();
        // For a key of this address alone, the task `top` says more.
        let more = lane.key.kind() != KeyKind::of(&[address]);
        lane.place(address).filter(|_| more).ok_or_else(|| {
            Unsupported(format!(
                "{} needs a key with the {} and another field, unlike {}; use --key five-tuple or pair, or \
                 --task top",
                self.name,
                address.name(),
                lane.key
            ))
        })
    }
}

impl Task for TopAddresses {
    fn name(&self) -> &'static str {
        self.name
    }

    fn scratch_bytes(&self, flows: usize) -> usize {
        order::bucketed_bytes(flows)
    }

    fn report_bytes(&self, lists: Lists, flows: usize) -> usize {
        largest::memory_bytes::<AddressItem>(lists.top.min(lists.limit).min(flows))
    }

    fn check(&self, _: Measure, lanes: &[Lane<'_>]) -> Result<(), Unsupported> {
        lanes.iter().try_for_each(|lane| {
            self.address(lane)?;
            exact(self.name, "a key of one address", lane).map(drop)
        })
    }

    fn run(
        &mut self,
        epoch: &EpochContext<'_>,
        lanes: &[Lane<'_>],
        scratch: &mut [u64],
    ) -> Result<Report, Unsupported> {
        let mut largest = Largest::new(epoch.lists.top, epoch.lists.limit);
        for lane in lanes {
            let flows = exact(self.name, "a key of one address", lane)?;
            let missed = lane.answers.untracked() + lane.answers.saturated();
            for (address, size, flows) in heaviest(flows, self.address(lane)?, epoch, scratch) {
                let value = size.by(epoch.by) as f64;
                let size = SizeEstimate::between(size, size, size + missed);
                let share = epoch.share(value);
                largest.offer(value, AddressItem { address, size, flows, share });
            }
        }
        let (items, truncated) = largest.into_list();
        Ok(Report::Addresses { side: self.side, items, truncated })
    }
}

/// An address, its traffic and its number of flows.
type Sum = (CanonicalKey, Size, u64);

impl Listed for Sum {
    type Key = CanonicalKey;

    fn key(&self) -> CanonicalKey {
        self.0
    }
}

/// The heaviest addresses, as many as may be listed.
fn heaviest(
    flows: &dyn Flows,
    address: Range<usize>,
    epoch: &EpochContext<'_>,
    scratch: &mut [u64],
) -> Vec<Sum> {
    let (by, wanted) = (epoch.by, epoch.lists.top.min(epoch.lists.limit));
    let bits = order::bucket_bits(flows.len());
    let (sums, entries) = scratch.split_at_mut(1 << bits);
    let bucket = |key: &[u8]| (order::bucket_hash(&key[address.clone()]) >> (64 - bits)) as usize;
    sums.fill(0);
    flows.for_each(&mut |key, size| sums[bucket(key)] += size.by(by));
    // The floor is the largest power of two that at least four buckets for each wanted address
    // reach.
    let reached = |power: u32| sums.iter().filter(|sum| **sum >> power > 0).count();
    let mut power =
        (0..64).rev().find(|power| reached(*power) >= wanted.saturating_mul(4)).unwrap_or(0);
    loop {
        let floor = if power == 0 { 0 } else { 1 << power };
        let (mut flow, mut heavy) = (0, 0);
        flows.for_each(&mut |key, _| {
            if sums[bucket(key)] >= floor {
                entries[heavy] = order::entry(0, flow);
                heavy += 1;
            }
            flow += 1;
        });
        let (mut largest, mut certain) = (Largest::new(wanted, wanted), 0);
        each_sum(&mut entries[..heavy], flows, &address, &mut |sum: Sum| {
            let value = sum.1.by(by);
            certain += usize::from(value >= floor);
            largest.offer(value as f64, sum);
        });
        if certain >= wanted || floor == 0 {
            return largest.into_list().0;
        }
        power = power.saturating_sub(4);
    }
}

/// Calls `found` with the sum of each address in these flows.
fn each_sum(
    entries: &mut [u64],
    flows: &dyn Flows,
    address: &Range<usize>,
    found: &mut dyn FnMut(Sum),
) {
    order::sort(entries, flows, &order::columns([address.clone()]));
    let mut last: Option<Sum> = None;
    for entry in entries {
        let (key, size) = flows.get(order::flow(*entry));
        let key = CanonicalKey::new(&key[address.clone()]);
        match &mut last {
            Some((same, sum, count)) if *same == key => {
                *sum += size;
                *count += 1;
            }
            _ => last.replace((key, size, 1)).into_iter().for_each(&mut *found),
        }
    }
    last.into_iter().for_each(found);
}
