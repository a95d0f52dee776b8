//! Keys of all sets of fields, and the details of flows beside them, against plain counting.

use std::collections::BTreeMap;

use flowgauge_capture::Captures;
use flowgauge_core::key::{Field, KeyKind, KeySpec};
use flowgauge_core::summary::Parameters;
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
fn reports(plan: Plan, bytes: &[u8]) -> BTreeMap<String, Value> {
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

// Keys of other fields than the five-tuple, keys of either end of a packet, and the state that
// records when and how flows were seen, compared with plain counting.

const START_NS: u64 = 1_700_000_000_000_000_000;

/// The fields of a packet.
struct Detailed {
    hosts: [String; 2],
    ports: [u16; 2],
    protocol: u8,
    vlan: u16,
    flags: u8,
    macs: [String; 2],
    time_ns: u64,
    bytes: u64,
}

/// TCP and UDP of both versions, some behind a VLAN tag, whose times go back now and then.
fn detailed_packets(count: usize) -> (Vec<u8>, Vec<Detailed>) {
    println!("seed 91");
    let mut random = Random(91);
    let (mut pcap, mut packets) = (Pcap::new(), Vec::new());
    for at in 0..count as u64 {
        let ends = [0, 1].map(|_| (1 + random.below(3) as u32, 80 + random.below(2) as u16));
        let v6 = random.below(3) == 0;
        let make = if v6 { udp6 } else { udp };
        let (mut frame, tcp) = (make(ends[0], ends[1]), random.below(2) == 0);
        frame.resize(100, 0);
        let macs = [0, 1].map(|_| random.below(3) as u8);
        frame[..12].copy_from_slice(&[2, 0, 0, 0, 0, macs[1], 2, 0, 0, 0, 0, macs[0]]);
        let flags = [0x02, 0x12, 0x10, 0x00][random.below(4) as usize];
        if tcp {
            frame[if v6 { 20 } else { 23 }] = 6;
            frame[if v6 { 19 } else { 17 }] = 40;
            frame[if v6 { 54 } else { 34 } + 13] = flags;
        }
        let vlan = [0, 7, 4094][random.below(3) as usize];
        if vlan > 0 {
            let [high, low] = u16::to_be_bytes(vlan);
            frame.splice(12..12, [0x81, 0, 0xe0 | high, low]);
        }
        let time_ns = START_NS + 1000 * at - 5000 * random.below(2);
        pcap.frame(time_ns, &frame);
        packets.push(Detailed {
            hosts: ends.map(|(host, _)| {
                if v6 { format!("2001:db8::{host:x}") } else { format!("10.0.0.{host}") }
            }),
            ports: ends.map(|(_, port)| port),
            protocol: if tcp { 6 } else { 17 },
            vlan,
            flags: if tcp { flags } else { 0 },
            macs: macs.map(|mac| format!("02:00:00:00:00:{mac:02x}")),
            time_ns,
            bytes: frame.len() as u64,
        });
    }
    (pcap.0, packets)
}

/// What is known of a flow: packets and bytes, those that came back, first and last time, TCP flags.
#[derive(Clone, Debug, Default, PartialEq)]
struct Flow {
    all: [u64; 2],
    back: [u64; 2],
    span: Option<(u64, u64)>,
    flags: u8,
}

impl Flow {
    fn add(&mut self, packet: &Detailed, back: bool) {
        let size = [1, packet.bytes];
        for (to, by) in self.all.iter_mut().zip(size) {
            *to += by;
        }
        for (to, by) in self.back.iter_mut().zip(size).filter(|_| back) {
            *to += by;
        }
        let (first, last) = self.span.unwrap_or((packet.time_ns, packet.time_ns));
        self.span = Some((first.min(packet.time_ns), last.max(packet.time_ns)));
        self.flags |= packet.flags;
    }
}

type Flows = BTreeMap<String, Flow>;

fn names(flags: u8) -> String {
    let all = [(0x02, "SYN"), (0x10, "ACK")];
    let own = all.iter().filter(|(bit, _)| flags & bit != 0).map(|(_, name)| *name);
    own.collect::<Vec<_>>().join("+")
}

/// Plain counting.
fn counted_flows(key: KeySpec, packets: &[Detailed]) -> Flows {
    let kind = key.kind();
    let mut flows = Flows::new();
    for packet in packets {
        let text = |[one, other]: [usize; 2]| {
            let fields = [
                (Field::Source, json!(packet.hosts[one])),
                (Field::Destination, json!(packet.hosts[other])),
                (Field::Host, json!(packet.hosts[one])),
                (Field::SourcePort, json!(packet.ports[one])),
                (Field::DestinationPort, json!(packet.ports[other])),
                (Field::Protocol, json!(packet.protocol)),
                (Field::Vlan, json!(packet.vlan)),
                (Field::TcpFlags, json!(names(packet.flags))),
                (Field::SourceMac, json!(packet.macs[one])),
                (Field::DestinationMac, json!(packet.macs[other])),
                (Field::Mac, json!(packet.macs[one])),
            ];
            let own = fields.into_iter().filter(|(field, _)| kind.has(*field));
            let own = own.map(|(field, value)| (field.name().replace('-', "_"), value));
            Value::Object(own.collect()).to_string()
        };
        let ends = [0, 1].map(|end| (&packet.hosts[end], packet.ports[end]));
        let (here, there) = (text([0, 1]), text([1, 0]));
        if kind.is_in_order() && ends[0] > ends[1] {
            flows.entry(there).or_default().add(packet, true);
            continue;
        }
        if kind.is_either() && here != there {
            flows.entry(there).or_default().add(packet, true);
        }
        flows.entry(here).or_default().add(packet, false);
    }
    flows
}

fn reported_flows(line: &Value, kind: KeyKind, detailed: bool) -> Flows {
    let items = line["tasks"]["top"]["items"].as_array().unwrap();
    let flow = |item: &Value| {
        let of = |measure: &str| item[measure]["value"].as_u64().unwrap();
        let (all, seen) = ([of("packets"), of("bytes")], &item["seen"]);
        let key = item["key"].to_string();
        assert_eq!(seen.is_object(), detailed);
        if !detailed {
            return (key, Flow { all, ..Flow::default() });
        }
        let way = |way: &str| ["packets", "bytes"].map(|by| seen[way][by].as_u64().unwrap());
        let back = if kind.is_in_order() || kind.is_either() {
            let (forward, back) = (way("forward"), way("back"));
            assert_eq!([0, 1].map(|at| forward[at] + back[at]), all);
            back
        } else {
            assert!(seen.get("back").is_none());
            [0; 2]
        };
        assert_eq!(seen["packet_bytes"], json!(all[1] as f64 / all[0] as f64));
        let ns = |which: &str| {
            let text = seen[which].as_str().unwrap();
            assert!(text.starts_with("2023-11-14T22:13:") && text.len() == 30, "{text}");
            let at: f64 = text[17..29].parse::<f64>().unwrap() - 20.0;
            START_NS.wrapping_add_signed((at * 1e9).round() as i64)
        };
        let (first, last) = (ns("first"), ns("last"));
        assert_eq!(seen["seconds"], json!((last - first) as f64 / 1e9));
        let flags = seen["tcp_flags"].as_str().unwrap();
        let bits = [("SYN", 0x02), ("ACK", 0x10)];
        let flags = bits.iter().filter(|(name, _)| flags.contains(name)).map(|(_, bit)| bit).sum();
        (key, Flow { all, back, span: Some((first, last)), flags })
    };
    items.iter().map(flow).collect()
}

fn config(number: usize, key: KeySpec, algorithm: &str, state: &str) -> Config {
    Config {
        name: format!("m{number}"),
        key,
        algorithm: algorithm.to_owned(),
        parameters: Parameters::new([("state", state)]),
        top: 10_000,
        epoch: EpochLength::Whole,
        memory_bytes: 4 << 20,
        ..asking(&["top"])
    }
}

const KEYS: [&str; 16] = [
    "host",
    "mac",
    "vlan",
    "tcp-flags",
    "source-mac",
    "destination-mac",
    "conversation",
    "five-tuple",
    "destination",
    "host+protocol+vlan",
    "mac+tcp-flags",
    "source-mac+destination-mac+vlan",
    "source+source-mac",
    "pair+vlan+tcp-flags",
    "five-tuple+vlan+tcp-flags",
    "conversation+vlan",
];

/// Alone and beside others, with and without details: the flows are those of plain counting.
#[test]
fn fields_beyond_five_tuples_are_counted() {
    let (bytes, packets) = detailed_packets(3000);
    for state in ["counter", "detail"] {
        let configs: Vec<_> = KEYS
            .iter()
            .enumerate()
            .map(|(number, key)| config(number, key.parse().unwrap(), "linear-table", state))
            .collect();
        let expected: Vec<_> = configs
            .iter()
            .map(|config| {
                let mut flows = counted_flows(config.key, &packets);
                if state == "counter" {
                    for flow in flows.values_mut() {
                        *flow = Flow { all: flow.all, ..Flow::default() };
                    }
                }
                flows
            })
            .collect();
        let check = |reports: &BTreeMap<String, Value>, config: &Config, number: usize| {
            let line = &reports[&config.name];
            let flows = reported_flows(line, config.key.kind(), state == "detail");
            assert_eq!(flows, expected[number], "{} {state}", config.key);
            assert_eq!(line["account"]["keyed"], packets.len());
        };
        for (number, config) in configs.iter().enumerate() {
            check(&reports(Plan::new(config.clone()).unwrap(), &bytes), config, number);
            let two = Plan::new(Config { workers: 2, ..config.clone() }).unwrap();
            check(&reports(two, &bytes), config, number);
        }
        for at in (0..KEYS.len()).step_by(8) {
            let several = Plan::several(configs[at..at + 8].to_vec()).unwrap();
            let reports = reports(several, &bytes);
            for (number, config) in configs.iter().enumerate().skip(at).take(8) {
                check(&reports, config, number);
            }
        }
    }
}

/// Every exact table keeps details, and so do the tables of several layouts.
#[test]
fn every_exact_table_keeps_details() {
    let (bytes, packets) = detailed_packets(2000);
    for algorithm in ["linear-table", "indirect-table", "cuckoo-1", "cuckoo-4"] {
        for key in ["host", "vlan", "conversation"] {
            let config = config(0, key.parse().unwrap(), algorithm, "detail");
            let reports = reports(Plan::new(config.clone()).unwrap(), &bytes);
            let flows = reported_flows(&reports["m0"], config.key.kind(), true);
            assert_eq!(flows, counted_flows(config.key, &packets), "{algorithm} {key}");
        }
    }
}

/// Protocols and ports are the same beside any summary, alone and with others, whatever the key.
#[test]
fn protocols_and_services_stand_beside_any_summary() {
    let (bytes, packets) = detailed_packets(3000);
    let mut protocols: BTreeMap<u64, [u64; 2]> = BTreeMap::new();
    let mut ports: BTreeMap<(u64, u64), [u64; 2]> = BTreeMap::new();
    for packet in &packets {
        let port = packet.ports[0].min(packet.ports[1]);
        let protocol = u64::from(packet.protocol);
        for to in [
            protocols.entry(protocol).or_default(),
            ports.entry((protocol, port.into())).or_default(),
        ] {
            *to = [to[0] + 1, to[1] + packet.bytes];
        }
    }
    let size = |item: &Value| ["packets", "bytes"].map(|by| item[by].as_u64().unwrap());
    let check = |line: &Value, what: &str| {
        let items = |list: &str| line["breakdown"][list].as_array().unwrap().clone();
        let number = |item: &Value, field: &str| item[field].as_u64().unwrap();
        let own: BTreeMap<_, _> =
            items("protocols").iter().map(|item| (number(item, "protocol"), size(item))).collect();
        assert_eq!(own, protocols, "{what}");
        let own: BTreeMap<_, _> = items("ports")
            .iter()
            .map(|item| ((number(item, "protocol"), number(item, "port")), size(item)))
            .collect();
        assert_eq!(own, ports, "{what}");
    };
    let config = |number: usize, algorithm: &str, key: &str| Config {
        name: format!("m{number}"),
        key: key.parse().unwrap(),
        algorithm: algorithm.to_owned(),
        epoch: EpochLength::Whole,
        memory_bytes: 4 << 20,
        tasks: None,
        services: true,
        ..asking(&[])
    };
    let mut configs = Vec::new();
    for algorithm in ["linear-table", "count-min", "hyperloglog", "space-saving", "flow-radar"] {
        for key in ["five-tuple", "source", "vlan", "host", "conversation"] {
            let config = config(configs.len(), algorithm, key);
            let what = format!("{algorithm} {key}");
            check(&reports(Plan::new(config.clone()).unwrap(), &bytes)[&config.name], &what);
            configs.push(config);
        }
    }
    for configs in configs.chunks(9) {
        let reports = reports(Plan::several(configs.to_vec()).unwrap(), &bytes);
        for config in configs {
            check(
                &reports[&config.name],
                &format!("{} {} beside others", config.algorithm, config.key),
            );
        }
    }
}
