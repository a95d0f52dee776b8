//! A flow record of any format, and the frame that represents its packets.

use std::net::IpAddr;

const ICMP: u8 = 1;
const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMPV6: u8 = 58;
const SCTP: u8 = 132;

/// Extension headers of IPv6, which some exporters report as the protocol.
const EXTENSIONS: [u8; 5] = [0, 43, 44, 51, 60];
/// Nothing follows an extension header.
const NO_NEXT_HEADER: u8 = 59;

/// A flow as an exporter reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) source: IpAddr,
    pub(crate) destination: IpAddr,
    pub(crate) source_port: u16,
    pub(crate) destination_port: u16,
    pub(crate) protocol: u8,
    /// The flags of all packets, combined.
    pub(crate) tcp_flags: u8,
    /// Type and code of ICMP.
    pub(crate) icmp: [u8; 2],
    /// Sampled packets.
    pub(crate) packets: u64,
    /// Sampled bytes.
    pub(crate) bytes: u64,
}

impl Record {
    /// An empty record.
    #[cfg(test)]
    pub(crate) const NONE: Self = Self {
        source: IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED),
        destination: IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED),
        source_port: 0,
        destination_port: 0,
        protocol: 0,
        tcp_flags: 0,
        icmp: [0; 2],
        packets: 0,
        bytes: 0,
    };

    /// Appends an Ethernet frame with the addresses, ports, flags and ICMP type of the record,
    /// without payload. If one address is IPv4 and the other IPv6, the frame is IPv6.
    pub(crate) fn append_frame(&self, to: &mut Vec<u8>) {
        let (transport, len) = transport(self);
        let transport = &transport[..len];
        match (self.source, self.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                to.extend_from_slice(&[0; 12]);
                to.extend_from_slice(&[0x08, 0x00, 0x45, 0]);
                to.extend_from_slice(&(20 + len as u16).to_be_bytes());
                to.extend_from_slice(&[0, 0, 0, 0, 64, self.protocol, 0, 0]);
                to.extend_from_slice(&source.octets());
                to.extend_from_slice(&destination.octets());
            }
            (source, destination) => {
                to.extend_from_slice(&[0; 12]);
                to.extend_from_slice(&[0x86, 0xdd, 0x60, 0, 0, 0]);
                to.extend_from_slice(&(len as u16).to_be_bytes());
                to.extend_from_slice(&[self.protocol, 64]);
                for address in [source, destination] {
                    let address = match address {
                        IpAddr::V4(address) => address.to_ipv6_mapped(),
                        IpAddr::V6(address) => address,
                    };
                    to.extend_from_slice(&address.octets());
                }
            }
        }
        to.extend_from_slice(transport);
    }
}

/// The header after the IP header, and its length.
fn transport(record: &Record) -> ([u8; 20], usize) {
    let mut header = [0; 20];
    header[..2].copy_from_slice(&record.source_port.to_be_bytes());
    header[2..4].copy_from_slice(&record.destination_port.to_be_bytes());
    match record.protocol {
        TCP => {
            // Five words, then the flags.
            header[12..14].copy_from_slice(&[0x50, record.tcp_flags]);
            (header, 20)
        }
        UDP => {
            header[5] = 8;
            (header, 8)
        }
        SCTP => (header, 12),
        ICMP | ICMPV6 => {
            header = [0; 20];
            header[..2].copy_from_slice(&record.icmp);
            (header, 8)
        }
        protocol if record.source.is_ipv6() && EXTENSIONS.contains(&protocol) => {
            header = [0; 20];
            header[0] = NO_NEXT_HEADER;
            (header, 8)
        }
        _ => ([0; 20], 0),
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may panic")]

    use etherparse::{NetSlice, SlicedPacket, TransportSlice};
    use flowgauge_core::packet::{Headers, LinkType, Ports, parse};

    use super::*;

    fn record(addresses: [&str; 2], protocol: u8) -> Record {
        Record {
            source: addresses[0].parse().unwrap(),
            destination: addresses[1].parse().unwrap(),
            source_port: 1234,
            destination_port: 443,
            protocol,
            tcp_flags: 0x12,
            icmp: [8, 0],
            ..Record::NONE
        }
    }

    const V4: [&str; 2] = ["192.0.2.1", "198.51.100.2"];
    const V6: [&str; 2] = ["2001:db8::1", "2001:db8::2"];

    #[test]
    fn another_library_reads_the_frames() {
        for (addresses, v4) in [(V4, true), (V6, false)] {
            for protocol in [TCP, UDP] {
                let mut frame = Vec::new();
                record(addresses, protocol).append_frame(&mut frame);
                let packet = SlicedPacket::from_ethernet(&frame).unwrap();
                assert_eq!(matches!(packet.net, Some(NetSlice::Ipv4(_))), v4);
                match packet.transport.unwrap() {
                    TransportSlice::Tcp(tcp) => {
                        assert_eq!((tcp.source_port(), tcp.destination_port()), (1234, 443));
                        assert!(tcp.syn() && tcp.ack() && !tcp.fin());
                    }
                    TransportSlice::Udp(udp) => {
                        assert_eq!((udp.source_port(), udp.destination_port()), (1234, 443));
                    }
                    other => panic!("{other:?}"),
                }
            }
        }
    }

    /// The engine reads the addresses for every protocol, and finds no contradiction.
    #[test]
    fn the_engine_reads_every_protocol() {
        for (addresses, protocol) in
            [V4, V6].into_iter().flat_map(|a| (0..=255).map(move |protocol| (a, protocol)))
        {
            let mut frame = Vec::new();
            record(addresses, protocol).append_frame(&mut frame);
            let ports = match parse(LinkType::ETHERNET, &frame) {
                Headers::V4(ip) => {
                    assert_eq!(
                        (ip.addresses[..4].to_vec(), ip.protocol),
                        (vec![192, 0, 2, 1], protocol)
                    );
                    ip.ports
                }
                Headers::V6(ip) => {
                    assert_eq!(ip.addresses[15], 1);
                    let own =
                        if EXTENSIONS.contains(&protocol) { NO_NEXT_HEADER } else { protocol };
                    assert_eq!(ip.protocol, own);
                    ip.ports
                }
                other => panic!("{protocol}: {other:?}"),
            };
            match protocol {
                TCP | UDP | SCTP => assert_eq!(ports, Ports::Found((1234 << 16) + 443)),
                _ => assert_eq!(ports, Ports::Absent, "{protocol}"),
            }
        }
    }
}
