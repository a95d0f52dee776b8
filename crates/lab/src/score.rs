//! Scores of the tasks' answers against the truth: errors, listed flows, and bounds that held.

use std::collections::BTreeMap;

use flowgauge_core::key::{CanonicalKey, FlowKey};
use flowgauge_core::packet::Ports;
use flowgauge_core::summary::{Estimate, QuantileOf};
use flowgauge_core::task::{
    ChangeItem, EpochContext, HierarchyItem, Report, Selection, Side, SizeItem, SpreadItem,
};

use crate::exact::{self, Exact, Prefix, number};
use crate::keys::Keys;
use crate::traffic::{Keyed, Packet, Scene};

/// How many bounds failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Bounds {
    /// Failed ones.
    pub(crate) broken: u64,
    /// All of them.
    pub(crate) asked: u64,
}

/// The score of an algorithm at a task, over several streams.
#[derive(Clone, Debug, Default)]
pub(crate) struct Score {
    /// Streams with an answer.
    pub(crate) answered: u64,
    errors: u64,
    /// Signed errors.
    signed: u64,
    sum: f64,
    squares: f64,
    worst: f64,
    named: u64,
    right: u64,
    wanted: u64,
    /// Bounds that always hold.
    pub(crate) sure: Bounds,
    /// Bounds that hold with a probability.
    pub(crate) likely: Bounds,
    /// The lowest of these probabilities.
    pub(crate) confidence: Option<f64>,
}

impl Score {
    /// Adds the relative error of an estimate.
    fn relative(&mut self, estimate: f64, truth: f64) {
        if truth != 0.0 {
            let error = (estimate - truth) / truth.abs();
            self.signed += 1;
            self.sum += error;
            self.error(error.abs());
        }
    }

    /// Adds an unsigned error.
    fn error(&mut self, error: f64) {
        self.errors += 1;
        self.squares += error * error;
        self.worst = self.worst.max(error);
    }

    /// Adds the number of listed flows, of correctly listed ones, and of those that should be
    /// listed.
    fn names(&mut self, named: usize, right: usize, wanted: usize) {
        self.named += named as u64;
        self.right += right as u64;
        self.wanted += wanted as u64;
    }

    /// Checks an estimate's bounds. Bounds with a probability count only if they are for a given
    /// `flow`. Lists of addresses and prefixes are selected by their estimates and favour
    /// overestimates, so the stated probability does not apply to them.
    fn bound(&mut self, estimate: &Estimate, truth: f64, flow: bool) {
        // Sums of logarithms have rounding errors.
        let rounding = 1e-9 * (1.0 + truth.abs());
        let holds = estimate.low - rounding <= truth && truth <= estimate.high + rounding;
        let bounds = match estimate.confidence {
            None => &mut self.sure,
            Some(_) if !flow => return,
            Some(confidence) => {
                let lowest = self.confidence.map_or(confidence, |lowest| lowest.min(confidence));
                self.confidence = Some(lowest);
                &mut self.likely
            }
        };
        bounds.asked += 1;
        bounds.broken += u64::from(!holds);
    }

    /// The mean error.
    pub(crate) fn bias(&self) -> Option<f64> {
        (self.signed > 0).then(|| self.sum / self.signed as f64)
    }

    /// The root mean square error.
    pub(crate) fn rms(&self) -> Option<f64> {
        (self.errors > 0).then(|| (self.squares / self.errors as f64).sqrt())
    }

    /// The largest error.
    pub(crate) fn worst(&self) -> Option<f64> {
        (self.errors > 0).then_some(self.worst)
    }

    /// The share of listed flows that are correct.
    pub(crate) fn precision(&self) -> Option<f64> {
        (self.named > 0).then(|| self.right as f64 / self.named as f64)
    }

    /// The share of wanted flows that are listed.
    pub(crate) fn recall(&self) -> Option<f64> {
        (self.wanted > 0).then(|| self.right as f64 / self.wanted as f64)
    }
}

/// Number of flows below the threshold queried with `flow-size`, to test their bounds.
const SMALL_FLOWS: usize = 1000;

/// Number of absent flows queried.
const ABSENT_FLOWS: u8 = 100;

/// The ground truth of a stream, for one kind of key.
pub(crate) struct Truth<'a> {
    /// Flows of the last epoch.
    flows: Exact,
    /// Flows of the previous epoch, in a scene of two.
    before: Exact,
    /// Peers of each source, in the scene with superspreaders.
    of_sources: Exact,
    /// Peers of each destination, likewise.
    of_destinations: Exact,
    /// The packets of the last epoch.
    packets: &'a [Packet],
    /// A heavy flow exceeds this.
    threshold: f64,
    key_bytes: usize,
}

impl<'a> Truth<'a> {
    /// Counts the flows of these epochs; `threshold` is a share of the last epoch.
    pub(crate) fn count<K: Keys>(
        scene: Scene,
        epochs: &'a [Vec<Packet>],
        keyed: &[Vec<Keyed<K::Key>>],
        threshold: f64,
    ) -> Self {
        let packets = epochs.last().map_or(&[][..], Vec::as_slice);
        let flows = |back: usize| {
            let epoch = keyed.len().checked_sub(back).map_or(&[][..], |at| &keyed[at]);
            Exact::count(
                epoch.iter().map(|packet| number(packet.key.canonical(K::BYTES))).collect(),
            )
        };
        let peers = |source| match scene {
            Scene::Spread => peers(packets, source),
            Scene::Plain | Scene::Changes => Exact::default(),
        };
        Self {
            flows: flows(1),
            before: flows(2),
            of_sources: peers(true),
            of_destinations: peers(false),
            packets,
            threshold: threshold * packets.len() as f64,
            key_bytes: K::BYTES,
        }
    }

    /// Number of flows.
    pub(crate) fn flows(&self) -> u64 {
        self.flows.len() as u64
    }

    /// Whether a flow of this weight is heavy.
    fn is_heavy(&self, weight: u64) -> bool {
        weight as f64 > self.threshold
    }

    /// The flows to query: all heavy ones, some others from the whole key space, and some absent
    /// ones.
    pub(crate) fn asked(&self) -> Vec<CanonicalKey> {
        let canonical = |key: &[u8]| CanonicalKey::new(&key[..self.key_bytes]);
        let step = self.flows.len().div_ceil(SMALL_FLOWS).max(1);
        let asked = self.flows.iter().enumerate();
        let asked = asked.filter(|(i, (_, weight))| self.is_heavy(*weight) || i % step == 0);
        let asked = asked.map(|(_, (key, _))| canonical(&key.to_be_bytes()));
        // Addresses that begin with 240 are never generated.
        let absent = (0..ABSENT_FLOWS).map(|i| canonical(&[240, 0, i, i].repeat(4)));
        asked.chain(absent).collect()
    }
}

/// The number of distinct endpoints each source sends to, or each destination receives from.
fn peers(packets: &[Packet], source: bool) -> Exact {
    let peer = |packet: &Packet| {
        let (from, to) = packet.ip.addresses.split_at(4);
        let Ports::Found(ports) = packet.ip.ports else { return 0 };
        let [high, low, next_high, next_low] = ports.to_be_bytes();
        let (address, peer, port) =
            if source { (from, to, [next_high, next_low]) } else { (to, from, [high, low]) };
        number(&[address, peer, &port].concat())
    };
    let mut pairs: Vec<u128> = packets.iter().map(peer).collect();
    pairs.sort_unstable();
    pairs.dedup();
    // Keep only the address.
    Exact::count(pairs.into_iter().map(|pair| pair >> 96 << 96).collect())
}

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
fn rank_error(q: f64, below: f64, up_to: f64) -> f64 {
    // Equal values share their ranks, so any of them would do; division rounds.
    let error = (below - q).max(q - up_to).max(0.0);
    if error < 1e-12 { 0.0 } else { error }
}

/// The distance of the rank of `value` among these numbers from `q`.
fn error_among(sorted: &[u64], q: f64, value: f64) -> f64 {
    let share = |rank: usize| rank as f64 / sorted.len() as f64;
    let below = sorted.partition_point(|&number| (number as f64) < value);
    let up_to = sorted.partition_point(|&number| number as f64 <= value);
    rank_error(q, share(below), share(up_to))
}

/// The `q`-quantile by nearest rank.
fn quantile(sorted: &[u64], q: f64) -> u64 {
    // The product is not always an integer where it should be.
    let rank = (q * sorted.len() as f64 - 1e-6).ceil().max(1.0) as usize;
    sorted[rank.min(sorted.len()) - 1]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_of_present_and_absent_flows() {
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
