//! Comparison with etherparse: the same addresses, protocol and ports, wherever both define them.
//!
//! Left out, where the definitions differ:
//! - MPLS, LLC, `PPPoE`, `FabricPath`, and more than three tags, which etherparse does not pass;
//! - an IP version other than the `EtherType` names, which etherparse accepts and this parser calls
//!   malformed;
//! - an IPv4 total length below the header length, which etherparse treats as unknown unless it is
//!   0;
//! - the ports of SCTP, of a first fragment, behind AH in IPv4 (which etherparse passes), and of a
//!   TCP or UDP header that is cut or odd (of which here only the ports matter): for all these
//!   etherparse returns no ports, or others;
//! - in IPv6, what follows an extension header that is cut behind its first eight bytes, a
//!   hop-by-hop header that is not the first, an AH without length, or a non-first fragment that
//!   begins with another extension header.

use etherparse::{
    Ipv6ExtensionSlice, LaxLinkExtSlice, LaxNetSlice, LaxSlicedPacket, TransportSlice,
};
use flowgauge_core::packet::{Fault, Headers, Layer, NoKey, Ports};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

use super::frames::{ethernet as frame, extension, ipv4, ipv6, put, tag, tcp, udp};
use super::{cut, ethernet};

/// A header in front of the transport header.
#[derive(Clone, Copy, Debug)]
enum Extension {
    Options(u8, u8),
    /// Offset and flags.
    Fragment(u16),
    Authentication(u8),
}

fn extensions() -> impl Strategy<Value = Vec<Extension>> {
    let one = prop_oneof![
        4 => (select(vec![43, 60]), 0..3_u8)
            .prop_map(|(kind, words)| Extension::Options(kind, words)),
        2 => (1..5_u8).prop_map(Extension::Authentication),
        1 => Just(Extension::Fragment(0)),
        1 => any::<u16>().prop_map(Extension::Fragment),
    ];
    let hop_by_hop = (0..3_u8).prop_map(|words| Extension::Options(0, words));
    (vec(hop_by_hop, 0..2), vec(one, 0..4)).prop_map(|(first, rest)| [first, rest].concat())
}

fn transport() -> impl Strategy<Value = (u8, Vec<u8>)> {
    let payload = vec(any::<u8>(), 0..12);
    prop_oneof![
        3 => (any::<u16>(), payload.clone()).prop_map(|(port, payload)| (17, udp(port, &payload))),
        3 => Just((6, tcp())),
        1 => (select(vec![1, 2, 33, 50, 51, 58, 59, 132, 136, 255]), payload),
    ]
}

fn ip_v6(extensions: &[Extension], (protocol, transport): (u8, Vec<u8>)) -> Vec<u8> {
    let (next, payload) =
        extensions.iter().rev().fold((protocol, transport), |(next, payload), one| match *one {
            Extension::Options(kind, words) => (kind, extension(next, words, &payload)),
            Extension::Fragment(field) => {
                let [high, low] = field.to_be_bytes();
                (44, put(&[next, 0, high, low, 0, 0, 0, 1], &payload))
            }
            Extension::Authentication(words) => {
                let fields = vec![0; 4 * usize::from(words) + 6];
                (51, put(&put(&[next, words], &fields), &payload))
            }
        });
    ipv6(next, &payload)
}

fn ip_v4(options: usize, offset: u16, (protocol, transport): (u8, Vec<u8>)) -> Vec<u8> {
    let mut packet = ipv4(protocol, &put(&vec![1; 4 * options], &transport));
    packet[0] = 0x45 + options as u8;
    packet[6..8].copy_from_slice(&offset.to_be_bytes());
    packet
}

/// Sound frames.
fn frames() -> impl Strategy<Value = Vec<u8>> {
    let offset = prop_oneof![3 => Just(0), 3 => Just(0x4000), 1 => any::<u16>()];
    let tags = prop_oneof![9 => 0..4_usize, 1 => 4..5_usize]
        .prop_flat_map(|count| vec(select(vec![0x8100, 0x88a8, 0x9100]), count));
    let packet = prop_oneof![
        5 => (0..11_usize, offset, transport())
            .prop_map(|(options, offset, transport)| (0x0800, ip_v4(options, offset, transport))),
        5 => (extensions(), transport())
            .prop_map(|(extensions, transport)| (0x86dd, ip_v6(&extensions, transport))),
        1 => Just((0x0806, put(&[0, 1, 8, 0, 6, 4, 0, 1], &[0; 20]))),
    ];
    (packet, tags).prop_map(|(packet, tags)| {
        let (ether_type, payload) = tags
            .into_iter()
            .fold(packet, |(ether_type, payload), kind: u16| (kind, tag(ether_type, &payload)));
        frame(ether_type, &payload)
    })
}

/// Frames with bytes changed, most of them in the headers, and then cut.
fn mutants() -> impl Strategy<Value = Vec<u8>> {
    let changes = vec((12..80_usize, any::<u8>()), 0..4);
    (frames(), changes, prop_oneof![Just(usize::MAX), 0..160_usize]).prop_map(
        |(mut frame, changes, length)| {
            for (at, byte) in changes {
                if let Some(place) = frame.get_mut(at) {
                    *place = byte;
                }
            }
            frame.truncate(length);
            frame
        },
    )
}

/// Compares both results; returns whether it compared ports.
type Compared = bool;

fn compare(frame: &[u8]) -> Compared {
    let ours = ethernet(frame);
    let Ok(theirs) = LaxSlicedPacket::from_ethernet(frame) else {
        assert_eq!(ours, cut(Layer::Link, 0));
        return false;
    };
    if theirs.link_exts.iter().any(|extension| matches!(extension, LaxLinkExtSlice::Macsec(_))) {
        assert_eq!(ours, Headers::NoKey(NoKey::Macsec));
        return false;
    }
    let stopped_at = theirs.stop_err.as_ref().map(|(_, layer)| *layer);
    match &theirs.net {
        None => {
            match stopped_at {
                Some(etherparse::err::Layer::Arp) => {
                    assert_eq!(ours, Headers::NoKey(NoKey::Arp));
                }
                Some(etherparse::err::Layer::MacsecHeader) => {
                    assert_eq!(ours, Headers::NoKey(NoKey::Macsec));
                }
                Some(_) => assert!(matches!(ours, Headers::Malformed(_)), "{ours:?}"),
                None => {
                    let ether_type =
                        theirs.ether_payload().map_or(0, |payload| payload.ether_type.0);
                    let passed_here = matches!(
                        ether_type,
                        0x8100 | 0x88a8 | 0x9100 | 0x8847 | 0x8848 | 0x8864 | 0x8903 | ..1536
                    );
                    assert!(passed_here || matches!(ours, Headers::NoKey(_)), "{ours:?}");
                }
            }
            false
        }
        Some(LaxNetSlice::Arp(_)) => {
            assert_eq!(ours, Headers::NoKey(NoKey::Arp));
            false
        }
        Some(LaxNetSlice::Ipv4(packet)) => {
            let header = packet.header();
            let total_length = usize::from(header.total_len());
            let Headers::V4(ip) = ours else {
                let Headers::Malformed(malformed) = ours else { panic!("{ours:?}") };
                let below = total_length != 0 && total_length < header.slice().len();
                assert!(below || malformed.layer == Layer::Ipv6, "{ours:?}");
                assert!(malformed.fault == Fault::Contradiction || malformed.layer == Layer::Ipv6);
                return false;
            };
            assert_eq!(ip.addresses[..4], header.source());
            assert_eq!(ip.addresses[4..], header.destination());
            assert_eq!(ip.protocol, header.protocol().0);
            if header.fragments_offset().value() != 0 {
                assert_eq!(ip.ports, Ports::Absent);
            }
            packet.extensions().auth.is_none() && compare_ports(ip.ports, theirs.transport.as_ref())
        }
        Some(LaxNetSlice::Ipv6(packet)) => {
            let Headers::V6(ip) = ours else {
                assert!(
                    matches!(ours, Headers::Malformed(malformed) if malformed.layer == Layer::Ipv4),
                    "{ours:?}"
                );
                return false;
            };
            assert_eq!(ip.addresses[..16], packet.header().source());
            assert_eq!(ip.addresses[16..], packet.header().destination());
            if stopped_in_extensions(stopped_at) {
                return false;
            }
            let later_fragment = packet.extensions().clone().into_iter().any(|extension| {
                matches!(extension, Ipv6ExtensionSlice::Fragment(fragment)
                    if fragment.fragment_offset().value() != 0)
            });
            let protocol = packet.payload().ip_number.0;
            if later_fragment {
                assert_eq!(ip.ports, Ports::Absent);
                assert!(ip.protocol == protocol || matches!(ip.protocol, 0 | 43 | 44 | 51 | 60));
            } else {
                assert_eq!(ip.protocol, protocol);
            }
            compare_ports(ip.ports, theirs.transport.as_ref())
        }
    }
}

fn stopped_in_extensions(layer: Option<etherparse::err::Layer>) -> bool {
    use etherparse::err::Layer::{Icmpv4, Icmpv6, Igmp, TcpHeader, UdpHeader};
    layer.is_some_and(|layer| !matches!(layer, UdpHeader | TcpHeader | Icmpv4 | Icmpv6 | Igmp))
}

fn compare_ports(ours: Ports, theirs: Option<&TransportSlice<'_>>) -> Compared {
    let (source, destination) = match theirs {
        Some(TransportSlice::Udp(udp)) => (udp.source_port(), udp.destination_port()),
        Some(TransportSlice::Tcp(tcp)) => (tcp.source_port(), tcp.destination_port()),
        Some(_) => {
            assert_eq!(ours, Ports::Absent);
            return true;
        }
        None => return false,
    };
    assert_eq!(ours, Ports::Found(u32::from(source) << 16 | u32::from(destination)));
    true
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 20_000,
        failure_persistence: None,
        rng_seed: proptest::test_runner::RngSeed::Fixed(20_260_101),
        ..ProptestConfig::default()
    })]

    #[test]
    fn mutated_frames_agree(frame in mutants()) {
        compare(&frame);
    }
}

/// The comparison would be worthless if most frames were left out.
#[test]
fn most_sound_frames_are_compared() {
    let mut runner = TestRunner::deterministic();
    let compared = (0..2_000)
        .filter_map(|_| frames().new_tree(&mut runner).ok())
        .filter(|tree| compare(&tree.current()))
        .count();
    assert!(compared > 1_000, "only {compared} of 2000");
}
