//! IPv4, IPv6 with its extension headers, and the transport headers behind them.

use super::cursor::Cursor;
use super::{Headers, Ip, Layer, LinkType, Malformed, NoKey, Ports};

/// The header at the cursor, once the headers in front of IP are read.
pub(super) enum Network {
    /// An IPv4 header.
    Ipv4,
    /// An IPv6 header.
    Ipv6,
    /// A header that the parser does not follow.
    Other(NoKey),
    /// A header of a link type that the parser does not read.
    Unread(LinkType),
}

impl Network {
    /// Tells IPv4, IPv6 and other payloads of `layer` apart by their first four bits.
    pub(super) fn by_version(
        cursor: &Cursor<'_>,
        layer: Layer,
        other: NoKey,
    ) -> Result<Self, Malformed> {
        let &[first] = cursor.peek(layer)?;
        Ok(match first >> 4 {
            4 => Self::Ipv4,
            6 => Self::Ipv6,
            _ => Self::Other(other),
        })
    }

    /// Reads the packet.
    #[inline]
    pub(super) fn read(self, cursor: &mut Cursor<'_>) -> Headers {
        match self {
            Self::Ipv4 => ipv4(cursor).map_or_else(Headers::Malformed, Headers::V4),
            Self::Ipv6 => ipv6(cursor).map_or_else(Headers::Malformed, Headers::V6),
            Self::Other(reason) => Headers::NoKey(reason),
            Self::Unread(link) => Headers::Unread(link),
        }
    }
}

/// The bits of the IPv4 fragment offset, which are zero in a whole packet and in a first fragment.
pub(super) const FRAGMENT_OFFSET: u16 = 0x1fff;

fn ipv4(cursor: &mut Cursor<'_>) -> Result<Ip<8>, Malformed> {
    let header = cursor.peek::<20>(Layer::Ipv4)?;
    let [version, _, total_high, total_low, _, _, offset_high, offset_low, _, protocol, ..] =
        *header;
    let header_length = 4 * usize::from(version & 15);
    if version >> 4 != 4 || header_length < 20 {
        return Err(cursor.contradiction(Layer::Ipv4));
    }
    // A sender that leaves segmentation to its network card writes 0.
    let total_length = usize::from(u16::from_be_bytes([total_high, total_low]));
    if total_length != 0 {
        cursor.bound(total_length);
    }
    cursor.skip(header_length, Layer::Ipv4)?;
    cursor.fragment = u16::from_be_bytes([offset_high, offset_low]) & FRAGMENT_OFFSET != 0;

    let mut addresses = [0; 8];
    addresses.copy_from_slice(&header[12..]);
    let ports = if cursor.fragment { Ports::Absent } else { ports(cursor, protocol) };
    Ok(Ip { addresses, protocol, ports })
}

fn ipv6(cursor: &mut Cursor<'_>) -> Result<Ip<32>, Malformed> {
    let header = cursor.peek::<40>(Layer::Ipv6)?;
    let [version, _, _, _, payload_high, payload_low, mut protocol, ..] = *header;
    if version >> 4 != 6 {
        return Err(cursor.contradiction(Layer::Ipv6));
    }
    cursor.at += header.len();
    // The length is 0 in a jumbogram, and in a packet that the sender's network card will segment.
    let payload_length = usize::from(u16::from_be_bytes([payload_high, payload_low]));
    if payload_length != 0 {
        cursor.bound(payload_length);
    }

    let mut addresses = [0; 32];
    addresses.copy_from_slice(&header[8..]);
    let ports = match extensions(cursor, &mut protocol) {
        Err(malformed) => Ports::Unreached(malformed),
        Ok(()) if cursor.fragment => Ports::Absent,
        Ok(()) => ports(cursor, protocol),
    };
    Ok(Ip { addresses, protocol, ports })
}

/// Moves over the IPv6 extension headers. `protocol` names the first of them and, afterwards, the
/// header behind the last. Only the first eight bytes of each extension header must be captured.
fn extensions(cursor: &mut Cursor<'_>, protocol: &mut u8) -> Result<(), Malformed> {
    const HOP_BY_HOP: u8 = 0;
    const ROUTING: u8 = 43;
    const FRAGMENT: u8 = 44;
    const AUTHENTICATION: u8 = 51;
    const DESTINATION_OPTIONS: u8 = 60;

    while matches!(
        *protocol,
        HOP_BY_HOP | ROUTING | FRAGMENT | AUTHENTICATION | DESTINATION_OPTIONS
    ) {
        cursor.nest(Layer::Ipv6)?;
        let &[next, length, offset_high, offset_low, ..] = cursor.peek::<8>(Layer::Ipv6)?;
        let length = usize::from(length);
        cursor.at += match *protocol {
            FRAGMENT => 8,
            AUTHENTICATION => 4 * length + 8,
            _ => 8 * length + 8,
        };
        // The low three bits of the offset's field are flags.
        let offset = u16::from_be_bytes([offset_high, offset_low]) >> 3;
        let fragment = *protocol == FRAGMENT && offset != 0;
        *protocol = next;
        if fragment {
            cursor.fragment = true;
            break;
        }
    }
    Ok(())
}

const TCP: u8 = 6;
pub(super) const UDP: u8 = 17;
const ICMP: u8 = 1;
const ICMPV6: u8 = 58;
const SCTP: u8 = 132;

/// Whether a protocol has ports: TCP, UDP and SCTP.
#[inline]
pub fn has_ports(protocol: u8) -> bool {
    matches!(protocol, TCP | UDP | SCTP)
}

/// Reads both ports, which are the first four bytes of TCP, UDP and SCTP.
fn ports(cursor: &Cursor<'_>, protocol: u8) -> Ports {
    if !has_ports(protocol) {
        return Ports::Absent;
    }
    match cursor.peek(Layer::Transport) {
        Ok(&ports) => Ports::Found(u32::from_be_bytes(ports)),
        Err(malformed) => Ports::Malformed(malformed),
    }
}

/// A field of the transport header besides its ports.
///
/// ```
/// use flowgauge_core::packet::{Frame, LinkType, Transport, Tunnels, parse_transport};
///
/// let mut bytes = [0; 40];
/// (bytes[0], bytes[9], bytes[33]) = (0x45, 6, 0x02); // IPv4, TCP, SYN
/// let frame = Frame { bytes: &bytes, wire: 40, link: LinkType::IPV4, time_ns: 0 };
/// let (_, _, transport) = parse_transport(&frame, Tunnels::Outer);
/// assert_eq!(transport, Some(Transport::Tcp(0x02)));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// The TCP flags, from CWR in the highest bit to FIN in the lowest.
    Tcp(u8),
    /// The type of an ICMP or `ICMPv6` message.
    Icmp(u8),
}

impl Transport {
    /// Reads the header at the cursor. `None` for other protocols, for non-first fragments, and
    /// where the header is cut.
    pub(super) fn read(cursor: &Cursor<'_>, protocol: u8) -> Option<Self> {
        if cursor.fragment {
            return None;
        }
        match protocol {
            TCP => {
                let header: &[u8; 14] = cursor.peek(Layer::Transport).ok()?;
                Some(Self::Tcp(header[13]))
            }
            ICMP | ICMPV6 => cursor.peek(Layer::Transport).ok().map(|&[kind]| Self::Icmp(kind)),
            _ => None,
        }
    }
}
