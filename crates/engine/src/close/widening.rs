//! Widens reports of packets that the source sampled, such as those of flow records.
//!
//! Summaries count a sampled packet as many times as the number of packets it represents. The
//! bounds of sizes are widened by the error of the sample. Numbers of distinct peers become lower
//! bounds. What a sample cannot show is left out.

use flowgauge_core::summary::{Estimate, Sampling, SizeEstimate};
use flowgauge_core::task::{Report, Selection, complete_to};
use flowgauge_core::terms::Measure;

use crate::sampling::Traffic;

/// Why a report is left out.
pub(crate) const UNKNOWN: &str = "it cannot be estimated from a sample of packets";

/// The sampling errors of sizes.
pub(crate) struct Widening {
    by: Measure,
    /// Most packets that one packet represents.
    one_in: f64,
    /// The errors in packets and in bytes: of a given flow, and of flows that are listed because of
    /// the sample, which are the luckiest of all.
    given: [Option<Sampling>; 2],
    chosen: [Option<Sampling>; 2],
}

impl Widening {
    /// The widening of the reports of an epoch with `keyed` packets; `None` if the source delivered
    /// all packets, or a sampler of the measurement has widened the answers.
    pub(crate) fn new(traffic: Option<Traffic>, keyed: u64, by: Measure) -> Option<Self> {
        let traffic = traffic?;
        let weights = [traffic.weight, traffic.weight * f64::from(traffic.elsewhere?)];
        let of = |flows| weights.map(|weight| Sampling::of_packets(weight, flows, traffic.delta));
        Some(Self { by, one_in: traffic.weight, given: of(1), chosen: of(keyed) })
    }

    /// The report of all packets, from the report of the sample; `None` if the sample cannot show
    /// it.
    pub(crate) fn apply(&self, report: Report) -> Option<Report> {
        match report {
            Report::Sizes { selection, mut items, truncated, .. } => {
                for item in &mut items {
                    item.size = match selection {
                        Selection::Asked => self.given(item.size),
                        Selection::Largest | Selection::Over(_) => self.chosen(item.size),
                    };
                }
                let last = items.last().and_then(|item| item.size.by(self.by));
                // A flow that is not listed had at most as much in the sample as the last listed
                // one.
                let others = last.map_or(f64::INFINITY, |last| last.high);
                let complete_to = match selection {
                    Selection::Asked => items.len() as u64,
                    _ => complete_to(&items, self.by, others),
                };
                Some(Report::Sizes { selection, items, truncated, complete_to })
            }
            Report::Addresses { side, mut items, truncated } => {
                for item in &mut items {
                    item.size = self.chosen(item.size);
                }
                Some(Report::Addresses { side, items, truncated })
            }
            Report::Spread { side, of, threshold, mut items, truncated } => {
                for item in &mut items {
                    item.distinct.high = f64::INFINITY;
                }
                Some(Report::Spread { side, of, threshold, items, truncated })
            }
            Report::Hierarchical { threshold, mut items, truncated } => {
                for item in &mut items {
                    item.total = self.listed(item.total, self.by);
                    item.discounted = self.listed(item.discounted, self.by);
                }
                Some(Report::Hierarchical { threshold, items, truncated })
            }
            Report::Findings { .. }
            | Report::Changes { .. }
            | Report::Cardinality { .. }
            | Report::Entropy { .. }
            | Report::SizeDistribution { .. }
            | Report::Quantiles { .. } => None,
        }
    }

    /// The size of a given flow.
    fn given(&self, size: SizeEstimate) -> SizeEstimate {
        let whole = |by: Measure| size.by(by).map(|sampled| self.whole(sampled, by));
        SizeEstimate { packets: whole(Measure::Packets), bytes: whole(Measure::Bytes) }
    }

    /// The size of a flow that is listed because of the sample.
    fn chosen(&self, size: SizeEstimate) -> SizeEstimate {
        let listed = |by: Measure| size.by(by).map(|sampled| self.listed(sampled, by));
        SizeEstimate { packets: listed(Measure::Packets), bytes: listed(Measure::Bytes) }
    }

    fn whole(&self, sampled: Estimate, by: Measure) -> Estimate {
        let Some(sampling) = self.given[by as usize] else { return sampled };
        let whole = sampling.widen(sampled);
        Estimate { low: whole.low.max(self.seen(sampled)), ..whole }
    }

    /// As [`Self::whole`], with a lower bound that holds even for the luckiest flow.
    fn listed(&self, sampled: Estimate, by: Measure) -> Estimate {
        let whole = self.whole(sampled, by);
        let Some(sampling) = self.chosen[by as usize] else { return whole };
        let low = sampled.low - sampling.error(sampled.low.max(0.0));
        Estimate { low: low.max(self.seen(sampled)).min(whole.low), ..whole }
    }

    /// The part that was surely seen.
    fn seen(&self, sampled: Estimate) -> f64 {
        sampled.low.max(0.0) / self.one_in
    }
}
