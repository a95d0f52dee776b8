//! IPv4 and IPv6, clause by clause.

use flowgauge_core::packet::{Fault, Headers, Layer, LinkType, MAX_NESTED, Ports, parse};

use crate::frames::{PORTS, extension, fragment, ipv4, ipv6, packet_v4, packet_v6, put, tcp, udp};
use crate::{contradiction, cut, malformed};

const TRANSPORT: Layer = Layer::Transport;

fn v4(packet: &[u8]) -> Headers {
    parse(LinkType::IPV4, packet)
}

fn v6(packet: &[u8]) -> Headers {
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
        assert_eq!(v4(&ipv4(protocol, &tcp())), packet_v4(protocol, ports));
        if !matches!(protocol, 0 | 43 | 44 | 51 | 60) {
            assert_eq!(v6(&ipv6(protocol, &tcp())), packet_v6(protocol, ports));
        }
        // Without ports, nothing behind the IP header matters.
        if !found {
            assert_eq!(v4(&ipv4(protocol, &[])), packet_v4(protocol, Ports::Absent));
        }
    }
}

#[test]
fn only_four_bytes_of_transport_are_needed() {
    let packet = ipv4(6, &tcp());
    for length in 0..20 {
        assert_eq!(v4(&packet[..length]), cut(Layer::Ipv4, 0));
    }
    for length in 20..24 {
        let ports = no_ports(TRANSPORT, 20, Fault::Cut);
        assert_eq!(v4(&packet[..length]), packet_v4(6, ports));
    }
    for length in 24..=packet.len() {
        assert_eq!(v4(&packet[..length]), packet_v4(6, PORTS));
    }
    // The length of UDP and the offset of TCP do not matter.
    let odd = with(ipv4(17, &udp(53, &[0; 8])), 24, &[0, 1]);
    assert_eq!(v4(&odd), packet_v4(17, PORTS));
    let odd = with(ipv4(6, &tcp()), 32, &[0x10]);
    assert_eq!(v4(&odd), packet_v4(6, PORTS));
}

#[test]
fn ipv4_header_that_contradicts_itself() {
    for first in [0x55, 0x65, 0x05, 0x44, 0x40] {
        assert_eq!(v4(&with(ipv4(17, &udp(53, &[])), 0, &[first])), contradiction(Layer::Ipv4, 0));
    }
}

#[test]
fn ipv4_options_are_part_of_the_header() {
    let mut packet = put(&ipv4(17, &[]), &put(&[1; 8], &udp(53, &[])));
    packet[0] = 0x47;
    packet[3] = 28 + 8;
    assert_eq!(v4(&packet), packet_v4(17, PORTS));
    assert_eq!(v4(&packet[..27]), cut(Layer::Ipv4, 0));
    let ports = no_ports(TRANSPORT, 28, Fault::Cut);
    assert_eq!(v4(&packet[..28]), packet_v4(17, ports));
    assert_eq!(v4(&with(packet.clone(), 3, &[27])), contradiction(Layer::Ipv4, 0));
    let ports = no_ports(TRANSPORT, 28, Fault::Contradiction);
    assert_eq!(v4(&with(packet, 3, &[31])), packet_v4(17, ports));
}

#[test]
fn ipv4_total_length() {
    let length = |length: u16| v4(&with(ipv4(17, &udp(53, &[])), 2, &length.to_be_bytes()));
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
    let flags = |flags: u16| v4(&with(ipv4(17, &udp(53, &[])), 6, &flags.to_be_bytes()));
    for first in [0, 0x2000, 0x4000, 0x8000, 0xe000] {
        assert_eq!(flags(first), packet_v4(17, PORTS));
    }
    for offset in [1, 0x2001, 0x1000, 0x1fff, 0x3fff] {
        assert_eq!(flags(offset), packet_v4(17, Ports::Absent));
    }
    // Then no bytes behind the header are needed.
    let last = with(ipv4(17, &[]), 6, &[0, 1]);
    assert_eq!(v4(&last), packet_v4(17, Ports::Absent));
}

#[test]
fn ipv6_fixed_header() {
    let packet = ipv6(17, &udp(53, &[]));
    for length in 0..40 {
        assert_eq!(v6(&packet[..length]), cut(Layer::Ipv6, 0));
    }
    for length in 40..44 {
        let ports = no_ports(TRANSPORT, 40, Fault::Cut);
        assert_eq!(v6(&packet[..length]), packet_v6(17, ports));
    }
    assert_eq!(v6(&packet[..44]), packet_v6(17, PORTS));
    assert_eq!(v6(&with(packet, 0, &[0x45])), contradiction(Layer::Ipv6, 0));
}

#[test]
fn ipv6_payload_length() {
    let length = |length: u16| v6(&with(ipv6(17, &udp(53, &[])), 4, &length.to_be_bytes()));
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
            assert_eq!(v6(&packet), packet_v6(17, PORTS));
        }
    }
    // The length of AH is in units of four bytes, minus 2.
    let authentication = put(&put(&[17, 4], &[0; 22]), &udp);
    assert_eq!(v6(&ipv6(51, &authentication)), packet_v6(17, PORTS));
    let all = extension(60, 0, &extension(43, 1, &extension(51, 0, &authentication)));
    assert_eq!(v6(&ipv6(0, &with(all, 24, &[51, 0]))), packet_v6(17, PORTS));
    // Any other header is the protocol, whatever follows it.
    for protocol in [50, 59, 135, 139, 140, 33, 136, 58] {
        for payload in [&udp[..], &[]] {
            let packet = ipv6(60, &extension(protocol, 0, payload));
            assert_eq!(v6(&packet), packet_v6(protocol, Ports::Absent));
        }
    }
}

#[test]
fn ipv6_extensions_that_cannot_be_read() {
    let unreached =
        |offset: u32, fault: Fault| Ports::Unreached(malformed(Layer::Ipv6, offset, fault));
    let packet = ipv6(0, &extension(60, 0, &extension(17, 1, &udp(53, &[]))));
    for length in 40..48 {
        assert_eq!(v6(&packet[..length]), packet_v6(0, unreached(40, Fault::Cut)));
    }
    for length in 48..56 {
        assert_eq!(v6(&packet[..length]), packet_v6(60, unreached(48, Fault::Cut)));
    }
    // The protocol is known as soon as the last extension header names it.
    for length in 56..68 {
        let ports = no_ports(TRANSPORT, 64, Fault::Cut);
        assert_eq!(v6(&packet[..length]), packet_v6(17, ports));
    }
    assert_eq!(v6(&packet[..68]), packet_v6(17, PORTS));

    let length = |length: u8| v6(&with(packet.clone(), 5, &[length]));
    assert_eq!(length(7), packet_v6(0, unreached(40, Fault::Contradiction)));
    assert_eq!(length(15), packet_v6(60, unreached(48, Fault::Contradiction)));
    let ports = no_ports(TRANSPORT, 64, Fault::Contradiction);
    assert_eq!(length(27), packet_v6(17, ports));
    assert_eq!(length(28), packet_v6(17, PORTS));

    let chain = |count: u8| {
        let last = extension(17, 0, &udp(53, &[]));
        v6(&ipv6(60, &(1..count).fold(last, |inner, _| extension(60, 0, &inner))))
    };
    assert_eq!(chain(MAX_NESTED), packet_v6(17, PORTS));
    let too_deep = unreached(40 + 8 * 16, Fault::Contradiction);
    assert_eq!(chain(MAX_NESTED + 1), packet_v6(60, too_deep));
}

#[test]
fn ipv6_fragments() {
    let udp = udp(53, &[]);
    assert_eq!(v6(&ipv6(44, &fragment(17, 0, &udp))), packet_v6(17, PORTS));
    let reserved_bits = put(&[17, 0, 0, 7, 0, 0, 0, 1], &udp);
    assert_eq!(v6(&ipv6(44, &reserved_bits)), packet_v6(17, PORTS));
    let options = fragment(60, 0, &extension(17, 0, &udp));
    assert_eq!(v6(&ipv6(44, &options)), packet_v6(17, PORTS));
    // The protocol of a later fragment is the fragment header's next header, even if that is an
    // extension header.
    for (next, offset) in [(17, 1), (17, 0x1fff), (60, 1), (58, 2), (44, 3)] {
        for payload in [&udp[..], &[]] {
            let packet = ipv6(44, &fragment(next, offset, payload));
            assert_eq!(v6(&packet), packet_v6(next, Ports::Absent));
        }
    }
    let behind_options = ipv6(0, &extension(44, 0, &fragment(6, 9, &udp)));
    assert_eq!(v6(&behind_options), packet_v6(6, Ports::Absent));
    let ports = Ports::Unreached(malformed(Layer::Ipv6, 40, Fault::Cut));
    assert_eq!(v6(&ipv6(44, &fragment(17, 0, &udp))[..47]), packet_v6(44, ports));
}
