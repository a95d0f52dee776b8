//! Snapshots queried by a coarser key than the measured one.

use flowgauge_core::summary::Parameters;
use flowgauge_engine::Config;
use flowgauge_engine::sink::{Json, Written};
use flowgauge_engine::snapshot::Snapshot;
use serde_json::Value;

use crate::capture::{Pcap, Random, udp, udp6};
use crate::{asking, only_epoch, snapshot};

/// Packets of both versions that all have ports, of few sources and fewer networks.
fn packets(seed: u64) -> Vec<u8> {
    println!("seed {seed}");
    let (mut random, mut pcap) = (Random(seed), Pcap::new());
    for at in 0..3000 {
        // Half of the packets are of a fifth of the sources.
        let host = random.below(1000).min(random.below(1000));
        let source = (host as u32 * 37, random.below(3) as u16 + 1000);
        let destination = (random.below(40) as u32, random.below(5) as u16 + 80);
        let frame = if at % 5 == 0 { udp6(source, destination) } else { udp(source, destination) };
        pcap.frame(1_700_000_000_000_000_000 + at * 1000, &frame);
    }
    pcap.0
}

/// The epoch that a snapshot reports by this key.
fn asked(snapshot: &mut Snapshot, key: &str, tasks: &[&str]) -> Result<Value, String> {
    let mut out = Vec::new();
    let tasks: Vec<_> = tasks.iter().map(|task| (*task).to_owned()).collect();
    let ask = |config: &mut Config| {
        config.key = key.parse().unwrap();
        config.tasks = Some(tasks);
    };
    snapshot.query(ask, &mut Written::new(Json, &mut out)).map_err(|error| error.to_string())?;
    Ok(serde_json::from_slice(&out).unwrap())
}

fn by(key: &str, algorithm: &str, tasks: &[&str]) -> Config {
    Config {
        key: key.parse().unwrap(),
        algorithm: algorithm.to_owned(),
        memory_bytes: 4 << 20,
        ..asking(tasks)
    }
}

/// Sums over the keys of a table are what a table of the coarser keys has.
#[test]
fn tables_answer_as_if_they_had_measured_the_coarser_key() {
    let bytes = packets(71);
    let tasks = ["top", "heavy-hitters", "cardinality", "entropy", "size-distribution"];
    for (measured, keys) in [
        ("five-tuple", &["source", "destination/24,64", "pair", "pair/16", "protocol"][..]),
        ("five-tuple", &["destination-port", "five-tuple/20", "source-port+protocol"]),
        ("five-tuple", &["source/24+destination-port", "source/24+destination/16,48"]),
        (
            "pair/24,48+destination-port",
            &["destination-port+destination/8,0", "pair/24,48", "source/1,1"],
        ),
        ("five-tuple", &["conversation", "conversation/20,61"]),
        ("conversation", &["conversation/24,48", "conversation/8,0", "protocol"]),
        ("five-tuple/24,48", &["conversation/24,48", "conversation/0,0"]),
        ("source-port+destination-port+protocol", &["protocol", "source-port+destination-port"]),
        ("pair/24,48", &["source/24,48", "destination/8,0", "pair/16,48"]),
        ("source", &["source/24", "source/0,0", "source/32,96"]),
    ] {
        for algorithm in ["linear-table", "cuckoo-4"] {
            let mut snapshot = snapshot(by(measured, algorithm, &tasks), &bytes);
            for key in keys {
                let found = asked(&mut snapshot, key, &tasks).unwrap();
                let expected = only_epoch(by(key, algorithm, &tasks), &bytes);
                for field in ["key", "tasks", "start", "end"] {
                    assert_eq!(found[field], expected[field], "{measured} by {key}: {field}");
                }
                // What a run counts beside a key without protocols is not stored.
                if !found["breakdown"].is_null() {
                    assert_eq!(found["breakdown"], expected["breakdown"], "{measured} by {key}");
                }
                assert_eq!(found["account"]["keyed"], expected["account"]["keyed"]);
            }
        }
    }
}

/// The bounds of what is listed, by key, and the exact sizes.
fn bounds_hold(found: &Value, truth: &Value, what: &str) -> usize {
    let items = found["tasks"]["top"]["items"].as_array().unwrap();
    let exact = truth["tasks"]["top"]["items"].as_array().unwrap();
    for item in items {
        let own = exact.iter().find(|exact| exact["key"] == item["key"]).unwrap();
        let number = |value: &Value| value.as_f64().unwrap();
        let (size, truth) = (&item["packets"], number(&own["packets"]["value"]));
        assert!(number(&size["low"]) <= truth && truth <= number(&size["high"]), "{what}: {item}");
        assert!(number(&size["low"]) <= number(&size["value"]), "{what}: {item}");
        assert!(number(&size["value"]) <= number(&size["high"]), "{what}: {item}");
    }
    items.len()
}

/// Where a table was full, or a summary keeps some keys only, bounds hold for the coarser keys, too.
#[test]
fn bounds_of_sums_include_unlisted_flows() {
    let bytes = packets(72);
    let whole = |config: Config| Config { top: 10_000, ..config };
    for (algorithm, parameters) in [
        ("linear-table", Parameters::new([("buckets", 16)])),
        ("space-saving", Parameters::new([("counters", 200)])),
        ("misra-gries", Parameters::new([("counters", 200)])),
    ] {
        let config = Config { parameters, ..by("source", algorithm, &["top"]) };
        let mut snapshot = snapshot(config, &bytes);
        let found = asked(&mut snapshot, "source/20,120", &["top"]).unwrap();
        let truth = only_epoch(whole(by("source/20,120", "linear-table", &["top"])), &bytes);
        assert!(bounds_hold(&found, &truth, algorithm) > 3, "{algorithm}: {found}");
        let notes = found["notes"].to_string();
        assert!(notes.contains("answers by source/20,120 are sums of flows by source"), "{notes}");
        let table = algorithm == "linear-table";
        assert_eq!(notes.contains("are unknown"), !table, "{notes}");
        if table {
            assert_ne!(found["account"]["untracked"], 0, "the table was full");
        }
    }
}

#[test]
fn summaries_without_whole_keys_are_refused_with_the_reason() {
    let bytes = packets(73);
    let refused = |measured: &str, algorithm: &str, key: &str, reason: &str| {
        let mut snapshot = snapshot(by(measured, algorithm, &[]), &bytes);
        let error = asked(&mut snapshot, key, &[]).err().unwrap_or_default();
        assert!(error.contains(reason), "{algorithm} by {key}: '{error}'");
    };
    refused("source", "linear-table", "destination", "it lacks fields of that key");
    refused("source", "linear-table", "pair", "it lacks fields of that key");
    refused("pair", "linear-table", "protocol", "it lacks fields of that key");
    refused("source/24", "linear-table", "source", "its prefixes are shorter");
    refused("conversation", "linear-table", "source", "it lacks fields of that key");
    refused("conversation", "linear-table", "five-tuple", "it lacks fields of that key");
    refused("conversation", "linear-table", "destination-port", "it lacks fields of that key");
    refused("pair", "linear-table", "conversation", "it lacks fields of that key");
    refused("pair+protocol", "linear-table", "source+destination-port", "it lacks fields");
    refused("source/24+destination", "linear-table", "pair", "its prefixes are shorter");
    refused("source", "count-min", "source/24", "not for sums of keys");
    refused("source", "hyperloglog", "source/24", "does not hold whole keys");
}
