//! `entropy`: −Σ (f/N) log₂ (f/N) over the flows, in the measure of `--by`.
//!
//! Computed as log₂ N − (Σ f log₂ f)/N, so that the sums of the lanes add up. Flows of each small
//! size are counted, and take one logarithm together; the others use compensated summation, so the
//! absolute error is near 10⁻¹⁴ bits.
//!
//! Where a table was full, the lower bound assumes that the untracked weight of each lane was one
//! flow, or part of its largest one if it may belong to listed flows. The upper bound assumes that
//! each untracked packet was its own flow of the mean size. The value is the midpoint. `normalized`
//! then uses the number of listed flows. For a summary that estimates Σ f log₂ f, the bounds and the
//! number of flows are the summary's own.

use super::cardinality;
use super::registry::TaskEntry;
use super::{EpochContext, Lane, Report, Task, USE_TABLE, Unsupported};
use super::{all_hold, exact};
use crate::summary::Estimate;
use crate::terms::{Measure, Size};

pub(super) const ENTRY: TaskEntry = TaskEntry {
    name: "entropy",
    question: "how evenly the traffic is spread over flows",
    by_default: true,
    timeline: false,
    build: |_| Ok(Box::new(Entropy)),
};

/// The alternative to a table.
const INSTEAD: &str = "a summary that estimates the sum of f log f";

/// Flows of sizes below this are counted rather than summed: 16 KiB of counts, half of a
/// first-level cache.
const SMALL: usize = 2048;

struct Entropy;

impl Task for Entropy {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    fn scratch_bytes(&self, _: usize) -> usize {
        SMALL * size_of::<u64>()
    }

    fn check(&self, by: Measure, lanes: &[Lane<'_>]) -> Result<(), Unsupported> {
        lanes.iter().try_for_each(|lane| match lane.answers.weight_logs(by) {
            Some(_) if lane.key.kind().is_either() => Err(Unsupported(format!(
                "{} by key {}, which counts a packet for both of its ends, needs a table of \
                 every flow; {USE_TABLE}",
                ENTRY.name, lane.key
            ))),
            Some(_) => cardinality::flows(lane).map(drop),
            None => exact(ENTRY.name, INSTEAD, lane).map(drop),
        })
    }

    fn run(
        &mut self,
        epoch: &EpochContext<'_>,
        lanes: &[Lane<'_>],
        scratch: &mut [u64],
    ) -> Result<Report, Unsupported> {
        if lanes.iter().any(|lane| lane.answers.weight_logs(epoch.by).is_some()) {
            return estimated(epoch, lanes);
        }
        let small = &mut scratch[..SMALL];
        small.fill(0);
        let (mut flows, mut total) = (0, 0);
        let mut sum = Sum::default();
        // The largest flow of each lane, if it may lack packets.
        let mut largest = Vec::with_capacity(lanes.len());
        for lane in lanes {
            let lane = exact(ENTRY.name, INSTEAD, lane)?;
            flows += lane.len() as u64;
            let mut most = 0;
            lane.for_each(&mut |_, size| {
                let weight = size.by(epoch.by);
                total += weight;
                most = most.max(weight);
                match small.get_mut(weight as usize) {
                    Some(count) => *count += 1,
                    None => sum.add(weight_log(weight as f64)),
                }
            });
            largest.push(if lane.may_lack() == Size::default() { 0 } else { most });
        }
        for (weight, &count) in small.iter().enumerate() {
            sum.add(count as f64 * weight_log(weight as f64));
        }

        let (mut one_flow, mut own_flows) = (sum, sum);
        let mut flows_at_most = flows;
        for (lane, largest) in lanes.iter().zip(largest) {
            let untracked = lane.answers.untracked();
            let (weight, packets) = (untracked.by(epoch.by), untracked.packets);
            if weight > 0 && packets > 0 {
                total += weight;
                flows_at_most += packets;
                one_flow.add(weight_log((largest + weight) as f64) - weight_log(largest as f64));
                own_flows.add(weight as f64 * (weight as f64 / packets as f64).log2());
            }
        }
        let bits = |sum: Sum, flows: u64| match (total, flows) {
            (0, _) | (_, 0 | 1) => 0.0,
            _ => {
                let total = total as f64;
                (total.log2() - sum.value() / total).clamp(0.0, (flows as f64).log2())
            }
        };
        let high = bits(own_flows, flows_at_most);
        let low = bits(one_flow, flows_at_most).min(high);
        let value = low.midpoint(high);
        let most = (flows.max(1) as f64).log2();
        let normalized = if most > 0.0 { (value / most).min(1.0) } else { 0.0 };
        Ok(Report::Entropy { bits: Estimate::between(low, value, high), normalized })
    }
}

/// The entropy from the lanes' estimates of Σ f log₂ f and of the number of flows.
fn estimated(epoch: &EpochContext<'_>, lanes: &[Lane<'_>]) -> Result<Report, Unsupported> {
    let mut sums = Vec::with_capacity(lanes.len());
    let mut flows = Vec::with_capacity(lanes.len());
    for lane in lanes {
        sums.push(lane.answers.weight_logs(epoch.by).ok_or_else(|| {
            Unsupported(
                "the summary cannot estimate entropy for this epoch; raise its levels or --memory"
                    .to_owned(),
            )
        })?);
        flows.push(cardinality::flows(lane)?);
    }
    let (sum, flows) = (all_hold(&sums), all_hold(&flows));
    let total = epoch.keyed.by(epoch.by) as f64;
    // Between 0 bits, for one flow, and log₂ of the total.
    let bits = |sum: f64| match total {
        0.0 => 0.0,
        _ => (total.log2() - sum / total).clamp(0.0, total.log2()),
    };
    let (value, low, high) = (bits(sum.value), bits(sum.high), bits(sum.low));
    let bits = Estimate { value, low, high, confidence: sum.confidence };
    let most = flows.value.max(1.0).log2();
    let normalized = if most > 0.0 { (bits.value / most).min(1.0) } else { 0.0 };
    Ok(Report::Entropy { bits, normalized })
}

/// f log₂ f, which is 0 at 0.
fn weight_log(weight: f64) -> f64 {
    if weight > 0.0 { weight * weight.log2() } else { 0.0 }
}

/// A compensated sum of non-negative numbers (Neumaier's).
#[derive(Clone, Copy, Default)]
struct Sum {
    sum: f64,
    lost: f64,
}

impl Sum {
    fn add(&mut self, term: f64) {
        let sum = self.sum + term;
        let (large, small) = if self.sum >= term { (self.sum, term) } else { (term, self.sum) };
        self.lost += (large - sum) + small;
        self.sum = sum;
    }

    fn value(self) -> f64 {
        self.sum + self.lost
    }
}
