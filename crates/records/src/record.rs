//! A flow record, whichever format it came in.

use std::net::IpAddr;

/// What an exporter says of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) source: IpAddr,
    pub(crate) destination: IpAddr,
    pub(crate) source_port: u16,
    pub(crate) destination_port: u16,
    pub(crate) protocol: u8,
    /// The flags of all its packets.
    pub(crate) tcp_flags: u8,
    /// Type and code of ICMP.
    pub(crate) icmp: [u8; 2],
    /// Packets and bytes that were sampled.
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
}

impl Record {
    /// A record of nothing.
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

    /// The same flow the other way, with the packets and bytes that went there.
    pub(crate) fn reverse(&self, packets: u64, bytes: u64) -> Self {
        Self {
            source: self.destination,
            destination: self.source,
            source_port: self.destination_port,
            destination_port: self.source_port,
            packets,
            bytes,
            ..*self
        }
    }
}
