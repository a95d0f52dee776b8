//! Audits are stored, merged and asked with the summaries that they audit.

use flowgauge_core::summary::Parameters;
use flowgauge_engine::Config;
use flowgauge_engine::sink::{Json, Written};
use flowgauge_engine::snapshot::Snapshot;
use serde_json::Value;

use crate::answers::part;
use crate::capture::mixed;
use crate::{LIMIT, asking, only_epoch, snapshot};

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
