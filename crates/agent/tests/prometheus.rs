//! Metrics of generated traffic.

#![expect(clippy::unwrap_used, reason = "a test may panic")]
#![expect(clippy::float_cmp, reason = "whole numbers are exact")]

use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use flowgauge_agent::alert::{Alerts, Board, Rule};
use flowgauge_agent::journal::Counts;
use flowgauge_agent::prometheus::{Metrics, classic};
use flowgauge_capture::Captures;
use flowgauge_core::summary::Parameters;
use flowgauge_engine::{Config, EpochLength, Plan, run};
use flowgauge_synthetic::{Config as Generated, Profile, Traffic, to_pcap_bytes};

/// The metrics after measuring this traffic.
fn measured(traffic: Generated, metrics: &Metrics) {
    let capture = to_pcap_bytes(Traffic::new(traffic).unwrap());
    let tasks = ["top", "heavy-hitters", "cardinality", "entropy", "superspreaders"];
    let config = Config {
        tasks: Some(tasks.map(str::to_owned).to_vec()),
        epoch: EpochLength::Packets(20_000),
        ..Config::seeded(1)
    };
    let plan = Plan::new(config).unwrap();
    let mut source = Captures::from_bytes("generated", capture);
    run(plan, &mut source, &mut metrics.clone(), &mut |_| {}).unwrap();
}

/// The series of a text with their values.
fn series(text: &str) -> BTreeMap<String, f64> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let one = |line: &str| {
        let (name, value) = line.rsplit_once(' ').unwrap();
        (name.to_owned(), value.parse().unwrap())
    };
    lines.map(one).collect()
}

fn traffic(seed: u64, flows: u64, skew: f64) -> Generated {
    let profile = Profile::Zipf { flows, skew };
    Generated { profile, packets: 100_000, seed, ..Generated::default() }
}

#[test]
fn an_audit_has_metrics() {
    let metrics = Metrics::new(100, Board::default(), Arc::default());
    let capture = to_pcap_bytes(Traffic::new(traffic(2, 5000, 1.0)).unwrap());
    let config = Config {
        algorithm: "count-min".to_owned(),
        parameters: Parameters::new([("columns", 512)]),
        audit: Some(4),
        ..Config::seeded(2)
    };
    let mut source = Captures::from_bytes("generated", capture);
    run(Plan::new(config).unwrap(), &mut source, &mut metrics.clone(), &mut |_| {}).unwrap();
    let series = series(&metrics.encode());
    let of = |name: &str| series[&format!("flowgauge_audit_{name}{{measurement=\"main\"}}")];
    // A quarter of about 5,000 flows.
    assert!((1000.0..1400.0).contains(&of("flows")), "{}", of("flows"));
    // A Count-Min of 512 columns never underestimates; 100,000 packets give it a bias.
    assert!(of("bias") > 10.0 && of("rmse") > of("bias"));
    // The bounds allow 22 violations among 1,200 flows. More than 44 happen less than once in 10⁴
    // runs.
    let (violated, allowed) = (of("violated_ratio"), of("allowed_ratio"));
    assert!(violated < 2.0 * allowed && allowed > 0.0, "{violated} {allowed}");
    assert_eq!(of("untracked_packets"), 0.0);
}

#[test]
fn totals_are_those_of_the_traffic() {
    let metrics = Metrics::new(100, Board::default(), Arc::default());
    measured(traffic(1, 1000, 1.0), &metrics);
    let series = series(&metrics.encode());
    let of = |name: &str| series[&format!("{name}{{measurement=\"main\"}}")];
    assert_eq!(of("flowgauge_packets_total"), 100_000.0);
    assert_eq!(of("flowgauge_bytes_total"), 6_400_000.0);
    assert_eq!(of("flowgauge_epochs_total"), 5.0);
    assert!(of("flowgauge_flows") > 900.0);
    let top = |rank: u32| {
        let name = "flowgauge_ranked_packets{measurement=\"main\",task=\"top\"";
        let of = |(key, _): &(&String, &f64)| {
            key.starts_with(name) && key.contains(&format!("rank=\"{rank}\""))
        };
        *series.iter().find(of).unwrap().1
    };
    assert!((1..10).all(|rank| top(rank) >= top(rank + 1)));
}

/// Ten times 100,000 packets of new flows: a million names that must not reach Prometheus.
#[test]
fn a_million_random_flows_add_no_series() {
    let metrics = Metrics::new(50, Board::default(), Arc::default());
    let mut counts = Vec::new();
    for seed in 1..=10 {
        measured(traffic(seed, 1 << 30, 0.0), &metrics);
        counts.push(series(&metrics.encode()).len());
    }
    let named = |text: &str| text.matches("flow=\"").count();
    let text = metrics.encode();
    assert!(named(&text) <= 2 * 50 + 20, "{}", named(&text));
    assert!(counts[1..].iter().all(|count| count.abs_diff(counts[1]) <= 20), "{counts:?}");
    assert!(text.len() < 100_000, "{} bytes", text.len());
}

/// An alert's name is arbitrary text, and must not end its label.
#[test]
fn labels_are_escaped_once() {
    let rule = "{ 'say \"a\\b\"': { when: 'main.cardinality.flows.low > 10' } }";
    let rules: BTreeMap<String, Rule> = serde_saphyr::from_str(rule).unwrap();
    let mut alerts = Alerts::start(rules, None).unwrap();
    let metrics = Metrics::new(10, alerts.board(), Arc::default());
    let capture = to_pcap_bytes(Traffic::new(traffic(1, 1000, 1.0)).unwrap());
    let tasks = Some(vec!["cardinality".to_owned()]);
    let plan = Plan::new(Config { tasks, ..Config::seeded(1) }).unwrap();
    let mut source = Captures::from_bytes("generated", capture);
    run(plan, &mut source, &mut alerts, &mut |_| {}).unwrap();
    let text = metrics.encode();
    let firing = r#"flowgauge_alert_firing{alert="say \"a\\b\"",measurement="main"} 1.0"#;
    assert!(text.contains(firing), "{text}");
}

#[test]
fn epochs_that_are_kept_and_removed_are_counted() {
    let counts = Arc::new(Counts::default());
    counts.epochs.store(7, Ordering::Relaxed);
    counts.bytes.store(700, Ordering::Relaxed);
    counts.removed.store(3, Ordering::Relaxed);
    let text = Metrics::new(10, Board::default(), counts).encode();
    let series = series(&text);
    let of = |name: &str| series[&format!("flowgauge_journal_{name}{{}}")];
    assert_eq!([of("epochs"), of("bytes"), of("removed_total")], [7.0, 700.0, 3.0]);
}

#[test]
fn the_older_text_has_the_same_series() {
    let metrics = Metrics::new(100, Board::default(), Arc::default());
    measured(traffic(1, 1000, 1.0), &metrics);
    let text = metrics.encode();
    assert_eq!(series(&classic(&text)), series(&text));
}

/// Every metric is documented, and no other one.
#[test]
fn the_documentation_has_every_metric() {
    let docs = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/prometheus.md");
    let docs = fs::read_to_string(docs).unwrap();
    let described: Vec<_> =
        docs.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect();
    let mut families: Vec<_> = flowgauge_agent::prometheus::families().collect();
    let mut described: Vec<_> = described.into_iter().map(str::to_owned).collect();
    families.sort();
    described.sort();
    assert_eq!(described, families);
}
