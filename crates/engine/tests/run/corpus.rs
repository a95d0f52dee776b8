//! Real captures of all kinds: each run comes to its end, and accounts for every packet.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{env, fs};

use flowgauge_capture::Captures;
use flowgauge_core::key::KeyKind;
use flowgauge_core::packet::Tunnels;
use flowgauge_core::summary::Parameters;
use flowgauge_engine::sink::{Json, Written};
use flowgauge_engine::{Config, Plan};
use serde_json::Value;

use super::{asking, run};

/// Every file below the folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let below = |path: PathBuf| if path.is_dir() { files(&path) } else { vec![path] };
    entries.flat_map(below).collect()
}

/// These captures have gaps of months next to gaps of nanoseconds.
fn gaps() -> Config {
    Config {
        algorithm: "kll".to_owned(),
        parameters: Parameters::new([("of", "gap")]),
        ..asking(&["quantiles"])
    }
}

#[test]
fn every_capture_is_reported_on() {
    let named = env::var_os("FLOWGAUGE_CAPTURES").map(PathBuf::from);
    if named.is_none() {
        println!("FLOWGAUGE_CAPTURES names no folder of captures: those of the tests alone");
    }
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/captures");
    let folder = named.unwrap_or(own);
    let every = ["top", "heavy-hitters", "changes", "quantiles", "hierarchical"];
    for file in files(&folder) {
        for config in [asking(&every), gaps()] {
            let mut out = Vec::new();
            let mut source = Captures::open([&file]);
            let plan = Plan::new(config).unwrap();
            flowgauge_engine::run(
                plan,
                &mut source,
                &mut Written::new(Json, &mut out),
                &mut |_| {},
            )
            .unwrap();
            let lines = String::from_utf8(out).unwrap();
            let total: Value = serde_json::from_str(lines.lines().last().unwrap()).unwrap();
            let count = |name: &str| total["account"][name].as_u64().unwrap();
            let sum = ["skipped", "filtered", "malformed", "no_key", "keyed"]
                .map(count)
                .iter()
                .sum::<u64>();
            assert_eq!(count("read"), sum, "{}", file.display());
        }
    }
}

/// Packets and bytes by source and destination.
type Counts = BTreeMap<(String, String), (u64, u64)>;

/// What tshark counts, by capture and by what of a tunnel is counted.
fn expected(captures: &Path) -> BTreeMap<(String, String), Counts> {
    let mut expected = BTreeMap::<_, Counts>::new();
    for row in fs::read_to_string(captures.join("tshark.tsv")).unwrap().lines().skip(1) {
        let [capture, tunnels, source, destination, packets, bytes] =
            row.split('\t').map(str::to_owned).collect::<Vec<_>>().try_into().unwrap();
        let counts = expected.entry((capture, tunnels)).or_default();
        if source != "-" {
            let size = (packets.parse().unwrap(), bytes.parse().unwrap());
            counts.insert((source, destination), size);
        }
    }
    expected
}

fn counted(bytes: &[u8], tunnels: Tunnels) -> Counts {
    let (top, list_limit) = (usize::MAX, usize::MAX);
    let config = Config { key: KeyKind::PAIR.into(), tunnels, top, list_limit, ..asking(&["top"]) };
    let mut counts = Counts::new();
    for report in run(config, bytes).0.iter().filter(|report| report["type"] == "epoch") {
        for item in report["tasks"]["top"]["items"].as_array().unwrap() {
            let address = |side: &str| item["key"][side].as_str().unwrap().to_owned();
            let count = |measure: &str| item[measure]["value"].as_u64().unwrap();
            let size = counts.entry((address("source"), address("destination"))).or_default();
            *size = (size.0 + count("packets"), size.1 + count("bytes"));
        }
    }
    counts
}

#[test]
fn packets_and_bytes_by_address_are_tshark_s() {
    let captures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/captures");
    let named = env::var_os("FLOWGAUGE_CAPTURES").map(PathBuf::from);
    let mut compared = 0;
    for ((capture, way), expected) in expected(&captures) {
        let mut places = [Some(&captures), named.as_ref()].into_iter().flatten();
        let Some(bytes) = places.find_map(|place| fs::read(place.join(&capture)).ok()) else {
            println!("skipped: {capture} is not in this repository");
            continue;
        };
        let tunnels = match way.as_str() {
            "outer" => Tunnels::Outer,
            "inner" => Tunnels::Inner,
            "inner-bytes" => Tunnels::InnerBytes,
            other => panic!("tunnels are '{other}'"),
        };
        assert_eq!(counted(&bytes, tunnels), expected, "{capture}, {way}");
        compared += 1;
    }
    assert!(compared >= 33, "only {compared} were compared");
}
