//! Several workers report what one worker does, with summaries of their own or with one that all of
//! them fill.

use std::collections::HashMap;
use std::slice;

use flowgauge_core::catalog;
use flowgauge_core::key::{Field, KeyKind, KeySpec};
use flowgauge_core::summary::Parameters;
use flowgauge_core::task::Report;
use flowgauge_core::terms::{Measure, Threshold};
use flowgauge_engine::{Config, Dispatch, EpochLength, Overrun, Plan};
use serde_json::Value;

use crate::capture::{Pcap, Random, mixed};
use crate::crew::{busy, each, one_flow};
use crate::inputs::{self, Files};
use crate::{refusal, run};

const PACKETS: usize = 6000;

pub(crate) const ALL: [Dispatch; 2] = [Dispatch::Digest, Dispatch::Queue];

/// The parts of reports that must not depend on the workers: all but memory and waiting times.
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

/// These ways to dispatch, several numbers of workers and lengths of batches.
fn agree(config: &Config, bytes: &[u8], ways: &[Dispatch]) {
    let alone = reports(config.clone(), bytes);
    assert!(alone.len() >= 2);
    for &dispatch in ways {
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
fn tables_report_the_same_for_any_number_of_workers() {
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
fn tables_of_distinct_peers_report_the_same_for_any_number_of_workers() {
    let bytes = mixed(12, PACKETS);
    let parameters = Parameters::new([("buckets", "4096"), ("state", "distinct")]);
    let config = Config {
        key: KeyKind::SOURCE.into(),
        spread: 5,
        parameters,
        ..algorithm("linear-table", &[])
    };
    // Distinct peers of parts that share some do not add up exactly.
    agree(&config, &bytes, &[Dispatch::Digest]);
}

#[test]
fn linear_sketches_report_the_same_for_any_number_of_workers() {
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
        agree(&config, &bytes, &[Dispatch::Digest]);
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
fn measurements_impossible_for_several_workers_are_refused_with_a_reason() {
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

/// What is told of each shared algorithm: of a table by default, of cells the sizes of some flows, and
/// their changes where they give them.
fn configs() -> [Config; 5] {
    let key: KeySpec = KeyKind::SOURCE.into();
    let flows = |host: u32| {
        let hosts = [format!("source=10.0.0.{host}"), format!("source=2001:db8::{host:x}")];
        hosts.map(|flow| key.parse_flow(&flow).unwrap())
    };
    let cells = |name: &str, parameters: &[(&str, u64)], tasks: &[&str]| Config {
        key,
        flows: (0..40).flat_map(flows).collect(),
        tasks: Some(tasks.iter().map(|task| (*task).to_owned()).collect()),
        ..algorithm(name, parameters)
    };
    let rows = [("rows", 3), ("columns", 256), ("candidates", 0)];
    [
        algorithm("linear-table", &[("buckets", 16_384)]),
        cells("count-array", &[("columns", 256), ("candidates", 0)], &["flow-size"]),
        cells("count-min", &rows, &["flow-size", "changes"]),
        cells("count-sketch", &rows, &["flow-size", "changes"]),
        cells("k-ary", &rows, &["flow-size", "changes"]),
    ]
}

fn sharing(workers: usize, config: &Config) -> Config {
    Config { workers, shared: true, ..config.clone() }
}

#[test]
fn shared_summaries_report_as_one_worker_does() {
    let configs = configs();
    let names = configs.iter().map(|config| config.algorithm.as_str());
    assert!(names.eq(catalog::CONCURRENT.iter().copied()));
    let bytes = mixed(31, PACKETS);
    for (by, config) in [Measure::Packets, Measure::Bytes].into_iter().zip([&configs; 2]) {
        for config in config {
            for epoch in EPOCHS.into_iter().chain([EpochLength::Packets(100)]) {
                let config = Config { epoch, by, ..config.clone() };
                let alone = reports(config.clone(), &bytes);
                let flow = &alone[0]["tasks"]["flow-size"]["items"][0][by.name()]["value"];
                assert!(config.flows.is_empty() || flow.as_f64().unwrap() > 0.0, "{flow}");
                for (workers, batch_packets, dispatch) in
                    [(2, 256, None), (3, 1, None), (3, 64, Some(Dispatch::Digest))]
                {
                    let config = Config { batch_packets, dispatch, ..sharing(workers, &config) };
                    let name = format!("{} {workers} {epoch:?} {by:?}", config.algorithm);
                    let several = reports(config, &bytes);
                    assert_eq!(several.len(), alone.len(), "{name}");
                    for (several, alone) in several.iter().zip(&alone) {
                        assert_eq!(several, alone, "{name}");
                    }
                }
            }
        }
    }
}

/// Each reads its part of a file into what all share, and a part that is damaged leaves nothing there.
#[test]
fn parts_of_a_file_are_measured_in_one_summary() {
    let files = Files::new("shared");
    let mut bytes = mixed(32, 60_000);
    let (whole, most) = (files.write("whole.pcap", &bytes), bytes.len() as u64 * 2 / 3);
    let at = bytes.len() / 4;
    let record = (at..bytes.len()).find(|&at| bytes[at..].starts_with(&[0xff; 12])).unwrap();
    bytes[record - 8..record - 4].copy_from_slice(&[0xff; 4]);
    let damaged = files.write("damaged.pcap", &bytes);
    let [_, cells @ ..] = configs();
    for config in cells.into_iter().chain([algorithm("linear-table", &[("buckets", 1 << 16)])]) {
        let config = Config { memory_bytes: 64 << 20, ..config };
        for file in [&whole, &damaged] {
            let (alone, ..) = inputs::file_reports(config.clone(), slice::from_ref(file));
            for workers in [2, 3] {
                let config = sharing(workers, &config);
                let (several, read, _) = inputs::file_reports(config, slice::from_ref(file));
                assert_eq!(several, alone, "{workers}");
                assert!(file == &damaged || read < most, "{read}");
            }
        }
    }
}

/// With workers too slow for the source, each epoch measures what it did not drop.
#[test]
fn packets_not_dropped_are_measured_once() {
    let mut epochs = 0;
    let config = Config { overrun: Overrun::Drop, ..sharing(3, &busy(Overrun::Drop)) };
    let outcome = each(config, &one_flow(45_000), |report| {
        std::thread::sleep(std::time::Duration::from_millis(20));
        let Report::Sizes { items, .. } = &report.tasks[0].1 else { panic!("{report:?}") };
        let measured: f64 = items.iter().map(|item| item.size.packets.unwrap().value).sum();
        let dropped = report.account.dropped.packets;
        assert_eq!(report.account.keyed, dropped + measured as u64);
        epochs += 1;
        Ok(())
    });
    assert_eq!((outcome.unwrap().total.account.keyed, epochs), (45_000, 5));
}

/// Memory is not divided by the workers, only by the sets, and both are within it.
#[test]
fn all_the_memory_is_shared() {
    // Less than the sketches would take by themselves.
    let memory_bytes = 2 << 20;
    for name in catalog::CONCURRENT {
        for (epoch, sets) in [(EpochLength::Whole, 1), (EpochLength::Packets(9), 2)] {
            let plan = |workers, shared| {
                let tasks = Some(vec!["flow-size".to_owned()]);
                let flows =
                    vec![KeySpec::from(KeyKind::PROTOCOL).parse_flow("protocol=6").unwrap()];
                let key = KeyKind::PROTOCOL.into();
                let config =
                    Config { key, epoch, tasks, flows, memory_bytes, ..algorithm(name, &[]) };
                Plan::new(Config { workers, shared, memory_bytes, ..config }).unwrap().explain()
            };
            let (two, nine) = (plan(2, true), plan(9, true));
            assert_eq!((two.sets, two.dispatch, two.same), (sets, Dispatch::Queue, true), "{name}");
            assert!(two.shared && two.parts == (sets == 1));
            let all = two.summary.memory_bytes;
            assert_eq!(nine.summary.parameters, two.summary.parameters);
            assert_eq!((all, all), (nine.summary.memory_bytes, two.lanes[0].memory_bytes));
            assert!(all <= memory_bytes && all > memory_bytes / 4, "{name} {all}");
            assert!(!plan(2, false).shared);
        }
    }
}

#[test]
fn summaries_that_cannot_be_shared_are_refused_with_those_that_can() {
    let refused = |config: Config| refusal(Config { shared: true, ..config }).to_string();
    let two = Config { workers: 2, ..Config::seeded(0) };
    let text = refused(Config::seeded(0));
    assert!(text.contains("--workers 2"), "{text}");
    let text = refused(Config { algorithm: "univmon".to_owned(), ..two.clone() });
    assert!(text.contains("or use linear-table, count-array"), "{text}");
    let accelerators = vec![("agg-evict".to_owned(), Parameters::default())];
    let text = refused(Config { accelerators, ..two.clone() });
    assert!(text.contains("combined with --accelerator"), "{text}");
    let updates = EpochLength::Packets(9);
    let text = refused(Config { updates, ..two.clone() });
    assert!(text.contains("combined with --updates"), "{text}");
    let with = |algorithm: &str, name: &str, value: &str| {
        let (algorithm, parameters) = (algorithm.to_owned(), Parameters::new([(name, value)]));
        refused(Config { algorithm, parameters, ..two.clone() })
    };
    let text = with("count-min", "candidates", "9");
    assert!(text.contains("'candidates=9' is not supported in a concurrent summary"), "{text}");
    let text = with("linear-table", "state", "distinct");
    assert!(text.contains("'state=distinct' is not one of counter"), "{text}");
    let text = with("linear-table", "layout", "inline");
    let inline = "'layout=inline' is not supported in a concurrent table: use layout=records";
    assert!(text.contains(inline), "{text}");
    // What one of several workers may miss, all of them together do not.
    let threshold = Threshold::Weight(9);
    let queue = Config { threshold, dispatch: Some(Dispatch::Queue), ..two };
    assert!(Plan::new(Config { shared: true, ..queue }).is_ok());
}
