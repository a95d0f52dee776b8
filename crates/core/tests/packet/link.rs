//! Link types, VLAN tags, MPLS labels, and frames without a key.

use flowgauge_core::packet::{Headers, Layer, LinkType, MAX_NESTED, NoKey, parse};

use crate::frames::{PORTS, ethernet as frame, label, packet_v4, packet_v6, put, tag};
use crate::{contradiction, cut, ethernet, no_key, v4, v6};

#[test]
fn ethernet_carries_ip() {
    assert_eq!(ethernet(&frame(0x0800, &v4())), packet_v4(17, PORTS));
    assert_eq!(ethernet(&frame(0x86dd, &v6())), packet_v6(6, PORTS));
    for length in 0..14 {
        assert_eq!(ethernet(&frame(0x0800, &v4())[..length]), cut(Layer::Link, 0));
    }
    assert_eq!(ethernet(&frame(0x0800, &[])), cut(Layer::Ipv4, 14));
    assert_eq!(ethernet(&frame(0x86dd, &[])), cut(Layer::Ipv6, 14));
}

#[test]
fn frames_without_a_key_give_the_reason() {
    for (ether_type, reason) in [
        (0x0806, NoKey::Arp),
        (0x8035, NoKey::Arp),
        (0x8863, NoKey::Pppoe),
        (0x88e5, NoKey::Macsec),
        (0, NoKey::Llc),
        (2, NoKey::Llc),
        (1536, NoKey::OtherProtocol),
        (0x88cc, NoKey::OtherProtocol),
    ] {
        assert_eq!(ethernet(&frame(ether_type, &v4())), no_key(reason), "{ether_type:#x}");
        assert_eq!(ethernet(&frame(ether_type, &[])), no_key(reason), "{ether_type:#x}");
        let tagged = frame(0x8100, &tag(ether_type, &v4()));
        assert_eq!(ethernet(&tagged), no_key(reason), "{ether_type:#x}");
    }
}

#[test]
fn llc_carries_ip() {
    let snap = |organization: [u8; 3], ether_type: u16, payload: &[u8]| {
        let header = [&[0xaa, 0xaa, 3], &organization[..], &ether_type.to_be_bytes()].concat();
        let llc = put(&header, payload);
        put(&frame(llc.len() as u16, &llc), &[0; 9])
    };
    for organization in [[0, 0, 0], [0, 0, 0xf8]] {
        assert_eq!(ethernet(&snap(organization, 0x0800, &v4())), packet_v4(17, PORTS));
        assert_eq!(ethernet(&snap(organization, 0x86dd, &v6())), packet_v6(6, PORTS));
        let tagged = snap(organization, 0x8100, &tag(0x0800, &v4()));
        assert_eq!(ethernet(&tagged), packet_v4(17, PORTS));
        assert_eq!(ethernet(&snap(organization, 0x0806, &v4())), no_key(NoKey::Arp));
    }
    for length in [14, 16] {
        let frame = &snap([0; 3], 0x0800, &v4())[..length];
        assert_eq!(ethernet(frame), cut(Layer::Link, 14));
    }
    assert_eq!(ethernet(&snap([0; 3], 0x0800, &v4())[..23]), cut(Layer::Ipv4, 22));
    // The frame's length ends within the IP header.
    let mut short = snap([0; 3], 0x0800, &v4());
    short[13] = 27;
    assert_eq!(ethernet(&short), contradiction(Layer::Ipv4, 22));
    short[13] = 7;
    assert_eq!(ethernet(&short), no_key(NoKey::Llc));

    assert_eq!(ethernet(&frame(31, &put(&[6, 6, 3], &v4()))), packet_v4(17, PORTS));
    assert_eq!(ethernet(&snap([0, 0, 0x0c], 0x2000, &v4())), no_key(NoKey::Llc));
    // Spanning tree; Novell's frames without LLC; a supervisory frame.
    for llc in [[0x42, 0x42, 3], [0xff, 0xff, 0], [0xaa, 0xaa, 1]] {
        assert_eq!(ethernet(&frame(50, &put(&llc, &[0; 47]))), no_key(NoKey::Llc));
    }
}

#[test]
fn fabric_path_carries_ethernet() {
    let outer = |payload: &[u8]| frame(0x8903, &put(&[0x10, 0x20], payload));
    let inside = outer(&frame(0x8100, &tag(0x0800, &v4())));
    assert_eq!(ethernet(&inside), packet_v4(17, PORTS));
    assert_eq!(ethernet(&outer(&frame(0x0806, &[0; 28]))), no_key(NoKey::Arp));
    assert_eq!(ethernet(&inside[..15]), cut(Layer::Link, 14));
    assert_eq!(ethernet(&inside[..29]), cut(Layer::Link, 16));
    assert_eq!(ethernet(&inside[..31]), cut(Layer::Vlan, 30));
    let deep = (0..=MAX_NESTED).fold(frame(0x0800, &v4()), |inner, _| outer(&inner));
    assert_eq!(ethernet(&deep), contradiction(Layer::Link, 14 + 16 * 16));
}

#[test]
fn tags_stack_in_any_order() {
    for first in [0x8100, 0x88a8, 0x9100] {
        assert_eq!(ethernet(&frame(first, &tag(0x0800, &v4()))), packet_v4(17, PORTS));
        for second in [0x8100, 0x88a8, 0x9100] {
            let tags = frame(first, &tag(second, &tag(0x86dd, &v6())));
            assert_eq!(ethernet(&tags), packet_v6(6, PORTS));
            assert_eq!(ethernet(&tags[..17]), cut(Layer::Vlan, 14));
            assert_eq!(ethernet(&tags[..18]), cut(Layer::Vlan, 18));
        }
    }
}

#[test]
fn labels_lead_to_ip_or_to_no_key() {
    for ether_type in [0x8847, 0x8848] {
        let labels = |payload: &[u8]| frame(ether_type, &label(false, &label(true, payload)));
        assert_eq!(ethernet(&labels(&v4())), packet_v4(17, PORTS));
        assert_eq!(ethernet(&labels(&v6())), packet_v6(6, PORTS));
        // A pseudowire's control word begins with 0.
        assert_eq!(ethernet(&labels(&[0; 60])), no_key(NoKey::Mpls));
        assert_eq!(ethernet(&labels(&v4())[..21]), cut(Layer::Mpls, 18));
        assert_eq!(ethernet(&labels(&[])), cut(Layer::Mpls, 22));
        assert_eq!(ethernet(&labels(&[0x45])), cut(Layer::Ipv4, 22));
        assert_eq!(ethernet(&labels(&[0x44; 60])), contradiction(Layer::Ipv4, 22));
    }
}

#[test]
fn sixteen_headers_are_followed() {
    let tags = |count: u8| (1..count).fold(tag(0x0800, &v4()), |inner, _| tag(0x8100, &inner));
    assert_eq!(ethernet(&frame(0x8100, &tags(MAX_NESTED))), packet_v4(17, PORTS));
    let too_many = frame(0x8100, &tags(MAX_NESTED + 1));
    assert_eq!(ethernet(&too_many), contradiction(Layer::Vlan, 14 + 4 * 16));

    let labels = |count: u8| (1..count).fold(label(true, &v4()), |inner, _| label(false, &inner));
    assert_eq!(ethernet(&frame(0x8847, &labels(MAX_NESTED))), packet_v4(17, PORTS));
    let too_many = frame(0x8847, &labels(MAX_NESTED + 1));
    assert_eq!(ethernet(&too_many), contradiction(Layer::Mpls, 14 + 4 * 16));

    // All nested headers count together.
    let mixed = |count: u8| frame(0x8100, &tag(0x8847, &labels(count)));
    assert_eq!(ethernet(&mixed(MAX_NESTED - 1)), packet_v4(17, PORTS));
    assert_eq!(ethernet(&mixed(MAX_NESTED)), contradiction(Layer::Mpls, 14 + 4 + 4 * 15));
}

#[test]
fn raw_ip_goes_by_its_version() {
    for link in [LinkType::RAW, LinkType(12), LinkType(14)] {
        assert_eq!(parse(link, &v4()), packet_v4(17, PORTS));
        assert_eq!(parse(link, &v6()), packet_v6(6, PORTS));
        assert_eq!(parse(link, &[]), cut(Layer::Link, 0));
        assert_eq!(parse(link, &[0x50; 60]), contradiction(Layer::Link, 0));
    }
    assert_eq!(parse(LinkType::IPV4, &v4()), packet_v4(17, PORTS));
    assert_eq!(parse(LinkType::IPV4, &v6()), contradiction(Layer::Ipv4, 0));
    assert_eq!(parse(LinkType::IPV6, &v6()), packet_v6(6, PORTS));
    assert_eq!(parse(LinkType::IPV6, &put(&v4(), &[0; 20])), contradiction(Layer::Ipv6, 0));
}

#[test]
fn cooked_captures() {
    let v1 = |protocol: u16, payload: &[u8]| {
        put(&[0, 0, 0, 1, 0, 6, 2, 2, 2, 2, 2, 2, 0, 0], &put(&protocol.to_be_bytes(), payload))
    };
    let v2 = |protocol: u16, payload: &[u8]| put(&protocol.to_be_bytes(), &put(&[0; 18], payload));
    for (link, header, cooked) in [
        (LinkType::LINUX_SLL, 16, &v1 as &dyn Fn(u16, &[u8]) -> Vec<u8>),
        (LinkType::LINUX_SLL2, 20, &v2),
    ] {
        assert_eq!(parse(link, &cooked(0x0800, &v4())), packet_v4(17, PORTS));
        assert_eq!(parse(link, &cooked(0x86dd, &v6())), packet_v6(6, PORTS));
        assert_eq!(parse(link, &cooked(0x8100, &tag(0x0800, &v4()))), packet_v4(17, PORTS));
        assert_eq!(parse(link, &cooked(0x0806, &[])), no_key(NoKey::Arp));
        assert_eq!(parse(link, &cooked(1, &[])), no_key(NoKey::Llc));
        assert_eq!(parse(link, &cooked(4, &[0x42, 0x42, 3])), no_key(NoKey::Llc));
        assert_eq!(parse(link, &cooked(4, &put(&[6, 6, 3], &v4()))), packet_v4(17, PORTS));
        assert_eq!(parse(link, &cooked(12, &[])), no_key(NoKey::OtherProtocol));
        assert_eq!(parse(link, &cooked(0x0800, &v4())[..header - 1]), cut(Layer::Link, 0));
        assert_eq!(
            parse(link, &cooked(0x0800, &v4())[..header + 19]),
            cut(Layer::Ipv4, header as u32)
        );
    }
}

#[test]
fn loopback_families() {
    let family = |family: u32, payload: &[u8]| put(&family.to_be_bytes(), payload);
    for order in [u32::to_be, u32::to_le] {
        let null = |number: u32, payload: &[u8]| {
            parse(LinkType::NULL, &family(u32::from_be(order(number)), payload))
        };
        assert_eq!(null(2, &v4()), packet_v4(17, PORTS));
        for number in [10, 24, 28, 30] {
            assert_eq!(null(number, &v6()), packet_v6(6, PORTS));
        }
        assert_eq!(null(7, &v4()), no_key(NoKey::OtherProtocol));
        assert_eq!(null(2, &v6()), contradiction(Layer::Ipv4, 4));
    }
    assert_eq!(parse(LinkType::LOOP, &family(2, &v4())), packet_v4(17, PORTS));
    assert_eq!(parse(LinkType::LOOP, &family(24, &v6())), packet_v6(6, PORTS));
    let swapped = family(2_u32.swap_bytes(), &v4());
    assert_eq!(parse(LinkType::LOOP, &swapped), no_key(NoKey::OtherProtocol));
    for link in [LinkType::NULL, LinkType::LOOP] {
        assert_eq!(parse(link, &[0, 0, 0]), cut(Layer::Link, 0));
    }
}

#[test]
fn other_link_types_have_no_key() {
    for link in [2, 6, 8, 147, 227, 277, u16::MAX].map(LinkType) {
        for frame in [&[][..], &v4()] {
            assert_eq!(parse(link, frame), Headers::Unread(link));
        }
    }
    assert_eq!(LinkType(227).to_string(), "227 (CAN with SocketCAN headers)");
    assert_eq!(LinkType(300).to_string(), "300");
}
