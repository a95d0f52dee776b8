//! `size-distribution`: the number of flows of each size in packets.
//!
//! Small sizes are counted in an array; the others are listed and sorted. There is a bin for each
//! distinct size: at most √(2N) bins in an epoch of N packets.
//!
//! The size of a listed flow is exact even where the table was full. With U untracked packets, up
//! to ⌊U/s⌋ flows may be missing from the bin of size s, and whole bins may be missing. Estimated
//! distributions of the lanes are added bin by bin.

use std::collections::BTreeMap;

use super::registry::TaskEntry;
use super::{EpochContext, Lane, Report, Task, Unsupported};
use super::{all_hold, exact};
use crate::summary::Estimate;
use crate::terms::Measure;

pub(super) const ENTRY: TaskEntry = TaskEntry {
    name: "size-distribution",
    question: "the number of flows of each size in packets",
    by_default: true,
    timeline: false,
    build: |_| Ok(Box::new(SizeDistribution)),
};

/// The alternative to a table.
const INSTEAD: &str = "a summary that estimates how many flows have each size";

/// Sizes below this are counted in an array.
const SMALL: usize = 4096;

struct SizeDistribution;

impl Task for SizeDistribution {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    fn scratch_bytes(&self, flows: usize) -> usize {
        (SMALL + flows) * size_of::<u64>()
    }

    fn check(&self, _: Measure, lanes: &[Lane<'_>]) -> Result<(), Unsupported> {
        lanes.iter().try_for_each(|lane| match lane.answers.distribution() {
            Some(_) => Ok(()),
            None => exact(ENTRY.name, INSTEAD, lane).map(drop),
        })
    }

    fn run(
        &mut self,
        _: &EpochContext<'_>,
        lanes: &[Lane<'_>],
        scratch: &mut [u64],
    ) -> Result<Report, Unsupported> {
        let estimated: Vec<_> =
            lanes.iter().filter_map(|lane| lane.answers.distribution()).collect();
        if !estimated.is_empty() && estimated.len() == lanes.len() {
            return Ok(Report::SizeDistribution { bins: add_up(estimated) });
        }
        let (small, large) = scratch.split_at_mut(SMALL);
        small.fill(0);
        let (mut larges, mut untracked) = (0, 0);
        for lane in lanes {
            untracked += lane.answers.untracked().packets;
            exact(ENTRY.name, INSTEAD, lane)?.for_each(&mut |_, size| {
                if let Some(count) = small.get_mut(size.packets as usize) {
                    *count += 1;
                } else {
                    large[larges] = size.packets;
                    larges += 1;
                }
            });
        }
        let large = &mut large[..larges];
        large.sort_unstable();

        let counted = (0..).zip(small.iter().copied()).filter(|&(_, flows)| flows > 0);
        let listed = large.chunk_by(|a, b| a == b).map(|run| (run[0], run.len() as u64));
        let bins = counted
            .chain(listed)
            .map(|(size, flows)| {
                let missing = untracked.checked_div(size).unwrap_or(0);
                let (low, high) = (flows as f64, (flows + missing) as f64);
                (size, Estimate::between(low, low, high))
            })
            .collect();
        Ok(Report::SizeDistribution { bins })
    }
}

/// The sum of several distributions.
fn add_up(parts: Vec<Vec<(u64, Estimate)>>) -> Vec<(u64, Estimate)> {
    let mut bins: BTreeMap<u64, Vec<Estimate>> = BTreeMap::new();
    for (size, flows) in parts.into_iter().flatten() {
        bins.entry(size).or_default().push(flows);
    }
    bins.into_iter().map(|(size, flows)| (size, all_hold(&flows))).collect()
}
