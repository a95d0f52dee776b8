//! What `top` and `heavy-hitters` share: the largest flows that a lane can name.
//!
//! From a table every flow is seen, and a listed flow's size is exact even when the table was
//! full, since a key in the table keeps being counted; only a flow that is not listed may then be
//! missing, with at most the untracked weight. From a summary that names candidates, sizes and
//! bounds are the summary's, and flows that its full set left out are missing. One that does both
//! may name more flows than it is certain of.

use super::largest::Largest;
use super::{EpochContext, Lane, SizeItem, Unsupported};
use crate::key::CanonicalKey;
use crate::summary::SizeEstimate;
use crate::terms::{Measure, Size};

/// Checks that every lane can name its heavy flows by this measure.
pub(super) fn check(task: &str, by: Measure, lanes: &[Lane<'_>]) -> Result<(), Unsupported> {
    lanes.iter().try_for_each(|lane| {
        let answers = lane.answers;
        if answers.flows().is_none() && answers.candidates().is_none() {
            return Err(Unsupported(format!(
                "{task} needs a summary that names its heavy flows, and this one does not; \
                 the algorithm linear-table does"
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
        "{task} by {by} needs a summary that counts {by}, and this one does not; \
         ask by {other}, or use the algorithm linear-table, which counts both"
    ))
}

/// The flows with a value over `floor`, at most `wanted` of them, by value and then by key, and how
/// many of those the epoch's limit left out.
pub(super) fn largest(
    task: &str,
    epoch: &EpochContext,
    lanes: &[Lane<'_>],
    floor: f64,
    wanted: usize,
) -> Result<(Vec<SizeItem>, u64), Unsupported> {
    check(task, epoch.by, lanes)?;
    let mut largest = Largest::new(wanted, epoch.lists.limit);
    let item = |key, size, value| SizeItem { key, size, share: epoch.share(value) };
    for lane in lanes {
        let answers = lane.answers;
        let (flows, candidates) = (answers.flows(), answers.candidates());
        let whole = answers.untracked() + answers.saturated() == Size::default();
        if let Some(flows) = flows.filter(|_| whole || candidates.is_none()) {
            flows.for_each(&mut |key, size| {
                let value = size.by(epoch.by) as f64;
                if value > floor && largest.admits(value, || CanonicalKey::new(key)) {
                    let size = SizeEstimate::counted(size, answers.saturated());
                    largest.push(value, item(CanonicalKey::new(key), size, value));
                }
            });
        } else if let Some(candidates) = candidates {
            let mut lacking = false;
            candidates.for_each(&mut |key: CanonicalKey, size: SizeEstimate| {
                let Some(estimate) = size.by(epoch.by) else {
                    lacking = true;
                    return;
                };
                let value = estimate.value;
                if value > floor && largest.admits(value, || key) {
                    largest.push(value, item(key, size, value));
                }
            });
            if lacking {
                return Err(lacks(task, epoch.by));
            }
        }
    }
    Ok(largest.into_list())
}
