//! IPv4 and IPv6, clause by clause, and the tunnels that they carry.

use flowgauge_core::packet::{
    Fault, Frame, Headers, Layer, LinkType, MAX_NESTED, Ports, Tunnels, parse, parse_inner,
    parse_transport,
};

use super::frames::{
    PORTS, ethernet as frame, extension, fragment, ipv4, ipv6, packet_v4, packet_v6, put, tag, tcp,
    udp,
};
use super::{contradiction, cut, malformed, v4, v6};

const TRANSPORT: Layer = Layer::Transport;

fn parse_v4(packet: &[u8]) -> Headers {
    parse(LinkType::IPV4, packet)
}

fn parse_v6(packet: &[u8]) -> Headers {
    parse(LinkType::IPV6, packet)
}

fn no_ports(layer: Layer, offset: u32, fault: Fault) -> Ports {
    Ports::Malformed(malformed(layer, offset, fault))
}

/// `packet` with its bytes replaced from `at` on.
fn with(mut packet: Vec<u8>, at: usize, bytes: &[u8]) -> Vec<u8> {
    packet[at..at + bytes.len()].copy_from_slice(bytes);
    packet
}

#[test]
fn ports_are_those_of_tcp_udp_and_sctp() {
    for protocol in 0..=255 {
        let found = matches!(protocol, 6 | 17 | 132);
        let ports = if found { PORTS } else { Ports::Absent };
        assert_eq!(parse_v4(&ipv4(protocol, &tcp())), packet_v4(protocol, ports));
        if !matches!(protocol, 0 | 43 | 44 | 51 | 60) {
            assert_eq!(parse_v6(&ipv6(protocol, &tcp())), packet_v6(protocol, ports));
        }
        // Without ports, nothing behind the IP header matters.
        if !found {
            assert_eq!(parse_v4(&ipv4(protocol, &[])), packet_v4(protocol, Ports::Absent));
        }
    }
}

#[test]
fn only_four_bytes_of_transport_are_needed() {
    let packet = ipv4(6, &tcp());
    for length in 0..20 {
        assert_eq!(parse_v4(&packet[..length]), cut(Layer::Ipv4, 0));
    }
    for length in 20..24 {
        let ports = no_ports(TRANSPORT, 20, Fault::Cut);
        assert_eq!(parse_v4(&packet[..length]), packet_v4(6, ports));
    }
    for length in 24..=packet.len() {
        assert_eq!(parse_v4(&packet[..length]), packet_v4(6, PORTS));
    }
    // The length of UDP and the offset of TCP do not matter.
    let odd = with(ipv4(17, &udp(53, &[0; 8])), 24, &[0, 1]);
    assert_eq!(parse_v4(&odd), packet_v4(17, PORTS));
    let odd = with(ipv4(6, &tcp()), 32, &[0x10]);
    assert_eq!(parse_v4(&odd), packet_v4(6, PORTS));
}

#[test]
fn ipv4_header_that_contradicts_itself() {
    for first in [0x55, 0x65, 0x05, 0x44, 0x40] {
        assert_eq!(
            parse_v4(&with(ipv4(17, &udp(53, &[])), 0, &[first])),
            contradiction(Layer::Ipv4, 0)
        );
    }
}

#[test]
fn ipv4_options_are_part_of_the_header() {
    let mut packet = put(&ipv4(17, &[]), &put(&[1; 8], &udp(53, &[])));
    packet[0] = 0x47;
    packet[3] = 28 + 8;
    assert_eq!(parse_v4(&packet), packet_v4(17, PORTS));
    assert_eq!(parse_v4(&packet[..27]), cut(Layer::Ipv4, 0));
    let ports = no_ports(TRANSPORT, 28, Fault::Cut);
    assert_eq!(parse_v4(&packet[..28]), packet_v4(17, ports));
    assert_eq!(parse_v4(&with(packet.clone(), 3, &[27])), contradiction(Layer::Ipv4, 0));
    let ports = no_ports(TRANSPORT, 28, Fault::Contradiction);
    assert_eq!(parse_v4(&with(packet, 3, &[31])), packet_v4(17, ports));
}

#[test]
fn ipv4_total_length() {
    let length = |length: u16| parse_v4(&with(ipv4(17, &udp(53, &[])), 2, &length.to_be_bytes()));
    assert_eq!(length(0), packet_v4(17, PORTS), "left to the interface");
    for short in 1..20 {
        assert_eq!(length(short), contradiction(Layer::Ipv4, 0));
    }
    for short in 20..24 {
        let ports = no_ports(TRANSPORT, 20, Fault::Contradiction);
        assert_eq!(length(short), packet_v4(17, ports));
    }
    for enough in [24, 28, 29, 1500, u16::MAX] {
        assert_eq!(length(enough), packet_v4(17, PORTS));
    }
}

#[test]
fn ipv4_fragments() {
    let flags = |flags: u16| parse_v4(&with(ipv4(17, &udp(53, &[])), 6, &flags.to_be_bytes()));
    for first in [0, 0x2000, 0x4000, 0x8000, 0xe000] {
        assert_eq!(flags(first), packet_v4(17, PORTS));
    }
    for offset in [1, 0x2001, 0x1000, 0x1fff, 0x3fff] {
        assert_eq!(flags(offset), packet_v4(17, Ports::Absent));
    }
    // Then no bytes behind the header are needed.
    let last = with(ipv4(17, &[]), 6, &[0, 1]);
    assert_eq!(parse_v4(&last), packet_v4(17, Ports::Absent));
}

#[test]
fn ipv6_fixed_header() {
    let packet = ipv6(17, &udp(53, &[]));
    for length in 0..40 {
        assert_eq!(parse_v6(&packet[..length]), cut(Layer::Ipv6, 0));
    }
    for length in 40..44 {
        let ports = no_ports(TRANSPORT, 40, Fault::Cut);
        assert_eq!(parse_v6(&packet[..length]), packet_v6(17, ports));
    }
    assert_eq!(parse_v6(&packet[..44]), packet_v6(17, PORTS));
    assert_eq!(parse_v6(&with(packet, 0, &[0x45])), contradiction(Layer::Ipv6, 0));
}

#[test]
fn ipv6_payload_length() {
    let length = |length: u16| parse_v6(&with(ipv6(17, &udp(53, &[])), 4, &length.to_be_bytes()));
    for short in 1..4 {
        let ports = no_ports(TRANSPORT, 40, Fault::Contradiction);
        assert_eq!(length(short), packet_v6(17, ports));
    }
    for fine in [0, 4, 8, 1500, u16::MAX] {
        assert_eq!(length(fine), packet_v6(17, PORTS));
    }
}

#[test]
fn ipv6_extensions_are_passed() {
    let udp = udp(53, &[]);
    for header in [0, 43, 60] {
        for words in [0, 1, 5] {
            let packet = ipv6(header, &extension(17, words, &udp));
            assert_eq!(parse_v6(&packet), packet_v6(17, PORTS));
        }
    }
    // The length of AH is in units of four bytes, minus 2.
    let authentication = put(&put(&[17, 4], &[0; 22]), &udp);
    assert_eq!(parse_v6(&ipv6(51, &authentication)), packet_v6(17, PORTS));
    let all = extension(60, 0, &extension(43, 1, &extension(51, 0, &authentication)));
    assert_eq!(parse_v6(&ipv6(0, &with(all, 24, &[51, 0]))), packet_v6(17, PORTS));
    // Any other header is the protocol, whatever follows it.
    for protocol in [50, 59, 135, 139, 140, 33, 136, 58] {
        for payload in [&udp[..], &[]] {
            let packet = ipv6(60, &extension(protocol, 0, payload));
            assert_eq!(parse_v6(&packet), packet_v6(protocol, Ports::Absent));
        }
    }
}

#[test]
fn ipv6_extensions_that_cannot_be_read() {
    let unreached =
        |offset: u32, fault: Fault| Ports::Unreached(malformed(Layer::Ipv6, offset, fault));
    let packet = ipv6(0, &extension(60, 0, &extension(17, 1, &udp(53, &[]))));
    for length in 40..48 {
        assert_eq!(parse_v6(&packet[..length]), packet_v6(0, unreached(40, Fault::Cut)));
    }
    for length in 48..56 {
        assert_eq!(parse_v6(&packet[..length]), packet_v6(60, unreached(48, Fault::Cut)));
    }
    // The protocol is known as soon as the last extension header names it.
    for length in 56..68 {
        let ports = no_ports(TRANSPORT, 64, Fault::Cut);
        assert_eq!(parse_v6(&packet[..length]), packet_v6(17, ports));
    }
    assert_eq!(parse_v6(&packet[..68]), packet_v6(17, PORTS));

    let length = |length: u8| parse_v6(&with(packet.clone(), 5, &[length]));
    assert_eq!(length(7), packet_v6(0, unreached(40, Fault::Contradiction)));
    assert_eq!(length(15), packet_v6(60, unreached(48, Fault::Contradiction)));
    let ports = no_ports(TRANSPORT, 64, Fault::Contradiction);
    assert_eq!(length(27), packet_v6(17, ports));
    assert_eq!(length(28), packet_v6(17, PORTS));

    let chain = |count: u8| {
        let last = extension(17, 0, &udp(53, &[]));
        parse_v6(&ipv6(60, &(1..count).fold(last, |inner, _| extension(60, 0, &inner))))
    };
    assert_eq!(chain(MAX_NESTED), packet_v6(17, PORTS));
    let too_deep = unreached(40 + 8 * 16, Fault::Contradiction);
    assert_eq!(chain(MAX_NESTED + 1), packet_v6(60, too_deep));
}

#[test]
fn ipv6_fragments() {
    let udp = udp(53, &[]);
    assert_eq!(parse_v6(&ipv6(44, &fragment(17, 0, &udp))), packet_v6(17, PORTS));
    let reserved_bits = put(&[17, 0, 0, 7, 0, 0, 0, 1], &udp);
    assert_eq!(parse_v6(&ipv6(44, &reserved_bits)), packet_v6(17, PORTS));
    let options = fragment(60, 0, &extension(17, 0, &udp));
    assert_eq!(parse_v6(&ipv6(44, &options)), packet_v6(17, PORTS));
    // The protocol of a later fragment is the fragment header's next header, even if that is an
    // extension header.
    for (next, offset) in [(17, 1), (17, 0x1fff), (60, 1), (58, 2), (44, 3)] {
        for payload in [&udp[..], &[]] {
            let packet = ipv6(44, &fragment(next, offset, payload));
            assert_eq!(parse_v6(&packet), packet_v6(next, Ports::Absent));
        }
    }
    let behind_options = ipv6(0, &extension(44, 0, &fragment(6, 9, &udp)));
    assert_eq!(parse_v6(&behind_options), packet_v6(6, Ports::Absent));
    let ports = Ports::Unreached(malformed(Layer::Ipv6, 40, Fault::Cut));
    assert_eq!(parse_v6(&ipv6(44, &fragment(17, 0, &udp))[..47]), packet_v6(44, ports));
}

// Tunnels: which are followed, and which packets are measured as they are.

/// A header in front of a payload.
type Carrier = fn(&[u8]) -> Vec<u8>;

fn inner(frame: &[u8]) -> Headers {
    parse_inner(LinkType::ETHERNET, frame)
}

/// Ethernet and an outer IPv4 header with other addresses than the inner one.
fn outer(protocol: u8, payload: &[u8]) -> Vec<u8> {
    let mut packet = ipv4(protocol, payload);
    packet[12..20].copy_from_slice(&[172, 16, 0, 1, 172, 16, 0, 2]);
    frame(0x0800, &packet)
}

fn gre(ether_type: u16, payload: &[u8]) -> Vec<u8> {
    put(&[0, 0], &put(&ether_type.to_be_bytes(), payload))
}

fn vxlan(payload: &[u8]) -> Vec<u8> {
    udp(4789, &put(&[8, 0, 0, 0, 0, 0, 7, 0], payload))
}

fn geneve(ether_type: u16, options: u8, payload: &[u8]) -> Vec<u8> {
    let [high, low] = ether_type.to_be_bytes();
    let header = put(&[options, 0, high, low, 0, 0, 7, 0], &vec![9; 4 * usize::from(options)]);
    udp(6081, &put(&header, payload))
}

fn gtp_u(flags: u8, optional: &[u8], payload: &[u8]) -> Vec<u8> {
    udp(2152, &put(&put(&[flags, 255, 0, 0, 0, 0, 0, 1], optional), payload))
}

/// Every tunnel around an IPv4 packet, with the outer protocol number.
fn carriers() -> Vec<(&'static str, u8, Carrier)> {
    vec![
        ("ip", 4, <[u8]>::to_vec),
        ("gre", 47, |ip| gre(0x0800, ip)),
        ("gre with checksum", 47, |ip| put(&[0x80, 0, 8, 0, 1, 2, 3, 4], ip)),
        ("gre with all", 47, |ip| put(&[0xb0, 0, 8, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 9, 9, 9], ip)),
        ("gre of ethernet", 47, |ip| gre(0x6558, &frame(0x8100, &tag(0x0800, ip)))),
        ("gre of mpls", 47, |ip| gre(0x8847, &put(&[0, 1, 1, 64], ip))),
        ("vxlan", 17, |ip| vxlan(&frame(0x0800, ip))),
        ("vxlan of a tag", 17, |ip| vxlan(&frame(0x8100, &tag(0x0800, ip)))),
        ("vxlan of linux", 17, |ip| udp(8472, &put(&[8, 0, 0, 0, 0, 0, 7, 0], &frame(0x0800, ip)))),
        ("geneve of ethernet", 17, |ip| geneve(0x6558, 0, &frame(0x0800, ip))),
        ("geneve with options", 17, |ip| geneve(0x6558, 5, &frame(0x0800, ip))),
        ("geneve of ip", 17, |ip| geneve(0x0800, 1, ip)),
        ("gtp-u", 17, |ip| gtp_u(0x30, &[], ip)),
        ("gtp-u with sequence", 17, |ip| gtp_u(0x32, &[0, 1, 0, 7], ip)),
        ("gtp-u with extensions", 17, |ip| {
            gtp_u(0x34, &[0, 0, 0, 0x85, 1, 0, 0, 0xc0, 2, 9, 9, 9, 9, 9, 9, 0], ip)
        }),
    ]
}

#[test]
fn tunnels_are_followed_to_ip() {
    for (name, protocol, carrier) in carriers() {
        let tunnel = outer(protocol, &carrier(&v4()));
        assert_eq!(inner(&tunnel), packet_v4(17, PORTS), "{name}");
        let Headers::V4(ip) = parse(LinkType::ETHERNET, &tunnel) else { panic!("{name}") };
        assert_eq!(ip.addresses, [172, 16, 0, 1, 172, 16, 0, 2], "{name}");
        assert_eq!(ip.protocol, protocol, "{name}");
        let over_v6 = frame(0x86dd, &ipv6(protocol, &carrier(&v4())));
        assert_eq!(inner(&over_v6), packet_v4(17, PORTS), "{name}");
    }
    for tunnel in [
        outer(41, &v6()),
        frame(0x86dd, &ipv6(41, &v6())),
        outer(47, &gre(0x86dd, &v6())),
        outer(17, &vxlan(&frame(0x86dd, &v6()))),
        outer(17, &gtp_u(0x30, &[], &v6())),
    ] {
        assert_eq!(inner(&tunnel), packet_v6(6, PORTS));
    }
}

/// The bytes that a frame counts under each setting; it has four more bytes on the wire than
/// captured.
fn counted(frame: &[u8]) -> [u32; 3] {
    [Tunnels::Outer, Tunnels::Inner, Tunnels::InnerBytes].map(|tunnels| {
        let wire = frame.len() as u32 + 4;
        let frame = Frame { bytes: frame, wire, link: LinkType::ETHERNET, time_ns: 0 };
        let (headers, bytes) = tunnels.read(&frame);
        let (sampled, sampled_bytes, _) = parse_transport(&frame, tunnels);
        assert_eq!((headers, bytes), (sampled, sampled_bytes));
        bytes
    })
}

#[test]
fn inner_bytes_are_those_of_a_frame_without_the_tunnel() {
    let alone = frame(0x0800, &v4()).len() as u32 + 4;
    for (name, protocol, carrier) in carriers() {
        let tunnel = outer(protocol, &carrier(&v4()));
        let wire = tunnel.len() as u32 + 4;
        assert_eq!(counted(&tunnel), [wire, wire, alone], "{name}");
        let nested = outer(4, &ipv4(protocol, &carrier(&ipv4(4, &v4()))));
        let wire = nested.len() as u32 + 4;
        assert_eq!(counted(&nested), [wire, wire, alone], "{name}");
    }
    // A tunnel without IP counts in full, like a packet without a tunnel.
    for other in [outer(17, &vxlan(&frame(0x0806, &[0; 28]))), frame(0x0800, &v4())] {
        assert_eq!(counted(&other), [other.len() as u32 + 4; 3]);
    }
    let nested = outer(4, &ipv4(17, &vxlan(&frame(0x0806, &[0; 28]))));
    let wire = nested.len() as u32 + 4;
    assert_eq!(counted(&nested), [wire, wire, wire - 20]);
}

#[test]
fn tunnels_nest() {
    for (name, protocol, carrier) in carriers() {
        let mut nested = ipv4(protocol, &carrier(&v4()));
        for _ in 0..3 {
            nested = ipv4(17, &vxlan(&frame(0x0800, &ipv4(4, &ipv4(47, &gre(0x0800, &nested))))));
        }
        assert_eq!(inner(&frame(0x0800, &nested)), packet_v4(17, PORTS), "{name}");
    }
    let chain = |count: u8| (0..count).fold(v4(), |inner, _| ipv4(4, &inner));
    assert_eq!(inner(&frame(0x0800, &chain(MAX_NESTED))), packet_v4(17, PORTS));
    let too_deep = contradiction(Layer::Tunnel, 14 + 20 * 17);
    assert_eq!(inner(&frame(0x0800, &chain(MAX_NESTED + 1))), too_deep);
}

#[test]
fn unreadable_tunnels_are_malformed() {
    for (name, protocol, carrier) in carriers() {
        let tunnel = outer(protocol, &carrier(&v4()));
        // A cut before the inner ports gives neither the inner key nor the outer one.
        let outer_ports = 14 + 20 + if protocol == 17 { 4 } else { 0 };
        for length in outer_ports..tunnel.len() - 8 {
            let cut = inner(&tunnel[..length]);
            assert!(matches!(cut, Headers::Malformed(_)), "{name}, {length}: {cut:?}");
        }
        for length in tunnel.len() - 4..tunnel.len() {
            assert_eq!(inner(&tunnel[..length]), packet_v4(17, PORTS), "{name}");
        }
        let mut wrong = v4();
        wrong[0] = 0x43;
        let Headers::Malformed(malformed) = inner(&outer(protocol, &carrier(&wrong))) else {
            panic!("{name}")
        };
        assert_eq!(malformed.layer, Layer::Ipv4, "{name}");
    }
    assert_eq!(inner(&outer(47, &gre(0x0800, &v4()))[..37]), cut(Layer::Tunnel, 34));
    assert_eq!(inner(&outer(17, &vxlan(&[0; 60]))[..49]), cut(Layer::Tunnel, 42));
    // An extension header of GTP-U without length.
    let endless = outer(17, &gtp_u(0x34, &[0, 0, 0, 1, 0, 0, 0, 0], &v4()));
    assert_eq!(inner(&endless), contradiction(Layer::Tunnel, 54));
}

/// Teredo's authentication header, with an identifier of two bytes and a value of three.
const AUTHENTICATION: [u8; 18] = [0, 1, 2, 3, 9, 9, 9, 9, 9, 8, 8, 8, 8, 8, 8, 8, 8, 0];
const ORIGIN: [u8; 8] = [0, 0, 0x4f, 0x4f, 0xf5, 0xff, 0xff, 0xfe];

#[test]
fn teredo_carries_ipv6() {
    for indicators in [&[][..], &AUTHENTICATION, &ORIGIN, &[&AUTHENTICATION[..], &ORIGIN].concat()]
    {
        let tunnel = outer(17, &udp(3544, &put(indicators, &v6())));
        assert_eq!(inner(&tunnel), packet_v6(6, PORTS));
        let mut answer = tunnel.clone();
        answer[34..38].copy_from_slice(&[0x0d, 0xd8, 0x12, 0x34]);
        assert_eq!(inner(&answer), packet_v6(6, PORTS));
        for length in 42..tunnel.len() - 20 {
            let cut = inner(&tunnel[..length]);
            assert!(matches!(cut, Headers::Malformed(_)), "{length}: {cut:?}");
        }
    }
    // A bubble has no payload.
    let bubble = outer(17, &udp(3544, &put(&ORIGIN, &ipv6(59, &[]))));
    assert_eq!(inner(&bubble), packet_v6(59, Ports::Absent));

    let authenticated = outer(17, &udp(3544, &put(&AUTHENTICATION, &v6())));
    assert_eq!(inner(&authenticated[..59]), cut(Layer::Tunnel, 42));
    assert_eq!(inner(&authenticated[..60]), cut(Layer::Tunnel, 60));
    // Headers longer than the packet.
    let mut long = authenticated;
    long[44] = 200;
    assert_eq!(inner(&long), contradiction(Layer::Tunnel, 42));
    let origin = outer(17, &udp(3544, &ORIGIN[..7]));
    assert_eq!(inner(&origin), contradiction(Layer::Tunnel, 42));
}

#[test]
fn the_outer_length_bounds_the_tunnel() {
    let mut tunnel = outer(4, &v4());
    tunnel[16..18].copy_from_slice(&39_u16.to_be_bytes());
    assert_eq!(inner(&tunnel), contradiction(Layer::Ipv4, 34));
    tunnel[16..18].copy_from_slice(&43_u16.to_be_bytes());
    assert!(matches!(
        inner(&tunnel),
        Headers::V4(ip) if matches!(ip.ports, Ports::Malformed(_))
    ));
    tunnel[16..18].copy_from_slice(&44_u16.to_be_bytes());
    assert_eq!(inner(&tunnel), packet_v4(17, PORTS));
}

#[test]
fn packets_that_are_no_tunnel_stand_for_themselves() {
    let in_vxlan = frame(0x0800, &v4());
    for (name, packet) in [
        ("ARP in VXLAN", outer(17, &vxlan(&frame(0x0806, &[0; 28])))),
        ("LLC in VXLAN", outer(17, &vxlan(&frame(60, &[0; 60])))),
        ("VXLAN without its flag", outer(17, &udp(4789, &put(&[0; 8], &in_vxlan)))),
        ("empty UDP", put(&outer(17, &udp(4789, &[])), &[0; 18])),
        ("short UDP", put(&outer(17, &udp(6081, &[0; 7])), &[0; 18])),
        ("empty GRE", put(&outer(47, &[]), &[0; 26])),
        ("GRE of another protocol", outer(47, &gre(0x88cc, &v4()))),
        ("GRE keep-alive", outer(47, &gre(0, &[]))),
        ("GRE version 1", outer(47, &put(&[0x20, 1, 0x88, 0x0b, 0, 0, 0, 0], &v4()))),
        ("GRE of a later version", outer(47, &put(&[0, 2, 8, 0], &v4()))),
        ("GRE with routing", outer(47, &put(&[0x40, 0, 8, 0], &v4()))),
        ("Geneve of another protocol", outer(17, &geneve(0x88cc, 0, &v4()))),
        ("Geneve version 1", outer(17, &udp(6081, &put(&[0x40, 0, 8, 0, 0, 0, 0, 0], &v4())))),
        ("GTP-U echo", outer(17, &udp(2152, &[0x32, 1, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0]))),
        ("GTP version 2", outer(17, &gtp_u(0x50, &[], &v4()))),
        ("GTP prime", outer(17, &gtp_u(0x20, &[], &v4()))),
        ("GTP-U of PPP", outer(17, &gtp_u(0x30, &[], &[0xff, 3, 0, 0x21]))),
        ("another protocol at Teredo's port", outer(17, &udp(3544, &v4()))),
        ("IPv4 behind an origin of Teredo", outer(17, &udp(3544, &put(&ORIGIN, &v4())))),
        ("one byte at Teredo's port", put(&outer(17, &udp(3544, &[0])), &[0; 17])),
        ("from a tunnel's port", outer(17, &put(&[0x12, 0xb5, 0, 53, 0, 16, 0, 0], &[8; 60]))),
        ("TCP", outer(6, &put(&[0, 80, 0x12, 0xb5], &[0; 16]))),
        ("ICMP", outer(1, &put(&[3, 0, 0, 0, 0, 0, 0, 0], &v4()))),
        ("ESP", outer(50, &v4())),
    ] {
        let outer = parse(LinkType::ETHERNET, &packet);
        assert!(matches!(outer, Headers::V4(_)), "{name}: {outer:?}");
        assert_eq!(inner(&packet), outer, "{name}");
    }
    let nested = outer(4, &ipv4(17, &vxlan(&frame(0x0806, &[0; 28]))));
    assert_eq!(inner(&nested), packet_v4(17, Ports::Found(0x1234_12b5)));
}

#[test]
fn later_fragments_are_not_followed() {
    for (name, protocol, carrier) in carriers() {
        let mut later = outer(protocol, &carrier(&v4()));
        later[14 + 6..14 + 8].copy_from_slice(&[0x20, 1]);
        assert_eq!(inner(&later), parse(LinkType::ETHERNET, &later), "{name}");
        later[14 + 6..14 + 8].copy_from_slice(&[0x20, 0]);
        assert_eq!(inner(&later), packet_v4(17, PORTS), "{name}");
    }
    let later = frame(0x86dd, &ipv6(44, &fragment(4, 1, &v4())));
    assert_eq!(inner(&later), packet_v6(4, Ports::Absent));
}
