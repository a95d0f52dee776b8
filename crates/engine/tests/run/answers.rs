//! The answers of a run are the same for any batch size, and right against plain counting; and
//! audits report the errors that a comparison with exact counts finds.

use std::collections::{BTreeMap, BTreeSet};

use flowgauge_core::catalog;
use flowgauge_core::catalog::ALGORITHMS;
use flowgauge_core::key::{KeyKind, KeySpec};
use flowgauge_core::summary::{BuildErrorKind, Parameters};
use flowgauge_core::task::TASKS;
use flowgauge_core::terms::{Measure, SpreadOf, Threshold};
use flowgauge_engine::{Config, Dispatch, EngineError, EpochLength, Plan};
use serde_json::Value;

use crate::capture::{Pcap, Random, mixed, udp6};
use crate::workers::{algorithm, reports};
use crate::{asking, only_epoch, refusal, run};

/// The report is the same for any batch size and any order of lanes.
#[test]
fn the_size_of_a_batch_changes_no_report() {
    let bytes = mixed(9, 20_000);
    println!("seed 9");
    // The random bits of kll have no seed: no two of its answers are alike.
    for info in catalog::ALGORITHMS.iter().filter(|info| info.name != "kll") {
        for epoch in [EpochLength::Whole, EpochLength::Packets(999)] {
            let lines = |batch_packets| {
                let config = |kind: KeyKind| Config {
                    key: kind.into(),
                    algorithm: info.name.to_owned(),
                    epoch,
                    batch_packets,
                    memory_bytes: 1 << 20,
                    ..Config::seeded(0)
                };
                // Not every algorithm holds five-tuples, nor answers a task by default.
                let [tuples, sources] = [KeyKind::FIVE_TUPLE, KeyKind::SOURCE].map(config);
                let sizes = Config { tasks: Some(vec!["flow-size".to_owned()]), ..tuples.clone() };
                let config = [tuples, sources, sizes]
                    .into_iter()
                    .find(|config| Plan::new(config.clone()).is_ok());
                run(config.unwrap(), &bytes).0
            };
            let whole = lines(256);
            for batch_packets in [1, 64] {
                assert_eq!(lines(batch_packets), whole, "{} {batch_packets}", info.name);
            }
        }
    }
}

/// A run answers something: a task that the algorithm answers if it answers none of the default
/// ones; otherwise it is refused with the tasks that can be asked.
#[test]
fn a_run_without_an_answer_is_refused() {
    let config = |algorithm: &str, parameters: &[(&'static str, &'static str)]| Config {
        algorithm: algorithm.to_owned(),
        parameters: Parameters::new(parameters.iter().copied()),
        ..Config::seeded(0)
    };
    let (lines, _) = run(config("kll", &[]), &mixed(9, 500));
    assert!(lines[0]["tasks"]["quantiles"].is_object(), "{lines:?}");
    let csm = Plan::new(config("csm", &[])).err().unwrap().to_string();
    assert_eq!(csm, "csm answers none of the default tasks; use --task flow-size");
    let sizes = config("count-min", &[("candidates", "0")]);
    assert!(matches!(Plan::new(sizes.clone()), Err(EngineError::Nothing { .. })));
    assert!(
        Plan::new(Config { tasks: Some(vec!["flow-size".to_owned()]), ..sizes.clone() }).is_ok()
    );
    // What is saved can be asked later.
    assert!(Plan::new(Config { save: true, ..sizes }).is_ok());
}

/// Colliding keys are no full table.
#[test]
fn displaced_packets_are_not_untracked() {
    for (algorithm, why) in [
        ("replacing-array", "flows were displaced by others in the same slot"),
        ("linear-table", "the table was full"),
    ] {
        let config = Config {
            algorithm: algorithm.to_owned(),
            memory_bytes: 32 << 10,
            tasks: Some(vec!["top".to_owned()]),
            ..Config::seeded(0)
        };
        let (lines, _) = run(config, &mixed(9, 20_000));
        let notes = lines[0]["notes"].to_string();
        assert!(notes.contains(why), "{algorithm}: {notes}");
    }
}

#[test]
fn tasks_agree_with_plain_counting() {
    let mut random = Random(21);
    println!("seed 21");
    let mut pcap = Pcap::new();
    let mut flows = BTreeMap::<(u32, u32, u16), u64>::new();
    let mut spread = BTreeMap::<u32, BTreeSet<(u32, u16)>>::new();
    for i in 0..30_000 {
        // One source in five is host 1, which therefore has most destinations.
        let source = if random.below(5) == 0 { 1 } else { random.below(500) as u32 };
        let (to, port) = (random.below(40) as u32, 1000 + random.below(20) as u16);
        pcap.udp(i, (source, 5), (to, port));
        *flows.entry((source, to, port)).or_default() += 1;
        spread.entry(source).or_default().insert((to, port));
    }
    let config = Config {
        spread: 128,
        spread_of: SpreadOf::Endpoint,
        threshold: Threshold::Weight(8),
        top: 3,
        ..asking(&["top", "heavy-hitters", "superspreaders", "cardinality", "entropy"])
    };
    let epoch = only_epoch(config, &pcap.0);
    let tasks = &epoch["tasks"];
    assert_eq!(tasks["cardinality"]["flows"]["value"], flows.len());
    let heavy = flows.values().filter(|packets| **packets > 8).count();
    assert!(heavy > 0);
    assert_eq!(tasks["heavy-hitters"]["items"].as_array().unwrap().len(), heavy);
    let top = flows.values().max().unwrap();
    assert_eq!(tasks["top"]["items"][0]["packets"]["value"], *top);
    assert_eq!(tasks["top"]["items"].as_array().unwrap().len(), 3);
    let spreaders: Vec<_> = spread.values().map(BTreeSet::len).filter(|n| *n > 128).collect();
    let found: Vec<_> = tasks["superspreaders"]["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| item["distinct"]["value"].as_u64().unwrap() as usize)
        .collect();
    assert_eq!(found, spreaders);
    let total = 30_000f64;
    let entropy: f64 =
        flows.values().map(|&n| n as f64 / total).map(|share| -share * share.log2()).sum();
    let value = tasks["entropy"]["bits"]["value"].as_f64().unwrap();
    assert!((value - entropy).abs() < 1e-9, "{value} {entropy}");
}

/// Every task either answers or says why not, for every key and algorithm.
#[test]
fn every_pair_of_key_and_task_answers_or_is_refused_with_a_reason() {
    let bytes = mixed(4, 3000);
    for info in catalog::ALGORITHMS {
        for kind in KeyKind::NAMED.map(|(_, kind)| kind) {
            for by in [Measure::Packets, Measure::Bytes] {
                let all = Config {
                    key: kind.into(),
                    by,
                    algorithm: info.name.to_owned(),
                    memory_bytes: 1 << 20,
                    ..Config::seeded(0)
                };
                for entry in TASKS {
                    let asked = Config { tasks: Some(vec![entry.name.to_owned()]), ..all.clone() };
                    match Plan::new(asked.clone()) {
                        Ok(_) => {
                            let epoch = only_epoch(asked, &bytes);
                            assert!(epoch["tasks"][entry.name].is_object(), "{epoch}");
                        }
                        Err(error) => {
                            let text = error.to_string();
                            let known = match &error {
                                EngineError::Task { .. } => true,
                                EngineError::Build(error) => {
                                    matches!(error.kind(), BuildErrorKind::Unfit { .. })
                                }
                                _ => false,
                            };
                            assert!(known, "{text}");
                            assert!(text.len() > 40 && !text.contains('\n'), "{text}");
                        }
                    }
                }
                if Plan::new(all.clone()).is_ok() {
                    let (lines, _) = run(all, &bytes);
                    assert!(lines[0]["tasks"].is_object());
                }
            }
        }
    }
}

/// A sample too small to distinguish prefixes at the threshold is noted, with what would be large
/// enough.
#[test]
fn a_sample_too_small_for_the_threshold_is_noted() {
    let mut pcap = Pcap::new();
    for packet in 0..4000_u32 {
        pcap.udp(packet.into(), (packet % 7, 5), (1, 80));
    }
    let notes = |algorithm: &str, threshold| {
        let config = Config {
            key: KeyKind::SOURCE.into(),
            algorithm: algorithm.to_owned(),
            threshold,
            ..asking(&["hierarchical"])
        };
        only_epoch(config, &pcap.0)["notes"].to_string()
    };
    // Five sides, and six times 2.576² for each.
    let told = notes("rhhh", Threshold::Share(0.001));
    for part in ["prefixes of 4.0 packets", "measure 199", "--threshold to 199 packets"] {
        assert!(told.contains(part), "{told}");
    }
    assert!(notes("rhhh", Threshold::Weight(198)).contains("too small"));
    assert_eq!(notes("rhhh", Threshold::Weight(200)), "[]");
    assert_eq!(notes("mst", Threshold::Share(0.001)), "[]");
}

/// IPv6 has more prefix lengths than a die that is right for IPv4 has sides.
#[test]
fn a_number_of_sides_serves_both_versions_of_ip() {
    let mut pcap = Pcap::new();
    for host in 0..300 {
        pcap.udp(host, (1, 5), (host as u32, 80));
    }
    let config = Config {
        key: KeyKind::SOURCE.into(),
        algorithm: "rhhh".to_owned(),
        parameters: flowgauge_core::summary::Parameters::new([("v", 10)]),
        ..asking(&["hierarchical"])
    };
    assert_eq!(Plan::new(config.clone()).unwrap().explain().lanes.len(), 2);
    assert_eq!(only_epoch(config, &pcap.0)["account"]["keyed"], 300);
}

/// IPv6 addresses are too long for some algorithms: they are counted and not measured, and IPv4 is.
#[test]
fn packets_of_ipv6_are_counted_where_only_ipv4_can_be_measured() {
    let mut pcap = Pcap::new();
    for host in 0..300 {
        pcap.udp(host, (1, 5), (host as u32, 80)).udp(host, (2, 5), (9, 80));
        if host % 3 == 0 {
            pcap.frame(host, &udp6((1, 5), (host as u32, 80)));
        }
    }
    pcap.frame(300, &udp6((1, 5), (1, 80))[..40]);
    for (algorithm, task) in [("two-level", "superspreaders"), ("reversible-sketch", "top")] {
        let config = Config {
            key: KeyKind::SOURCE.into(),
            algorithm: algorithm.to_owned(),
            ..asking(&[task])
        };
        let plan = Plan::new(config.clone()).unwrap().explain();
        assert_eq!(plan.lanes.len(), 1);
        assert!(plan.notes[0].contains("IPv6 packets are counted as untracked"), "{plan:?}");
        let epoch = only_epoch(config, &pcap.0);
        let account = &epoch["account"];
        assert_eq!(account["keyed"], 700);
        assert_eq!(account["malformed"], 1);
        assert_eq!(account["untracked"], 100);
        assert_eq!(account["untracked_bytes"], 100 * udp6((1, 5), (1, 80)).len());
        assert!(epoch["notes"][0].as_str().unwrap().contains("16 bytes are too long"), "{epoch}");
        let items = epoch["tasks"][task]["items"].as_array().unwrap();
        assert_eq!(items.len(), if task == "top" { 2 } else { 1 }, "{epoch}");
        if task == "superspreaders" {
            assert_eq!(items[0]["key"]["source"], "10.0.0.1", "{epoch}");
        }
    }
    // No lane is left of a key that is too long in both versions.
    let config = Config { algorithm: "two-level".to_owned(), ..asking(&["superspreaders"]) };
    let text = refusal(config).to_string();
    assert!(text.contains("13 bytes are too long") && text.contains("linear-table"), "{text}");
}

/// The flows of a report's only list, each with its text, and the value, low and high of its size.
fn sizes(report: &Value, task: &str, by: Measure) -> BTreeMap<String, [f64; 3]> {
    let items = report["tasks"][task]["items"].as_array().unwrap().iter();
    items
        .map(|item| {
            let of = |bound: &str| item[by.name()][bound].as_f64().unwrap();
            (item["key"].to_string(), ["value", "low", "high"].map(of))
        })
        .collect()
}

/// A small Count-Min, whose sizes are off.
fn sketch() -> Config {
    Config { tasks: Some(Vec::new()), ..algorithm("count-min", &[("columns", 512), ("rows", 2)]) }
}

/// With every flow audited, bias, error and bounds equal those of the answers compared with an
/// exact run.
#[test]
fn the_audit_of_all_flows_is_the_error_of_all_answers() {
    println!("seed 71");
    let bytes = mixed(71, 6000);
    for by in [Measure::Packets, Measure::Bytes] {
        for key in ["five-tuple", "source", "host", "destination-port"] {
            let key: KeySpec = key.parse().unwrap();
            let all = Config { key, by, top: 1 << 20, ..asking(&["top"]) };
            let exact = sizes(&only_epoch(all, &bytes), "top", by);
            let flow = |text: &String| {
                let fields: BTreeMap<String, Value> = serde_json::from_str(text).unwrap();
                let field = |(name, value): (&String, &Value)| {
                    let value = value.as_str().map_or(value.to_string(), str::to_owned);
                    format!("{name}={value}")
                };
                let fields: Vec<_> = fields.iter().map(field).collect();
                key.parse_flow(&fields.join(",")).unwrap()
            };
            let flows = exact.keys().map(flow).collect();
            let tasks = Some(vec!["flow-size".to_owned()]);
            let config = Config { key, by, flows, tasks, audit: Some(1), ..sketch() };
            let report = only_epoch(config, &bytes);
            let estimates = sizes(&report, "flow-size", by);
            assert_eq!(exact.len(), estimates.len());
            let (mut errors, mut squares, mut violated, mut weight) = (0.0, 0.0, 0.0, 0.0);
            for (flow, [size, ..]) in &exact {
                let [value, low, high] = estimates[flow];
                errors += value - size;
                squares += (value - size) * (value - size);
                violated += f64::from(!(low..=high).contains(size));
                weight += size;
            }
            let (audit, flows) = (&report["audit"], exact.len() as f64);
            let close = |field: &str, expected: f64| {
                let told = audit[field].as_f64().unwrap();
                assert!((told - expected).abs() <= 1e-9 * expected.abs(), "{key} {field} {told}");
            };
            close("flows", flows);
            close("weight", weight);
            close("bias", errors / flows);
            close("rmse", (squares / flows).sqrt());
            close("violated", violated / flows);
            assert!(key.to_string() == "destination-port" || errors > 0.0, "{key}: nothing is off");
            assert_eq!(audit["untracked"], 0);
        }
    }
}

/// Bounds that always hold are never violated, and others no more often than they say. Of 478 flows they
/// allow at most 24 violations; independent flows exceed twice that and 10 more once in 10⁸ runs. The 10 are
/// for flows that share cells, which err together.
#[test]
fn no_algorithm_violates_more_bounds_than_it_may() {
    println!("seed 72");
    let bytes = mixed(72, 10_000);
    let (mut audited, mut off) = (Vec::new(), 0);
    for info in ALGORITHMS {
        let config = Config {
            algorithm: info.name.to_owned(),
            tasks: Some(Vec::new()),
            audit: Some(16),
            memory_bytes: 512 << 10,
            ..Config::seeded(72)
        };
        if Plan::new(config.clone()).is_err() {
            continue;
        }
        let audit = &only_epoch(config, &bytes)["audit"];
        let of = |field: &str| audit[field].as_f64().unwrap();
        println!("{}: {audit}", info.name);
        assert!(of("flows") > 400.0 && of("untracked") == 0.0, "{}: {audit}", info.name);
        let most = if of("allowed") > 0.0 { 2.0 * of("allowed") + 10.0 / of("flows") } else { 0.0 };
        assert!(of("violated") <= most, "{}: {audit}", info.name);
        audited.push(info.name);
        off += usize::from(of("rmse") > 0.0);
    }
    assert!(audited.len() >= 15 && off >= 10, "{off} of {audited:?} are off");
}

/// A slice is a fair part: of some 3,600 flows a quarter, ± 6 standard errors, which a run in 10⁸ leaves.
#[test]
fn a_slice_has_its_part_of_the_flows() {
    println!("seed 73");
    let bytes = mixed(73, 20_000);
    let flows = |audit| {
        let report = only_epoch(Config { audit: Some(audit), ..sketch() }, &bytes);
        assert_eq!(report["audit"]["one_in"], audit);
        report["audit"]["flows"].as_f64().unwrap()
    };
    let all = flows(1);
    assert!(all > 3000.0, "{all}");
    let (quarter, error) = (flows(4), (all * 0.25 * 0.75).sqrt());
    assert!((quarter - all / 4.0).abs() < 6.0 * error, "{quarter} of {all}");
    assert!(flows(1 << 20) < 1.0);
}

/// For every dispatch, several workers audit what one worker audits.
#[test]
fn the_audit_does_not_depend_on_the_workers() {
    println!("seed 74");
    let bytes = mixed(74, 6000);
    for epoch in [EpochLength::Whole, EpochLength::Packets(1777), EpochLength::Time(4_000_000_000)]
    {
        for updates in [EpochLength::Whole, EpochLength::Packets(500)] {
            let base = Config { epoch, updates, audit: Some(3), ..sketch() };
            let audits = |config: Config| -> Vec<Value> {
                let all = reports(config, &bytes).into_iter();
                all.filter(|line| line["type"] == "epoch")
                    .map(|line| line["audit"].clone())
                    .collect()
            };
            let alone = audits(base.clone());
            assert!(
                !alone.is_empty() && alone.iter().all(|audit| audit["flows"].as_u64() > Some(9))
            );
            for dispatch in [Dispatch::Digest, Dispatch::Queue] {
                for workers in [2, 3] {
                    let several = Config { workers, dispatch: Some(dispatch), ..base.clone() };
                    assert_eq!(
                        audits(several),
                        alone,
                        "{epoch:?} {updates:?} {dispatch:?} {workers}"
                    );
                }
            }
        }
    }
}

/// Flows without room in the exact table are counted and noted; the others are compared.
#[test]
fn a_full_table_counts_packets_not_compared() {
    println!("seed 75");
    let report =
        only_epoch(Config { audit: Some(1), memory_bytes: 64 << 10, ..sketch() }, &mixed(75, 6000));
    let audit = &report["audit"];
    let of = |field: &str| audit[field].as_u64().unwrap();
    assert!(of("untracked") > 0 && of("flows") > 0, "{audit}");
    assert_eq!(of("weight") + of("untracked"), report["account"]["keyed"].as_u64().unwrap());
    let notes = report["notes"].to_string();
    assert!(notes.contains("the table of the audit was full: "), "{notes}");
}

#[test]
fn impossible_audits_are_refused() {
    let refused = |config: Config| refusal(Config { audit: Some(64), ..config }).to_string();
    let text = refused(algorithm("hyperloglog", &[]));
    assert!(text.starts_with("cannot audit hyperloglog: it does not estimate"), "{text}");
    assert!(text.contains("count-min"), "{text}");
    let text = refused(Config { workers: 2, shared: true, ..algorithm("linear-table", &[]) });
    assert_eq!(text, "--shared cannot be combined with --audit; leave one out");
    let before = Parameters::new([("before", "headers")]);
    let text = refused(Config { accelerators: vec![("uniform".to_owned(), before)], ..sketch() });
    assert!(text.contains("leave out --audit"), "{text}");
    let text = refusal(Config { audit: Some(0), ..sketch() }).to_string();
    assert_eq!(text, "the N of --audit 1/N must be 1 to 1,048,576 (got 0)");
}
