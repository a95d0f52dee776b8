//! Every packet is counted once, or counted as not counted, in small captures and in real ones of
//! all kinds.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{env, fs};

use flowgauge_capture::Captures;
use flowgauge_core::key::KeyKind;
use flowgauge_core::packet::Tunnels;
use flowgauge_core::summary::Parameters;
use flowgauge_core::terms::Measure;
use flowgauge_engine::sink::{Json, Written};
use flowgauge_engine::{Config, EpochLength, Plan};
use flowgauge_filter::Filter;
use serde_json::Value;

use crate::capture::{Pcap, arp, mixed, udp, udp6};
use crate::{asking, only_epoch, run, run_plan};

const COUNTS: [&str; 12] = [
    "read",
    "skipped",
    "skipped_bytes",
    "filtered",
    "malformed",
    "no_key",
    "keyed",
    "keyed_bytes",
    "untracked",
    "late",
    "backwards",
    "jumps",
];

fn count(account: &Value, name: &str) -> u64 {
    account[name].as_u64().unwrap_or_else(|| panic!("no count '{name}' in {account}"))
}

/// Checks the conservation law on one account.
pub(crate) fn balances(account: &Value) {
    let of = |name| count(account, name);
    let outcomes = ["skipped", "filtered", "malformed", "no_key", "keyed"];
    assert_eq!(of("read"), outcomes.map(of).iter().sum::<u64>());
    assert!(of("untracked") <= of("keyed"));
}

#[test]
fn the_accounts_balance_and_the_epochs_add_up_to_the_total() {
    let bytes = mixed(1, 20_000);
    println!("seed 1");
    let epochs = [EpochLength::Whole, EpochLength::Packets(777), EpochLength::Time(2_000_000_000)];
    for kind in KeyKind::NAMED.map(|(_, kind)| kind) {
        for epoch in epochs {
            for filter in [None, Some("udp port 81 or arp")] {
                let config = Config {
                    key: kind.into(),
                    epoch,
                    filter: filter.map(|text| Filter::new(text).unwrap()),
                    memory_bytes: 1 << 20,
                    ..Config::seeded(0)
                };
                let (lines, _) = run(config, &bytes);
                let total = &lines[lines.len() - 1];
                assert_eq!(total["type"], "total");
                balances(&total["account"]);
                assert_eq!(count(&total["account"], "read"), 20_000);
                for name in COUNTS {
                    let epochs = lines.iter().filter(|line| line["type"] == "epoch");
                    let sum: u64 = epochs.map(|line| count(&line["account"], name)).sum();
                    assert_eq!(sum, count(&total["account"], name), "{name}");
                }
                for line in lines.iter().filter(|line| line["type"] == "epoch") {
                    balances(&line["account"]);
                }
            }
        }
    }
}

#[test]
fn only_fields_that_a_key_needs_make_it_malformed() {
    let mut pcap = Pcap::new();
    let whole = udp((1, 1), (2, 2));
    pcap.frame(0, &whole).frame(1, &whole[..36]).frame(2, &whole[..20]).frame(3, &arp());
    pcap.frame(4, &udp6((1, 1), (2, 2))).frame(5, &udp6((1, 1), (2, 2))[..56]);
    let expected = [
        (KeyKind::SOURCE, (1, 1, 4)),
        (KeyKind::DESTINATION, (1, 1, 4)),
        (KeyKind::PAIR, (1, 1, 4)),
        (KeyKind::FIVE_TUPLE, (3, 1, 2)),
        (KeyKind::CONVERSATION, (3, 1, 2)),
        (KeyKind::PROTOCOL, (1, 1, 4)),
        (KeyKind::DESTINATION_PORT, (3, 1, 2)),
    ];
    for (kind, counts) in expected {
        let config = Config { key: kind.into(), ..asking(&["top"]) };
        let account = &only_epoch(config, &pcap.0)["account"];
        let of = |name| count(account, name);
        assert_eq!((of("malformed"), of("no_key"), of("keyed")), counts, "{kind}");
    }
}

#[test]
fn the_filter_comes_before_the_headers_and_the_limit_behind_it() {
    let mut pcap = Pcap::new();
    for i in 0..10 {
        pcap.udp(i, (1, 1), (2, 80)).udp(i, (1, 1), (2, 53)).frame(i, &arp());
    }
    let config =
        |limit| Config { filter: Some(Filter::new("port 53").unwrap()), limit, ..asking(&["top"]) };
    let account = only_epoch(config(None), &pcap.0)["account"].clone();
    assert_eq!((count(&account, "filtered"), count(&account, "keyed")), (20, 10));
    // As with tcpdump, the limit counts packets that pass the filter.
    let account = only_epoch(config(Some(3)), &pcap.0)["account"].clone();
    assert_eq!((count(&account, "read"), count(&account, "keyed")), (8, 3));
    let account = only_epoch(config(Some(0)), &pcap.0)["account"].clone();
    assert_eq!(count(&account, "read"), 0);
}

#[test]
fn a_full_table_counts_untracked_packets() {
    let mut pcap = Pcap::new();
    for i in 0..1000 {
        pcap.udp(i, (i as u32, 1), (2, 80));
    }
    for i in 0..500 {
        pcap.udp(1000 + i, (0, 1), (2, 80));
    }
    let parameters = Parameters::new([("buckets".to_owned(), 128)]);
    let config = Config { parameters, ..asking(&["top", "cardinality", "entropy"]) };
    let epoch = only_epoch(config, &pcap.0);
    // 96 flows fit; of the other 904 each has one packet. The first flow keeps being counted.
    assert_eq!(count(&epoch["account"], "untracked"), 904);
    assert!(epoch["notes"].to_string().contains("the table was full"), "{}", epoch["notes"]);
    assert_eq!(epoch["tasks"]["top"]["items"][0]["packets"]["value"], 501);
    let flows = &epoch["tasks"]["cardinality"]["flows"];
    assert_eq!((flows["low"].as_u64(), flows["high"].as_u64()), (Some(96), Some(1000)));
    let bits = &epoch["tasks"]["entropy"]["bits"];
    // The truth: one flow of 501 packets and 999 of one, of 1500.
    let truth = 1500f64.log2() - 501.0 / 1500.0 * 501f64.log2();
    assert!(bits["low"].as_f64().unwrap() <= truth && truth <= bits["high"].as_f64().unwrap());
}

#[test]
fn a_filter_that_cannot_judge_a_link_type_says_so() {
    let mut bytes = Pcap::new().udp(0, (1, 1), (2, 2)).0.clone();
    bytes[20] = 127;
    let config = Config { filter: Some(Filter::new("port 2").unwrap()), ..asking(&["top"]) };
    let epoch = only_epoch(config, &bytes);
    assert_eq!(count(&epoch["account"], "filtered"), 1);
    let notes = epoch["notes"].to_string();
    assert!(notes.contains("link type 127"), "{notes}");
}

/// Also where an epoch ends between two bursts, or within a block of several measurements.
#[test]
fn a_filter_says_so_in_the_epoch_of_the_packets() {
    let inputs = [(1, 1), (8, 21), (1, 41)].map(|(link, seconds): (u32, u64)| {
        let mut pcap = Pcap::new();
        pcap.udp(seconds * 1_000_000_000, (1, 1), (2, 2));
        pcap.0[20..24].copy_from_slice(&link.to_le_bytes());
        pcap.0
    });
    let folder = env::temp_dir().join(format!("flowgauge-unfit-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let paths: Vec<_> = (0..inputs.len()).map(|input| folder.join(input.to_string())).collect();
    for (path, bytes) in paths.iter().zip(inputs) {
        fs::write(path, bytes).unwrap();
    }
    let epoch = EpochLength::Time(10_000_000_000);
    let filter = Some(Filter::new("udp").unwrap());
    let filtered = Config { name: "filtered".into(), filter, epoch, ..asking(&["top"]) };
    let plain = Config { name: "plain".into(), epoch, ..asking(&["top"]) };
    for configs in [vec![filtered.clone()], vec![filtered, plain]] {
        let plan = Plan::several(configs).unwrap();
        let (mut captures, mut json) = (Captures::open(&paths), Vec::new());
        let mut sink = Written::new(Json, &mut json);
        flowgauge_engine::run(plan, &mut captures, &mut sink, &mut |_| {}).unwrap();
        let lines = String::from_utf8(json).unwrap();
        let lines = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let epochs =
            lines.filter(|line| line["type"] == "epoch" && line["measurement"] == "filtered");
        let found: Vec<_> = epochs
            .map(|line| {
                let notes = line["notes"].to_string();
                (count(&line["account"], "filtered"), notes.contains("counted as filtered"))
            })
            .collect();
        assert_eq!(found, [(0, false), (1, true), (0, false)]);
    }
    fs::remove_dir_all(folder).unwrap();
}

/// Both addresses of a packet are keys.
#[test]
fn no_more_packets_are_left_out_than_have_a_key() {
    let mut pcap = Pcap::new();
    for number in 0..4000 {
        pcap.udp(number.into(), (2 * number, 1), (2 * number + 1, 1));
    }
    let config = Config { key: KeyKind::HOST.into(), memory_bytes: 1 << 16, ..asking(&["top"]) };
    let account = only_epoch(config, &pcap.0)["account"].clone();
    balances(&account);
    assert!(count(&account, "untracked") > 2000, "{account}");
}

#[test]
fn a_link_type_that_is_not_read_is_named() {
    let mut bytes = Pcap::new().udp(0, (1, 1), (2, 2)).udp(1, (1, 1), (2, 2)).0.clone();
    bytes[20] = 227;
    let epoch = only_epoch(asking(&["top"]), &bytes);
    assert_eq!(epoch["account"]["no_key_reasons"]["link-type"], 2);
    let notes = epoch["notes"].to_string();
    assert!(
        notes.contains("link type 227 (CAN with SocketCAN headers) is not supported"),
        "{notes}"
    );
}

/// Of a tunnel, the bytes are those of the frame, or of the frame without the tunnel, and the report
/// says which; several measurements count as one does.
#[test]
fn bytes_of_a_tunnel_are_the_frame_s_or_the_inner_packet_s() {
    let inside = udp((1, 1), (2, 2));
    // IP in IP.
    let mut tunnel = udp((8, 0), (9, 0))[..34].to_vec();
    tunnel[16..18].copy_from_slice(&70_u16.to_be_bytes());
    tunnel[23] = 4;
    tunnel.extend(&inside[14..]);
    let mut pcap = Pcap::new();
    pcap.frame(0, &tunnel).frame(1, &inside);
    for (tunnels, bytes, note) in [
        (Tunnels::Inner, 84 + 64, "the whole frame"),
        (Tunnels::InnerBytes, 64 + 64, "the inner packet, without tunnel headers"),
    ] {
        let config = Config { tunnels, ..asking(&["top", "findings"]) };
        let alone = only_epoch(config.clone(), &pcap.0);
        assert_eq!(count(&alone["account"], "keyed_bytes"), bytes);
        assert_eq!(alone["tasks"]["top"]["items"][0]["packets"]["value"], 2);
        assert_eq!(alone["tasks"]["top"]["items"][0]["bytes"]["value"], bytes);
        assert_eq!(alone["series"]["bytes"].as_array().unwrap()[0], bytes);
        let notes = alone["notes"].to_string();
        assert!(notes.contains(note), "{notes}");
        let one = Config { name: "one".to_owned(), ..config.clone() };
        let several = Plan::several([one, config].to_vec()).unwrap();
        for epoch in &run_plan(several, &pcap.0).0[..2] {
            assert_eq!(count(&epoch["account"], "keyed_bytes"), bytes);
            assert_eq!(epoch["series"]["bytes"].as_array().unwrap()[0], bytes);
        }
    }
}

#[test]
fn one_measure_is_enough_for_an_array() {
    for by in [Measure::Packets, Measure::Bytes] {
        let config = Config { by, algorithm: "count-array".to_owned(), ..asking(&["top"]) };
        let epoch = only_epoch(config, &mixed(3, 2000));
        let first = &epoch["tasks"]["top"]["items"][0];
        let (held, other) = match by {
            Measure::Packets => ("packets", "bytes"),
            Measure::Bytes => ("bytes", "packets"),
        };
        assert!(first[held]["confidence"].is_f64() && first[other].is_null(), "{first}");
    }
}

// Real captures of all kinds: each run comes to its end, and accounts for every packet.

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
