//! Closed epochs that are stored, merged and asked again.

use flowgauge_core::key::{CanonicalKey, KeySpec};
use flowgauge_core::packet::Tunnels;
use flowgauge_core::summary::Parameters;
use flowgauge_core::terms::{Hierarchy, Measure, SpreadOf, Threshold};
use flowgauge_engine::sink::{Json, Written};
use flowgauge_engine::snapshot::{MergeError, Snapshot};
use flowgauge_engine::{Config, EngineError, EpochLength};
use flowgauge_kernel::Seed;
use serde_json::Value;

use crate::capture::{Random, mixed};
use crate::{LIMIT, asking, only_epoch, saved, snapshot};

/// What a snapshot answers to the tasks.
fn answers(snapshot: &mut Snapshot, tasks: &[&str]) -> Result<Value, EngineError> {
    let flow = "source=10.0.0.1,destination=10.0.0.2,source_port=1,destination_port=80,protocol=17";
    let flow = snapshot.config().key.parse_flow(flow).unwrap();
    answers_of(snapshot, tasks, &[flow])
}

/// What a snapshot answers to the tasks, of which one may be asked about these flows.
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
fn a_snapshot_answers_what_its_run_answered() {
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
fn a_merge_of_what_differs_names_the_field() {
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
