//! The ports of TCP, UDP and SCTP, which stand in the same four bytes.

use super::cursor::Cursor;
use super::{Layer, Ports};

/// Transmission Control Protocol.
const TCP: u8 = 6;
/// User Datagram Protocol.
pub(super) const UDP: u8 = 17;
/// The Internet Control Message Protocol, of IPv4 and IPv6.
const ICMP: u8 = 1;
const ICMPV6: u8 = 58;
/// Stream Control Transmission Protocol.
const SCTP: u8 = 132;

/// Whether a protocol has ports: TCP, UDP and SCTP.
#[inline]
pub fn has_ports(protocol: u8) -> bool {
    matches!(protocol, TCP | UDP | SCTP)
}

pub(super) fn ports(cursor: &Cursor<'_>, protocol: u8) -> Ports {
    if !has_ports(protocol) {
        return Ports::Absent;
    }
    match cursor.peek(Layer::Transport) {
        Ok(&ports) => Ports::Found(u32::from_be_bytes(ports)),
        Err(malformed) => Ports::Malformed(malformed),
    }
}

/// What a transport header says beside its ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// The flags of TCP, from CWR in the highest bit to FIN in the lowest.
    Tcp(u8),
    /// The type of ICMP or `ICMPv6`.
    Icmp(u8),
}

/// Reads the header at the cursor; `None` for other protocols, non-first fragments, and headers that
/// were not captured as far.
pub(super) fn read(cursor: &Cursor<'_>, protocol: u8) -> Option<Transport> {
    if cursor.fragment {
        return None;
    }
    match protocol {
        TCP => {
            let header: &[u8; 14] = cursor.peek(Layer::Transport).ok()?;
            Some(Transport::Tcp(header[13]))
        }
        ICMP | ICMPV6 => cursor.peek(Layer::Transport).ok().map(|&[kind]| Transport::Icmp(kind)),
        _ => None,
    }
}
