//! Several workers report what one does.

use std::collections::HashMap;

use flowgauge_core::key::{Field, KeyKind};
use flowgauge_core::summary::Parameters;
use flowgauge_core::terms::Threshold;
use flowgauge_engine::{Config, Dispatch, EpochLength, Plan};
use serde_json::Value;

use crate::capture::{Pcap, Random, mixed};
use crate::{refusal, run};

const PACKETS: usize = 6000;

pub(crate) const ALL: [Dispatch; 3] = [Dispatch::Digest, Dispatch::Source, Dispatch::Queue];

/// What of the reports must not depend on the workers: all but memory, and how long threads waited.
pub(crate) fn reports(config: Config, bytes: &[u8]) -> Vec<Value> {
    let (mut lines, _) = run(config, bytes);
    for line in &mut lines {
        if line["type"] == "epoch" || line["type"] == "update" {
            line["summary"]["memory_bytes"].take();
            line["summary"]["parameters"].take();
        } else if line["type"] == "total" {
            line["notes"].take();
        }
    }
    lines
}

pub(crate) const EPOCHS: [EpochLength; 3] =
    [EpochLength::Whole, EpochLength::Packets(1777), EpochLength::Time(4_000_000_000)];

pub(crate) fn algorithm(name: &str, parameters: &[(&str, u64)]) -> Config {
    Config {
        algorithm: name.to_owned(),
        parameters: Parameters::new(parameters.iter().copied()),
        memory_bytes: 16 << 20,
        ..Config::seeded(0)
    }
}

/// These ways to dispatch, where the key knows them, several numbers of workers and lengths of
/// batches.
fn agree(config: &Config, bytes: &[u8], ways: &[Dispatch]) {
    let alone = reports(config.clone(), bytes);
    assert!(alone.len() >= 2);
    let known = |way: &Dispatch| *way != Dispatch::Source || config.key.kind().has(Field::Source);
    let ways = ways.iter().copied().filter(known);
    for dispatch in ways {
        for (workers, batch_packets) in [(1, 1), (2, 1), (2, 256), (8, 64), (3, 256)] {
            let several =
                Config { workers, dispatch: Some(dispatch), batch_packets, ..config.clone() };
            let several = reports(several, bytes);
            let name = format!("{} {dispatch:?} {workers} {batch_packets}", config.algorithm);
            assert_eq!(several.len(), alone.len(), "{name}");
            for (several, alone) in several.iter().zip(&alone) {
                assert_eq!(several, alone, "{name} {:?}", config.epoch);
            }
        }
    }
}

#[test]
fn tables_report_the_same_whoever_measures() {
    let bytes = mixed(11, PACKETS);
    for epoch in EPOCHS {
        for kind in [KeyKind::FIVE_TUPLE, KeyKind::SOURCE, KeyKind::DESTINATION_PORT] {
            let config = algorithm("linear-table", &[("buckets", 16_384)]);
            let mut tasks = None;
            if epoch == EPOCHS[1] && kind.has(Field::Source) {
                tasks = Some(["changes", "top", "quantiles"].map(str::to_owned).to_vec());
            }
            agree(&Config { epoch, key: kind.into(), tasks, ..config }, &bytes, &ALL);
        }
    }
}

#[test]
fn tables_of_distinct_peers_report_the_same_whoever_measures() {
    let bytes = mixed(12, PACKETS);
    let parameters = Parameters::new([("buckets", "4096"), ("state", "distinct")]);
    let config = Config {
        key: KeyKind::SOURCE.into(),
        spread: 5,
        parameters,
        ..algorithm("linear-table", &[])
    };
    // Distinct peers of parts that share some do not add up exactly.
    agree(&config, &bytes, &[Dispatch::Digest, Dispatch::Source]);
}

#[test]
fn linear_sketches_report_the_same_whoever_measures() {
    let bytes = mixed(13, PACKETS);
    for epoch in EPOCHS {
        for (name, parameters) in [
            ("count-min", &[("rows", 4), ("columns", 4096), ("candidates", 1024)][..]),
            ("k-ary", &[("rows", 5), ("columns", 4096), ("candidates", 1024)][..]),
        ] {
            let key = KeyKind::SOURCE.into();
            agree(&Config { epoch, key, ..algorithm(name, parameters) }, &bytes, &ALL);
        }
    }
}

/// A key's packets are all in one worker's part, so that what is over a fixed weight is over it there:
/// nothing is said to be missing that one worker would have named.
#[test]
fn linear_sketches_report_the_same_over_a_fixed_threshold() {
    let bytes = mixed(14, PACKETS);
    let [whole, packets, time] = EPOCHS;
    for (name, epoch, weight) in
        [("count-min", whole, 16), ("count-min", packets, 6), ("k-ary", time, 6)]
    {
        let parameters = [("rows", 5), ("columns", 4096), ("candidates", 1024)];
        let config = Config {
            epoch,
            key: KeyKind::SOURCE.into(),
            threshold: Threshold::Weight(weight),
            ..algorithm(name, &parameters)
        };
        let heavy = sizes(&run(config.clone(), &bytes).0, "heavy-hitters");
        assert!(heavy.iter().map(HashMap::len).sum::<usize>() > 10, "{name} {epoch:?} {heavy:?}");
        agree(&config, &bytes, &[Dispatch::Digest, Dispatch::Source]);
    }
}

/// The items of a task in each epoch: key, value, bounds.
fn sizes(lines: &[Value], task: &str) -> Vec<HashMap<String, [f64; 3]>> {
    let epochs = lines.iter().filter(|line| line["type"] == "epoch");
    let items = epochs.map(|line| line["tasks"][task]["items"].as_array().unwrap());
    let number = |item: &Value, name| item["packets"][name].as_f64().unwrap();
    let size = |item: &Value| {
        (item["key"].to_string(), ["low", "value", "high"].map(|name| number(item, name)))
    };
    items.map(|items| items.iter().map(size).collect()).collect()
}

/// Of sources that send from some 200 packets down to 2, those over 1 % of the traffic are told, and
/// the truth is within the bounds of nineteen of twenty.
#[test]
fn other_summaries_stay_within_their_bounds() {
    let (mut random, mut pcap) = (Random(5), Pcap::new());
    for i in 0..8000 {
        let host = 256 / (1 + random.below(256)) * 16 + random.below(16);
        pcap.udp(i, (host as u32, 1), (2, 80));
    }
    let heavy = |config: Config| Config {
        key: KeyKind::SOURCE.into(),
        epoch: EpochLength::Packets(4000),
        threshold: Threshold::Share(0.01),
        ..Config { tasks: Some(vec!["heavy-hitters".to_owned()]), ..config }
    };
    let all = Config { threshold: Threshold::Weight(0), ..heavy(algorithm("linear-table", &[])) };
    let truth = sizes(&run(all, &pcap.0).0, "heavy-hitters");
    for (name, parameters) in [
        ("space-saving", &[("counters", 256)][..]),
        ("univmon", &[("columns", 4096), ("top", 256)]),
        ("count-array", &[("columns", 4096), ("candidates", 256)]),
        ("conservative-count-min", &[("rows", 4), ("columns", 4096)]),
    ] {
        for (_, dispatch) in Dispatch::ALL {
            let several =
                Config { workers: 3, dispatch: Some(dispatch), ..algorithm(name, parameters) };
            let told = sizes(&run(heavy(several), &pcap.0).0, "heavy-hitters");
            let (mut bounds, mut held) = (0, 0);
            for (told, truth) in told.iter().zip(&truth) {
                for (key, [_, size, _]) in truth {
                    // Over the threshold by more than what estimates miss.
                    let found = told.get(key);
                    assert!(found.is_some() || *size < 80.0, "{name} {dispatch:?} {key} {size}");
                    if let Some([low, _, high]) = found {
                        bounds += 1;
                        held += u32::from(low <= size && size <= high);
                    }
                }
            }
            assert!(
                bounds >= 10 && 20 * held >= 19 * bounds,
                "{name} {dispatch:?} {held} {bounds}"
            );
        }
    }
}

#[test]
fn what_several_workers_cannot_measure_is_refused_with_a_reason() {
    let refused = |algorithm: &str, parameters: [(&str, &str); 1], dispatch| {
        let parameters = Parameters::new(parameters);
        let (algorithm, workers) = (algorithm.to_owned(), 2);
        refusal(Config { algorithm, parameters, workers, dispatch, ..Config::seeded(0) })
            .to_string()
    };
    let reason = refused("linear-table", [("state", "ewma")], None);
    assert!(reason.contains("use one worker"), "{reason}");
    let reason = refused("kll", [("of", "gap")], None);
    assert!(reason.contains("time between packets"), "{reason}");
    let reason = refused("flow-radar", [("hashes", "3")], Some(Dispatch::Queue));
    assert!(reason.contains("--dispatch digest"), "{reason}");
    for algorithm in ["count-min", "k-ary"] {
        let threshold = Threshold::Weight(12);
        let asked = Config { algorithm: algorithm.to_owned(), threshold, ..Config::seeded(0) };
        let dispatch = Some(Dispatch::Queue);
        let reason = refusal(Config { workers: 2, dispatch, ..asked }).to_string();
        assert!(reason.contains("a share as --threshold"), "{algorithm} {reason}");
    }
    let accelerators = vec![("uniform".to_owned(), Parameters::default())];
    let sampled = Config {
        algorithm: "flow-radar".to_owned(),
        accelerators,
        workers: 2,
        ..Config::seeded(0)
    };
    for dispatch in [None, Some(Dispatch::Digest)] {
        let reason = refusal(Config { dispatch, ..sampled.clone() }).to_string();
        assert!(reason.contains("behind a sampler cannot be merged"), "{reason}");
    }
    for kind in [KeyKind::DESTINATION, KeyKind::PROTOCOL, KeyKind::DESTINATION_PORT] {
        let dispatch = Some(Dispatch::Source);
        let config = Config { key: kind.into(), dispatch, workers: 2, ..Config::seeded(0) };
        let reason = refusal(config).to_string();
        assert!(reason.contains("needs a key with a source address"), "{reason}");
    }
    for workers in [0, 257] {
        let reason = refusal(Config { workers, ..Config::seeded(0) }).to_string();
        assert_eq!(reason, format!("the number of workers must be 1 to 256 (got {workers})"));
    }
}

#[test]
fn whole_batches_go_to_workers_behind_a_sampler_and_memory_is_that_of_all() {
    let plan = |accelerator: Option<&str>, workers, epoch, memory_bytes| {
        let accelerators = accelerator.map(|name| (name.to_owned(), Parameters::default()));
        let accelerators = accelerators.into_iter().collect();
        let (algorithm, tasks) = ("count-min".to_owned(), Some(vec!["top".to_owned()]));
        let config = Config { algorithm, accelerators, workers, epoch, tasks, ..Config::seeded(0) };
        Plan::new(Config { memory_bytes, ..config }).ok().unwrap().explain()
    };
    // Less than the sketch would take by itself.
    let memory_bytes = 2 << 20;
    for (accelerator, dispatch) in [
        (None, Dispatch::Digest),
        (Some("skipper"), Dispatch::Queue),
        (Some("nitro"), Dispatch::Queue),
        (Some("agg-evict"), Dispatch::Digest),
    ] {
        let plan = plan(accelerator, 2, EpochLength::Whole, memory_bytes);
        assert_eq!(plan.dispatch, dispatch, "{accelerator:?}");
        assert_eq!(plan.same, dispatch == Dispatch::Digest);
    }
    for (epoch, sets) in [(EpochLength::Whole, 1), (EpochLength::Packets(9), 2)] {
        for workers in [1, 2, 5] {
            let plan = plan(None, workers, epoch, memory_bytes);
            assert_eq!((plan.workers, plan.sets), (workers, sets));
            let all = plan.summary.memory_bytes;
            assert!(all <= memory_bytes && all > memory_bytes / 4, "{workers} {all}");
            let lanes: usize = plan.lanes.iter().map(|lane| lane.memory_bytes).sum();
            assert!(lanes <= all && lanes > all / 2, "{workers} {lanes} {all}");
        }
    }
}
