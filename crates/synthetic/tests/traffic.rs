//! Synthetic traffic follows its configuration, to the byte, and its truth is exact.

#![expect(clippy::unwrap_used, reason = "a test may fail")]

use std::collections::{HashMap, HashSet};

use etherparse::{NetSlice, SlicedPacket, TransportSlice};
use flowgauge_core::key::{CanonicalKey, Extract, FlowKey, Key16, Key37, KeyKind};
use flowgauge_core::packet::{Headers, LinkType, parse};
use flowgauge_core::terms;
use flowgauge_synthetic::{
    Config, ConfigError, Packet, PcapWriter, Plant, PlantError, PlantKind, Profile, Size, Traffic,
    Truth, Volume, to_pcap_bytes,
};
use pcap_parser::PcapCapture;

fn traffic(config: Config) -> Traffic {
    Traffic::new(config).unwrap()
}

fn small() -> Config {
    Config { profile: Profile::Zipf { flows: 500, skew: 1.1 }, packets: 5_000, ..Config::default() }
}

fn plants(texts: &[&str]) -> Vec<Plant> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

/// FNV-1a over 64 bits: enough to notice a change.
fn digest(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |digest, &byte| {
        (digest ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// Bytes of past releases. A change here breaks every recorded experiment and must be announced in
/// the change log.
#[test]
fn equal_configurations_always_give_equal_bytes() {
    let zipf = Config {
        size: Size::Imix,
        ipv6: 0.25,
        seed: 42,
        plants: plants(&["scan:destinations=200", "flood:start=0.3", "burst", "vanish"]),
        ..small()
    };
    let backbone =
        Config { profile: Profile::Backbone { flows: None }, packets: 50_000, ..small() };
    for (config, golden) in [(zipf, GOLDEN_ZIPF), (backbone, GOLDEN_BACKBONE)] {
        let bytes = to_pcap_bytes(traffic(config.clone()));
        assert_eq!(digest(&bytes), golden, "{:#x}", digest(&bytes));
        assert_eq!(bytes, to_pcap_bytes(traffic(config.clone())));
        let other = Config { seed: config.seed + 1, ..config };
        assert_ne!(digest(&to_pcap_bytes(traffic(other))), golden);
    }
}

const GOLDEN_ZIPF: u64 = 0x0d12_6f79_e9f1_e1a6;
const GOLDEN_BACKBONE: u64 = 0x573f_2cdf_9358_f838;

fn key_of(frame: &[u8]) -> CanonicalKey {
    match parse(LinkType::ETHERNET, frame) {
        Headers::V4(ip) => {
            let key: Key16 = Extract::<8>::extract(KeyKind::FIVE_TUPLE, &ip).unwrap();
            CanonicalKey::new(key.canonical(13))
        }
        Headers::V6(ip) => {
            let key: Key37 = Extract::<32>::extract(KeyKind::FIVE_TUPLE, &ip).unwrap();
            CanonicalKey::new(key.canonical(37))
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn frames_match_their_packets() {
    let config = Config {
        size: Size::Imix,
        ipv6: 0.5,
        plants: plants(&["scan", "flood", "burst", "vanish"]),
        ..small()
    };
    let mut frame = vec![0xaa; Packet::MAX_WIRE];
    let (mut tcp, mut udp) = (0, 0);
    for packet in traffic(config) {
        let len = packet.frame(&mut frame);
        assert_eq!(len, packet.wire as usize);
        let frame = &frame[..len];
        assert_eq!(key_of(frame), packet.key);
        // An independent parser checks lengths and checksums.
        let sliced = SlicedPacket::from_ethernet(frame).unwrap();
        let (transport, pseudo) = (sliced.transport.unwrap(), sliced.net.unwrap());
        match (&pseudo, &transport) {
            (NetSlice::Ipv4(ip), transport) => {
                let header = ip.header().to_header();
                assert_eq!(header.header_checksum, header.calc_header_checksum());
                assert_eq!(usize::from(header.total_len), len - 14);
                let (found, right) = match transport {
                    TransportSlice::Tcp(tcp) => (
                        tcp.checksum(),
                        tcp.to_header().calc_checksum_ipv4(&header, tcp.payload()).unwrap(),
                    ),
                    TransportSlice::Udp(udp) => (
                        udp.checksum(),
                        udp.to_header().calc_checksum_ipv4(&header, udp.payload()).unwrap(),
                    ),
                    other => panic!("{other:?}"),
                };
                assert_eq!(found, right);
            }
            (NetSlice::Ipv6(ip), transport) => {
                let header = ip.header().to_header();
                assert_eq!(usize::from(header.payload_length), len - 54);
                let (found, right) = match transport {
                    TransportSlice::Tcp(tcp) => (
                        tcp.checksum(),
                        tcp.to_header().calc_checksum_ipv6(&header, tcp.payload()).unwrap(),
                    ),
                    TransportSlice::Udp(udp) => (
                        udp.checksum(),
                        udp.to_header().calc_checksum_ipv6(&header, udp.payload()).unwrap(),
                    ),
                    other => panic!("{other:?}"),
                };
                assert_eq!(found, right);
            }
            (other, _) => panic!("{other:?}"),
        }
        match transport {
            TransportSlice::Tcp(_) => tcp += 1,
            _ => udp += 1,
        }
    }
    assert!(tcp > 0 && udp > 0);
}

#[test]
fn short_frames_are_enlarged_to_their_headers() {
    for (size, ipv6) in [(42, 0.0), (42, 1.0), (64, 0.0), (64, 1.0), (65_535, 0.5)] {
        let config = Config { size: Size::Fixed(size), ipv6, packets: 500, ..small() };
        let mut lengths = HashSet::new();
        let mut frame = vec![0; Packet::MAX_WIRE];
        for packet in traffic(config) {
            let len = packet.frame(&mut frame);
            assert_eq!(key_of(&frame[..len]), packet.key);
            lengths.insert(packet.wire);
        }
        let expected: &[u32] = match (size, ipv6 > 0.0) {
            (42, false) => &[42, 54],
            (42, true) => &[62, 74],
            (64, true) => &[64, 74],
            (size, _) => &[size],
        };
        assert_eq!(lengths, expected.iter().copied().collect(), "size {size}, ipv6 {ipv6}");
    }
}

#[test]
fn the_file_holds_the_packets() {
    let config = Config { rate: 3, ipv6: 0.3, size: Size::Imix, ..small() };
    let bytes = to_pcap_bytes(traffic(config.clone()));
    let capture = PcapCapture::from_file(&bytes).unwrap();
    assert!(capture.header.is_nanosecond_precision());
    assert_eq!(capture.blocks.len(), 5_000);
    for (index, (block, packet)) in (0..).zip(capture.blocks.iter().zip(traffic(config))) {
        let time = i64::from(block.ts_sec) * 1_000_000_000 + i64::from(block.ts_usec);
        assert_eq!(time, Config::START_NS + index * 1_000_000_000 / 3);
        assert_eq!(time, packet.time_ns);
        assert_eq!((block.caplen, block.origlen), (packet.wire, packet.wire));
        assert_eq!(key_of(block.data), packet.key);
    }
}

#[test]
fn truth_counts_every_packet() {
    let config = Config { size: Size::Imix, plants: plants(&["scan"]), ..small() };
    let truth = Truth::of(traffic(config.clone()));
    let mut flows: HashMap<CanonicalKey, terms::Size> = HashMap::new();
    let mut total = terms::Size::default();
    for packet in traffic(config) {
        for count in [flows.entry(packet.key).or_default(), &mut total] {
            count.packets += 1;
            count.bytes += u64::from(packet.wire);
        }
    }
    assert_eq!((truth.flows(), truth.total()), (&flows, total));
    assert_eq!(truth.total().packets, 5_000);
    let entropy: f64 = flows
        .values()
        .map(|count| count.packets as f64 / 5_000.0)
        .map(|share| -share * share.log2())
        .sum();
    assert!((truth.entropy_bits() - entropy).abs() < 1e-9);
    let sources = truth.by(|key| CanonicalKey::new(&key.as_bytes()[..4]));
    assert_eq!(sources.values().map(|count| count.packets).sum::<u64>(), 5_000);
    assert_eq!(sources[&CanonicalKey::new(&[198, 18, 0, 0])].packets, 1_000);
}

/// Number of distinct addresses and ports of one side, among the flows with `host` on the other
/// side.
fn endpoints(truth: &Truth, host: [u8; 4], host_is_source: bool) -> usize {
    let (host_at, address_at, port_at) = if host_is_source { (0, 4, 10) } else { (4, 0, 8) };
    let flows = truth.flows().keys().map(CanonicalKey::as_bytes);
    let of_host = flows.filter(|key| key[host_at..host_at + 4] == host);
    let distinct: HashSet<_> =
        of_host.map(|key| (&key[address_at..address_at + 4], &key[port_at..port_at + 2])).collect();
    distinct.len()
}

#[test]
fn planted_events_match_their_configuration() {
    let config = Config {
        packets: 200_000,
        plants: plants(&[
            "scan:destinations=70000,start=0.1,end=0.9",
            "flood:sources=3000,packets=9001",
            "burst:packets=2000,start=0.5,end=0.55",
            "vanish:share=0.2,at=0.25",
        ]),
        ..small()
    };
    let mut seen = HashMap::new();
    for packet in traffic(config.clone()).filter(|packet| packet.event.is_some()) {
        let first_octets = &packet.key.as_bytes()[..2];
        assert!([&[198, 18], &[198, 19]].contains(&<&[u8; 2]>::try_from(first_octets).unwrap()));
        *seen.entry(packet.event.unwrap()).or_insert(0) += 1;
    }
    assert_eq!(seen, HashMap::from([(0, 70_000), (1, 9_001), (2, 2_000), (3, 10_000)]));

    let truth = Truth::of(traffic(config));
    assert_eq!(endpoints(&truth, [198, 18, 0, 0], true), 70_000);
    assert_eq!(endpoints(&truth, [198, 18, 0, 1], false), 3_000);
    assert_eq!(endpoints(&truth, [198, 18, 0, 2], true), 1);
    assert_eq!(endpoints(&truth, [198, 18, 0, 3], false), 1);
    // No background flow has more than a few.
    assert!(endpoints(&truth, [198, 19, 0, 0], true) < 5);
    // A flood of 9,001 packets gives its 3,000 sources 3 or 4 each.
    let sizes: HashSet<u64> = truth
        .flows()
        .iter()
        .filter(|(key, _)| key.as_bytes()[4..8] == [198, 18, 0, 1])
        .map(|(_, count)| count.packets)
        .collect();
    assert_eq!(sizes, HashSet::from([3, 4]));

    // At 1 Mpps, a packet is a microsecond: windows to the packet.
    let window = |event: usize| {
        let (first, last) = truth.planted()[event].times_ns;
        ((first - Config::START_NS) / 1_000, (last - Config::START_NS) / 1_000)
    };
    for (event, (start, end)) in
        [(0, (20_000, 180_000)), (1, (0, 200_000)), (2, (100_000, 110_000)), (3, (0, 50_000))]
    {
        let (first, last) = window(event);
        let slack = (end - start) / 50;
        assert!((start..start + slack).contains(&first), "event {event} begins at {first}");
        assert!((end - slack..end).contains(&last), "event {event} ends at {last}");
    }
}

#[test]
fn json_equals_the_truth() {
    let config = Config {
        ipv6: 0.5,
        plants: plants(&["scan:destinations=20", "flood:sources=20", "burst", "vanish"]),
        ..small()
    };
    let truth = Truth::of(traffic(config));
    let mut text = Vec::new();
    truth.write_json(&mut text).unwrap();
    let json: serde_json::Value = serde_json::from_slice(&text).unwrap();
    assert_eq!(json["packets"], 5_000);
    assert_eq!(json["bytes"], truth.total().bytes);
    assert_eq!(json["flows"], truth.cardinality());
    assert!((json["entropy_bits"].as_f64().unwrap() - truth.entropy_bits()).abs() < 1e-12);
    let counts = json["counts"].as_array().unwrap();
    assert_eq!(counts.len() as u64, truth.cardinality());
    let packets: Vec<u64> = counts.iter().map(|flow| flow["packets"].as_u64().unwrap()).collect();
    assert!(packets.is_sorted_by(|a, b| a >= b));
    assert_eq!(packets.iter().sum::<u64>(), 5_000);
    let planted = json["planted"].as_array().unwrap();
    let kinds: Vec<&str> = planted.iter().map(|event| event["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["scan", "flood", "burst", "vanish"]);
    let scan = serde_json::json!({"source": "198.18.0.0", "source_port": 45678, "protocol": 6});
    assert_eq!((&planted[0]["key"], &planted[0]["flows"]), (&scan, &20.into()));
    let flood =
        serde_json::json!({"destination": "198.18.0.1", "destination_port": 80, "protocol": 6});
    assert_eq!((&planted[1]["key"], &planted[1]["packets"]), (&flood, &20.into()));
    assert_eq!(planted[2]["key"]["destination"], "198.19.0.0");
    assert_eq!(planted[3]["packets"], 125);

    let mut empty = Vec::new();
    Truth::of(traffic(Config { packets: 0, ..small() })).write_json(&mut empty).unwrap();
    let json: serde_json::Value = serde_json::from_slice(&empty).unwrap();
    assert_eq!(json["counts"], serde_json::json!([]));
    assert_eq!(json["entropy_bits"], 0.0);
}

#[test]
fn extreme_configurations_work() {
    let backbone = |flows| Profile::Backbone { flows };
    let zipf = |flows, skew| Profile::Zipf { flows, skew };
    for profile in [
        zipf(1, 0.0),
        zipf(1, 2.0),
        zipf(Config::MOST_FLOWS, 0.0),
        zipf(Config::MOST_FLOWS, 2.0),
        backbone(None),
        backbone(Some(1)),
        backbone(Some(10)),
    ] {
        for ipv6 in [0.0, 1.0] {
            let config = Config { profile, ipv6, packets: 2_000, ..small() };
            let truth = Truth::of(traffic(config));
            assert_eq!(truth.total().packets, 2_000);
            let versions: HashSet<usize> =
                truth.flows().keys().map(|key| key.as_bytes().len()).collect();
            assert_eq!(versions, HashSet::from([if ipv6 > 0.0 { 37 } else { 13 }]));
            let one = matches!(
                profile,
                Profile::Zipf { flows: 1, .. } | Profile::Backbone { flows: Some(1) }
            );
            assert_eq!(truth.cardinality() == 1, one);
        }
    }
    // No skew and more flows than packets: almost every packet is its own flow.
    let uniform = Config { profile: zipf(Config::MOST_FLOWS, 0.0), ..small() };
    assert!(Truth::of(traffic(uniform)).cardinality() >= 4_990);
    // No packets: a header.
    let empty = Config { packets: 0, ..small() };
    assert_eq!(traffic(empty.clone()).len(), 0);
    assert_eq!(to_pcap_bytes(traffic(empty)).len(), 24);
    // Only planted packets.
    let all = Config { plants: plants(&["burst:packets=5000,start=0,end=1"]), ..small() };
    assert_eq!(Truth::of(traffic(all)).cardinality(), 1);
}

#[test]
fn a_shorter_run_is_a_prefix_of_a_longer_one() {
    for profile in [Profile::Zipf { flows: 500, skew: 1.0 }, Profile::Backbone { flows: None }] {
        let long = Config { profile, packets: 2_000, ..small() };
        let short = Config { packets: 1_000, ..long.clone() };
        assert!(traffic(long).take(1_000).eq(traffic(short)));
    }
}

#[test]
fn buffers_are_refilled_without_allocating() {
    let mut traffic = traffic(small());
    let mut buffer = Vec::with_capacity(256);
    let mut total = 0;
    loop {
        buffer.clear();
        buffer.extend(traffic.by_ref().take(256));
        assert_eq!(buffer.capacity(), 256);
        total += buffer.len();
        if buffer.is_empty() {
            break;
        }
    }
    assert_eq!(total, 5_000);
}

#[test]
fn invalid_configurations_are_refused() {
    let error = |config| Traffic::new(config).unwrap_err();
    let zipf = |flows, skew| Config { profile: Profile::Zipf { flows, skew }, ..small() };
    assert_eq!(error(zipf(0, 1.0)), ConfigError::Flows(0));
    assert_eq!(error(zipf((1 << 32) + 1, 1.0)), ConfigError::Flows((1 << 32) + 1));
    assert_eq!(error(zipf(1, 2.1)), ConfigError::Skew(2.1));
    assert!(matches!(error(zipf(1, f64::NAN)), ConfigError::Skew(_)));
    assert_eq!(error(Config { ipv6: -0.1, ..small() }), ConfigError::Ipv6(-0.1));
    assert_eq!(error(Config { rate: 0, ..small() }), ConfigError::Rate);
    assert_eq!(error(Config { size: Size::Fixed(41), ..small() }), ConfigError::Size(41));
    let long = Config { packets: u64::MAX, ..small() };
    assert_eq!(error(long), ConfigError::Time { packets: u64::MAX, rate: 1_000_000 });
    assert!(matches!(error(Config { start_ns: -1, ..small() }), ConfigError::Time { .. }));
    let backbone =
        |flows, packets| Config { profile: Profile::Backbone { flows }, packets, ..small() };
    assert_eq!(error(backbone(Some(0), 10)), ConfigError::Flows(0));
    assert_eq!(
        error(backbone(Some(1_000_000), 1_000)),
        ConfigError::BackboneFlows { flows: 1_000_000, packets: 1_000, most: 21_000 }
    );

    let planted = |texts: &[&str]| Config { plants: plants(texts), ..small() };
    assert_eq!(
        error(planted(&["scan", "flood:sources=4001"])).to_string(),
        "event 2 (flood) has 4001 packets, but its window has room for only 4000; plant fewer, \
            widen the window or raise --packets"
    );
    assert_eq!(
        error(Config { packets: 0, ..planted(&["vanish"]) }).to_string(),
        "event 1 (vanish): 0 packets cannot make 1 flows; give each at least one packet"
    );
    let contradictory = Plant { volume: Volume::Packets(3), ..Plant::new(PlantKind::Scan) };
    assert_eq!(
        error(Config { plants: vec![contradictory], ..small() }),
        ConfigError::Plant {
            number: 1,
            kind: "scan",
            error: PlantError::Packets { packets: 3, flows: 1_000 }
        }
    );
}

#[test]
fn a_full_disk_is_an_error() {
    struct Full;
    impl std::io::Write for Full {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(std::io::ErrorKind::StorageFull.into())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut writer = PcapWriter::new(Full);
    let failed = traffic(small()).find_map(|packet| writer.write(&packet).err()).unwrap();
    assert_eq!(failed.kind(), std::io::ErrorKind::StorageFull);
}
