//! Keys: their names, masks, fields and extraction from packets.

use std::net::{IpAddr, Ipv6Addr};

use flowgauge_core::key::{
    CanonicalKey, Extract, Field, FlowKey, Key8, Key16, Key37, KeyError, KeyKind, KeySpec,
};
use flowgauge_core::packet::{Extras, Fault, Ip, Layer, Malformed, Ports};

/// The fields of the packets below, in their order.
type Flow = [&'static str; 11];
const FLOW4: Flow = flow(["10.1.2.3", "192.168.7.9"]);
const FLOW6: Flow = flow(["2001:db8::a:1", "2001:db8:9::ffff"]);

const fn flow([source, destination]: [&'static str; 2]) -> Flow {
    let (mac, other) = ("02:00:00:00:00:0a", "02:00:00:00:00:0b");
    [source, destination, source, "4660", "443", "6", "4094", "SYN+ACK", mac, other, mac]
}

/// The extras of the frames.
const EXTRAS: Extras =
    Extras { macs: [2, 0, 0, 0, 0, 10, 2, 0, 0, 0, 0, 11], vlan: 4094, tcp_flags: 0x12 };

const PORTS: Ports = Ports::Found(0x1234_01bb);

fn spec(text: &str) -> KeySpec {
    text.parse().unwrap()
}

fn packet4(ports: Ports) -> Ip<8> {
    Ip { addresses: [10, 1, 2, 3, 192, 168, 7, 9], protocol: 6, ports }
}

fn packet6(ports: Ports) -> Ip<32> {
    let mut addresses = [0; 32];
    addresses[..4].copy_from_slice(&[0x20, 1, 0xd, 0xb8]);
    addresses[13] = 10;
    addresses[15] = 1;
    addresses[16..22].copy_from_slice(&[0x20, 1, 0xd, 0xb8, 0, 9]);
    addresses[30..].fill(255);
    Ip { addresses, protocol: 6, ports }
}

/// Every set of fields that is a valid key.
fn every_kind() -> impl Iterator<Item = KeyKind> {
    let set = |bits: usize| {
        let fields = (0..11).filter(|at| bits >> at & 1 == 1).map(|at| Field::ALL[at]);
        KeyKind::of(&fields.collect::<Vec<_>>())
    };
    (1..1 << 11).map(set).filter(|kind| kind.to_string().parse::<KeySpec>().is_ok())
}

#[test]
fn fields_stand_together_where_they_fit_and_agree() {
    // All sets of the eight fields of one end, except those with too many MAC addresses; and all
    // sets of the five fields without an end, with one of `host` and `mac`.
    let has_mac = |kind: &KeyKind| kind.has(Field::SourceMac) || kind.has(Field::DestinationMac);
    let kinds: Vec<_> = every_kind().collect();
    assert_eq!(kinds.iter().filter(|kind| !kind.is_either() && !has_mac(kind)).count(), 127);
    assert_eq!(kinds.iter().filter(|kind| kind.is_either()).count(), 16);
    let message = |text: &str| text.parse::<KeySpec>().unwrap_err().to_string();
    for (text, reason) in [
        (
            "host+source",
            "'host' and 'mac' match either end of a packet; leave out the field of one end",
        ),
        (
            "destination-port+mac",
            "'host' and 'mac' match either end of a packet; leave out the field of one end",
        ),
        ("host+mac", "'host' and 'mac' both match either end of a packet; use one of them"),
        ("five-tuple+source-mac", "it has too many fields; leave a MAC address out"),
        ("pair+source-mac+destination-mac", "it has too many fields; leave a MAC address out"),
        (
            "source+source-mac+destination-mac+vlan",
            "it has too many fields; leave a MAC address out",
        ),
    ] {
        assert_eq!(message(text), format!("invalid key '{text}': {reason}"));
    }
    for text in [
        "host/24+protocol",
        "conversation/24+vlan",
        "source+source-mac+destination-mac",
        "source+destination+vlan+source-mac",
    ] {
        assert_eq!(spec(text).to_string(), text);
    }
}

/// The flow of a packet under the key `kind`, in the text of the command line.
fn flow_text(kind: KeyKind, values: Flow) -> String {
    let fields = Field::ALL.iter().zip(values).filter(|(field, _)| kind.has(**field));
    let text = |(field, value): (&Field, &str)| format!("{}={value}", field.name());
    fields.map(text).collect::<Vec<_>>().join(",")
}

fn extract<K: FlowKey + Extract<N>, const N: usize>(
    kind: KeyKind,
    ip: &Ip<N>,
) -> Result<CanonicalKey, Malformed> {
    let all = K::from_canonical(&vec![0xff; K::BYTES]).unwrap();
    let key = K::extract_bits(kind, ip, &EXTRAS, all)?;
    let lanes = KeySpec::from(kind).lanes();
    let bytes = lanes[if N == 8 { 0 } else { lanes.len() - 1 }];
    assert!(K::from_canonical(key.canonical(bytes)) == Some(key), "the unused bytes are zero");
    Ok(CanonicalKey::new(key.canonical(bytes)))
}

fn extract4(kind: KeyKind, ip: &Ip<8>) -> Result<CanonicalKey, Malformed> {
    match KeySpec::from(kind).lanes()[0] {
        4 | 8 => extract::<Key8, 8>(kind, ip),
        _ => extract::<Key16, 8>(kind, ip),
    }
}

fn extract6(kind: KeyKind, ip: &Ip<32>) -> Result<CanonicalKey, Malformed> {
    match KeySpec::from(kind).lanes() {
        [4 | 8] => extract::<Key8, 32>(kind, ip),
        [16] | [_, 16] => extract::<Key16, 32>(kind, ip),
        _ => extract::<Key37, 32>(kind, ip),
    }
}

#[test]
fn keys_of_packets_are_the_flows_of_the_command_line() {
    for kind in every_kind() {
        let spec = KeySpec::from(kind);
        let flow = |values| spec.parse_flow(&flow_text(kind, values)).unwrap();
        assert_eq!(extract4(kind, &packet4(PORTS)), Ok(flow(FLOW4)), "{kind:?}");
        assert_eq!(extract6(kind, &packet6(PORTS)), Ok(flow(FLOW6)), "{kind:?}");
    }
    let ports = |mut values: Flow| {
        values[3..5].fill("0");
        values
    };
    for kind in every_kind() {
        let flow = |values| KeySpec::from(kind).parse_flow(&flow_text(kind, values)).unwrap();
        assert_eq!(extract4(kind, &packet4(Ports::Absent)), Ok(flow(ports(FLOW4))));
        assert_eq!(extract6(kind, &packet6(Ports::Absent)), Ok(flow(ports(FLOW6))));
    }
}

#[test]
fn canonical_bytes_are_in_network_order() {
    let bytes = |kind| extract4(kind, &packet4(PORTS)).unwrap();
    assert_eq!(bytes(KeyKind::DESTINATION).as_bytes(), [192, 168, 7, 9]);
    assert_eq!(bytes(KeyKind::PROTOCOL).as_bytes(), [0, 0, 0, 6]);
    assert_eq!(bytes(KeyKind::DESTINATION_PORT).as_bytes(), [0, 0, 1, 0xbb]);
    let five_tuple = [10, 1, 2, 3, 192, 168, 7, 9, 0x12, 0x34, 1, 0xbb, 6];
    assert_eq!(bytes(KeyKind::FIVE_TUPLE).as_bytes(), five_tuple);
}

/// Addresses at the start, numbers at the end, and zeros between, up to a possible key length.
#[test]
fn combinations_are_padded_between_addresses_and_numbers() {
    let long6 = |source: &str, rest: &[u8]| {
        let address: Ipv6Addr = source.parse().unwrap();
        [&address.octets()[..], rest].concat()
    };
    for (key, v4, v6) in [
        (
            "source+destination-port",
            vec![10, 1, 2, 3, 0, 0, 1, 0xbb],
            long6(FLOW6[0], &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xbb]),
        ),
        (
            "protocol+destination",
            vec![192, 168, 7, 9, 0, 0, 0, 6],
            long6(FLOW6[1], &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 6]),
        ),
        (
            "destination-port+source-port+protocol+source",
            vec![10, 1, 2, 3, 0, 0, 0, 0, 0x12, 0x34, 1, 0xbb, 6],
            long6(FLOW6[0], &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x12, 0x34, 1, 0xbb, 6]),
        ),
        (
            "pair+destination-port",
            vec![10, 1, 2, 3, 192, 168, 7, 9, 0, 0, 0, 1, 0xbb],
            [long6(FLOW6[0], &[]), long6(FLOW6[1], &[0, 0, 0, 1, 0xbb])].concat(),
        ),
    ] {
        let kind = spec(key).kind();
        assert_eq!(extract4(kind, &packet4(PORTS)).unwrap().as_bytes(), v4, "{key}");
        assert_eq!(extract6(kind, &packet6(PORTS)).unwrap().as_bytes(), v6, "{key}");
    }
    for (key, both) in [
        ("source-port+destination-port", vec![0x12, 0x34, 1, 0xbb]),
        ("destination-port+protocol", vec![0, 1, 0xbb, 6]),
        ("source-port+protocol", vec![0, 0x12, 0x34, 6]),
        ("source-port+destination-port+protocol", vec![0, 0, 0, 0x12, 0x34, 1, 0xbb, 6]),
    ] {
        let kind = spec(key).kind();
        assert_eq!(extract4(kind, &packet4(PORTS)).unwrap().as_bytes(), both, "{key}");
        assert_eq!(extract6(kind, &packet6(PORTS)).unwrap().as_bytes(), both, "{key}");
    }
}

#[test]
fn a_key_is_malformed_only_where_it_needs_a_malformed_field() {
    let malformed = Malformed { layer: Layer::Transport, offset: 34, fault: Fault::Cut };
    for (ports, protocol_known) in
        [(Ports::Malformed(malformed), true), (Ports::Unreached(malformed), false)]
    {
        for kind in every_kind() {
            let has_ports = kind.has(Field::SourcePort) || kind.has(Field::DestinationPort);
            let readable = !has_ports && (protocol_known || !kind.has(Field::Protocol));
            let whole4 = extract4(kind, &packet4(PORTS));
            let whole6 = extract6(kind, &packet6(PORTS));
            let or = |whole| if readable { whole } else { Err(malformed) };
            assert_eq!(extract4(kind, &packet4(ports)), or(whole4), "{kind:?}");
            assert_eq!(extract6(kind, &packet6(ports)), or(whole6), "{kind:?}");
        }
    }
}

#[test]
fn names_and_prefixes_read_back() {
    for (name, kind) in KeyKind::NAMED {
        assert_eq!(kind.to_string(), name);
        assert_eq!(spec(name), KeySpec::from(kind));
    }
    for (number, kind) in every_kind().enumerate() {
        let step = if number < 7 { 1 } else { 31 };
        for v4 in (0..=32).step_by(step) {
            for v6 in (0..=128).step_by(step) {
                let one = KeySpec::from(kind).with_prefixes(v4, v6);
                assert_eq!(spec(&one.to_string()), one);
            }
        }
    }
    for (text, shown) in [
        ("destination+source", "pair"),
        ("source/24+destination/24", "pair/24"),
        ("destination/16+source/24,48", "source/24,48+destination/16"),
        ("destination-port+source/24", "source/24+destination-port"),
        ("pair/24+destination-port", "source/24+destination/24+destination-port"),
        ("pair+protocol+destination-port+source-port", "five-tuple"),
        (
            "source/8+destination+source-port+destination-port+protocol",
            "source/8+destination+source-port+destination-port+protocol",
        ),
    ] {
        assert_eq!(spec(text).to_string(), shown);
        assert_eq!(spec(shown), spec(text));
    }
    assert_eq!(spec("source/24").to_string(), "source/24");
    assert_eq!(spec("pair/32,48").to_string(), "pair/32,48");
    assert_eq!(spec("pair/32,128").to_string(), "pair");
    let address = |text: &str| text.parse::<IpAddr>().unwrap();
    let (source, destination) = (Field::Source, Field::Destination);
    assert_eq!(spec("source/24").prefix_of(source, address("10.0.0.0")), Some(24));
    assert_eq!(spec("source/24").prefix_of(source, address("2001:db8::")), None);
    assert_eq!(spec("source/32,48").prefix_of(source, address("2001:db8::")), Some(48));
    let uneven = spec("source/24+destination/16");
    assert_eq!(uneven.prefix_of(source, address("10.0.0.0")), Some(24));
    assert_eq!(uneven.prefix_of(destination, address("10.0.0.0")), Some(16));
}

#[test]
fn specs_that_are_none() {
    for text in ["", "sources", "Source", " source", "src", "five_tuple"] {
        let refused = text.parse::<KeySpec>();
        assert!(matches!(refused, Err(KeyError::Unknown(unknown)) if unknown.name == text));
    }
    for prefix in ["", "33", "-1", "x", "24,", "24,129", ",48", "24,48,1", "256", "24/48"] {
        let text = format!("pair/{prefix}");
        assert_eq!(text.parse::<KeySpec>(), Err(KeyError::Prefix(prefix.to_owned())), "{text}");
    }
    for name in ["protocol", "source-port", "destination-port"] {
        let text = format!("{name}/8");
        assert_eq!(text.parse::<KeySpec>(), Err(KeyError::NoAddress(name)));
    }
    let message = |text: &str| text.parse::<KeySpec>().unwrap_err().to_string();
    assert!(message("src").contains("'src'") && message("src").contains("did you mean 'source'?"));
    assert_eq!(message("five_tuple"), "unknown key 'five_tuple'; did you mean 'five-tuple'?");
    assert_eq!(
        message("source+destination_port"),
        "unknown key 'destination_port'; did you mean 'destination-port'?"
    );
    assert_eq!(
        message("source+port/8"),
        "unknown key 'port'; available: source, destination, host, pair, five-tuple, conversation, \
         protocol, source-port, destination-port, vlan, tcp-flags, source-mac, destination-mac, mac"
    );
    assert!(message("source+").starts_with("unknown key ''; available: source,"));
    assert_eq!(
        message("source/24+pair"),
        "key 'source/24+pair' names the field 'source' twice; name it once"
    );
    assert_eq!(
        message("five-tuple+protocol"),
        "key 'five-tuple+protocol' names the field 'protocol' twice; name it once"
    );
}

/// The mask keeps the first bits of each address and everything else.
fn check_mask<K: FlowKey>(spec: KeySpec, bytes: usize, prefix: u8, address_bytes: &[usize]) {
    let all = K::from_canonical(&vec![0xff; bytes]).unwrap();
    let masked = all.masked(spec.mask(bytes));
    let kept = |bit: usize| {
        let mut start = 0;
        for bytes in address_bytes {
            if bit < start + 8 * bytes {
                return bit - start < usize::from(prefix);
            }
            start += 8 * bytes;
        }
        true
    };
    for bit in 0..8 * bytes {
        let set = masked.canonical(bytes)[bit / 8] & (0x80 >> (bit % 8)) != 0;
        assert_eq!(set, kept(bit), "{spec}, bit {bit} of {bytes} bytes");
    }
}

#[test]
fn masks_keep_the_prefix_of_each_address() {
    for v4_prefix in 0..=32 {
        let with = |kind| KeySpec::from(kind).with_prefixes(v4_prefix, 77);
        check_mask::<Key8>(with(KeyKind::SOURCE), 4, v4_prefix, &[4]);
        check_mask::<Key8>(with(KeyKind::DESTINATION), 4, v4_prefix, &[4]);
        check_mask::<Key8>(with(KeyKind::PAIR), 8, v4_prefix, &[4, 4]);
        check_mask::<Key16>(with(KeyKind::FIVE_TUPLE), 13, v4_prefix, &[4, 4]);
    }
    for v6_prefix in 0..=128 {
        let with = |kind| KeySpec::from(kind).with_prefixes(7, v6_prefix);
        check_mask::<Key16>(with(KeyKind::SOURCE), 16, v6_prefix, &[16]);
        check_mask::<Key16>(with(KeyKind::DESTINATION), 16, v6_prefix, &[16]);
        check_mask::<Key37>(with(KeyKind::PAIR), 32, v6_prefix, &[16, 16]);
        check_mask::<Key37>(with(KeyKind::FIVE_TUPLE), 37, v6_prefix, &[16, 16]);
    }
    check_mask::<Key8>(spec("source/20+destination-port"), 8, 20, &[4]);
    check_mask::<Key16>(spec("pair/20+protocol"), 13, 20, &[4, 4]);
    check_mask::<Key37>(spec("destination/1,61+protocol"), 32, 61, &[16]);
    let uneven = spec("source/24+destination/8").mask::<Key8>(8);
    assert_eq!(uneven.canonical(8), [255, 255, 255, 0, 255, 0, 0, 0]);
    check_mask::<Key8>(spec("protocol"), 4, 32, &[]);
    check_mask::<Key8>(spec("destination-port"), 4, 32, &[]);
}

#[test]
fn fields_read_back_from_canonical_bytes() {
    for kind in every_kind() {
        for values in [FLOW4, FLOW6] {
            let spec = KeySpec::from(kind);
            let text = flow_text(kind, values);
            let fields = spec.fields(spec.parse_flow(&text).unwrap().as_bytes());
            let shown = [
                fields.source.map(|value| format!("source={value}")),
                fields.destination.map(|value| format!("destination={value}")),
                fields.host.map(|value| format!("host={value}")),
                fields.source_port.map(|value| format!("source-port={value}")),
                fields.destination_port.map(|value| format!("destination-port={value}")),
                fields.protocol.map(|value| format!("protocol={value}")),
                fields.vlan.map(|value| format!("vlan={value}")),
                fields.tcp_flags.map(|value| format!("tcp-flags={value}")),
                fields.source_mac.map(|value| format!("source-mac={value}")),
                fields.destination_mac.map(|value| format!("destination-mac={value}")),
                fields.mac.map(|value| format!("mac={value}")),
            ];
            assert_eq!(shown.into_iter().flatten().collect::<Vec<_>>().join(","), text);
        }
    }
}

#[test]
fn flows_are_masked_and_take_fields_in_any_order() {
    let pair = spec("pair/8,32");
    let flow = pair.parse_flow("destination=192.168.7.9,source=10.1.2.3").unwrap();
    assert_eq!(flow.as_bytes(), [10, 0, 0, 0, 192, 0, 0, 0]);
    let masked = Key8::extract(KeyKind::PAIR, &packet4(PORTS)).unwrap().masked(pair.mask(8));
    assert_eq!(masked.canonical(8), flow.as_bytes());
    let flow = spec("source/8,32").parse_flow("source=2001:db8:1::1").unwrap();
    assert_eq!(flow.as_bytes()[..6], [0x20, 1, 0xd, 0xb8, 0, 0]);
    let dashed = spec("destination-port").parse_flow("destination-port=53").unwrap();
    assert_eq!(dashed.as_bytes(), [0, 0, 0, 53]);
    let none = spec("pair/0,0").parse_flow("source=10.1.2.3,destination=1.1.1.1").unwrap();
    assert_eq!(none.as_bytes(), [0; 8]);
}

/// The lower endpoint comes first, compared after masking: both directions have the same key.
#[test]
fn both_directions_are_one_conversation() {
    let packet = |[source, destination]: [(u8, u16); 2]| {
        let ports = Ports::Found(u32::from(source.1) << 16 | u32::from(destination.1));
        Ip { addresses: [10, 0, 0, source.0, 10, 0, 0, destination.0], protocol: 6, ports }
    };
    let (low, high) = ((1, 5000), (9, 80));
    for (text, expected) in [
        ("conversation", [10, 0, 0, 1, 10, 0, 0, 9, 0x13, 0x88, 0, 80, 6]),
        // With equal addresses, the port decides.
        ("conversation/24", [10, 0, 0, 0, 10, 0, 0, 0, 0, 80, 0x13, 0x88, 6]),
    ] {
        let spec = spec(text);
        for ends in [[low, high], [high, low]] {
            let key =
                Key16::extract_bits(spec.kind(), &packet(ends), &EXTRAS, spec.mask(13)).unwrap();
            assert_eq!(key.canonical(13), expected);
            let [source, destination] = ends;
            let flow = format!(
                "source=10.0.0.{},source-port={},destination=10.0.0.{},destination-port={},protocol=6",
                source.0, source.1, destination.0, destination.1
            );
            assert_eq!(spec.parse_flow(&flow).unwrap().as_bytes(), expected);
        }
    }
    let (there, mut back) = (packet6(PORTS), packet6(Ports::Found(0x01bb_1234)));
    back.addresses.rotate_left(16);
    for text in ["conversation", "conversation/32,32", "conversation/32,45"] {
        let spec = spec(text);
        let key = |ip| Key37::extract_bits(spec.kind(), &ip, &EXTRAS, spec.mask(37)).unwrap();
        assert_eq!(key(there), key(back), "{text}");
    }
    let whole = spec("conversation").parse_flow(&flow_text(KeyKind::CONVERSATION, FLOW6)).unwrap();
    assert_eq!(extract6(KeyKind::CONVERSATION, &back), Ok(whole));
    let with_vlan = spec("conversation+vlan").kind();
    assert_eq!(
        extract4(with_vlan, &packet4(PORTS)),
        extract4(with_vlan, &packet4(PORTS).reversed())
    );
    assert_eq!(extract6(with_vlan, &there), extract6(with_vlan, &back));
    let message = |text: &str| text.parse::<KeySpec>().unwrap_err().to_string();
    assert_eq!(
        message("conversation+protocol"),
        "key 'conversation+protocol' names the field 'protocol' twice; name it once"
    );
}

#[test]
fn flows_that_are_none_say_why() {
    for (key, text, why) in [
        ("source", "", "'' is not FIELD=VALUE"),
        ("source", "10.0.0.1", "'10.0.0.1' is not FIELD=VALUE"),
        ("source", "source=10.0.0.1,", "'' is not FIELD=VALUE"),
        ("source", "src=10.0.0.1", "unknown field 'src'; did you mean 'source'?"),
        ("source", "port=1", "unknown field 'port'; available: source"),
        ("source", "source=10.0.0", "invalid value '10.0.0' for 'source'"),
        ("source", "source=10.0.0.1,source=10.0.0.2", "'source' is given twice"),
        ("source", "destination=10.0.0.1", "'source' is missing"),
        ("source", "source=10.0.0.1,destination=10.0.0.1", "the key has no field 'destination'"),
        ("source", "source=10.0.0.1,protocol=6", "the key has no field 'protocol'"),
        ("pair", "source=10.0.0.1", "'destination' is missing"),
        (
            "pair",
            "source=10.0.0.1,destination=::1",
            "one address is IPv4 and the other IPv6; \
            give two of one kind",
        ),
        ("protocol", "protocol=256", "invalid value '256' for 'protocol'"),
        ("tcp-flags", "tcp-flags=SYM", "invalid value 'SYM' for 'tcp-flags'"),
        ("mac", "mac=02:00:00:00:00", "invalid value '02:00:00:00:00' for 'mac'"),
        ("mac", "mac=2:0:0:0:0:0", "invalid value '2:0:0:0:0:0' for 'mac'"),
        ("protocol", "source=10.0.0.1,protocol=6", "the key has no field 'source'"),
        (
            "destination-port",
            "destination_port=65536",
            "invalid value '65536' for 'destination_port'",
        ),
        ("destination-port", "source_port=1,destination_port=1", "no field 'source_port'"),
        ("five-tuple", "source=1.1.1.1,destination=1.1.1.1", "'source_port' is missing"),
    ] {
        let error = spec(key).parse_flow(text).unwrap_err();
        assert!(matches!(error, KeyError::Flow { .. }), "{error:?}");
        let message = error.to_string();
        assert!(message.ends_with(why), "{key} of {text}: {message}");
    }
}

#[test]
fn canonical_keys_order_by_length_and_bytes() {
    let key = CanonicalKey::new;
    let sorted = [key(&[]), key(&[0]), key(&[255]), key(&[0, 0]), key(&[0, 1]), key(&[9; 37])];
    assert!(sorted.is_sorted());
    assert!(sorted.windows(2).all(|pair| pair[0] < pair[1]));
    assert_eq!(key(&[1, 2, 3]).as_bytes(), [1, 2, 3]);
    for length in (0..40).filter(|length| !(13..=16).contains(length)) {
        assert_eq!(Key16::from_canonical(&vec![1; length]), None);
    }
    let many = [Key16::from_canonical(&[7; 13]).unwrap(); 3];
    assert_eq!(Key16::words(&many).len(), 3);
    assert_eq!(many[0].canonical(16), [&[7; 13][..], &[0; 3]].concat());
}
