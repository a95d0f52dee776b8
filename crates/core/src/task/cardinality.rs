//! `cardinality`: the number of flows.
//!
//! The numbers of the lanes add up. Where a table was full, each untracked packet may have been a
//! new flow, which gives the upper bound. The bounds of estimates add up too, and hold with the
//! product of the lanes' confidences.

use super::registry::TaskEntry;
use super::{EpochContext, Lane, Report, Task, Unsupported};
use super::{all_hold, exact};
use crate::summary::Estimate;
use crate::terms::Measure;

pub(super) const ENTRY: TaskEntry = TaskEntry {
    name: "cardinality",
    question: "the number of flows",
    by_default: true,
    timeline: false,
    build: |_| Ok(Box::new(Cardinality)),
};

/// The alternative to a table.
const INSTEAD: &str = "a summary that estimates the number of flows";

struct Cardinality;

impl Task for Cardinality {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    fn check(&self, _: Measure, lanes: &[Lane<'_>]) -> Result<(), Unsupported> {
        lanes.iter().try_for_each(|lane| flows(lane).map(drop))
    }

    fn run(
        &mut self,
        _: &EpochContext<'_>,
        lanes: &[Lane<'_>],
        _: &mut [u64],
    ) -> Result<Report, Unsupported> {
        let flows = lanes.iter().map(flows).collect::<Result<Vec<_>, _>>()?;
        Ok(Report::Cardinality { flows: all_hold(&flows) })
    }
}

/// The number of flows of a lane.
pub(super) fn flows(lane: &Lane<'_>) -> Result<Estimate, Unsupported> {
    if let Some(flows) = lane.answers.cardinality() {
        return Ok(flows);
    }
    let flows = exact(ENTRY.name, INSTEAD, lane)?.len() as u64;
    let untracked = lane.answers.untracked().packets;
    let (low, high) = (flows as f64, (flows + untracked) as f64);
    Ok(Estimate::between(low, low, high))
}
