//! What `top` and `heavy-hitters` share: the largest flows that a lane can name.
//!
//! From a table every flow is seen, and a listed flow's size is exact even when the table was
//! full, since a key in the table keeps being counted; only a flow that is not listed may then be
//! missing, with at most the untracked weight. From a summary that names candidates, sizes and
//! bounds are the summary's, and flows that its full set left out are missing. One that does both
//! may name more flows than it is certain of. What the missing ones may weigh says how far a list is
//! certain.

use super::largest::Largest;
use super::{EpochContext, Lane, Report, Selection, SizeItem, Unsupported};
use crate::key::CanonicalKey;
use crate::summary::SizeEstimate;
use crate::terms::{Measure, Size};

/// Checks that every lane can name its heavy flows by this measure.
pub(super) fn check(task: &str, by: Measure, lanes: &[Lane<'_>]) -> Result<(), Unsupported> {
    lanes.iter().try_for_each(|lane| {
        let answers = lane.answers;
        if answers.flows().is_none() && answers.candidates().is_none() {
            return Err(Unsupported(format!(
                "{task} needs a summary that lists its heavy flows; use --algorithm linear-table"
            )));
        }
        check_measure(task, by, lane)
    })
}

/// Checks that a lane which answers sizes does so in this measure, by asking for any flow.
pub(super) fn check_measure(task: &str, by: Measure, lane: &Lane<'_>) -> Result<(), Unsupported> {
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
pub(super) struct Listed {
    /// By value, then by key.
    pub(super) items: Vec<SizeItem>,
    /// How many the epoch's limit left out.
    pub(super) truncated: u64,
    /// So many at the head are the largest of all.
    pub(super) complete_to: u64,
}

impl Listed {
    pub(super) fn report(self, selection: Selection) -> Report {
        let Self { items, truncated, complete_to } = self;
        Report::Sizes { selection, items, truncated, complete_to }
    }
}

/// How many items at the head of a list are the largest of all flows, in some order, where others weigh
/// `others` at most: those whose low bounds nothing behind them exceeds.
pub fn complete_to(items: &[SizeItem], by: Measure, others: f64) -> u64 {
    let bounds: Vec<_> = items.iter().map(|item| item.size.by(by)).collect();
    let lows = bounds.iter().scan(f64::INFINITY, |least, bounds| {
        *least = least.min(bounds.map_or(0.0, |bounds| bounds.low));
        Some(*least)
    });
    let lows: Vec<f64> = lows.collect();
    let mut most = others;
    for at in (0..items.len()).rev() {
        if lows[at] >= most {
            return at as u64 + 1;
        }
        most = most.max(bounds[at].map_or(f64::INFINITY, |bounds| bounds.high));
    }
    0
}

/// The flows with a value over `floor`, at most `wanted` of them.
pub(super) fn largest(
    task: &str,
    epoch: &EpochContext<'_>,
    lanes: &[Lane<'_>],
    floor: f64,
    wanted: usize,
) -> Result<Listed, Unsupported> {
    check(task, epoch.by, lanes)?;
    let mut largest = Largest::new(wanted, epoch.lists.limit);
    let item = |key, size, value| SizeItem { key, size, share: epoch.share(value), seen: None };
    // What a flow weighs at most that is not in the list.
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

/// Says of each flow when and how it was seen, where its lane tells.
pub(super) fn add_seen(items: &mut [SizeItem], lanes: &[Lane<'_>]) {
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
