//! Frames of every link type: Ethernet with tags and labels, serial lines, 802.11, netfilter's log;
//! and frames without a key.

use flowgauge_core::packet::{Headers, Layer, LinkType, MAX_NESTED, NoKey, Ports, parse};

use super::frames::{
    PORTS, ethernet as frame, label, nflog, packet_v4, packet_v6, pppoe, put, radiotap, snap, tag,
    wifi,
};
use super::{contradiction, cut, ethernet, malformed, no_key, v4, v6};

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

// Serial lines and their encapsulations (PPP, `PPPoE`, Cisco HDLC), and netfilter's log.

/// Each way to write the number of a protocol.
fn numbered(protocol: u8) -> [Vec<u8>; 4] {
    [vec![0, protocol], vec![protocol], vec![0xff, 3, 0, protocol], vec![0xff, 3, protocol]]
}

#[test]
fn ppp_with_and_without_framing() {
    for link in [LinkType::PPP, LinkType::PPP_HDLC] {
        for (to_v4, to_v6) in numbered(0x21).into_iter().zip(numbered(0x57)) {
            assert_eq!(parse(link, &put(&to_v4, &v4())), packet_v4(17, PORTS));
            assert_eq!(parse(link, &put(&to_v6, &v6())), packet_v6(6, PORTS));
            assert_eq!(parse(link, &to_v4), cut(Layer::Ipv4, to_v4.len() as u32));
            let directed = put(&put(&[1], &to_v4), &v4());
            assert_eq!(parse(LinkType::PPP_WITH_DIR, &directed), packet_v4(17, PORTS));
        }
        for protocol in [0x0281_u16, 0x0283] {
            let labels = put(&protocol.to_be_bytes(), &label(false, &label(true, &v4())));
            assert_eq!(parse(link, &labels), packet_v4(17, PORTS));
        }
        // LCP, compressed TCP, multilink.
        for protocol in [0xc021_u16, 0x002d, 0x003d] {
            let other = put(&protocol.to_be_bytes(), &v4());
            assert_eq!(parse(link, &other), no_key(NoKey::Ppp));
        }
        assert_eq!(parse(link, &[]), cut(Layer::Ppp, 0));
        assert_eq!(parse(link, &[0]), cut(Layer::Ppp, 0));
        assert_eq!(parse(link, &[0xff]), cut(Layer::Ppp, 0));
        assert_eq!(parse(link, &[0xff, 3]), cut(Layer::Ppp, 2));
        assert_eq!(parse(link, &[0xff, 3, 0]), cut(Layer::Ppp, 2));
        assert_eq!(parse(link, &put(&[0xff, 7, 0, 0x21], &v4())), contradiction(Layer::Ppp, 0));
        assert_eq!(parse(link, &put(&[0, 0x21], &v6())), contradiction(Layer::Ipv4, 2));
    }
    assert_eq!(parse(LinkType::PPP_WITH_DIR, &[]), cut(Layer::Link, 0));
    assert_eq!(parse(LinkType::PPP_WITH_DIR, &[1]), cut(Layer::Ppp, 1));
}

#[test]
fn sessions_of_pppoe() {
    for number in &numbered(0x21)[..2] {
        let session = pppoe(&put(number, &v4()));
        assert_eq!(parse(LinkType::PPP_ETHER, &session), packet_v4(17, PORTS));
        let padded = put(&frame(0x8864, &session), &[0; 16]);
        assert_eq!(ethernet(&padded), packet_v4(17, PORTS));
        let tagged = frame(0x88a8, &tag(0x8100, &tag(0x8864, &session)));
        assert_eq!(ethernet(&tagged), packet_v4(17, PORTS));
        let cooked = put(&[0; 14], &put(&[0x88, 0x64], &session));
        assert_eq!(parse(LinkType::LINUX_SLL, &cooked), packet_v4(17, PORTS));
    }
    let v6 = frame(0x8864, &pppoe(&put(&[0, 0x57], &v6())));
    assert_eq!(ethernet(&v6), packet_v6(6, PORTS));
    assert_eq!(ethernet(&frame(0x8864, &pppoe(&[0xc0, 0x21, 1, 1, 0, 4]))), no_key(NoKey::Ppp));
}

#[test]
fn faults_of_a_session_are_named() {
    let session = frame(0x8864, &pppoe(&put(&[0, 0x21], &v4())));
    for length in 14..20 {
        assert_eq!(ethernet(&session[..length]), cut(Layer::Ppp, 14));
    }
    assert_eq!(ethernet(&session[..21]), cut(Layer::Ppp, 20));
    assert_eq!(ethernet(&session[..41]), cut(Layer::Ipv4, 22));
    let changed = |at: usize, value: u8| {
        let mut frame = session.clone();
        frame[at] = value;
        ethernet(&frame)
    };
    // Another version or type, and a code of discovery.
    assert_eq!(changed(14, 0x21), contradiction(Layer::Ppp, 14));
    assert_eq!(changed(14, 0x12), contradiction(Layer::Ppp, 14));
    assert_eq!(changed(15, 9), contradiction(Layer::Ppp, 14));
    // Lengths that end the session packet within the headers.
    assert_eq!(changed(19, 1), contradiction(Layer::Ppp, 20));
    assert_eq!(changed(19, 21), contradiction(Layer::Ipv4, 22));
    let ports = malformed(Layer::Transport, 42, flowgauge_core::packet::Fault::Contradiction);
    assert_eq!(changed(19, 25), packet_v4(17, Ports::Malformed(ports)));
    assert_eq!(changed(19, 26), packet_v4(17, PORTS));
}

#[test]
fn cisco_hdlc() {
    let hdlc = |address: u8, protocol: u16, payload: &[u8]| {
        put(&[address, 0], &put(&protocol.to_be_bytes(), payload))
    };
    for link in [LinkType::C_HDLC, LinkType::PPP_HDLC] {
        for address in [0x0f, 0x8f] {
            let sends = |protocol, payload: &[u8]| parse(link, &hdlc(address, protocol, payload));
            assert_eq!(sends(0x0800, &v4()), packet_v4(17, PORTS));
            assert_eq!(sends(0x86dd, &v6()), packet_v6(6, PORTS));
            assert_eq!(sends(0x8847, &label(true, &v4())), packet_v4(17, PORTS));
            assert_eq!(sends(0x8035, &[0; 18]), no_key(NoKey::OtherProtocol));
            assert_eq!(sends(0x2000, &[0; 18]), no_key(NoKey::OtherProtocol));
            for length in 1..4 {
                let short = &hdlc(address, 0x0800, &v4())[..length];
                assert_eq!(parse(link, short), cut(Layer::Link, 0));
            }
            assert_eq!(parse(link, &hdlc(address, 0x0800, &v4()[..19])), cut(Layer::Ipv4, 4));
        }
    }
}

#[test]
fn packets_that_netfilter_logged() {
    for order in [u16::to_le_bytes, u16::to_be_bytes] {
        let log = |family: u8, payload: &[u8]| {
            nflog(
                order,
                family,
                &[(1, &[8, 0, 1, 0]), (10, b"prefix\0"), (9, payload), (4, &[0; 4])],
            )
        };
        assert_eq!(parse(LinkType::NFLOG, &log(2, &v4())), packet_v4(17, PORTS));
        assert_eq!(parse(LinkType::NFLOG, &log(10, &v6())), packet_v6(6, PORTS));
        assert_eq!(parse(LinkType::NFLOG, &log(3, &[0; 28])), no_key(NoKey::Arp));
        assert_eq!(parse(LinkType::NFLOG, &log(7, &v4())), no_key(NoKey::OtherProtocol));
        let whole = log(2, &v4());
        for (length, offset) in [(0, 0), (3, 0), (4, 4), (7, 4), (11, 4), (12, 12), (24, 24)] {
            assert_eq!(parse(LinkType::NFLOG, &whole[..length]), cut(Layer::Link, offset));
        }
        assert_eq!(parse(LinkType::NFLOG, &whole[..29]), cut(Layer::Ipv4, 28));
        let mut version = whole.clone();
        version[1] = 1;
        assert_eq!(parse(LinkType::NFLOG, &version), contradiction(Layer::Link, 0));
        // An attribute that ends before its own header, and a packet that exceeds its attribute.
        let mut short = whole.clone();
        short[4..6].copy_from_slice(&order(3));
        assert_eq!(parse(LinkType::NFLOG, &short), contradiction(Layer::Link, 4));
        let mut short = whole;
        short[24..26].copy_from_slice(&order(23));
        assert_eq!(parse(LinkType::NFLOG, &short), contradiction(Layer::Ipv4, 28));
    }
}

// 802.11 frames, bare and behind what radios say of them.

/// Data, and data with QoS control.
const DATA: u8 = 0x08;
const QOS: u8 = 0x88;

fn wifi_v4() -> Vec<u8> {
    snap(0x0800, &v4())
}

fn wifi_v6() -> Vec<u8> {
    snap(0x86dd, &v6())
}

fn bare(frame: &[u8]) -> Headers {
    parse(LinkType::IEEE802_11, frame)
}

#[test]
fn data_frames_carry_ip() {
    // Without an access point, to one, from one, and between two; retried, with more fragments.
    for flags in [0, 1, 2, 3, 9, 0x22] {
        assert_eq!(bare(&wifi([DATA, flags], &[], &wifi_v4())), packet_v4(17, PORTS));
        assert_eq!(bare(&wifi([QOS, flags], &[5, 0], &wifi_v4())), packet_v4(17, PORTS));
        assert_eq!(bare(&wifi([QOS, flags], &[5, 0], &wifi_v6())), packet_v6(6, PORTS));
        let throughput = wifi([QOS, flags | 0x80], &[5, 0, 1, 2, 3, 4], &wifi_v4());
        assert_eq!(bare(&throughput), packet_v4(17, PORTS));
        // Without QoS the same flag means strict order.
        assert_eq!(bare(&wifi([DATA, flags | 0x80], &[], &wifi_v4())), packet_v4(17, PORTS));
    }
    assert_eq!(bare(&wifi([DATA, 1], &[], &[0x42, 0x42, 3])), Headers::NoKey(NoKey::Llc));
}

#[test]
fn frames_without_a_packet_give_the_reason() {
    // A beacon, a probe, an acknowledgement, block acknowledgement, an extension, null data.
    for control in [0x80, 0x40, 0xd4, 0x94, 0x0c, 0x48, 0xc8] {
        for flags in [0, 0x40] {
            let frame = wifi([control, flags], &[], &wifi_v4());
            assert_eq!(bare(&frame), Headers::NoKey(NoKey::WifiControl), "{control:#x}");
            assert_eq!(bare(&frame[..2]), Headers::NoKey(NoKey::WifiControl), "{control:#x}");
        }
    }
    for control in [DATA, QOS] {
        let frame = wifi([control, 0x41], &[0, 0], &wifi_v4());
        assert_eq!(bare(&frame), Headers::NoKey(NoKey::WifiProtected));
    }
    let mut later = wifi([DATA, 1], &[], &wifi_v4());
    later[22] |= 1;
    assert_eq!(bare(&later), Headers::NoKey(NoKey::WifiParts));
    let aggregate = wifi([QOS, 1], &[0x80, 0], &put(&[6; 12], &put(&[0, 36], &wifi_v4())));
    assert_eq!(bare(&aggregate), Headers::NoKey(NoKey::WifiParts));
}

#[test]
fn frames_that_are_cut_or_of_another_version() {
    let frame = wifi([QOS, 0x83], &[0; 6], &wifi_v4());
    for (lengths, at) in [(0..24, 0), (24..30, 24), (30..32, 30), (32..36, 32), (36..44, 36)] {
        for length in lengths {
            assert_eq!(bare(&frame[..length]), cut(Layer::Link, at), "{length}");
        }
    }
    assert_eq!(bare(&frame[..44 + 19]), cut(Layer::Ipv4, 44));
    for version in 1..4 {
        let frame = wifi([DATA | version, 1], &[], &wifi_v4());
        assert_eq!(bare(&frame), contradiction(Layer::Link, 0));
    }
}

#[test]
fn radiotap_in_front() {
    const MORE: u32 = 1 << 31;
    let tapped = |present: &[u32], fields: &[u8], frame: &[u8]| {
        parse(LinkType::IEEE802_11_RADIOTAP, &put(&radiotap(present, fields, 3), frame))
    };
    let plain = wifi([DATA, 1], &[], &wifi_v4());
    let odd = wifi([QOS, 1], &[0, 0], &wifi_v4());
    let padded = wifi([QOS, 1], &[0, 0, 9, 9], &wifi_v4());
    let found = packet_v4(17, PORTS);
    assert_eq!(tapped(&[0], &[], &plain), found);
    assert_eq!(tapped(&[2], &[0x10], &odd), found);
    assert_eq!(tapped(&[2], &[0x20], &padded), found);
    // A header that ends on a whole word has no padding.
    assert_eq!(tapped(&[2], &[0x20], &plain), found);
    // The time field is aligned to eight bytes.
    assert_eq!(
        tapped(&[3], &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x20], &padded),
        found
    );
    let time = [&[0xff; 4][..], &[7; 8], &[0x20]].concat();
    assert_eq!(tapped(&[3 | MORE, 0], &time, &padded), found);
    assert_eq!(tapped(&[3 | MORE, MORE, 0], &time[4..], &padded), found);
    assert_eq!(tapped(&[2 | MORE, 0], &[0x20], &padded), found);

    let whole = put(&radiotap(&[3], &[0; 9], 0), &plain);
    let parse = |frame: &[u8]| parse(LinkType::IEEE802_11_RADIOTAP, frame);
    for length in 0..17 {
        assert_eq!(parse(&whole[..length]), cut(Layer::Link, 0));
    }
    assert_eq!(parse(&whole[..17]), cut(Layer::Link, 17));
    let changed = |at: usize, value: u8| {
        let mut frame = whole.clone();
        frame[at] = value;
        parse(&frame)
    };
    assert_eq!(changed(0, 1), contradiction(Layer::Link, 0));
    assert_eq!(changed(2, 7), contradiction(Layer::Link, 0));
    // Fields beyond the header: the flags, and another presence word.
    assert_eq!(changed(2, 16), contradiction(Layer::Link, 16));
    assert_eq!(parse(&put(&radiotap(&[MORE], &[], 0), &plain)), contradiction(Layer::Link, 8));
}

#[test]
fn ppi_names_the_link_type_behind_it() {
    let ppi = |link: u32, length: u16, rest: &[u8]| {
        let [low, high] = length.to_le_bytes();
        let header = put(&[0, 0, low, high], &link.to_le_bytes());
        parse(LinkType::PPI, &put(&header, rest))
    };
    let plain = wifi([DATA, 1], &[], &wifi_v4());
    assert_eq!(ppi(105, 8, &plain), packet_v4(17, PORTS));
    assert_eq!(ppi(105, 12, &put(&[9; 4], &plain)), packet_v4(17, PORTS));
    assert_eq!(ppi(101, 8, &wifi_v4()[8..]), packet_v4(17, PORTS));
    assert_eq!(ppi(227, 8, &[]), Headers::Unread(LinkType(227)));
    assert_eq!(ppi(105, 7, &plain), contradiction(Layer::Link, 0));
    assert_eq!(ppi(1 << 16, 8, &plain), contradiction(Layer::Link, 0));
    assert_eq!(ppi(105, 200, &plain), cut(Layer::Link, 0));
    assert_eq!(parse(LinkType::PPI, &[0; 7]), cut(Layer::Link, 0));
    assert_eq!(parse(LinkType::PPI, &[1; 9]), contradiction(Layer::Link, 0));
    let nested = [0, 0, 8, 0, 192, 0, 0, 0].repeat(usize::from(MAX_NESTED) + 1);
    assert_eq!(parse(LinkType::PPI, &nested), contradiction(Layer::Link, 8 * 16));
}
