//! `heavy-hitters`: every flow that weighs more than the threshold.
//!
//! Time: one pass over the flows. Memory: the items, of which a share θ allows fewer than 1/θ.

use super::registry::TaskEntry;
use super::{
    EpochContext, Lane, Lists, Report, Selection, SizeItem, Task, Unsupported, largest, sizes,
};
use crate::terms::Measure;

pub(super) const ENTRY: TaskEntry = TaskEntry {
    name: "heavy-hitters",
    question: "every flow over the threshold",
    by_default: true,
    timeline: false,
    build: |_| Ok(Box::new(HeavyHitters)),
};

struct HeavyHitters;

impl Task for HeavyHitters {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    fn report_bytes(&self, lists: Lists, flows: usize) -> usize {
        largest::memory_bytes::<SizeItem>(lists.limit.min(flows))
    }

    fn check(&self, by: Measure, lanes: &[Lane<'_>]) -> Result<(), Unsupported> {
        sizes::check(ENTRY.name, by, lanes)
    }

    fn run(
        &mut self,
        epoch: &EpochContext<'_>,
        lanes: &[Lane<'_>],
        _: &mut [u64],
    ) -> Result<Report, Unsupported> {
        let threshold = epoch.threshold_weight();
        let listed = sizes::largest(ENTRY.name, epoch, lanes, threshold, usize::MAX)?;
        Ok(listed.report(Selection::Over(threshold)))
    }
}
