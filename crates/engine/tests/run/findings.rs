//! Findings: planted events are named, and ordinary traffic has none.

use std::collections::BTreeSet;

use flowgauge_core::task::FindingKind;
use flowgauge_engine::Config;
use flowgauge_synthetic::{self as synthetic, PcapWriter, Profile, Size, Traffic};
use serde_json::Value;

use crate::{asking, only_epoch};

/// A minute of a small link by default: steady, of many sizes, with 40,000 flows.
fn traffic(plants: &[&str]) -> synthetic::Config {
    synthetic::Config {
        profile: Profile::Backbone { flows: Some(1 << 14) },
        packets: 300_000,
        rate: 10_000,
        size: Size::Imix,
        seed: 5,
        plants: plants.iter().map(|plant| plant.parse().unwrap()).collect(),
        ..synthetic::Config::default()
    }
}

fn capture(config: synthetic::Config, keep: impl Fn(i64) -> bool) -> Vec<u8> {
    let start_ns = config.start_ns;
    let mut file = PcapWriter::new(Vec::new());
    for packet in Traffic::new(config).unwrap() {
        if keep(packet.time_ns - start_ns) {
            file.write(&packet).unwrap();
        }
    }
    file.finish().unwrap()
}

fn found_by(config: Config, bytes: &[u8]) -> Vec<Value> {
    only_epoch(config, bytes)["tasks"]["findings"]["items"].as_array().unwrap().clone()
}

fn found(bytes: &[u8]) -> Vec<Value> {
    found_by(asking(&["findings"]), bytes)
}

fn kinds(items: &[Value]) -> Vec<&str> {
    items.iter().map(|item| item["kind"].as_str().unwrap()).collect()
}

const SECOND_NS: i64 = 1_000_000_000;

#[test]
fn ordinary_traffic_has_no_findings() {
    for seed in 1..=5 {
        let config = synthetic::Config { seed, ..traffic(&[]) };
        let items = found(&capture(config, |_| true));
        assert!(items.is_empty(), "seed {seed}: {items:?}");
    }
}

#[test]
fn a_flood_names_its_victim() {
    let plants = ["flood:sources=150000,packets=200000,start=0.3"];
    let items = found(&capture(traffic(&plants), |_| true));
    assert_eq!(kinds(&items), ["flood"]);
    let flood = &items[0];
    assert_eq!(flood["key"]["destination"], "198.18.0.0");
    assert_eq!(
        (&flood["key"]["destination_port"], &flood["key"]["protocol"]),
        (&80.into(), &6.into())
    );
    assert_eq!(flood["packets"]["value"], 200_000);
    assert_eq!(flood["peers"]["value"], 65_536);
    assert_eq!(flood["tcp_flags"], "SYN");
    assert_eq!(flood["filter"], "dst host 198.18.0.0 and tcp dst port 80");
    assert_eq!(flood["exact_times"], false);
    // It begins at 9 s of 30.
    assert!(flood["start"].as_str().unwrap().contains("T00:00:09"), "{flood}");
}

/// Sources that come again have flows of more than a few packets, and open connections all the same.
#[test]
fn a_flood_from_sources_that_come_again_is_named() {
    let plants = ["flood:sources=3000,packets=60000,start=0.5,end=0.8"];
    let items = found(&capture(traffic(&plants), |_| true));
    assert_eq!(kinds(&items), ["flood"]);
    assert_eq!(items[0]["peers"]["value"], 3000);
}

/// Most flows find no room, and the victim is named with bounds that hold.
#[test]
fn a_flood_that_fills_the_table_is_named_all_the_same() {
    let bytes = capture(traffic(&["flood:sources=250000,packets=250000"]), |_| true);
    let config = Config { memory_bytes: 2 << 20, ..asking(&["findings"]) };
    let epoch = only_epoch(config, &bytes);
    assert!(epoch["account"]["untracked"].as_u64().unwrap() > 100_000, "{}", epoch["account"]);
    let flood = &epoch["tasks"]["findings"]["items"][0];
    assert_eq!(
        (&flood["kind"], &flood["key"]["destination"]),
        (&"flood".into(), &"198.18.0.0".into())
    );
    let packets = |bound: &str| flood["packets"][bound].as_f64().unwrap();
    assert!(packets("low") <= 250_000.0 && 250_000.0 <= packets("high"), "{flood}");
    assert!(flood["peers"]["low"].as_u64().unwrap() > 10_000, "{flood}");
    // The sample of 18,750 packets errs by less than 1 % of them, but for one run in a million.
    assert!((packets("value") / 250_000.0 - 1.0).abs() < 0.03, "{flood}");
}

#[test]
fn scans_of_hosts_and_of_ports_are_told_apart() {
    let plants = ["scan:destinations=400", "ports:ports=1000"];
    let items = found(&capture(traffic(&plants), |_| true));
    assert_eq!(kinds(&items), ["host-scan", "port-scan"]);
    let (hosts, ports) = (&items[0], &items[1]);
    assert_eq!(hosts["key"]["source"], "198.18.0.0");
    assert_eq!(
        (&hosts["peers"]["value"], &hosts["key"]["destination_port"]),
        (&400.into(), &445.into())
    );
    assert_eq!(ports["key"]["source"], "198.18.0.1");
    assert_eq!(
        (&ports["peers"]["value"], &ports["key"]["destination"]),
        (&1000.into(), &"198.19.0.0".into())
    );
    assert!(hosts["text"].as_str().unwrap().contains("tries 400 hosts on tcp/445 smb"), "{hosts}");
    assert!(ports["text"].as_str().unwrap().contains("tries 1,000 tcp ports"), "{ports}");
}

/// One packet of ten thousand.
#[test]
fn a_slow_scan_is_found_among_many_packets() {
    let plants = ["scan:destinations=200"];
    let config = synthetic::Config { packets: 2_000_000, rate: 50_000, ..traffic(&plants) };
    let bytes = capture(config, |_| true);
    let config = Config { memory_bytes: 64 << 20, ..asking(&["findings"]) };
    let items = found_by(config, &bytes);
    assert_eq!(kinds(&items), ["host-scan"]);
    assert_eq!(items[0]["peers"]["value"], 200);
}

#[test]
fn unasked_answers_of_many_servers_are_a_reflection() {
    let plants = ["reflection:sources=1500,packets=90000,start=0.4"];
    let items = found(&capture(traffic(&plants), |_| true));
    assert_eq!(kinds(&items), ["reflection"]);
    assert_eq!(items[0]["key"]["source_port"], 53);
    assert_eq!(items[0]["key"]["destination"], "198.18.0.0");
    assert_eq!(items[0]["peers"]["value"], 1500);
}

#[test]
fn a_link_that_flaps_is_a_fall() {
    let bytes = capture(traffic(&[]), |at| !(12 * SECOND_NS..15 * SECOND_NS).contains(&at));
    let items = found(&bytes);
    assert_eq!(kinds(&items), ["fall"]);
    let ends = (items[0]["start"].as_str().unwrap(), items[0]["end"].as_str().unwrap());
    assert!(ends.0.contains("T00:00:12.0") && ends.1.contains("T00:00:15.0"), "{ends:?}");
    assert_eq!(items[0]["now"], 0.0);
}

/// Two seconds with three times the packets, all of one flow.
#[test]
fn a_burst_of_two_seconds_is_a_rise_with_its_cause() {
    let plain = capture(traffic(&[]), |_| true);
    let burst = synthetic::Config {
        packets: 40_000,
        rate: 20_000,
        start_ns: traffic(&[]).start_ns + 20 * SECOND_NS,
        ..traffic(&["burst:packets=39999,start=0,end=1"])
    };
    let mut records: Vec<&[u8]> = Vec::new();
    let burst = capture(burst, |_| true);
    for file in [&plain, &burst] {
        let mut rest = &file[24..];
        while !rest.is_empty() {
            let captured = u32::from_le_bytes(rest[8..12].try_into().unwrap()) as usize;
            let (record, behind) = rest.split_at(16 + captured);
            records.push(record);
            rest = behind;
        }
    }
    records.sort_by_key(|record| {
        let number = |at: usize| u32::from_le_bytes(record[at..at + 4].try_into().unwrap());
        (number(0), number(4))
    });
    let mut bytes = plain[..24].to_vec();
    bytes.extend(records.concat());
    let items = found(&bytes);
    assert_eq!(kinds(&items), ["rise"]);
    let rise = &items[0];
    assert!(rise["start"].as_str().unwrap().contains("T00:00:20.0"), "{rise}");
    assert!(rise["end"].as_str().unwrap().contains("T00:00:22.0"), "{rise}");
    assert_eq!(rise["key"]["source"], "198.18.0.0");
    assert!((rise["now"].as_f64().unwrap() / rise["usual"].as_f64().unwrap() - 3.0).abs() < 0.1);
}

/// Answers of a busy server go to many hosts, and its clients' packets come from many: neither is an
/// attack.
#[test]
fn a_busy_server_is_neither_scanner_nor_victim() {
    use crate::capture::{Pcap, udp};
    for port in [53, 123] {
        let mut pcap = Pcap::new();
        for client in 0..20_000_u32 {
            // Time servers are asked from their own port.
            let client_port =
                if port == 123 { 123 } else { 1024 + (client * 7919 % 60_000) as u16 };
            let time_ns = u64::from(client) * 1_000_000;
            let (client, server) = ((client + 100, client_port), (1, port));
            pcap.frame(time_ns, &udp(client, server)).frame(time_ns + 1000, &udp(server, client));
        }
        let items = found(&pcap.0);
        let attacks: BTreeSet<&str> =
            ["flood", "reflection", "host-scan", "port-scan"].into_iter().collect();
        assert!(kinds(&items).iter().all(|kind| !attacks.contains(kind)), "{items:?}");
    }
}

#[test]
fn several_workers_find_the_same() {
    let bytes = capture(traffic(&["scan:destinations=400", "flood:packets=100000"]), |_| true);
    let one = found(&bytes);
    for workers in [2, 3] {
        let several = found_by(Config { workers, ..asking(&["findings"]) }, &bytes);
        assert_eq!(kinds(&several), kinds(&one));
        for (several, one) in several.iter().zip(&one) {
            assert_eq!((&several["key"], &several["packets"]), (&one["key"], &one["packets"]));
        }
    }
}

/// `tests/captures/labels.tsv` has what a person sees in the public captures. None of them is a
/// flood or a wide scan; of ten benign ones, at most one may have a finding that says otherwise.
#[test]
fn benign_captures_hardly_ever_have_findings() {
    let Some(folder) = std::env::var_os("FLOWGAUGE_CAPTURES") else {
        println!("skipped: FLOWGAUGE_CAPTURES names no folder of captures");
        return;
    };
    let folder = std::path::Path::new(&folder);
    let labels = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/captures/labels.tsv");
    let (mut benign, mut lines) = (0, 0);
    for row in std::fs::read_to_string(labels).unwrap().lines().skip(1) {
        let [corpus, file, label] = row.split('\t').collect::<Vec<_>>().try_into().unwrap();
        let Ok(bytes) = std::fs::read(folder.join(corpus).join(file)) else { continue };
        let (reports, _) = crate::run(asking(&["findings"]), &bytes);
        for report in reports.iter().filter(|report| report["type"] == "epoch") {
            let items = report["tasks"]["findings"]["items"].as_array().unwrap();
            let found = kinds(items);
            assert!(!found.iter().any(|kind| ["flood", "reflection"].contains(kind)), "{row}");
            lines += if label == "benign" { items.len() } else { 0 };
            if !items.is_empty() {
                println!("{corpus}/{file} ({label}): {found:?}");
            }
        }
        benign += usize::from(label == "benign");
    }
    println!("{lines} lines for {benign} benign captures");
    assert!(benign > 0 && 10 * lines <= benign);
}

#[test]
fn every_kind_has_a_name_of_its_own() {
    let names: BTreeSet<_> = FindingKind::ALL.iter().map(|(name, _)| name).collect();
    assert_eq!(names.len(), FindingKind::ALL.len());
}
