//! `size-distribution`: the number of flows of each size in packets.
//!
//! Small sizes are counted in an array; the others are listed and sorted. There is a bin for each
//! distinct size: at most √(2N) bins in an epoch of N packets.
//!
//! With U untracked packets, up to ⌊U/s⌋ flows may be missing from the bin of size s, and whole bins
//! may be missing. If L of these packets may belong to listed flows, as many flows may be missing
//! from the bin that are listed with a smaller size, and as many of its own may be larger. Estimated
//! distributions of the lanes are added bin by bin; U/s holds also for a bin that a lane lacks.

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
        let estimated = lanes
            .iter()
            .map(|lane| Some((lane.answers.distribution()?, lane.answers.untracked().packets)));
        if let Some(estimated) = estimated.collect::<Option<Vec<_>>>().filter(|all| !all.is_empty())
        {
            return Ok(Report::SizeDistribution { bins: add_up(&estimated) });
        }
        let (small, large) = scratch.split_at_mut(SMALL);
        small.fill(0);
        let (mut larges, mut untracked, mut may_lack) = (0, 0, 0);
        for lane in lanes {
            untracked += lane.answers.untracked().packets;
            let flows = exact(ENTRY.name, INSTEAD, lane)?;
            may_lack += flows.may_lack().packets;
            flows.for_each(&mut |_, size| {
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
        let mut smaller = 0;
        let bins = counted
            .chain(listed)
            .map(|(size, flows)| {
                let (low, high) = (flows.saturating_sub(may_lack), flows + may_lack.min(smaller));
                smaller += flows;
                let flows = Estimate::between(low as f64, flows as f64, high as f64);
                (size, all_hold(&[flows, missing(untracked, size)]))
            })
            .collect();
        Ok(Report::SizeDistribution { bins })
    }
}

/// The number of flows of this size that untracked packets may belong to.
fn missing(untracked: u64, size: u64) -> Estimate {
    Estimate::between(0.0, 0.0, untracked.checked_div(size).unwrap_or(0) as f64)
}

/// The sum of several distributions, each with its untracked packets.
fn add_up(parts: &[(Vec<(u64, Estimate)>, u64)]) -> Vec<(u64, Estimate)> {
    let nothing: Vec<_> = parts.iter().map(|_| None).collect();
    let mut bins: BTreeMap<u64, Vec<Option<Estimate>>> = BTreeMap::new();
    for (part, (listed, _)) in parts.iter().enumerate() {
        for (size, flows) in listed {
            bins.entry(*size).or_insert_with(|| nothing.clone())[part] = Some(*flows);
        }
    }
    let sum = |(size, flows): (u64, Vec<Option<Estimate>>)| {
        let flows = flows.into_iter().zip(parts);
        let flows = flows.map(|(own, (_, untracked))| own.unwrap_or(missing(*untracked, size)));
        (size, all_hold(&flows.collect::<Vec<_>>()))
    };
    bins.into_iter().map(sum).collect()
}
