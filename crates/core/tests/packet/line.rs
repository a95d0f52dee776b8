//! Serial lines and their encapsulations (PPP, `PPPoE`, Cisco HDLC), and netfilter's log.

use flowgauge_core::packet::{Layer, LinkType, NoKey, Ports, parse};

use crate::frames::{
    PORTS, ethernet as frame, label, nflog, packet_v4, packet_v6, pppoe, put, tag,
};
use crate::{contradiction, cut, ethernet, malformed, no_key, v4, v6};

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
