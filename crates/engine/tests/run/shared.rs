//! Workers that fill one summary report what one worker does.

use std::slice;

use flowgauge_core::catalog;
use flowgauge_core::key::{KeyKind, KeySpec};
use flowgauge_core::summary::Parameters;
use flowgauge_core::task::Report;
use flowgauge_core::terms::{Measure, Threshold};
use flowgauge_engine::{Config, Dispatch, EpochLength, Overrun, Plan};

use crate::capture::mixed;
use crate::crew::{busy, each, one_flow};
use crate::parts::{self, Files};
use crate::refusal;
use crate::workers::{EPOCHS, algorithm, reports};

const PACKETS: usize = 6000;

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
fn what_workers_share_is_reported_as_by_one() {
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
            let (alone, ..) = parts::reports(config.clone(), slice::from_ref(file));
            for workers in [2, 3] {
                let config = sharing(workers, &config);
                let (several, read, _) = parts::reports(config, slice::from_ref(file));
                assert_eq!(several, alone, "{workers}");
                assert!(file == &damaged || read < most, "{read}");
            }
        }
    }
}

/// With workers too slow for the source, each epoch measures what it did not drop.
#[test]
fn what_is_not_dropped_is_measured_once() {
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
fn what_cannot_be_shared_is_refused_with_what_can() {
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
    // What one worker of several may miss, all of them together do not.
    let threshold = Threshold::Weight(9);
    let queue = Config { threshold, dispatch: Some(Dispatch::Queue), ..two };
    assert!(Plan::new(Config { shared: true, ..queue }).is_ok());
}
