//! `top`, `heavy-hitters` and `flow-size`: flows and their sizes.
//!
//! Time of `top` and `heavy-hitters`: one pass over the flows, and the logarithm of the list's
//! length for each flow that enters the list. Memory: the items; of `heavy-hitters` by a share θ
//! fewer than 1/θ.
//!
//! A table lists every flow. The size of a listed flow is exact even when the table was full, since
//! flows in the table are still counted; a flow that is not listed weighs at most the untracked
//! weight. From a summary with candidates, sizes and bounds are the summary's own, and flows that
//! its full candidate set left out are missing. A summary with both may list more flows than it is
//! certain of. The largest possible weight of a missing flow determines how many items at the head
//! are certain.
//!
//! `flow-size` asks the summary for the size of each given flow, or reads a table once if it does
//! not answer sizes. Such a table knows every flow, so an unlisted flow has at most the untracked
//! size.

use super::largest::{self, Largest};
use super::registry::TaskEntry;
use super::{EpochContext, Lane, Lists, Report, Selection, SizeItem, Task, USE_TABLE, Unsupported};
use crate::key::CanonicalKey;
use crate::sorting::sort_by;
use crate::summary::{Answers, Estimate, Flows, SizeEstimate};
use crate::terms::{Measure, Size};

pub(super) const TOP: TaskEntry = TaskEntry {
    name: "top",
    question: "the largest flows",
    by_default: true,
    timeline: false,
    build: |_| Ok(Box::new(LargestFlows { name: TOP.name, over_threshold: false })),
};

pub(super) const HEAVY_HITTERS: TaskEntry = TaskEntry {
    name: "heavy-hitters",
    question: "every flow over the threshold",
    by_default: true,
    timeline: false,
    build: |_| Ok(Box::new(LargestFlows { name: HEAVY_HITTERS.name, over_threshold: true })),
};

/// `top` or `heavy-hitters`.
struct LargestFlows {
    name: &'static str,
    /// Whether it lists every flow over the threshold, rather than a number of flows.
    over_threshold: bool,
}

impl Task for LargestFlows {
    fn name(&self) -> &'static str {
        self.name
    }

    fn report_bytes(&self, lists: Lists, flows: usize) -> usize {
        let wanted = if self.over_threshold { usize::MAX } else { lists.top };
        largest::memory_bytes::<SizeItem>(wanted.min(lists.limit).min(flows))
    }

    fn check(&self, by: Measure, lanes: &[Lane<'_>]) -> Result<(), Unsupported> {
        check(self.name, by, lanes)
    }

    fn run(
        &mut self,
        epoch: &EpochContext<'_>,
        lanes: &[Lane<'_>],
        _: &mut [u64],
    ) -> Result<Report, Unsupported> {
        let (selection, floor, wanted) = if self.over_threshold {
            let threshold = epoch.threshold_weight();
            (Selection::Over(threshold), threshold, usize::MAX)
        } else {
            (Selection::Largest, f64::NEG_INFINITY, epoch.lists.top)
        };
        let Listed { items, truncated, complete_to } =
            largest_flows(self.name, epoch, lanes, floor, wanted)?;
        Ok(Report::Sizes { selection, items, truncated, complete_to })
    }
}

/// Checks that every lane can list its heavy flows by this measure.
fn check(task: &str, by: Measure, lanes: &[Lane<'_>]) -> Result<(), Unsupported> {
    lanes.iter().try_for_each(|lane| {
        let answers = lane.answers;
        if answers.flows().is_none() && answers.candidates().is_none() {
            return Err(Unsupported(format!(
                "{task} needs a summary that lists its heavy flows; {USE_TABLE}"
            )));
        }
        check_measure(task, by, lane)
    })
}

/// Checks that a lane which answers sizes does so in this measure, by a query for an arbitrary
/// flow.
fn check_measure(task: &str, by: Measure, lane: &Lane<'_>) -> Result<(), Unsupported> {
    let any = &[0; CanonicalKey::MAX_BYTES][..lane.key_bytes];
    match lane.answers.size().map(|size| size.estimate(any).by(by)) {
        Some(None) => Err(lacks(task, by)),
        Some(Some(_)) | None => Ok(()),
    }
}

fn lacks(task: &str, by: Measure) -> Unsupported {
    let other = match by {
        Measure::Packets => Measure::Bytes,
        Measure::Bytes => Measure::Packets,
    };
    let (by, other) = (by.name(), other.name());
    Unsupported(format!(
        "{task} by {by} needs a summary that counts {by}; use --by {other}, or --algorithm \
         linear-table, which counts both"
    ))
}

/// The largest flows.
struct Listed {
    /// By value, then by key.
    items: Vec<SizeItem>,
    /// Number of items that the limit left out.
    truncated: u64,
    /// Number of the largest flows that are certainly all among the items.
    complete_to: u64,
}

/// The number of the largest flows that a list certainly has all of: as many of its items outweigh,
/// by their lower bounds, every flow that is not listed, which weighs at most `others`.
pub fn complete_to(items: &[SizeItem], by: Measure, others: f64) -> u64 {
    let outweighs = |item: &&SizeItem| item.size.by(by).is_some_and(|size| size.low >= others);
    items.iter().filter(outweighs).count() as u64
}

/// The largest flows with a value over `floor`, at most `wanted` of them.
fn largest_flows(
    task: &str,
    epoch: &EpochContext<'_>,
    lanes: &[Lane<'_>],
    floor: f64,
    wanted: usize,
) -> Result<Listed, Unsupported> {
    check(task, epoch.by, lanes)?;
    let mut largest = Largest::new(wanted, epoch.lists.limit);
    let item = |key, size, value| SizeItem { key, size, share: epoch.share(value), seen: None };
    // Maximum weight of a flow that is not listed.
    let mut others = 0.0f64;
    for lane in lanes {
        let answers = lane.answers;
        let (flows, candidates) = (answers.flows(), answers.candidates());
        let whole = answers.untracked() + answers.saturated() == Size::default();
        if let Some(flows) = flows.filter(|_| whole || candidates.is_none()) {
            flows.for_each(&mut |key, size| {
                let value = size.by(epoch.by) as f64;
                let counted = || SizeEstimate::counted(size, answers.saturated());
                if value > floor && largest.admits(value, || CanonicalKey::new(key)) {
                    let item = item(CanonicalKey::new(key), counted(), value);
                    if let Some(out) = largest.push(value, item) {
                        others = others.max(high(&out.size, epoch.by));
                    }
                } else if value > others {
                    others = others.max(high(&counted(), epoch.by));
                }
            });
            others = others.max(answers.untracked().by(epoch.by) as f64);
        } else if let Some(candidates) = candidates {
            let mut lacking = false;
            candidates.for_each(&mut |key: CanonicalKey, size: SizeEstimate| {
                let Some(estimate) = size.by(epoch.by) else {
                    lacking = true;
                    return;
                };
                let value = estimate.value;
                let mut out = Some(size);
                if value > floor && largest.admits(value, || key) {
                    out = largest.push(value, item(key, size, value)).map(|item| item.size);
                }
                others = out.map_or(others, |out| others.max(high(&out, epoch.by)));
            });
            others = others.max(candidates.unnamed(epoch.by).unwrap_or(f64::INFINITY));
            if lacking {
                return Err(lacks(task, epoch.by));
            }
        }
    }
    let (mut items, truncated) = largest.into_list();
    add_seen(&mut items, lanes);
    let complete_to = complete_to(&items, epoch.by, others);
    Ok(Listed { items, truncated, complete_to })
}

/// Adds the times and TCP flags of each flow, where its lane records them.
fn add_seen(items: &mut [SizeItem], lanes: &[Lane<'_>]) {
    for lane in lanes {
        let Some(details) = lane.answers.details() else { continue };
        let own = |item: &&mut SizeItem| item.key.as_bytes().len() == lane.key_bytes;
        for item in items.iter_mut().filter(own) {
            item.seen = details.seen(item.key.as_bytes());
        }
    }
}

fn high(size: &SizeEstimate, by: Measure) -> f64 {
    size.by(by).map_or(f64::INFINITY, |size| size.high)
}

pub(super) const FLOW_SIZE: TaskEntry = TaskEntry {
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
        FLOW_SIZE.name
    }

    fn check(&self, by: Measure, lanes: &[Lane<'_>]) -> Result<(), Unsupported> {
        for lane in lanes {
            if lane.answers.size().is_none() && lane.answers.flows().is_none() {
                return Err(Unsupported(format!(
                    "flow-size needs a summary that estimates the size of a given flow; {USE_TABLE}"
                )));
            }
            check_measure(FLOW_SIZE.name, by, lane)?;
        }
        if let Some(key) = self.asked.iter().find(|key| !lanes.iter().any(|l| has_key_of(l, key))) {
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
            let items = items.iter_mut().filter(|item| has_key_of(lane, &item.key));
            match (lane.answers.size(), lane.answers.flows()) {
                (Some(size), _) => items.for_each(|i| i.size = size.estimate(i.key.as_bytes())),
                (None, Some(flows)) => scan(lane.answers, flows, items.collect()),
                (None, None) => {}
            }
        }
        for item in &mut items {
            item.share = item.size.by(epoch.by).map_or(0.0, |size| epoch.share(size.value));
        }
        add_seen(&mut items, lanes);
        let complete_to = items.len() as u64;
        Ok(Report::Sizes { selection: Selection::Asked, items, truncated: 0, complete_to })
    }
}

/// Whether this lane's keys have the length of this key.
fn has_key_of(lane: &Lane<'_>, key: &CanonicalKey) -> bool {
    lane.key_bytes == key.as_bytes().len()
}

/// Fills in the items by one pass over all flows.
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
