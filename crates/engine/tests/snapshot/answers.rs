//! Answers of stored epochs: as the run gave them, merged, audited, with observed times, and by a
//! coarser key than the measured one.

use flowgauge_capture::Captures;
use flowgauge_core::key::{CanonicalKey, KeySpec};
use flowgauge_core::packet::Tunnels;
use flowgauge_core::summary::Parameters;
use flowgauge_core::terms::{Hierarchy, Measure, SpreadOf, Threshold};
use flowgauge_engine::sink::{Item, Json, Sink, SinkError, Takes, Written};
use flowgauge_engine::snapshot::{MergeError, Snapshot};
use flowgauge_engine::{Config, EngineError, EpochLength, Plan, run};
use flowgauge_kernel::Seed;
use serde_json::Value;

use crate::capture::{Pcap, Random, mixed, udp, udp6};
use crate::stored::measured_by;
use crate::{LIMIT, asking, only_epoch, saved, snapshot};

/// The answers of a snapshot to the tasks.
fn answers(snapshot: &mut Snapshot, tasks: &[&str]) -> Result<Value, EngineError> {
    let flow = "source=10.0.0.1,destination=10.0.0.2,source_port=1,destination_port=80,protocol=17";
    let flow = snapshot.config().key.parse_flow(flow).unwrap();
    answers_of(snapshot, tasks, &[flow])
}

/// The answers of a snapshot to the tasks, one of which may ask for these flows.
pub(crate) fn answers_of(
    snapshot: &mut Snapshot,
    tasks: &[&str],
    flows: &[CanonicalKey],
) -> Result<Value, EngineError> {
    let mut out = Vec::new();
    let ask = |config: &mut Config| {
        config.flows = flows.to_vec();
        config.tasks = Some(tasks.iter().map(|task| (*task).to_owned()).collect());
    };
    snapshot.query(ask, &mut Written::new(Json, &mut out))?;
    Ok(serde_json::from_slice(&out).unwrap())
}

/// A capture of some records of another one: those that `keep` chooses by their number.
pub(crate) fn part(bytes: &[u8], keep: impl Fn(usize) -> bool) -> Vec<u8> {
    let (mut part, mut at, mut number) = (bytes[..24].to_vec(), 24, 0);
    while at < bytes.len() {
        let captured = u32::from_le_bytes(bytes[at + 8..at + 12].try_into().unwrap()) as usize;
        if keep(number) {
            part.extend(&bytes[at..at + 16 + captured]);
        }
        (at, number) = (at + 16 + captured, number + 1);
    }
    part
}

fn configs() -> Vec<(Config, &'static [&'static str])> {
    let table = asking(&["top"]);
    let sketch = |name: &str| Config {
        algorithm: name.to_owned(),
        parameters: Parameters::new([("columns", 1024), ("rows", 3)]),
        ..table.clone()
    };
    vec![
        (table.clone(), &["top", "heavy-hitters", "cardinality", "entropy", "size-distribution"]),
        (sketch("count-min"), &["top"]),
        (sketch("count-sketch"), &["top"]),
        (Config { workers: 3, ..table }, &["top", "cardinality"]),
    ]
}

#[test]
fn a_snapshot_answers_as_its_run_did() {
    println!("seed 51");
    let bytes = mixed(51, 5000);
    for (config, tasks) in configs() {
        let name = config.algorithm.clone();
        let tells = name == "linear-table";
        let mut stored = snapshot(config.clone(), &bytes);
        let reread = Snapshot::decode(&stored.encode(), LIMIT, None).unwrap();
        assert!(stored.encode() == reread.encode(), "{name}");
        let tasks_asked: Vec<_> = tasks.iter().map(|task| (*task).to_owned()).collect();
        let expected = only_epoch(Config { tasks: Some(tasks_asked), ..config }, &bytes);
        let found = answers(&mut stored, tasks).unwrap();
        for field in ["measurement", "start", "end", "coverage", "key", "by", "seed", "tasks"] {
            assert_eq!(found[field], expected[field], "{name} {field}");
        }
        // What a run counts beside a sketch is not stored.
        let breakdown = if tells { &expected["breakdown"] } else { &Value::Null };
        assert_eq!(&found["breakdown"], breakdown, "{name}");
        assert_eq!(found["account"]["read"], expected["account"]["read"]);
    }
}

/// A long list, and a key of both ends, lower the threshold of candidates below that of heavy hitters.
#[test]
fn a_snapshot_lists_what_its_run_listed() {
    let bytes = packets(54);
    for (key, algorithm, top) in [("source", "count-min", 400), ("host", "count-sketch", 10)] {
        let threshold = Threshold::Share(0.004);
        let tasks = ["top", "heavy-hitters"];
        let config = Config { top, threshold, memory_bytes: 1 << 20, ..by(key, algorithm, &tasks) };
        let found = asked_for(&mut snapshot(config.clone(), &bytes), key, &tasks, top).unwrap();
        let expected = only_epoch(config.clone(), &bytes);
        assert_eq!(found["tasks"], expected["tasks"], "{key}");
        let other = snapshot(Config { top: 100, ..config.clone() }, &bytes);
        let merged = snapshot(config, &bytes).merge(&other);
        let differs = "threshold of candidates";
        assert!(matches!(merged, Err(MergeError::Differs { field, .. }) if field == differs));
    }
}

/// Two parts of a capture, stored apart under one seed and merged, answer what the whole answers.
#[test]
fn parts_that_are_merged_answer_as_the_whole() {
    println!("seed 52");
    let bytes = mixed(52, 5000);
    let mut random = Random(52);
    let side: Vec<bool> = (0..5000).map(|_| random.below(2) == 0).collect();
    for (config, tasks) in configs() {
        let name = config.algorithm.clone();
        let mut whole = snapshot(config.clone(), &bytes);
        let mut sum = snapshot(config.clone(), &part(&bytes, |at| side[at]));
        let other = snapshot(config, &part(&bytes, |at| !side[at]));
        sum.merge(&other).unwrap();
        let (found, expected) =
            (answers(&mut sum, tasks).unwrap(), answers(&mut whole, tasks).unwrap());
        let keyed = |line: &Value| line["account"]["keyed"].clone();
        assert_eq!((sum.coverage().len(), keyed(&found)), (2, keyed(&expected)), "{name}");
        for field in ["start", "end", "tasks", "breakdown"] {
            // Which keys a sketch named depends on the order of the packets; sizes do not.
            if field != "tasks" || name == "linear-table" {
                assert_eq!(found[field], expected[field], "{name} {field}");
            }
        }
        let sizes =
            |snapshot: &mut Snapshot| answers(snapshot, &["flow-size"]).unwrap()["tasks"].clone();
        assert_eq!(sizes(&mut sum), sizes(&mut whole), "{name}");
        let twice = sum.merge(&other).err().unwrap();
        assert!(matches!(twice, MergeError::Overlap { epoch: 0, .. }), "{twice}");
    }
}

#[test]
fn a_merge_of_different_snapshots_names_the_field() {
    let bytes = mixed(53, 300);
    let base = || Config { key: "source".parse().unwrap(), ..asking(&["top"]) };
    let mut one = snapshot(base(), &bytes);
    let key = |text: &str| text.parse::<KeySpec>().unwrap();
    for (other, field) in [
        (Config { name: "other".to_owned(), ..base() }, "measurement"),
        (Config { key: key("destination"), ..base() }, "key"),
        (Config { key: key("source/24"), ..base() }, "key"),
        (Config { spread_of: SpreadOf::Port, ..base() }, "spread-of"),
        (Config { spread: 9, ..base() }, "spread"),
        (Config { seed: Some(Seed::number(7)), ..base() }, "seed"),
        (Config { memory_bytes: 64 << 20, ..base() }, "parameters"),
        (Config { tunnels: Tunnels::Inner, ..base() }, "tunnels"),
        (Config { tunnels: Tunnels::InnerBytes, ..base() }, "tunnels"),
        (Config { by: Measure::Bytes, ..base() }, "by"),
        (Config { audit: Some(8), ..base() }, "audit"),
        (Config { threshold: Threshold::Weight(7), ..base() }, "threshold"),
        (Config { hierarchy: Hierarchy::Bits, ..base() }, "hierarchy"),
        (Config { epoch: EpochLength::Time(i64::MAX), ..base() }, "epoch"),
        (
            Config { filter: Some(flowgauge_filter::Filter::new("udp").unwrap()), ..base() },
            "filter",
        ),
        (
            Config {
                algorithm: "count-min".to_owned(),
                parameters: Parameters::new([("columns", 64)]),
                ..base()
            },
            "algorithm",
        ),
    ] {
        let error = one.merge(&snapshot(other, &bytes)).err().unwrap();
        assert!(
            matches!(error, MergeError::Differs { field: found, .. } if found == field),
            "{error}"
        );
    }
}

#[test]
fn a_snapshot_under_a_seed_file_needs_that_file() {
    let bytes = mixed(54, 300);
    let file = |byte| Seed::file(&[byte; 32]).unwrap();
    let stored = saved(Config { seed: Some(file(1)), ..asking(&["top"]) }, &bytes);
    assert!(!stored[0].is_secret);
    let decode = |file: Option<Seed>| Snapshot::decode(&stored[0].bytes, LIMIT, file.as_ref());
    assert!(decode(Some(file(1))).is_ok());
    for other in [None, Some(file(2))] {
        let error = decode(other).err().unwrap().to_string();
        assert!(error.contains("seed file"), "{error}");
    }
    let random = saved(Config { seed: None, ..asking(&["top"]) }, &bytes);
    assert!(random[0].is_secret && Snapshot::decode(&random[0].bytes, LIMIT, None).is_ok());
}

fn audited() -> Config {
    Config {
        algorithm: "count-min".to_owned(),
        parameters: Parameters::new([("columns", 256), ("rows", 2)]),
        audit: Some(2),
        ..asking(&["top"])
    }
}

/// The audit in the report of a snapshot, by this key.
fn audit(snapshot: &mut Snapshot, key: &str) -> Value {
    let mut out = Vec::new();
    let ask = |config: &mut Config| config.key = key.parse().unwrap();
    snapshot.query(ask, &mut Written::new(Json, &mut out)).unwrap();
    serde_json::from_slice::<Value>(&out).unwrap()["audit"].clone()
}

#[test]
fn a_snapshot_answers_the_audit_of_its_run() {
    println!("seed 91");
    let bytes = mixed(91, 3000);
    let told = only_epoch(audited(), &bytes)["audit"].clone();
    assert!(told["flows"].as_u64() > Some(100) && told["rmse"].as_f64() > Some(0.0), "{told}");
    let mut stored = snapshot(audited(), &bytes);
    assert_eq!(audit(&mut stored, "five-tuple"), told);
    let bytes = stored.encode();
    let mut again = Snapshot::decode_again(&bytes, LIMIT, None, stored).unwrap();
    assert_eq!(audit(&mut again, "five-tuple"), told);
    assert!(again.encode() == bytes);
}

/// Two hosts under one seed audit the same flows, so that their audits add up.
#[test]
fn merged_snapshots_answer_the_audit_of_the_whole() {
    println!("seed 92");
    let bytes = mixed(92, 3000);
    let halves = [0, 1].map(|half| part(&bytes, |at| at % 2 == half));
    let [mut sum, other] = halves.each_ref().map(|half| snapshot(audited(), half));
    let whole = audit(&mut snapshot(audited(), &bytes), "five-tuple");
    assert_ne!(audit(&mut sum, "five-tuple"), whole);
    sum.merge(&other).unwrap();
    assert_eq!(audit(&mut sum, "five-tuple"), whole);
}

/// The slice is of flows by the measured key: by a coarser one, nothing is compared.
#[test]
fn a_coarser_key_is_not_audited() {
    println!("seed 93");
    let exact = Config { algorithm: "linear-table".to_owned(), ..asking(&["top"]) };
    let mut stored = snapshot(Config { audit: Some(2), ..exact }, &mixed(93, 500));
    assert_eq!(audit(&mut stored, "five-tuple")["rmse"], 0.0);
    assert!(audit(&mut stored, "source").is_null());
}

const SECOND_NS: u64 = 1_000_000_000;

/// The stored epochs of 10 s of a host that sees ten packets a second in these seconds.
fn epochs(host: &str, run: u64, seconds: &[[u64; 2]]) -> Vec<Snapshot> {
    let mut pcap = Pcap::new();
    for [from, to] in seconds {
        for tenth in from * 10..=to * 10 {
            pcap.udp(1_700_000_000 * SECOND_NS + tenth * SECOND_NS / 10, (1, 2), (3, 4));
        }
    }
    let config = Config { epoch: EpochLength::Time(10 * SECOND_NS.cast_signed()), ..asking(&[]) };
    let read = |bytes: &[u8]| Snapshot::decode(&measured_by(bytes, host, run), LIMIT, None);
    saved(config, &pcap.0).iter().map(|saved| read(&saved.bytes).unwrap()).collect()
}

fn sum(parts: impl IntoIterator<Item = Snapshot>) -> Snapshot {
    let mut parts = parts.into_iter();
    let mut sum = parts.next().unwrap();
    parts.for_each(|part| sum.merge(&part).unwrap());
    // What was merged is stored and read again.
    Snapshot::decode(&sum.encode(), LIMIT, None).unwrap()
}

fn report(snapshot: &mut Snapshot) -> Value {
    answers_of(snapshot, &["top"], &[]).unwrap()
}

/// The share that was observed, in thousandths.
fn observed(snapshot: &mut Snapshot) -> u64 {
    (report(snapshot)["coverage"].as_f64().unwrap() * 1000.0).round() as u64
}

/// A stored epoch says what its run said of how much was observed.
#[test]
fn an_epoch_that_was_observed_in_part_says_so() {
    let mut epochs = epochs("host", 1, &[[4, 33]]);
    let coverage: Vec<_> = epochs.iter_mut().map(observed).collect();
    assert_eq!(coverage, [600, 1000, 1000, 300]);
}

/// A table and a sketch can answer changes in the run itself; of a snapshot, no step ever has a forecast.
#[test]
fn changes_between_epochs_that_are_not_kept_are_refused() {
    let bytes = mixed(92, 300);
    for algorithm in ["linear-table", "k-ary"] {
        let config = Config { algorithm: algorithm.to_owned(), ..asking(&[]) };
        let mut stored = snapshot(config, &bytes);
        let refused = answers_of(&mut stored, &["top", "changes"], &[]).unwrap_err().to_string();
        let reason = "it compares an epoch with those before it, which query does not keep";
        assert_eq!(refused, format!("cannot answer changes: {reason}"), "{algorithm}");
    }
}

/// Observed times of a host add up, each nanosecond once; that of several hosts is their mean.
#[test]
fn observed_times_add_up() {
    assert_eq!(observed(&mut sum(epochs("a", 1, &[[4, 33]]))), 725);
    // A run that ends, and one that begins 8 s later.
    let restarted = epochs("a", 1, &[[0, 16]]).into_iter().chain(epochs("a", 2, &[[24, 40]]));
    assert_eq!(observed(&mut sum(restarted)), 640);
    // Two runs at once.
    let twice = epochs("a", 1, &[[4, 19]]).into_iter().chain(epochs("a", 2, &[[2, 13]]));
    assert_eq!(observed(&mut sum(twice)), 850);
    // One host observes 6 s of 10 s, and the other 8 s.
    let first = |host, run, from| epochs(host, run, &[[from, 12]]).remove(0);
    assert_eq!(observed(&mut sum([first("a", 1, 4), first("b", 2, 2)])), 700);
}

/// Empty epochs are not stored; the one behind them says that nothing was seen in them.
#[test]
fn empty_epochs_were_observed() {
    let stored = || epochs("a", 1, &[[0, 8], [35, 37]]);
    assert_eq!(stored().len(), 2);
    assert_eq!(observed(&mut sum(stored())), 925);
    assert_eq!(observed(&mut stored()[1]), 700);
    // What is left out was not observed.
    let mut whole = epochs("a", 1, &[[0, 39]]);
    whole.truncate(3);
    whole.remove(1);
    assert_eq!(observed(&mut sum(whole)), 667);
}

/// Where the default tasks are not answered, a query says what can be asked.
#[test]
fn a_query_without_an_answer_is_refused() {
    let of = |algorithm: &str| {
        let config = Config { algorithm: algorithm.to_owned(), tasks: None, ..asking(&[]) };
        snapshot(config, &mixed(9, 500))
    };
    let error = of("csm").query(|_| (), &mut crate::Keep::default()).err().unwrap();
    assert_eq!(error.to_string(), "csm answers none of the default tasks; use --task flow-size");
    assert_eq!(of("kll").query(|_| (), &mut crate::Keep::default()).unwrap().epochs, 1);
    let sizes = Config {
        algorithm: "count-min".to_owned(),
        parameters: Parameters::new([("candidates", 0)]),
        tasks: None,
        ..asking(&[])
    };
    let refused = snapshot(sizes, &mixed(9, 500)).query(|_| (), &mut crate::Keep::default());
    assert!(matches!(refused, Err(EngineError::Nothing { .. })));
}

// Snapshots queried by a coarser key than the measured one.

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
    asked_for(snapshot, key, tasks, 10)
}

/// As [`asked`], with lists of this length.
fn asked_for(
    snapshot: &mut Snapshot,
    key: &str,
    tasks: &[&str],
    top: usize,
) -> Result<Value, String> {
    let mut out = Vec::new();
    let tasks: Vec<_> = tasks.iter().map(|task| (*task).to_owned()).collect();
    let ask = |config: &mut Config| {
        config.key = key.parse().unwrap();
        config.top = top;
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
        assert_eq!(notes.contains(" packets are unknown"), !table, "{notes}");
        if table {
            assert_ne!(found["account"]["untracked"], 0, "the table was full");
        }
        // No key outside of the list outweighs the part of it that is surely complete.
        let items = |report: &Value| report["tasks"]["top"]["items"].as_array().unwrap().clone();
        let (listed, all) = (items(&found), items(&truth));
        let complete = found["tasks"]["top"]["complete_to"].as_u64().unwrap() as usize;
        let is_listed = |key: &Value| listed.iter().any(|item| item["key"] == *key);
        let others = all.iter().filter(|item| !is_listed(&item["key"]));
        let heaviest = others.map(|item| item["packets"]["value"].as_u64().unwrap()).max();
        for item in &listed[..complete] {
            assert!(item["packets"]["low"].as_u64() >= heaviest, "{algorithm}: {item}");
        }
    }
}

/// Where the keys have all packets, no other key is larger.
#[test]
fn a_list_of_sums_is_complete_where_all_packets_are_known() {
    let bytes = packets(74);
    let config = Config {
        parameters: Parameters::new([("counters", 2000)]),
        ..by("source", "space-saving", &[])
    };
    let found = asked(&mut snapshot(config, &bytes), "source/20,120", &["top"]).unwrap();
    let top = &found["tasks"]["top"];
    assert_eq!(
        top["complete_to"].as_u64().unwrap() as usize,
        top["items"].as_array().unwrap().len()
    );
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
    refused("host", "linear-table", "host/16", "would count twice");
    refused("source", "hyperloglog", "source/24", "does not hold whole keys");
}

/// A sink that takes snapshots alone gets the same ones, no report, and the same total.
#[test]
fn snapshots_alone_need_no_answers() {
    struct Every(Takes, Vec<Item>);
    impl Sink for Every {
        fn takes(&self) -> Takes {
            self.0
        }
        fn deliver(&mut self, item: &Item) -> Result<(), SinkError> {
            self.1.push(item.clone());
            Ok(())
        }
    }
    println!("seed 91");
    let capture = mixed(91, 3000);
    let items = |takes| {
        let epoch = EpochLength::Packets(1000);
        let parameters = Parameters::new([("buckets", 256)]);
        let config = Config { save: true, epoch, parameters, ..asking(&["top", "changes"]) };
        let mut source = Captures::from_bytes("test.pcap", capture.clone());
        let mut sink = Every(takes, Vec::new());
        run(Plan::new(config).unwrap(), &mut source, &mut sink, &mut |_| {}).unwrap();
        let (mut saved, mut reports, mut totals) = (vec![], 0, vec![]);
        for item in sink.1 {
            match item {
                Item::Snapshot(stored) => saved.push(measured_by(&stored.bytes, "host", 7)),
                Item::Epoch(_) => reports += 1,
                Item::Total(total) => totals.push(total.account.clone()),
                Item::Gap(_) => {}
            }
        }
        (saved, reports, totals)
    };
    let (all, reports, totals) = items(Takes::All);
    assert_eq!((all.len(), reports, totals.len()), (reports, reports, 1));
    assert!(reports > 1 && totals[0].untracked.packets > 0, "{totals:?}");
    assert_eq!(items(Takes::Snapshots), (all, 0, totals));
}
