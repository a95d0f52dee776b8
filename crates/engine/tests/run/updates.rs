//! Updates of open epochs: each equals the report of a run over the packets so far.

use std::collections::HashMap;
use std::thread;
use std::time::Duration;

use flowgauge_core::key::KeyKind;
use flowgauge_core::summary::Parameters;
use flowgauge_core::task::Report;
use flowgauge_core::terms::Threshold;
use flowgauge_engine::sink::{Json, Written};
use flowgauge_engine::{Config, Dispatch, EpochLength, Overrun, Plan};
use serde_json::Value;

use crate::capture::{Pcap, Random, mixed};
use crate::crew::{each, one_flow};
use crate::epochs::{Live, SECOND, STEPS};
use crate::workers::{ALL, algorithm, reports};
use crate::{asking, refusal, run};

const PACKETS: usize = 6000;

/// Reports of this type.
fn of_type<'a>(lines: &'a [Value], name: &str) -> Vec<&'a Value> {
    lines.iter().filter(|line| line["type"] == name).collect()
}

/// The line as that of a closed epoch.
fn closed(line: &Value) -> Value {
    let mut line = line.clone();
    line["type"] = "epoch".into();
    line
}

fn read(line: &Value) -> u64 {
    line["account"]["read"].as_u64().unwrap()
}

/// Packets before each update by time, of records without an end of an epoch: a packet that is the
/// first of a later second, or whatever, comes behind one.
fn before_updates(bytes: &[u8], every_ns: i64) -> Vec<u64> {
    let (mut at, mut number, mut latest, mut before) = (24, 0, None, Vec::new());
    while let Some(record) = bytes.get(at..at + 16) {
        let word = |from: usize| u32::from_le_bytes(record[from..from + 4].try_into().unwrap());
        let time_ns = i64::from(word(0)) * SECOND + i64::from(word(4));
        let now = time_ns.div_euclid(every_ns);
        if latest.is_some_and(|latest| now > latest) {
            before.push(number);
        }
        latest = latest.max(Some(now));
        number += 1;
        at += 16 + word(8) as usize;
    }
    before
}

/// One worker and several, each way to dispatch: updates are what one worker without them reports of
/// the packets so far, and the epoch's own report is what it is without updates.
fn agree(config: &Config, bytes: &[u8], ways: &[Dispatch]) {
    let whole = reports(config.clone(), bytes);
    let mut so_far = HashMap::new();
    for updates in [EpochLength::Packets(1999), EpochLength::Time(3 * SECOND)] {
        let mut told = None;
        for (workers, batch_packets) in [(1, 256), (2, 256), (3, 64), (3, 256)] {
            for way in if workers == 1 { &ways[..1] } else { ways } {
                let (updates, dispatch) = (updates, (workers > 1).then_some(*way));
                let config = Config { updates, workers, dispatch, batch_packets, ..config.clone() };
                let name = format!("{} {updates:?} {workers} {way:?}", config.algorithm);
                let lines = reports(config.clone(), bytes);
                for update in of_type(&lines, "update") {
                    let reference = so_far.entry(read(update)).or_insert_with(|| {
                        let (workers, dispatch) = (1, None);
                        let (limit, updates) = (Some(read(update)), EpochLength::Whole);
                        let config = Config { limit, updates, workers, dispatch, ..config.clone() };
                        reports(config, bytes).remove(0)
                    });
                    assert_eq!(closed(update), *reference, "{name}");
                }
                let reads: Vec<_> = of_type(&lines, "update").into_iter().map(read).collect();
                match updates {
                    EpochLength::Time(every_ns) => {
                        assert_eq!(reads, before_updates(bytes, every_ns), "{name}");
                    }
                    _ => assert_eq!(reads.len(), 2, "{name}"),
                }
                assert_eq!(*told.get_or_insert(reads.clone()), reads, "{name}");
                let rest: Vec<_> = lines.iter().filter(|line| line["type"] != "update").collect();
                assert_eq!(rest, whole.iter().collect::<Vec<_>>(), "{name}");
            }
        }
    }
}

#[test]
fn updates_of_tables_are_those_of_one_worker_over_the_packets_so_far() {
    let bytes = mixed(21, PACKETS);
    for kind in [KeyKind::FIVE_TUPLE, KeyKind::SOURCE] {
        let config = algorithm("linear-table", &[("buckets", 16_384)]);
        agree(&Config { key: kind.into(), ..config }, &bytes, &ALL);
    }
    let agg_evict = vec![("agg-evict".to_owned(), Parameters::default())];
    let config = algorithm("cuckoo-4", &[("buckets", 4096)]);
    agree(&Config { accelerators: agg_evict, ..config }, &bytes, &ALL);
}

#[test]
fn updates_of_linear_summaries_are_those_of_one_worker_over_the_packets_so_far() {
    let bytes = mixed(22, PACKETS);
    let sketch = [("rows", 4), ("columns", 4096), ("candidates", 1024)];
    for (name, parameters) in [
        ("count-min", &sketch[..]),
        ("count-sketch", &sketch[..]),
        ("k-ary", &sketch[..]),
        ("fm", &[("bitmaps", 256)][..]),
        ("linear-counting", &[("bits", 4096)][..]),
    ] {
        let key = KeyKind::SOURCE.into();
        agree(&Config { key, ..algorithm(name, parameters) }, &bytes, &ALL);
    }
}

/// What is passed on for an update was passed on a little early, and nothing is counted twice for it.
#[test]
fn an_update_changes_no_epoch_behind_accelerators() {
    let bytes = mixed(23, PACKETS);
    for (accelerator, name) in [
        ("agg-evict", "count-min"),
        ("nitro", "count-sketch"),
        ("skipper", "k-ary"),
        ("uniform", "linear-table"),
        ("flow-regulator", "linear-table"),
    ] {
        let parameters = Parameters::new((accelerator == "nitro").then_some(("p", "0.1")));
        let config = Config {
            accelerators: vec![(accelerator.to_owned(), parameters)],
            memory_bytes: 1 << 20,
            ..asking(&["top"])
        };
        let config = Config { algorithm: name.to_owned(), key: KeyKind::SOURCE.into(), ..config };
        let updates = EpochLength::Packets(700);
        let lines = reports(Config { updates, ..config.clone() }, &bytes);
        assert!(of_type(&lines, "update").len() > 6, "{accelerator}");
        let rest: Vec<_> = lines.into_iter().filter(|line| line["type"] != "update").collect();
        assert_eq!(rest, reports(config, &bytes), "{accelerator}");
    }
}

#[test]
fn within_epochs_updates_count_anew_and_none_is_made_where_an_epoch_ends() {
    // Each epoch ends where an update would be, the last one with the input.
    let bytes = one_flow(3500);
    for workers in [1, 2] {
        let (epoch, updates) = (EpochLength::Packets(1000), EpochLength::Packets(250));
        let config = Config { epoch, updates, workers, ..asking(&["top"]) };
        let (lines, outcome) = run(config, &bytes);
        let found: Vec<_> = lines[..lines.len() - 1]
            .iter()
            .map(|line| {
                let keyed = line["account"]["keyed"].as_u64().unwrap();
                let top = &line["tasks"]["top"]["items"][0]["packets"]["value"];
                assert_eq!(*top, keyed);
                (line["type"] == "update", line["epoch"].as_u64().unwrap(), keyed)
            })
            .collect();
        let of_epoch = |epoch: u64, all: u64| {
            let updates = (1..all / 250).map(move |i| (true, epoch, 250 * i));
            updates.chain([(false, epoch, all)])
        };
        let epochs = (0..3).flat_map(|epoch| of_epoch(epoch, 1000));
        assert_eq!(found, epochs.chain(of_epoch(3, 500)).collect::<Vec<_>>());
        assert_eq!((outcome.total.epochs, outcome.total.account.keyed), (4, 3500));
        // A worker hands over for an update or an epoch; a meter alone lends its set for an update.
        assert_eq!(outcome.swaps.count(), if workers == 1 { 4 } else { 14 });
    }
}

/// The closer takes long over the first update: what then finds the ring full is in no answer and is
/// counted, in each report from the beginning of its epoch.
#[test]
fn packets_dropped_on_the_way_are_reported_in_each_update() {
    let config = Config {
        epoch: EpochLength::Packets(60_000),
        updates: EpochLength::Packets(10_000),
        workers: 2,
        overrun: Overrun::Drop,
        ..asking(&["top"])
    };
    let mut wait = Some(Duration::from_millis(300));
    let mut found = Vec::new();
    let outcome = each(config, &one_flow(75_000), |report| {
        thread::sleep(wait.take().unwrap_or_default());
        let Report::Sizes { items, .. } = &report.tasks[0].1 else { panic!("{report:?}") };
        let measured = items.first().map_or(0.0, |item| item.size.packets.unwrap().value) as u64;
        assert_eq!(report.account.keyed, report.account.dropped.packets + measured);
        found.push((report.account.keyed, report.account.dropped.packets));
        Ok(())
    });
    let (keyed, dropped): (Vec<_>, Vec<_>) = found.into_iter().unzip();
    assert_eq!(keyed, [10_000, 20_000, 30_000, 40_000, 50_000, 60_000, 10_000, 15_000]);
    assert!(dropped[..6].is_sorted() && dropped[5] > 2000, "{dropped:?}");
    assert_eq!(outcome.unwrap().total.account.dropped.packets, dropped[5] + dropped[7]);
}

#[test]
fn tasks_that_compare_epochs_take_no_update() {
    let bytes = mixed(24, PACKETS);
    let config = Config { epoch: EpochLength::Packets(1500), ..asking(&["changes", "top"]) };
    let whole = reports(config.clone(), &bytes);
    for workers in [1, 3] {
        let updates = EpochLength::Time(SECOND);
        let lines = reports(Config { updates, workers, ..config.clone() }, &bytes);
        let (updates, rest): (Vec<_>, Vec<_>) =
            lines.into_iter().partition(|line| line["type"] == "update");
        assert!(updates.len() > 4);
        for update in updates {
            assert!(update["tasks"]["changes"].is_null() && !update["tasks"]["top"].is_null());
            assert_eq!(update["notes"][0], "changes is left out of updates: it compares epochs");
        }
        assert_eq!(rest, whole);
    }
}

/// Of sources that send from some 200 packets down to 2: at each update the truth is within the bounds
/// of nineteen of twenty of those that are told, all that are surely heavy among them.
#[test]
fn updates_of_other_summaries_stay_within_their_bounds() {
    let (mut random, mut pcap) = (Random(6), Pcap::new());
    for i in 0..8000 {
        let host = 256 / (1 + random.below(256)) * 16 + random.below(16);
        pcap.udp(i, (host as u32, 1), (2, 80));
    }
    let updates = EpochLength::Packets(1900);
    let told = |name: &str, parameters: &[(&str, u64)], task: &str, dispatch, threshold| {
        let tasks = Some(vec![task.to_owned()]);
        let key = KeyKind::SOURCE.into();
        let config =
            Config { key, updates, dispatch, threshold, tasks, ..algorithm(name, parameters) };
        let workers = if dispatch.is_some() { 3 } else { 1 };
        reports(Config { workers, ..config }, &pcap.0)
    };
    let sizes = |line: &Value| -> HashMap<String, [f64; 3]> {
        let items = line["tasks"]["heavy-hitters"]["items"].as_array().unwrap().iter();
        let number = |item: &Value, name| item["packets"][name].as_f64().unwrap();
        items
            .map(|item| {
                (item["key"].to_string(), ["low", "value", "high"].map(|name| number(item, name)))
            })
            .collect()
    };
    let truth = told("linear-table", &[], "heavy-hitters", None, Threshold::Weight(0));
    for (name, parameters) in [
        ("space-saving", &[("counters", 256)][..]),
        ("univmon", &[("columns", 4096), ("top", 256)]),
        ("count-array", &[("columns", 4096), ("candidates", 256)]),
        ("misra-gries", &[("counters", 256)]),
    ] {
        for way in ALL {
            let share = Threshold::Share(0.01);
            let lines = told(name, parameters, "heavy-hitters", Some(way), share);
            let (mut bounds, mut held) = (0, 0);
            assert_eq!(of_type(&lines, "update").len(), 4, "{name}");
            for (told, truth) in
                of_type(&lines, "update").into_iter().zip(of_type(&truth, "update"))
            {
                assert_eq!(told["account"], truth["account"]);
                let (told, keyed) = (sizes(told), truth["account"]["keyed"].as_f64().unwrap());
                for (key, [_, size, _]) in sizes(truth) {
                    let found = told.get(&key);
                    // Over the threshold by more than what estimates miss.
                    assert!(found.is_some() || size < 0.02 * keyed, "{name} {way:?} {key} {size}");
                    if let Some([low, _, high]) = found {
                        bounds += 1;
                        held += u32::from(*low <= size && size <= *high);
                    }
                }
            }
            assert!(bounds >= 20 && 20 * held >= 19 * bounds, "{name} {way:?} {held} {bounds}");
        }
    }
    let share = Threshold::Share(0.01);
    let truth = told("linear-table", &[], "cardinality", None, share);
    let lines =
        told("hyperloglog", &[("registers", 1024)], "cardinality", Some(Dispatch::Queue), share);
    for (told, truth) in of_type(&lines, "update").into_iter().zip(of_type(&truth, "update")) {
        let flows = |line: &Value, bound| line["tasks"]["cardinality"]["flows"][bound].as_f64();
        let truth = flows(truth, "value");
        assert!(flows(told, "low") <= truth && truth <= flows(told, "high"), "{told}");
    }
}

#[test]
fn live_updates_come_by_the_clock_where_there_were_packets() {
    for workers in [1, 2] {
        for (epoch, expected) in [
            // Nothing was read in the second second, some of which was lost.
            (EpochLength::Whole, &[(true, 2, 5), (true, 4, 7), (false, 5, 8)][..]),
            (
                EpochLength::Time(2 * SECOND),
                &[(true, 2, 5), (false, 2, 7), (false, 2, 0), (false, 1, 1)],
            ),
        ] {
            let updates = EpochLength::Time(SECOND);
            let config = Config { epoch, updates, workers, ..asking(&["top"]) };
            let mut out = Vec::new();
            let plan = Plan::new(config).unwrap();
            flowgauge_engine::run(
                plan,
                &mut Live::new(STEPS),
                &mut Written::new(Json, &mut out),
                &mut |_| {},
            )
            .unwrap();
            let lines = String::from_utf8(out).unwrap();
            let lines = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
            let found: Vec<_> = lines
                .filter(|line| line["type"] == "update" || line["type"] == "epoch")
                .map(|line| {
                    let lost = line["account"]["lost"].as_u64().unwrap();
                    (line["type"] == "update", read(&line), lost)
                })
                .collect();
            assert_eq!(found, expected, "{workers} {epoch:?}");
        }
    }
}

/// The first epoch begins before the first packet. What its updates call observed ends with their
/// latest packet, so that rates fit their packets.
#[test]
fn an_update_is_observed_from_the_first_packet_to_its_latest() {
    let (mut pcap, start_ns) = (Pcap::new(), 1_700_000_000 * SECOND as u64);
    // From 8 s to 12 s, ten packets a second.
    for tenth in 80..121 {
        pcap.udp(start_ns + tenth * SECOND as u64 / 10, (1, 2), (3, 4));
    }
    let (epoch, updates) = (EpochLength::Time(10 * SECOND), EpochLength::Time(SECOND));
    for workers in [1, 2] {
        let config = Config { epoch, updates, workers, ..asking(&["top"]) };
        let lines = reports(config, &pcap.0);
        let found = of_type(&lines, "update").into_iter().map(|update| {
            (read(update), (update["coverage"].as_f64().unwrap() * 1000.0).round() / 1000.0)
        });
        // The first one ends at 8.9 s, and 0.9 s of that were observed.
        assert_eq!(found.collect::<Vec<_>>(), [(10, 0.101), (10, 1.0), (20, 1.0)], "{workers}");
    }
}

#[test]
fn updates_that_cannot_be_are_refused_with_a_reason() {
    let whole = EpochLength::Whole;
    for (epoch, updates, reason) in [
        (whole, EpochLength::Packets(0), "the packets between updates must be 1 or more (got 0)"),
        (
            whole,
            EpochLength::Time(-1),
            "the nanoseconds between updates must be 1 or more (got -1)",
        ),
        (
            EpochLength::Packets(7),
            EpochLength::Packets(7),
            "the interval between updates (7p) must be shorter than an epoch (7p)",
        ),
        (
            EpochLength::Time(100_000_000),
            EpochLength::Time(SECOND),
            "the interval between updates (1s) must be shorter than an epoch (100ms)",
        ),
    ] {
        assert_eq!(refusal(Config { epoch, updates, ..asking(&["top"]) }).to_string(), reason);
    }
    let config = |name: &str, accelerator: Option<&str>, workers| Config {
        accelerators: accelerator
            .map(|name| (name.to_owned(), Parameters::default()))
            .into_iter()
            .collect(),
        updates: EpochLength::Packets(9),
        workers,
        ..algorithm(name, &[])
    };
    let order = "depend on the order of all packets; use one worker";
    for (name, accelerator, reason) in [
        ("count-min", Some("skipper"), "the samples of its parts"),
        ("count-sketch", Some("nitro"), "the samples of its parts"),
        ("netflow", None, "the samples of its parts"),
        ("flow-radar", None, "only if they share no flow; use one worker"),
        ("replacing-array", None, order),
        ("conservative-count-min", None, order),
        ("linear-table", Some("flow-regulator"), order),
    ] {
        let refused = refusal(config(name, accelerator, 2)).to_string();
        assert!(refused.contains("--updates") && refused.contains(reason), "{refused}");
        assert!(Plan::new(config(name, accelerator, 1)).is_ok(), "{name}");
    }
    let fixed =
        |name, workers| Config { threshold: Threshold::Weight(100), ..config(name, None, workers) };
    let refused = refusal(fixed("count-min", 2)).to_string();
    assert!(refused.contains("below it in every part"), "{refused}");
    assert!(
        Plan::new(fixed("count-min", 1)).is_ok() && Plan::new(fixed("linear-table", 2)).is_ok()
    );
}

#[test]
fn the_memory_is_divided_among_all_summaries() {
    let plan = |name: &str, workers, updates, dispatch| {
        let config = Config { workers, updates, dispatch, ..algorithm(name, &[]) };
        // Less than the sketches would take by themselves.
        Plan::new(Config { memory_bytes: 4 << 20, ..config }).ok().unwrap().explain()
    };
    let (none, some) = (EpochLength::Whole, EpochLength::Packets(9));
    for (name, workers, dispatch, sums, extra) in [
        ("linear-table", 1, None, 0, 0),
        ("linear-table", 3, None, 2, 4),
        ("linear-table", 3, Some(Dispatch::Queue), 1, 3),
        ("count-min", 3, None, 1, 3),
        ("count-min", 2, None, 1, 2),
    ] {
        let plan = plan(name, workers, some, dispatch);
        let all = plan.summary.memory_bytes;
        assert!(all <= 4 << 20 && all > 1 << 20, "{name} {workers} {all}");
        assert_eq!((plan.sums, plan.parts, plan.same), (sums, false, true), "{name} {workers}");
        let lanes: usize = plan.lanes.iter().map(|lane| lane.memory_bytes).sum();
        let sets = if workers == 1 { 1 } else { 2 * (workers - 1) + sums };
        assert_eq!(plan.updates_bytes, lanes / sets * extra, "{name} {workers}");
    }
    assert!(!plan("space-saving", 2, some, None).same);
    // Its parts are no parts of files: one of two reads, and the other has all the memory.
    let lanes = |workers| {
        let plan = plan("flow-radar", workers, none, None);
        (plan.lanes[0].memory_bytes, plan.parts, plan.updates_bytes)
    };
    assert_eq!(lanes(2), lanes(1));
    assert_eq!(lanes(1).2, 0);
}

#[test]
fn a_sink_can_tell_updates_from_epochs() {
    let config = Config { updates: EpochLength::Packets(400), ..asking(&["top"]) };
    let mut found = Vec::new();
    each(config, &one_flow(1000), |report| {
        found.push((report.update, report.account.read));
        Ok(())
    })
    .unwrap();
    assert_eq!(found, [(true, 400), (true, 800), (false, 1000)]);
}

/// One packet is of the future, and the others are not.
#[test]
fn updates_go_on_after_a_wrong_time() {
    let mut pcap = Pcap::new();
    let at = |seconds: u64| (100_000 + seconds) * 1_000_000_000;
    pcap.udp(at(0), (1, 1), (2, 2)).udp(at(4_000_000_000), (1, 1), (2, 2));
    for seconds in 1..30 {
        pcap.udp(at(seconds), (1, 1), (2, 2));
    }
    for epoch in [EpochLength::Whole, EpochLength::Packets(1000)] {
        let updates = EpochLength::Time(5_000_000_000);
        let (lines, _) = run(Config { epoch, updates, ..asking(&["top"]) }, &pcap.0);
        let found: Vec<_> = of_type(&lines, "update").into_iter().map(read).collect();
        // Before the wrong time, after it, and then every five seconds.
        assert_eq!(found, [1, 2, 6, 11, 16, 21, 26], "{epoch:?}");
    }
}
