//! Keys of all sets of fields, against plain counting.

use std::collections::BTreeMap;

use flowgauge_capture::Captures;
use flowgauge_core::key::{Field, KeyKind, KeySpec};
use flowgauge_engine::sink::{Json, Written};
use flowgauge_engine::{Config, EpochLength, Plan};
use serde_json::{Value, json};

use crate::asking;
use crate::capture::{Pcap, Random, udp, udp6};

/// Hosts of one /20 and of another one of IPv4, and of two /61 of IPv6.
const HOSTS: [u32; 3] = [0x0100, 0x0fff, 0x1001];

/// The text of each field of a packet in a report, whole and by its prefix.
struct Packet {
    fields: [(Value, Value); 5],
    /// Host and port of either end.
    ends: [(u32, u16); 2],
    is_v6: bool,
    bytes: u64,
}

/// UDP, TCP and ICMP, of both versions, some behind a VLAN tag.
fn packets(count: usize) -> (Vec<u8>, Vec<Packet>) {
    let mut random = Random(77);
    let (mut pcap, mut packets) = (Pcap::new(), Vec::new());
    for at in 0..count as u64 {
        let [source, destination] = [0, 1].map(|_| HOSTS[random.below(3) as usize]);
        let [source_port, destination_port] = [0, 1].map(|_| 80 + random.below(4) as u16);
        let protocol = [6, 17, 1][random.below(3) as usize];
        let v6 = random.below(3) == 0;
        let make = if v6 { udp6 } else { udp };
        let mut frame = make((source, source_port), (destination, destination_port));
        frame[if v6 { 20 } else { 23 }] = protocol;
        if random.below(4) == 0 {
            frame.splice(12..12, [0x81, 0, 0, 7]);
        }
        pcap.frame(1_700_000_000_000_000_000 + at, &frame);
        let ports =
            [source_port, destination_port].map(|port| if protocol == 1 { 0 } else { port });
        let address = |host: u32| {
            let (high, low) = (host >> 8, host & 255);
            if v6 {
                (json!(format!("2001:db8::{host:x}")), json!("2001:db8::/61"))
            } else {
                (json!(format!("10.0.{high}.{low}")), json!(format!("10.0.{}.0/20", high & 0xf0)))
            }
        };
        let number = |value: u16| (json!(value), json!(value));
        let numbers = [ports[0], ports[1], protocol.into()].map(number);
        let [source_port, destination_port, protocol] = numbers;
        packets.push(Packet {
            fields: [
                address(source),
                address(destination),
                source_port,
                destination_port,
                protocol,
            ],
            ends: [(source, ports[0]), (destination, ports[1])],
            is_v6: v6,
            bytes: frame.len() as u64,
        });
    }
    (pcap.0, packets)
}

/// Packets and bytes by key, as text.
type Sizes = BTreeMap<String, (u64, u64)>;

fn counted(key: KeySpec, packets: &[Packet]) -> Sizes {
    let mut sizes = Sizes::new();
    for packet in packets {
        let of = |(field, (whole, prefix)): (Field, &(Value, Value))| {
            let cut = key.prefix_of(field, "10.0.0.0".parse().unwrap()).is_some();
            let value = if cut { prefix } else { whole };
            (field.name().replace('-', "_"), value.clone())
        };
        let mut values = packet.fields.each_ref();
        if key.kind().is_in_order() {
            let cut = key.prefix_of(Field::Source, "10.0.0.0".parse().unwrap()).is_some();
            let kept = if !cut {
                u32::MAX
            } else if packet.is_v6 {
                0
            } else {
                0xf000
            };
            let [source, destination] = packet.ends.map(|(host, port)| (host & kept, port));
            if source > destination {
                values.swap(0, 1);
                values.swap(2, 3);
            }
        }
        let all = KeyKind::FIVE_TUPLE.fields().zip(values);
        let own = all.filter(|(field, _)| key.kind().has(*field)).map(of);
        let text = Value::Object(own.collect()).to_string();
        let (packets, bytes) = sizes.entry(text).or_default();
        (*packets, *bytes) = (*packets + 1, *bytes + packet.bytes);
    }
    sizes
}

fn reported(line: &Value) -> Sizes {
    let items = line["tasks"]["top"]["items"].as_array().unwrap();
    let size = |item: &Value| {
        let of = |measure: &str| item[measure]["value"].as_u64().unwrap();
        (item["key"].to_string(), (of("packets"), of("bytes")))
    };
    items.iter().map(size).collect()
}

/// The reports of several measurements in one pass, each by its name.
pub(crate) fn reports(plan: Plan, bytes: &[u8]) -> BTreeMap<String, Value> {
    let mut source = Captures::from_bytes("test.pcap", bytes.to_vec());
    let mut out = Vec::new();
    flowgauge_engine::run(plan, &mut source, &mut Written::new(Json, &mut out), &mut |_| {})
        .unwrap();
    let lines = String::from_utf8(out).unwrap();
    let lines = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let epochs = lines.filter(|line| line["type"] == "epoch");
    epochs.map(|line| (line["measurement"].as_str().unwrap().to_owned(), line)).collect()
}

/// Every set of fields, with and without prefixes, measured alone and beside others: the sizes of all
/// flows are those of plain counting.
#[test]
fn every_key_counts_by_its_fields() {
    let (bytes, packets) = packets(4000);
    let mut keys = Vec::new();
    for bits in 1..32_usize {
        let all = KeyKind::FIVE_TUPLE.fields().enumerate();
        let fields = all.filter(|(at, _)| bits >> at & 1 == 1).map(|(_, field)| field);
        let fields: Vec<_> = fields.collect();
        keys.push(KeySpec::from(KeyKind::of(&fields)));
        for cut in
            [&[Field::Source][..], &[Field::Destination], &[Field::Source, Field::Destination]]
        {
            if cut.iter().all(|field| fields.contains(field)) {
                let name = |field: &Field| {
                    let prefix = if cut.contains(field) { "/20,61" } else { "" };
                    format!("{}{prefix}", field.name())
                };
                let text = fields.iter().map(name).collect::<Vec<_>>().join("+");
                keys.push(text.parse().unwrap());
            }
        }
    }
    assert_eq!(keys.len(), 31 + 16 + 16 + 8);
    keys.extend(["conversation", "conversation/20,61"].map(|key| key.parse::<KeySpec>().unwrap()));
    let config = |(number, key): (usize, &KeySpec)| Config {
        name: format!("m{number}"),
        key: *key,
        top: 10_000,
        epoch: EpochLength::Whole,
        memory_bytes: 4 << 20,
        ..asking(&["top"])
    };
    let configs: Vec<_> = keys.iter().enumerate().map(config).collect();
    for (config, key) in configs.iter().zip(&keys) {
        let alone = reports(Plan::new(config.clone()).unwrap(), &bytes);
        assert_eq!(reported(&alone[&config.name]), counted(*key, &packets), "{key}");
    }
    for (configs, keys) in configs.chunks(9).zip(keys.chunks(9)) {
        let several = reports(Plan::several(configs.to_vec()).unwrap(), &bytes);
        for (config, key) in configs.iter().zip(keys) {
            assert_eq!(reported(&several[&config.name]), counted(*key, &packets), "{key}");
        }
    }
}
