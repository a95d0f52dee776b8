//! `quantiles`: quantiles of flow sizes, and keys that divide the traffic into equal parts.
//!
//! The q-quantile of n flows is the size of nearest rank: the ⌈qn⌉-th smallest, in the measure of
//! `--by`. The keys divide the traffic into eight parts of equal weight: the k-th is the first key,
//! in the order of [`CanonicalKey`], up to which the flows weigh at least k/8 of the total.
//!
//! A summary of quantiles answers those that it was built for: of packets in the order of their
//! keys, of packet lengths, or of inter-arrival times. The ranks of the lanes add up.
//!
//! Where a table was full, U untracked packets may have been up to U flows of any size. The bounds
//! of a size assume that all of them are smaller than the listed flows, or all larger; none exceeds
//! the larger of the untracked weight and the largest listed flow. The upper bounds include the
//! untracked weight that may belong to listed flows. The keys divide the listed flows.

use std::iter::once;

use super::exact;
use super::order::{self, Column};
use super::registry::TaskEntry;
use super::{EpochContext, Lane, Report, Task, Unsupported};
use crate::key::CanonicalKey;
use crate::sorting::sort_by;
use crate::summary::{Estimate, Flows, QuantileOf, Quantiles as Ranked};
use crate::terms::{Measure, Size};

pub(super) const ENTRY: TaskEntry = TaskEntry {
    name: "quantiles",
    question: "quantiles of flow sizes, and keys that divide the traffic into equal parts",
    by_default: false,
    timeline: false,
    build: |_| Ok(Box::new(Quantiles)),
};

/// The alternative to a table.
const INSTEAD: &str = "a summary of quantiles";

/// The reported quantiles of sizes, in thousandths.
const THOUSANDTHS: [u64; 10] = [10, 50, 250, 500, 750, 900, 950, 990, 999, 1000];

/// Number of parts that the keys divide the traffic into.
const PARTS: u64 = 8;

struct Quantiles;

impl Task for Quantiles {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    fn scratch_bytes(&self, flows: usize) -> usize {
        flows * size_of::<u64>()
    }

    fn check(&self, _: Measure, lanes: &[Lane<'_>]) -> Result<(), Unsupported> {
        lanes.iter().try_for_each(|lane| match lane.answers.quantiles() {
            Some(_) => Ok(()),
            None => exact(ENTRY.name, INSTEAD, lane).map(drop),
        })
    }

    fn run(
        &mut self,
        epoch: &EpochContext<'_>,
        lanes: &[Lane<'_>],
        scratch: &mut [u64],
    ) -> Result<Report, Unsupported> {
        let mut in_order: Vec<&Lane<'_>> = lanes.iter().collect();
        sort_by(&mut in_order, &|one, other| one.key_bytes.cmp(&other.key_bytes));
        let estimated: Vec<&dyn Ranked> =
            in_order.iter().filter_map(|lane| lane.answers.quantiles()).collect();
        if let Some(first) = estimated.first()
            && estimated.len() == lanes.len()
        {
            let (of, count) = (first.of(), estimated.iter().map(|lane| lane.count()).sum());
            let (sizes, keys) = match of {
                QuantileOf::Key => (Vec::new(), cut(&estimated, count)),
                _ => (ranked_sizes(&estimated, count), Vec::new()),
            };
            return Ok(Report::Quantiles { of, sizes, keys });
        }
        let (mut count, mut total, mut may_lack) = (0, 0, 0);
        for lane in lanes {
            let flows = exact(ENTRY.name, INSTEAD, lane)?;
            may_lack += flows.may_lack().by(epoch.by);
            flows.for_each(&mut |_, size| {
                scratch[count] = size.by(epoch.by);
                total += scratch[count];
                count += 1;
            });
        }
        let sorted = &mut scratch[..count];
        sorted.sort_unstable();
        let untracked = lanes.iter().map(|lane| lane.answers.untracked()).sum();
        let sizes = size_quantiles(sorted, may_lack, untracked, epoch.by);

        let mut cuts = Cuts { by: epoch.by, total, before: 0, keys: Vec::new() };
        for lane in in_order {
            let flows = exact(ENTRY.name, INSTEAD, lane)?;
            let entries = &mut scratch[..flows.len()];
            order::number(entries);
            cuts.find(entries, flows, &order::columns(once(0..lane.key_bytes)));
        }
        let of = match epoch.by {
            Measure::Packets => QuantileOf::FlowPackets,
            Measure::Bytes => QuantileOf::FlowBytes,
        };
        Ok(Report::Quantiles { of, sizes, keys: cuts.keys })
    }
}

/// The keys that divide the packets of all lanes. The lanes are in the order of their keys.
fn cut(lanes: &[&dyn Ranked], count: u64) -> Vec<(f64, CanonicalKey)> {
    let key = |q: f64| {
        let mut rank = q * count as f64;
        lanes.iter().find_map(|lane| {
            let packets = lane.count() as f64;
            if rank <= packets {
                return lane.key(rank / packets);
            }
            rank -= packets;
            None
        })
    };
    let shares = (1..PARTS).map(|part| part as f64 / PARTS as f64);
    shares.filter_map(|q| Some((q, key(q)?))).collect()
}

/// The quantiles of integers, whose ranks in the lanes add up.
fn ranked_sizes(lanes: &[&dyn Ranked], count: u64) -> Vec<(f64, Estimate)> {
    if count == 0 {
        return Vec::new();
    }
    let largest = lanes.iter().map(|lane| lane.largest()).fold(0.0, f64::max);
    let rank = |size: f64| lanes.iter().map(|l| l.rank(size) * l.count() as f64).sum::<f64>();
    // The smallest integer of at least this rank. The bisection uses integers: from 2⁵³ on, which
    // is a gap of four months in nanoseconds, floats are more than 1 apart.
    let at = |q: f64| {
        let (mut low, mut high) = (0, largest.ceil() as u64);
        if q >= 1.0 {
            // Exact, while the largest number that the sketch retains for ranks may be smaller.
            return high as f64;
        }
        let due = q.max(0.0) * count as f64;
        while low < high {
            let middle = low.midpoint(high);
            if rank(middle as f64) >= due - 1e-6 {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        low as f64
    };
    let error = lanes.iter().map(|lane| lane.error()).fold(0.0, f64::max);
    let confidence = lanes.iter().filter_map(|lane| lane.confidence()).reduce(|a, b| a * b);
    let quantile = |thousandths: u64| {
        let q = thousandths as f64 / 1000.0;
        let (low, value, high) = (at(q - error), at(q), at(q + error));
        (q, Estimate { value, low, high, confidence })
    };
    THOUSANDTHS.map(quantile).to_vec()
}

/// The quantiles of these sizes. Any size may lack up to `may_lack` of the untracked weight.
fn size_quantiles(
    sorted: &[u64],
    may_lack: u64,
    untracked: Size,
    by: Measure,
) -> Vec<(f64, Estimate)> {
    let Some(&largest) = sorted.last() else { return Vec::new() };
    let listed = sorted.len() as u64;
    let unlisted = untracked.packets;
    let at_most = (largest + may_lack).max(untracked.by(by));
    // The size at a rank, counted from 1. Below the listed flows there are only untracked flows.
    let size = |rank: u64| match rank {
        0 => 1.min(sorted[0]),
        _ => sorted.get(rank as usize - 1).copied().unwrap_or(at_most),
    };
    let quantile = |thousandths| {
        let rank = |flows: u64| {
            let rank = (u128::from(flows) * u128::from(thousandths)).div_ceil(1000) as u64;
            rank.max(1)
        };
        let low = size(rank(listed + unlisted).saturating_sub(unlisted));
        let high = (size(rank(listed + unlisted)) + may_lack).min(at_most);
        let value = size(rank(listed));
        (thousandths as f64 / 1000.0, Estimate::between(low as f64, value as f64, high as f64))
    };
    THOUSANDTHS.map(quantile).to_vec()
}

/// The search for the keys that divide the traffic.
struct Cuts {
    by: Measure,
    total: u64,
    /// Weight of all flows before the current ones.
    before: u64,
    keys: Vec<(f64, CanonicalKey)>,
}

impl Cuts {
    /// Whether the flows up to this cumulative weight reach the next cut.
    fn due(&self, weight: u64) -> bool {
        let part = self.keys.len() as u64 + 1;
        self.total > 0
            && part < PARTS
            && u128::from(weight) * u128::from(PARTS) >= u128::from(self.total) * u128::from(part)
    }

    /// Finds the cuts in these entries: sorts by one column, and by the next ones only where a cut
    /// falls inside a run.
    fn find(&mut self, entries: &mut [u64], flows: &dyn Flows, columns: &[Column]) {
        let Some((&column, rest)) = columns.split_first() else { return };
        order::sort_column(entries, flows, column);
        for run in order::runs(entries) {
            let weight: u64 = run.iter().map(|&e| flows.get(order::flow(e)).1.by(self.by)).sum();
            if run.len() > 1 && !rest.is_empty() && self.due(self.before + weight) {
                self.find(run, flows, rest);
                continue;
            }
            self.before += weight;
            while self.due(self.before) {
                let part = self.keys.len() as u64 + 1;
                let key = CanonicalKey::new(flows.get(order::flow(run[0])).0);
                self.keys.push((part as f64 / PARTS as f64, key));
            }
        }
    }
}
