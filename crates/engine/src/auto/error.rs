//! How far off answers may be, as far as they tell themselves.

use flowgauge_core::summary::Estimate;
use flowgauge_core::task::Report;
use flowgauge_core::terms::{Measure, Size};

use super::{Largest, Reason};
use crate::report::EpochReport;

/// Half the width of the widest bounds in an epoch's answers: a share of the traffic where they are
/// about sizes, of the number itself where they are about numbers. `largest` is the largest flow, where
/// it is known.
///
/// # Errors
/// When there is no telling: a table was full, flows that are large enough are not listed, or all lists
/// are empty.
pub fn error(report: &EpochReport, largest: Option<Largest>) -> Result<f64, Reason> {
    if report.account.untracked != Size::default() {
        return Err(Reason::Overflowed);
    }
    let total = report.keyed().by(report.by).max(1) as f64;
    let bounds = report.tasks.iter().filter_map(|(_, task)| widest(task, report.by, total));
    let widest = bounds.reduce(f64::max).ok_or(Reason::Unknown)?;
    let silent = report.tasks.iter().any(|(_, task)| match task {
        Report::Sizes { selection, items, .. } if items.is_empty() => {
            let least = selection.threshold().unwrap_or_default() / total + widest;
            largest.is_some_and(|largest| largest.share > least)
        }
        _ => false,
    });
    if silent { Err(Reason::Silent) } else { Ok(widest) }
}

/// Half the width of the widest bounds in an answer; `None` where it has no bounds, being empty.
fn widest(report: &Report, by: Measure, total: f64) -> Option<f64> {
    let half = |estimate: &Estimate| (estimate.high - estimate.low) / 2.0;
    let of_traffic = |estimate: &Estimate| half(estimate) / total;
    let of_itself = |estimate: &Estimate| half(estimate) / estimate.value.abs().max(1.0);
    let widest = |errors: &mut dyn Iterator<Item = f64>| errors.reduce(f64::max);
    match report {
        Report::Sizes { items, .. } => {
            widest(&mut items.iter().filter_map(|item| item.size.by(by)).map(|e| of_traffic(&e)))
        }
        Report::Findings { .. } => None,
        Report::Addresses { items, .. } => {
            widest(&mut items.iter().filter_map(|item| item.size.by(by)).map(|e| of_traffic(&e)))
        }
        Report::Spread { items, .. } => {
            widest(&mut items.iter().map(|item| of_itself(&item.distinct)))
        }
        Report::Changes { items, .. } => {
            widest(&mut items.iter().map(|item| of_traffic(&item.now)))
        }
        Report::Cardinality { flows } => Some(of_itself(flows)),
        Report::Entropy { bits, .. } => Some(of_itself(bits)),
        Report::SizeDistribution { bins } => {
            let flows: f64 = bins.iter().map(|(_, flows)| flows.value).sum();
            Some(bins.iter().map(|(_, flows)| half(flows)).sum::<f64>() / flows.max(1.0))
        }
        Report::Quantiles { sizes, .. } => {
            widest(&mut sizes.iter().map(|(_, size)| of_itself(size)))
        }
        Report::Hierarchical { items, .. } => {
            widest(&mut items.iter().map(|item| of_traffic(&item.total)))
        }
    }
}
