//! `top`: the largest flows.
//!
//! Time: one pass over the flows, log(`top`) for each that enters. Memory: the items.

use super::registry::TaskEntry;
use super::{
    EpochContext, Lane, Lists, Report, Selection, SizeItem, Task, Unsupported, largest, sizes,
};
use crate::terms::Measure;

pub(super) const ENTRY: TaskEntry = TaskEntry {
    name: "top",
    question: "the largest flows",
    by_default: true,
    timeline: false,
    build: |_| Ok(Box::new(Top)),
};

struct Top;

impl Task for Top {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    fn report_bytes(&self, lists: Lists, flows: usize) -> usize {
        largest::memory_bytes::<SizeItem>(lists.top.min(lists.limit).min(flows))
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
        let all = f64::NEG_INFINITY;
        let listed = sizes::largest(ENTRY.name, epoch, lanes, all, epoch.lists.top)?;
        Ok(listed.report(Selection::Largest))
    }
}
