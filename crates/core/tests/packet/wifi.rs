//! 802.11 frames, bare and behind what radios say of them.

use flowgauge_core::packet::{Headers, Layer, LinkType, MAX_NESTED, NoKey, parse};

use crate::frames::{PORTS, ipv4, ipv6, packet_v4, packet_v6, put, radiotap, snap, tcp, udp, wifi};
use crate::{contradiction, cut};

/// Data, and data with QoS control.
const DATA: u8 = 0x08;
const QOS: u8 = 0x88;

fn v4() -> Vec<u8> {
    snap(0x0800, &ipv4(17, &udp(53, &[])))
}

fn v6() -> Vec<u8> {
    snap(0x86dd, &ipv6(6, &tcp()))
}

fn bare(frame: &[u8]) -> Headers {
    parse(LinkType::IEEE802_11, frame)
}

#[test]
fn data_frames_carry_ip() {
    // Without an access point, to one, from one, and between two; retried, with more fragments.
    for flags in [0, 1, 2, 3, 9, 0x22] {
        assert_eq!(bare(&wifi([DATA, flags], &[], &v4())), packet_v4(17, PORTS));
        assert_eq!(bare(&wifi([QOS, flags], &[5, 0], &v4())), packet_v4(17, PORTS));
        assert_eq!(bare(&wifi([QOS, flags], &[5, 0], &v6())), packet_v6(6, PORTS));
        let throughput = wifi([QOS, flags | 0x80], &[5, 0, 1, 2, 3, 4], &v4());
        assert_eq!(bare(&throughput), packet_v4(17, PORTS));
        // Without QoS the same flag means strict order.
        assert_eq!(bare(&wifi([DATA, flags | 0x80], &[], &v4())), packet_v4(17, PORTS));
    }
    assert_eq!(bare(&wifi([DATA, 1], &[], &[0x42, 0x42, 3])), Headers::NoKey(NoKey::Llc));
}

#[test]
fn frames_without_a_packet_give_the_reason() {
    // A beacon, a probe, an acknowledgement, block acknowledgement, an extension, null data.
    for control in [0x80, 0x40, 0xd4, 0x94, 0x0c, 0x48, 0xc8] {
        for flags in [0, 0x40] {
            let frame = wifi([control, flags], &[], &v4());
            assert_eq!(bare(&frame), Headers::NoKey(NoKey::WifiControl), "{control:#x}");
            assert_eq!(bare(&frame[..2]), Headers::NoKey(NoKey::WifiControl), "{control:#x}");
        }
    }
    for control in [DATA, QOS] {
        let frame = wifi([control, 0x41], &[0, 0], &v4());
        assert_eq!(bare(&frame), Headers::NoKey(NoKey::WifiProtected));
    }
    let mut later = wifi([DATA, 1], &[], &v4());
    later[22] |= 1;
    assert_eq!(bare(&later), Headers::NoKey(NoKey::WifiParts));
    let aggregate = wifi([QOS, 1], &[0x80, 0], &put(&[6; 12], &put(&[0, 36], &v4())));
    assert_eq!(bare(&aggregate), Headers::NoKey(NoKey::WifiParts));
}

#[test]
fn frames_that_are_cut_or_of_another_version() {
    let frame = wifi([QOS, 0x83], &[0; 6], &v4());
    for (lengths, at) in [(0..24, 0), (24..30, 24), (30..32, 30), (32..36, 32), (36..44, 36)] {
        for length in lengths {
            assert_eq!(bare(&frame[..length]), cut(Layer::Link, at), "{length}");
        }
    }
    assert_eq!(bare(&frame[..44 + 19]), cut(Layer::Ipv4, 44));
    for version in 1..4 {
        let frame = wifi([DATA | version, 1], &[], &v4());
        assert_eq!(bare(&frame), contradiction(Layer::Link, 0));
    }
}

#[test]
fn radiotap_in_front() {
    const MORE: u32 = 1 << 31;
    let tapped = |present: &[u32], fields: &[u8], frame: &[u8]| {
        parse(LinkType::IEEE802_11_RADIOTAP, &put(&radiotap(present, fields, 3), frame))
    };
    let plain = wifi([DATA, 1], &[], &v4());
    let odd = wifi([QOS, 1], &[0, 0], &v4());
    let padded = wifi([QOS, 1], &[0, 0, 9, 9], &v4());
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
    let plain = wifi([DATA, 1], &[], &v4());
    assert_eq!(ppi(105, 8, &plain), packet_v4(17, PORTS));
    assert_eq!(ppi(105, 12, &put(&[9; 4], &plain)), packet_v4(17, PORTS));
    assert_eq!(ppi(101, 8, &v4()[8..]), packet_v4(17, PORTS));
    assert_eq!(ppi(227, 8, &[]), Headers::Unread(LinkType(227)));
    assert_eq!(ppi(105, 7, &plain), contradiction(Layer::Link, 0));
    assert_eq!(ppi(1 << 16, 8, &plain), contradiction(Layer::Link, 0));
    assert_eq!(ppi(105, 200, &plain), cut(Layer::Link, 0));
    assert_eq!(parse(LinkType::PPI, &[0; 7]), cut(Layer::Link, 0));
    assert_eq!(parse(LinkType::PPI, &[1; 9]), contradiction(Layer::Link, 0));
    let nested = [0, 0, 8, 0, 192, 0, 0, 0].repeat(usize::from(MAX_NESTED) + 1);
    assert_eq!(parse(LinkType::PPI, &nested), contradiction(Layer::Link, 8 * 16));
}
