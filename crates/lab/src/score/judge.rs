//! Compares answers of tasks with the truth.

use std::collections::BTreeMap;

use flowgauge_core::key::CanonicalKey;
use flowgauge_core::summary::{Estimate, QuantileOf};
use flowgauge_core::task::{
    ChangeItem, EpochContext, HierarchyItem, Report, Selection, Side, SizeItem, SpreadItem,
};

use super::{Score, Truth};
use crate::exact::{self, Exact, Prefix, number};
use crate::traffic::Packet;

/// Adds the answer of a task.
pub(crate) fn judge(
    score: &mut Score,
    report: &Report,
    epoch: &EpochContext<'_>,
    truth: &Truth<'_>,
) {
    match report {
        Report::Sizes { selection: Selection::Asked, items, .. } => {
            asked_sizes(score, items, truth);
        }
        Report::Sizes { selection: Selection::Over(_), items, .. } => {
            let wanted = |weight| truth.is_heavy(weight);
            let count = truth.flows.iter().filter(|(_, weight)| wanted(*weight)).count();
            named_sizes(score, items, truth, wanted, count);
        }
        Report::Sizes { selection: Selection::Largest, items, .. } => {
            let weights = truth.flows.sorted_weights();
            let count = epoch.lists.top.min(weights.len());
            // Among flows of equal size, any may be listed.
            let least = weights[weights.len() - count..].first().copied();
            named_sizes(score, items, truth, |weight| Some(weight) >= least, count);
        }
        Report::Spread { side, threshold, items, .. } => {
            let peers = match side {
                Side::Source => &truth.of_sources,
                Side::Destination => &truth.of_destinations,
            };
            spread(score, *threshold, items, peers);
        }
        Report::Changes { items, .. } => changes(score, items, truth),
        Report::Cardinality { flows } => number_of(score, flows, truth.flows() as f64),
        Report::Entropy { bits, .. } => number_of(score, bits, entropy(&truth.flows)),
        Report::SizeDistribution { bins } => distribution(score, bins, &truth.flows),
        Report::Quantiles { of, sizes, keys } => {
            let ranked = ranked(*of, truth);
            for (q, size) in sizes {
                score.error(error_among(&ranked, *q, size.value));
                score.bound(size, quantile(&ranked, *q) as f64, true);
            }
            cuts(score, keys, &truth.flows);
        }
        Report::Hierarchical { items, .. } => hierarchical(score, items, truth),
        // No case uses them.
        Report::Findings { .. } | Report::Addresses { .. } => {}
    }
}

fn key(canonical: &CanonicalKey) -> u128 {
    number(canonical.as_bytes())
}

fn number_of(score: &mut Score, estimate: &Estimate, truth: f64) {
    score.relative(estimate.value, truth);
    score.bound(estimate, truth, true);
}

fn asked_sizes(score: &mut Score, items: &[SizeItem], truth: &Truth<'_>) {
    for item in items {
        let weight = truth.flows.get(key(&item.key));
        if let Some(size) = item.size.packets {
            score.bound(&size, weight as f64, true);
            if truth.is_heavy(weight) {
                score.relative(size.value, weight as f64);
            }
        }
    }
}

fn named_sizes(
    score: &mut Score,
    items: &[SizeItem],
    truth: &Truth<'_>,
    wanted: impl Fn(u64) -> bool,
    count: usize,
) {
    let mut right = 0;
    for item in items {
        let weight = truth.flows.get(key(&item.key));
        let is_right = wanted(weight);
        right += usize::from(is_right);
        if let Some(size) = item.size.packets {
            score.bound(&size, weight as f64, true);
            if is_right {
                score.relative(size.value, weight as f64);
            }
        }
    }
    score.names(items.len(), right, count);
}

fn spread(score: &mut Score, threshold: u64, items: &[SpreadItem], peers: &Exact) {
    let mut right = 0;
    for SpreadItem { address, distinct } in items {
        let truth = peers.get(key(address));
        let is_right = truth > threshold;
        score.bound(distinct, truth as f64, is_right);
        if is_right {
            right += 1;
            score.relative(distinct.value, truth as f64);
        }
    }
    let wanted = peers.iter().filter(|(_, peers)| *peers > threshold).count();
    score.names(items.len(), right, wanted);
}

/// Judges the second epoch; the first is the forecast.
fn changes(score: &mut Score, items: &[ChangeItem], truth: &Truth<'_>) {
    let sizes = |key| (truth.before.get(key) as f64, truth.flows.get(key) as f64);
    let mut right = 0;
    for item in items {
        let (before, now) = sizes(key(&item.key));
        let is_right = (now - before).abs() > truth.threshold;
        score.bound(&item.before, before, is_right);
        score.bound(&item.forecast, before, is_right);
        score.bound(&item.now, now, is_right);
        if is_right {
            right += 1;
            score.relative(item.now.value - item.forecast.value, now - before);
        }
    }
    let gone = truth.before.iter().map(|(key, _)| key).filter(|key| truth.flows.get(*key) == 0);
    let all = truth.flows.iter().map(|(key, _)| key).chain(gone);
    let changed = |key: &u128| {
        let (before, now) = sizes(*key);
        (now - before).abs() > truth.threshold
    };
    score.names(items.len(), right, all.filter(changed).count());
}

fn entropy(flows: &Exact) -> f64 {
    let total = flows.total() as f64;
    let term = |(_, weight)| {
        let share = weight as f64 / total;
        -share * share.log2()
    };
    flows.iter().map(term).sum()
}

/// The error of all bins together: Σ |n − n̂| ÷ Σ (n + n̂) ÷ 2.
fn distribution(score: &mut Score, bins: &[(u64, Estimate)], flows: &Exact) {
    let mut truth: BTreeMap<u64, f64> = BTreeMap::new();
    for (_, weight) in flows.iter() {
        *truth.entry(weight).or_default() += 1.0;
    }
    let (mut wrong, mut sum) = (0.0, 0.0);
    for (size, flows) in bins {
        let count = truth.remove(size).unwrap_or(0.0);
        score.bound(flows, count, true);
        wrong += (flows.value - count).abs();
        sum += flows.value + count;
    }
    let missing: f64 = truth.values().sum();
    score.error((wrong + missing) / f64::midpoint(sum, missing));
}

/// The values behind these quantiles, ascending. Keys are judged by [`cuts`].
fn ranked(of: QuantileOf, truth: &Truth<'_>) -> Vec<u64> {
    let mut numbers: Vec<u64> = match of {
        QuantileOf::FlowPackets | QuantileOf::FlowBytes => return truth.flows.sorted_weights(),
        QuantileOf::Key => return Vec::new(),
        QuantileOf::PacketBytes => truth.packets.iter().map(|p| p.wire.into()).collect(),
        QuantileOf::GapNs => {
            let gap = |pair: &[Packet]| (pair[1].time_ns - pair[0].time_ns).cast_unsigned();
            truth.packets.windows(2).map(gap).collect()
        }
    };
    numbers.sort_unstable();
    numbers
}

fn cuts(score: &mut Score, keys: &[(f64, CanonicalKey)], flows: &Exact) {
    let total = flows.total() as f64;
    for (q, cut) in keys {
        let cut = key(cut);
        let up_to = flows.between(0, cut);
        let below = up_to - flows.get(cut);
        score.error(rank_error(*q, below as f64 / total, up_to as f64 / total));
    }
}

fn hierarchical(score: &mut Score, items: &[HierarchyItem], truth: &Truth<'_>) {
    let prefix =
        |item: &HierarchyItem| Prefix { address: key(&item.source), bits: item.source_bits };
    let reported: Vec<Prefix> = items.iter().map(prefix).collect();
    let heavy = exact::heavy(&truth.flows, truth.threshold);
    let discounted = exact::discounted(&truth.flows, &reported);
    let mut right = 0;
    for ((item, prefix), weight) in items.iter().zip(&reported).zip(discounted) {
        let wanted = heavy.iter().find(|(other, _)| other == prefix);
        score.bound(&item.total, prefix.total(&truth.flows) as f64, wanted.is_some());
        score.bound(&item.discounted, weight as f64, wanted.is_some());
        if let Some((_, discounted)) = wanted {
            right += 1;
            score.relative(item.discounted.value, *discounted as f64);
        }
    }
    score.names(items.len(), right, heavy.len());
}

/// The distance of a rank from `q`, given the share `below` before the value and the share `up_to`
/// up to and including it.
pub(super) fn rank_error(q: f64, below: f64, up_to: f64) -> f64 {
    // Equal values share their ranks, so any of them would do; division rounds.
    let error = (below - q).max(q - up_to).max(0.0);
    if error < 1e-12 { 0.0 } else { error }
}

/// The distance of the rank of `value` among these numbers from `q`.
pub(super) fn error_among(sorted: &[u64], q: f64, value: f64) -> f64 {
    let share = |rank: usize| rank as f64 / sorted.len() as f64;
    let below = sorted.partition_point(|&number| (number as f64) < value);
    let up_to = sorted.partition_point(|&number| number as f64 <= value);
    rank_error(q, share(below), share(up_to))
}

/// The `q`-quantile by nearest rank.
pub(super) fn quantile(sorted: &[u64], q: f64) -> u64 {
    // The product is not always an integer where it should be.
    let rank = (q * sorted.len() as f64 - 1e-6).ceil().max(1.0) as usize;
    sorted[rank.min(sorted.len()) - 1]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_of_what_is_there_and_what_is_not() {
        let sorted = [1, 1, 1, 5, 9];
        assert_eq!(quantile(&sorted, 0.6), 1);
        assert_eq!(quantile(&sorted, 0.61), 5);
        assert_eq!((quantile(&sorted, 0.0), quantile(&sorted, 1.0)), (1, 9));
        for q in [0.1, 0.6] {
            assert!(error_among(&sorted, q, 1.0) == 0.0);
        }
        assert!((error_among(&sorted, 0.9, 1.0) - 0.3).abs() < 1e-12);
        assert!((error_among(&sorted, 0.5, 7.0) - 0.3).abs() < 1e-12);
    }
}
