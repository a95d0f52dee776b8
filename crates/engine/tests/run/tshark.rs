//! Beside tshark: what it counts by address in captures of each encapsulation stands in
//! `tests/captures/tshark.tsv`.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use flowgauge_core::key::KeyKind;
use flowgauge_core::packet::Tunnels;
use flowgauge_engine::Config;

use super::{asking, run};

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
