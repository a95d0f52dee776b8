//! Samples of reports, totals and alerts.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use flowgauge_core::summary::Estimate;
use flowgauge_core::task::{FindingKind, Report, Selection};
use flowgauge_core::terms::Measure;
use flowgauge_engine::report::{Audit, EpochReport};
use flowgauge_engine::source::Counter;
use flowgauge_records::Accounts;

use super::Measured;
use crate::alert::Board;
use crate::alert::state::State;
use crate::deliveries::{Deliveries, Delivery};
use crate::journal::Counts;
use crate::{collect, lines};

/// Number of list items with series.
const RANKS: usize = 10;

/// The label for traffic that no other series names.
const OTHER: &str = "other";

/// One value of a family.
#[derive(Clone, Debug)]
pub(super) struct Sample {
    pub(super) family: &'static str,
    pub(super) labels: Vec<(&'static str, String)>,
    pub(super) value: f64,
}

impl Sample {
    pub(super) fn new(family: &'static str, labels: &[(&'static str, &str)], value: f64) -> Self {
        let labels = labels.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        Self { family, labels, value }
    }
}

/// The families of an estimate and its two bounds.
type Bounded = [&'static str; 3];

const FLOWS: Bounded = ["flowgauge_flows", "flowgauge_flows_low", "flowgauge_flows_high"];
const ENTROPY: Bounded =
    ["flowgauge_entropy_bits", "flowgauge_entropy_bits_low", "flowgauge_entropy_bits_high"];
const RANKED_PACKETS: Bounded =
    ["flowgauge_ranked_packets", "flowgauge_ranked_packets_low", "flowgauge_ranked_packets_high"];
const RANKED_BYTES: Bounded =
    ["flowgauge_ranked_bytes", "flowgauge_ranked_bytes_low", "flowgauge_ranked_bytes_high"];
const RANKED_DISTINCT: Bounded = [
    "flowgauge_ranked_distinct",
    "flowgauge_ranked_distinct_low",
    "flowgauge_ranked_distinct_high",
];

fn bounded(families: Bounded, labels: &[(&'static str, &str)], of: &Estimate) -> [Sample; 3] {
    let [value, low, high] = families;
    [(value, of.value), (low, of.low), (high, of.high)]
        .map(|(family, number)| Sample::new(family, labels, number))
}

impl Measured {
    /// The totals since the start.
    pub(super) fn totals(&self, name: &str, to: &mut Vec<Sample>) {
        let of = [("measurement", name)];
        let mut account = self.account.clone();
        self.recent.values().for_each(|recent| account.add(recent));
        let mut push = |family, value: u64| to.push(Sample::new(family, &of, value as f64));
        push("flowgauge_packets", account.keyed);
        push("flowgauge_bytes", account.keyed_bytes);
        push("flowgauge_epochs", self.epochs);
        push("flowgauge_empty_epochs", self.empty_epochs);
        push("flowgauge_undelivered", self.undelivered);
        let outcomes = [
            ("read", account.read),
            ("skipped", account.skipped.packets),
            ("filtered", account.filtered),
            ("malformed", account.malformed),
            ("no_key", account.no_key),
            ("keyed", account.keyed),
            ("untracked", account.untracked.packets),
            ("dropped", account.dropped.packets),
            ("lost", account.lost),
            ("saturated", account.saturated.packets),
            ("late", account.late),
            ("backwards", account.backwards),
            ("jumps", account.jumps),
        ];
        for (outcome, packets) in outcomes {
            let labels = [("measurement", name), ("outcome", outcome)];
            to.push(Sample::new("flowgauge_account_packets", &labels, packets as f64));
        }
        for counter in &self.counters {
            let labels = [("measurement", name), ("counter", counter.name)];
            to.push(Sample::new("flowgauge_source", &labels, counter.count as f64));
        }
    }
}

/// The gauges of a closed epoch.
pub(super) fn epoch(report: &EpochReport, flows: &mut Flows, now: Instant) -> Vec<Sample> {
    let of = [("measurement", &*report.measurement)];
    let mut samples = vec![
        Sample::new("flowgauge_memory_bytes", &of, report.summary.memory_bytes as f64),
        Sample::new("flowgauge_epoch_coverage_ratio", &of, report.coverage),
    ];
    if let (Some(start_ns), Some(end_ns)) = (report.start_ns, report.end_ns) {
        let seconds = end_ns.saturating_sub(start_ns) as f64 / 1e9 * report.coverage;
        samples.push(Sample::new("flowgauge_epoch_seconds", &of, seconds));
        samples.push(Sample::new(
            "flowgauge_epoch_end_timestamp_seconds",
            &of,
            end_ns as f64 / 1e9,
        ));
    }
    if let Some(network) = &report.network {
        for (state, agents) in [
            ("expected", network.agents),
            ("reported", network.reported),
            ("missing", network.missing.len() as u64),
        ] {
            let labels = [of[0], ("state", state)];
            samples.push(Sample::new("flowgauge_agents", &labels, agents as f64));
        }
        let snapshots = network.revision as f64;
        samples.push(Sample::new("flowgauge_epoch_snapshots", &of, snapshots));
    }
    if let Some(Audit { observed, .. }) = report.audit.as_deref() {
        let untracked = observed.untracked.packets as f64;
        samples.extend(
            [
                ("flowgauge_audit_flows", observed.flows as f64),
                ("flowgauge_audit_bias", observed.bias()),
                ("flowgauge_audit_rmse", observed.rmse()),
                ("flowgauge_audit_violated_ratio", observed.violated_share()),
                ("flowgauge_audit_allowed_ratio", observed.allowed_share()),
                ("flowgauge_audit_untracked_packets", untracked),
            ]
            .map(|(family, value)| Sample::new(family, &of, value)),
        );
    }
    for (task, answer) in &report.tasks {
        match answer {
            Report::Cardinality { flows } => samples.extend(bounded(FLOWS, &of, flows)),
            Report::Entropy { bits, normalized } => {
                samples.extend(bounded(ENTROPY, &of, bits));
                samples.push(Sample::new("flowgauge_entropy_ratio", &of, *normalized));
            }
            Report::Findings { items, .. } => {
                for (name, kind) in FindingKind::ALL {
                    let labels = [of[0], ("kind", name)];
                    let found = items.iter().filter(|item| item.kind == kind).count();
                    samples.push(Sample::new("flowgauge_findings", &labels, found as f64));
                }
            }
            _ => {}
        }
        list(report, task, answer, &mut samples);
        named(report, task, answer, flows, now, &mut samples);
    }
    samples
}

/// The length of a list, and its largest items by rank.
fn list(report: &EpochReport, task: &str, answer: &Report, to: &mut Vec<Sample>) {
    let of = [("measurement", &*report.measurement), ("task", task)];
    if let Some((listed, truncated)) = answer.listed() {
        to.push(Sample::new("flowgauge_listed_items", &of, (listed + truncated) as f64));
    }
    let mut ranked = |index: usize, families: Bounded, estimate: Option<&Estimate>| {
        let rank = (index + 1).to_string();
        if let Some(estimate) = estimate {
            to.extend(bounded(families, &[of[0], of[1], ("rank", &rank)], estimate));
        }
    };
    match answer {
        Report::Sizes { selection, items, .. } if *selection != Selection::Asked => {
            for (index, item) in items.iter().take(RANKS).enumerate() {
                ranked(index, RANKED_PACKETS, item.size.packets.as_ref());
                ranked(index, RANKED_BYTES, item.size.bytes.as_ref());
            }
        }
        Report::Addresses { items, .. } => {
            for (index, item) in items.iter().take(RANKS).enumerate() {
                ranked(index, RANKED_PACKETS, item.size.packets.as_ref());
                ranked(index, RANKED_BYTES, item.size.bytes.as_ref());
            }
        }
        Report::Spread { items, .. } => {
            for (index, item) in items.iter().take(RANKS).enumerate() {
                ranked(index, RANKED_DISTINCT, Some(&item.distinct));
            }
        }
        _ => {}
    }
}

/// The largest items by name within the budget, and the remaining traffic.
fn named(
    report: &EpochReport,
    task: &'static str,
    answer: &Report,
    flows: &mut Flows,
    now: Instant,
    to: &mut Vec<Sample>,
) {
    let key = report.key;
    let by = |size: &flowgauge_core::summary::SizeEstimate| {
        let estimate = match report.by {
            Measure::Packets => size.packets,
            Measure::Bytes => size.bytes,
        };
        estimate.map_or(0.0, |estimate| estimate.value)
    };
    let all = match report.by {
        Measure::Packets => report.account.keyed,
        Measure::Bytes => report.account.keyed_bytes,
    };
    let sized = match report.by {
        Measure::Packets => "flowgauge_flow_packets",
        Measure::Bytes => "flowgauge_flow_bytes",
    };
    let (family, items, all): (_, Vec<(String, f64)>, _) = match answer {
        Report::Sizes { selection, items, .. } if *selection != Selection::Asked => {
            let item = |item: &flowgauge_core::task::SizeItem| {
                (lines::key(key, &item.key), by(&item.size))
            };
            (sized, items.iter().take(RANKS).map(item).collect(), Some(all as f64))
        }
        Report::Addresses { side, items, .. } => {
            let item = |item: &flowgauge_core::task::AddressItem| {
                (lines::address(key, *side, &item.address), by(&item.size))
            };
            (sized, items.iter().take(RANKS).map(item).collect(), Some(all as f64))
        }
        Report::Spread { side, items, .. } => {
            let item = |item: &flowgauge_core::task::SpreadItem| {
                (lines::address(key, *side, &item.address), item.distinct.value)
            };
            // Distinct counts of several addresses cannot be added.
            ("flowgauge_flow_distinct", items.iter().take(RANKS).map(item).collect(), None)
        }
        _ => return,
    };
    let measurement = &report.measurement;
    let of = |flow: &str| {
        [("measurement", &**measurement), ("task", task), ("flow", flow)]
            .map(|(name, value)| (name, value.to_owned()))
    };
    let (mut left_out, mut rest) = (0, all);
    for (text, value) in items {
        if flows.admit(measurement, task, &text, now) {
            rest = rest.map(|rest| rest - value);
            to.push(Sample { family, labels: of(&text).to_vec(), value });
        } else {
            left_out += 1;
        }
    }
    if let Some(rest) = rest {
        to.push(Sample { family, labels: of(OTHER).to_vec(), value: rest.max(0.0) });
    }
    let labels = [("measurement", &**measurement), ("task", task)];
    to.push(Sample::new("flowgauge_flow_series_left_out", &labels, f64::from(left_out)));
}

/// The current alerts.
pub(super) fn alerts(board: &Board, to: &mut Vec<Sample>) {
    for standing in board.standings() {
        let of = [("alert", standing.alert.as_str()), ("measurement", &standing.measurement)];
        for (family, state) in
            [("flowgauge_alert_pending", State::Pending), ("flowgauge_alert_firing", State::Firing)]
        {
            let is = standing.state == state;
            to.push(Sample::new(family, &of, f64::from(u8::from(is))));
        }
    }
    to.push(Sample::new("flowgauge_alert_notifications_missed", &[], board.missed() as f64));
}

/// The sinks.
pub(super) fn deliveries(deliveries: &Deliveries, to: &mut Vec<Sample>) {
    for Delivery { sink, problem, undelivered } in deliveries.get() {
        let of = [("sink", sink)];
        let is_failing = f64::from(u8::from(problem.is_some()));
        to.push(Sample::new("flowgauge_sink_failing", &of, is_failing));
        to.push(Sample::new("flowgauge_sink_undelivered", &of, undelivered as f64));
    }
}

/// The kept epochs.
pub(super) fn journal(counts: &Counts, to: &mut Vec<Sample>) {
    for (family, count) in [
        ("flowgauge_journal_epochs", &counts.epochs),
        ("flowgauge_journal_bytes", &counts.bytes),
        ("flowgauge_journal_removed", &counts.removed),
    ] {
        to.push(Sample::new(family, &[], count.load(Ordering::Relaxed) as f64));
    }
}

/// Snapshots that a collector read, by outcome.
pub(super) fn collected(counts: &collect::Counts, to: &mut Vec<Sample>) {
    for outcome in collect::Outcome::ALL {
        let labels = [("outcome", outcome.name())];
        let family = "flowgauge_collected_snapshots";
        to.push(Sample::new(family, &labels, counts.of(outcome) as f64));
    }
    for (agent, late) in counts.late() {
        to.push(Sample::new("flowgauge_late_snapshots", &[("agent", agent)], late as f64));
    }
}

/// The accounts of flow-record exporters. An exporter that sends to several ports has one account.
pub(super) fn exporters(all: &[Accounts], to: &mut Vec<Sample>) {
    let mut sums: BTreeMap<IpAddr, Vec<Counter>> = BTreeMap::new();
    for (exporter, account) in all.iter().flat_map(Accounts::get) {
        Counter::add(sums.entry(exporter).or_default(), account.counters());
    }
    for (exporter, counters) in sums {
        let exporter = exporter.to_string();
        for counter in counters {
            let labels = [("exporter", exporter.as_str()), ("counter", counter.name)];
            to.push(Sample::new("flowgauge_exporter", &labels, counter.count as f64));
        }
    }
}

/// How long a name stays in use after its flow was last listed: longer than Prometheus keeps a
/// series in memory without samples.
const HOLD: Duration = Duration::from_secs(3 * 3600);

/// The names in use, limited in number for any traffic.
#[derive(Debug)]
pub(super) struct Flows {
    most: usize,
    names: HashMap<(Arc<str>, &'static str, String), Instant>,
}

impl Flows {
    pub(super) fn new(most: usize) -> Self {
        Self { most, names: HashMap::new() }
    }

    /// Number of names in use.
    pub(super) fn len(&self) -> usize {
        self.names.len()
    }

    /// Whether the flow may be named in this list now.
    pub(super) fn admit(
        &mut self,
        measurement: &Arc<str>,
        task: &'static str,
        flow: &str,
        now: Instant,
    ) -> bool {
        let name = (Arc::clone(measurement), task, flow.to_owned());
        if let Some(listed) = self.names.get_mut(&name) {
            *listed = now;
            return true;
        }
        if self.names.len() >= self.most {
            self.names.retain(|_, listed| now.saturating_duration_since(*listed) < HOLD);
        }
        let room = self.names.len() < self.most;
        if room {
            self.names.insert(name, now);
        }
        room
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_taken_until_they_were_not_listed_for_long() {
        let (mut flows, start) = (Flows::new(2), Instant::now());
        let main = Arc::from("main");
        let mut admit = |flow, at| flows.admit(&main, "top", flow, start + at);
        let late = HOLD + Duration::from_secs(1);
        assert!(admit("a", Duration::ZERO));
        assert!(admit("b", Duration::ZERO));
        assert!(!admit("c", HOLD / 2));
        assert!(admit("a", HOLD / 2));
        assert!(admit("c", late), "b was not listed for long");
        assert!(!admit("b", late));
        assert!(admit("a", late));
    }
}
