//! `flow-size`: the sizes of the flows that were asked for, in the order asked.
//!
//! A summary that answers sizes is asked for each; a table that does not is read once. Such a
//! table knows every flow, so one that it does not list has at most the untracked size.

use super::registry::TaskEntry;
use super::{EpochContext, Lane, Report, Selection, SizeItem, Task, Unsupported, sizes};
use crate::key::CanonicalKey;
use crate::sorting::sort_by;
use crate::summary::{Answers, Estimate, Flows, SizeEstimate};
use crate::terms::{Measure, Size};

pub(super) const ENTRY: TaskEntry = TaskEntry {
    name: "flow-size",
    question: "the sizes of given flows",
    by_default: false,
    timeline: false,
    build: |options| Ok(Box::new(FlowSize { asked: options.flows.clone() })),
};

struct FlowSize {
    asked: Vec<CanonicalKey>,
}

impl Task for FlowSize {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    fn check(&self, by: Measure, lanes: &[Lane<'_>]) -> Result<(), Unsupported> {
        for lane in lanes {
            if lane.answers.size().is_none() && lane.answers.flows().is_none() {
                return Err(Unsupported(
                    "flow-size needs a summary that estimates the size of a given flow; use \
                     --algorithm linear-table"
                        .to_owned(),
                ));
            }
            sizes::check_measure(ENTRY.name, by, lane)?;
        }
        if let Some(key) = self.asked.iter().find(|key| !lanes.iter().any(|l| holds(l, key))) {
            return Err(Unsupported(format!(
                "flow-size got a flow of {} bytes, and no measured key has so many; give every \
                 field of the key",
                key.as_bytes().len()
            )));
        }
        Ok(())
    }

    fn run(
        &mut self,
        epoch: &EpochContext<'_>,
        lanes: &[Lane<'_>],
        _: &mut [u64],
    ) -> Result<Report, Unsupported> {
        self.check(epoch.by, lanes)?;
        let mut items: Vec<SizeItem> = self
            .asked
            .iter()
            .map(|&key| SizeItem { key, size: SizeEstimate::default(), share: 0.0, seen: None })
            .collect();
        for lane in lanes {
            let items = items.iter_mut().filter(|item| holds(lane, &item.key));
            match (lane.answers.size(), lane.answers.flows()) {
                (Some(size), _) => items.for_each(|i| i.size = size.estimate(i.key.as_bytes())),
                (None, Some(flows)) => scan(lane.answers, flows, items.collect()),
                (None, None) => {}
            }
        }
        for item in &mut items {
            item.share = item.size.by(epoch.by).map_or(0.0, |size| epoch.share(size.value));
        }
        sizes::add_seen(&mut items, lanes);
        let complete_to = items.len() as u64;
        Ok(Report::Sizes { selection: Selection::Asked, items, truncated: 0, complete_to })
    }
}

/// Whether a flow of this lane can have this key.
fn holds(lane: &Lane<'_>, key: &CanonicalKey) -> bool {
    lane.key_bytes == key.as_bytes().len()
}

/// Reads all flows once to fill in the items.
fn scan(answers: &dyn Answers, flows: &dyn Flows, mut items: Vec<&mut SizeItem>) {
    let Size { packets, bytes } = answers.untracked();
    for item in &mut items {
        item.size.packets = Some(Estimate::between(0.0, 0.0, packets as f64));
        item.size.bytes = Some(Estimate::between(0.0, 0.0, bytes as f64));
    }
    sort_by(&mut items, &|one, other| one.key.cmp(&other.key));
    flows.for_each(&mut |key, size| {
        let first = items.partition_point(|item| item.key.as_bytes() < key);
        for item in items[first..].iter_mut().take_while(|item| item.key.as_bytes() == key) {
            item.size = SizeEstimate::counted(size, answers.saturated());
        }
    });
}
