//! The metric families, and their encoding.

use std::fmt::{self, Write};

use MetricType::{Counter, Gauge};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

use super::Metrics;

/// Every family: its name (without the `_total` of counters), kind and help text.
const FAMILIES: [(&str, MetricType, &str); 53] = [
    ("flowgauge_packets", Counter, "Packets with a key"),
    ("flowgauge_bytes", Counter, "Bytes of packets with a key, on the wire"),
    ("flowgauge_account_packets", Counter, "Packets by outcome"),
    ("flowgauge_source", Counter, "Counters of the sources, at the end of a run"),
    ("flowgauge_exporter", Counter, "Counters of each exporter of flow records"),
    ("flowgauge_epochs", Counter, "Epochs closed, without the empty ones"),
    ("flowgauge_empty_epochs", Counter, "Epochs without a packet"),
    ("flowgauge_undelivered", Counter, "Reports that did not reach the metrics"),
    ("flowgauge_epoch_seconds", Gauge, "Observed seconds of the last epoch"),
    ("flowgauge_epoch_coverage_ratio", Gauge, "Observed fraction of the last epoch"),
    ("flowgauge_epoch_end_timestamp_seconds", Gauge, "End of the last epoch, by packet time"),
    ("flowgauge_memory_bytes", Gauge, "Memory reserved for measuring"),
    ("flowgauge_flows", Gauge, "Flows of the last epoch"),
    ("flowgauge_flows_low", Gauge, "Lower bound of the number of flows"),
    ("flowgauge_flows_high", Gauge, "Upper bound of the number of flows"),
    ("flowgauge_entropy_bits", Gauge, "Entropy of flow sizes in the last epoch"),
    ("flowgauge_entropy_bits_low", Gauge, "Lower bound of the entropy"),
    ("flowgauge_entropy_bits_high", Gauge, "Upper bound of the entropy"),
    (
        "flowgauge_entropy_ratio",
        Gauge,
        "Entropy over its maximum: 0 for one flow, 1 for flows of equal size",
    ),
    ("flowgauge_audit_flows", Gauge, "Audited flows of the last epoch"),
    ("flowgauge_audit_bias", Gauge, "Mean error of the audited flows' sizes, in packets or bytes"),
    (
        "flowgauge_audit_rmse",
        Gauge,
        "Root mean square error of the audited flows' sizes, in packets or bytes",
    ),
    (
        "flowgauge_audit_violated_ratio",
        Gauge,
        "Fraction of the audited flows whose size is outside its bounds",
    ),
    (
        "flowgauge_audit_allowed_ratio",
        Gauge,
        "Fraction of the audited flows whose size may be outside its bounds",
    ),
    (
        "flowgauge_audit_untracked_packets",
        Gauge,
        "Packets of the audited slice that found no room in the exact table",
    ),
    ("flowgauge_findings", Gauge, "Findings of the last epoch, by kind"),
    ("flowgauge_listed_items", Gauge, "Items of a list in the last epoch, with those left out"),
    ("flowgauge_ranked_packets", Gauge, "Packets of the largest items in the last epoch"),
    ("flowgauge_ranked_packets_low", Gauge, "Lower bound of the packets of the largest items"),
    ("flowgauge_ranked_packets_high", Gauge, "Upper bound of the packets of the largest items"),
    ("flowgauge_ranked_bytes", Gauge, "Bytes of the largest items in the last epoch"),
    ("flowgauge_ranked_bytes_low", Gauge, "Lower bound of the bytes of the largest items"),
    ("flowgauge_ranked_bytes_high", Gauge, "Upper bound of the bytes of the largest items"),
    (
        "flowgauge_ranked_distinct",
        Gauge,
        "Distinct peers of the widest addresses in the last epoch",
    ),
    (
        "flowgauge_ranked_distinct_low",
        Gauge,
        "Lower bound of the distinct peers of the widest addresses",
    ),
    (
        "flowgauge_ranked_distinct_high",
        Gauge,
        "Upper bound of the distinct peers of the widest addresses",
    ),
    ("flowgauge_flow_packets", Gauge, "Packets of the largest items by name, and of all others"),
    ("flowgauge_flow_bytes", Gauge, "Bytes of the largest items by name, and of all others"),
    ("flowgauge_flow_distinct", Gauge, "Distinct peers of the widest addresses by name"),
    ("flowgauge_flow_series", Gauge, "Names of flows in use, within the budget of series"),
    ("flowgauge_flow_series_left_out", Gauge, "Largest items left without a name by the budget"),
    (
        "flowgauge_alert_pending",
        Gauge,
        "Whether an alert's condition matches, but not yet for long enough",
    ),
    ("flowgauge_alert_firing", Gauge, "Whether an alert fires"),
    (
        "flowgauge_alert_notifications_missed",
        Counter,
        "Changes of alerts that could not be announced",
    ),
    ("flowgauge_sink_failing", Gauge, "Whether the last delivery to a sink failed"),
    ("flowgauge_sink_undelivered", Counter, "Items that a sink did not take"),
    ("flowgauge_agents", Gauge, "Agents expected, reported and missing in the last epoch"),
    ("flowgauge_epoch_snapshots", Gauge, "Snapshots merged in the last epoch"),
    ("flowgauge_collected_snapshots", Counter, "Snapshots read, by outcome"),
    ("flowgauge_late_snapshots", Counter, "Snapshots that came too late, by agent"),
    ("flowgauge_journal_epochs", Gauge, "Closed epochs that are kept"),
    ("flowgauge_journal_bytes", Gauge, "Bytes of the closed epochs that are kept"),
    ("flowgauge_journal_removed", Counter, "Epochs removed by age, or to make room"),
];

/// The names of all metrics, as Prometheus stores them.
pub fn families() -> impl Iterator<Item = String> {
    FAMILIES.into_iter().map(|(name, kind, _)| match kind {
        Counter => format!("{name}_total"),
        _ => name.to_owned(),
    })
}

/// All metrics as text.
pub(super) fn encode(metrics: &Metrics) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(metrics.clone()));
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = text::encode(&mut text, &registry);
    text
}

impl Collector for Metrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let mut samples = self.samples();
        // An infinite bound has no series.
        samples.retain(|sample| sample.value.is_finite());
        // Families have a fixed order; their series keep their own.
        let place = |name| FAMILIES.iter().position(|(family, ..)| *family == name);
        samples.sort_by_key(|sample| place(sample.family));
        for family in samples.chunk_by(|one, next| one.family == next.family) {
            let Some(place) = place(family[0].family) else { continue };
            let (name, kind, help) = FAMILIES[place];
            let mut metric = encoder.encode_descriptor(name, help, None, kind)?;
            for sample in family {
                let labels = sample.labels.iter().map(|(name, value)| (*name, escaped(value)));
                let labels: Vec<_> = labels.collect();
                let mut series = metric.encode_family(&labels)?;
                match kind {
                    Counter => {
                        // Counts beyond 2⁵³ are 300 years at a million a second.
                        series
                            .encode_counter::<NoLabelSet, u64, u64>(&(sample.value as u64), None)?;
                    }
                    _ => series.encode_gauge(&sample.value)?,
                }
            }
        }
        Ok(())
    }
}

/// Converts OpenMetrics to the classic format, in which a counter's family also has the suffix
/// `_total`.
pub fn classic(open_metrics: &str) -> String {
    let mut text = String::with_capacity(open_metrics.len() + 1024);
    let counter = |name: &str| open_metrics.contains(&format!("# TYPE {name} counter\n"));
    for line in open_metrics.lines() {
        let mut words = line.splitn(4, ' ');
        match (words.next(), words.next(), words.next(), words.next()) {
            (Some("#"), Some("EOF" | "UNIT"), ..) => {}
            (Some("#"), Some(what), Some(name), Some(rest)) if counter(name) => {
                // Writing to a string cannot fail.
                let _ = writeln!(text, "# {what} {name}_total {rest}");
            }
            _ => {
                text.push_str(line);
                text.push('\n');
            }
        }
    }
    text
}

/// Escapes a label value for use between quotes.
pub(super) fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
