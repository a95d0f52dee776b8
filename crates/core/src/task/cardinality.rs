//! `cardinality`: the number of flows.
//!
//! The lanes' flows add up. Where a table was full, each untracked packet may have been a flow of
//! its own or none at all new: that is the upper bound.

use super::lane::{check_exact, exact};
use super::registry::{ANY_KEY, TaskEntry};
use super::{EpochContext, Lane, Report, Task, Unsupported};
use crate::summary::{Estimate, Measure};

pub(super) const ENTRY: TaskEntry = TaskEntry {
    name: "cardinality",
    question: "the number of flows",
    keys: ANY_KEY,
    by_default: true,
    build: |_| Ok(Box::new(Cardinality)),
};

struct Cardinality;

impl Task for Cardinality {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    fn check(&self, _: Measure, lanes: &[Lane<'_>]) -> Result<(), Unsupported> {
        check_exact(ENTRY.name, lanes)
    }

    fn run(
        &mut self,
        _: &EpochContext,
        lanes: &[Lane<'_>],
        _: &mut [u64],
    ) -> Result<Report, Unsupported> {
        let (mut flows, mut untracked) = (0, 0);
        for lane in lanes {
            flows += exact(ENTRY.name, lane)?.len() as u64;
            untracked += lane.answers.untracked().packets;
        }
        let (low, high) = (flows as f64, (flows + untracked) as f64);
        Ok(Report::Cardinality { flows: Estimate::between(low, low, high) })
    }
}
