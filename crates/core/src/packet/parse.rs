//! Parsing a frame up to its first IP header, or up to its innermost one.

use flowgauge_kernel::ScalarHeaders;

use super::cursor::Cursor;
use super::ip::{Network, Transport};
use super::{Frame, Headers, LinkType, common, link, tunnel};

/// Reads the captured bytes `frame` up to the ports behind the first IP header.
///
/// Total: it returns a result for any bytes of any link type. Once the ports are found, more
/// captured bytes of the same frame do not change the result.
///
/// Cost: a length check and a branch for TCP and UDP in IPv4 without options or IPv6 without
/// extension headers, in Ethernet with at most one VLAN tag; a function call for everything else.
#[inline]
pub fn parse(link: LinkType, frame: &[u8]) -> Headers {
    let common = common::packet(ScalarHeaders, link, frame, false);
    common.unwrap_or_else(|| outer(link, frame))
}

/// Reads the captured bytes `frame` up to the ports behind the innermost IP header, through IP in
/// IP, GRE, VXLAN, Geneve, GTP-U and Teredo in any nesting.
///
/// The result is the outer packet where it turns out to be no tunnel (by its version or flags,
/// because it ends before the tunnel header, or because it is a non-first fragment) and where the
/// tunnel carries no IP. Where a tunnel header or its payload is cut or contradicts itself, the
/// result is malformed: returning the outer packet would make the key depend on the capture length.
/// One exception remains: UDP that is cut before its ports cannot be recognized as a tunnel, so its
/// addresses are the outer ones.
///
/// Cost: that of [`parse`], where neither protocol nor destination port belongs to a tunnel.
#[inline]
pub fn parse_inner(link: LinkType, frame: &[u8]) -> Headers {
    let common = common::packet(ScalarHeaders, link, frame, true);
    common.unwrap_or_else(|| innermost(link, frame).0)
}

/// Which packet of a tunnel is measured, and how many bytes it counts.
///
/// ```
/// use flowgauge_core::packet::{Frame, Headers, LinkType, Tunnels};
///
/// // IP in IP: an outer and an inner header of 20 bytes.
/// let mut bytes = [0; 40];
/// (bytes[0], bytes[9], bytes[12]) = (0x45, 4, 10);
/// (bytes[20], bytes[29], bytes[32]) = (0x45, 1, 172);
/// let frame = Frame { bytes: &bytes, wire: 40, link: LinkType::IPV4, time_ns: 0 };
/// let source = |tunnels: Tunnels| match tunnels.read(&frame) {
///     (Headers::V4(ip), bytes) => (ip.addresses[0], bytes),
///     (other, _) => panic!("{other:?}"),
/// };
/// assert_eq!(source(Tunnels::Outer), (10, 40));
/// assert_eq!(source(Tunnels::Inner), (172, 40));
/// assert_eq!(source(Tunnels::InnerBytes), (172, 20));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tunnels {
    /// The outer packet.
    #[default]
    Outer,
    /// The inner packet, with all bytes of the frame.
    Inner,
    /// The inner packet, with the bytes that the frame would have without the tunnel: all except
    /// those from the outer IP header up to the inner one.
    InnerBytes,
}

impl Tunnels {
    /// Whether the inner packet is measured.
    #[inline(always)]
    pub fn are_followed(self) -> bool {
        self != Self::Outer
    }

    /// Reads a frame, and returns its headers and the bytes that its packet counts.
    ///
    /// Cost: that of [`parse`] or [`parse_inner`].
    #[inline]
    pub fn read(self, frame: &Frame<'_>) -> (Headers, u32) {
        let &Frame { bytes, wire, link, .. } = frame;
        match self {
            Self::Outer => (parse(link, bytes), wire),
            Self::Inner => (parse_inner(link, bytes), wire),
            Self::InnerBytes => {
                let common = common::packet(ScalarHeaders, link, bytes, true);
                let (headers, around) =
                    common.map_or_else(|| innermost(link, bytes), |headers| (headers, 0));
                (headers, wire.saturating_sub(around))
            }
        }
    }
}

/// As [`Tunnels::read`], and also returns the TCP flags or the ICMP type, where they were captured.
///
/// Cost: two function calls. It is meant for a few packets of many.
pub fn parse_transport(frame: &Frame<'_>, tunnels: Tunnels) -> (Headers, u32, Option<Transport>) {
    let mut cursor = Cursor::new(frame.bytes);
    let (headers, around) = match tunnels {
        Tunnels::Outer => (to_outer(frame.link, &mut cursor), 0),
        Tunnels::Inner => (to_innermost(frame.link, &mut cursor).0, 0),
        Tunnels::InnerBytes => to_innermost(frame.link, &mut cursor),
    };
    let transport = match &headers {
        Headers::V4(ip) => Transport::read(&cursor, ip.protocol),
        Headers::V6(ip) => Transport::read(&cursor, ip.protocol),
        Headers::NoKey(_) | Headers::Unread(_) | Headers::Malformed(_) => None,
    };
    (headers, frame.wire.saturating_sub(around), transport)
}

#[inline(never)]
fn outer(link: LinkType, frame: &[u8]) -> Headers {
    to_outer(link, &mut Cursor::new(frame))
}

/// Reads the first IP header and leaves the cursor behind it.
fn to_outer(link: LinkType, cursor: &mut Cursor<'_>) -> Headers {
    match link::read(link, cursor) {
        Ok(network) => network.read(cursor),
        Err(malformed) => Headers::Malformed(malformed),
    }
}

/// The innermost packet, and the number of bytes of the tunnels around it. Most packets are no
/// tunnels, so it is cheaper to parse tunnels twice than to prepare for one in every packet.
#[inline(never)]
fn innermost(link: LinkType, frame: &[u8]) -> (Headers, u32) {
    let headers = outer(link, frame);
    match &headers {
        Headers::V4(ip) if tunnel::may_be(ip) => through_tunnels(link, frame),
        Headers::V6(ip) if tunnel::may_be(ip) => through_tunnels(link, frame),
        _ => (headers, 0),
    }
}

#[inline(never)]
fn through_tunnels(link: LinkType, frame: &[u8]) -> (Headers, u32) {
    to_innermost(link, &mut Cursor::new(frame))
}

/// Reads the innermost IP header and leaves the cursor behind it. Also returns the number of bytes
/// from the outer IP header to the inner one.
fn to_innermost(link: LinkType, cursor: &mut Cursor<'_>) -> (Headers, u32) {
    let mut network = link::read(link, cursor);
    let outer = cursor.at;
    loop {
        let start = cursor.at;
        let headers = match network {
            Ok(network) => network.read(cursor),
            Err(malformed) => return (Headers::Malformed(malformed), 0),
        };
        let behind = cursor.clone();
        network = match &headers {
            Headers::V4(ip) => tunnel::read(cursor, ip),
            Headers::V6(ip) => tunnel::read(cursor, ip),
            Headers::NoKey(_) | Headers::Unread(_) | Headers::Malformed(_) => return (headers, 0),
        };
        if let Ok(Network::Other(_)) = network {
            *cursor = behind;
            return (headers, (start - outer) as u32);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The reader of common frames must find what the full parser finds, for any bytes.
    #[test]
    fn common_packets_agree_with_the_full_parser() {
        let mut state = 1_u64;
        let mut random = move |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % below
        };
        let mut common = 0;
        for _ in 0..200_000 {
            let mut frame = vec![7; 12];
            if random(3) == 0 {
                frame.extend([0x81, 0, 7, 7]);
            }
            let protocol = [6, 17, 132, 1][random(4) as usize];
            if random(2) == 0 {
                frame.extend([8, 0, 0x45, 0, 0, random(48) as u8, 7, 7, 0x40, 0, 64, protocol]);
            } else {
                frame.extend([0x86, 0xdd, 0x60, 7, 7, 7, 0, random(16) as u8, protocol, 64]);
            }
            frame.resize(80, 7);
            for _ in 0..random(3) {
                frame[12 + random(26) as usize] = random(256) as u8;
            }
            let (link, frame) = (LinkType::ETHERNET, &frame[..80 - random(50) as usize]);
            if let Some(packet) = common::packet(ScalarHeaders, link, frame, false) {
                common += 1;
                assert_eq!(packet, outer(link, frame), "{frame:02x?}");
                assert_eq!((packet, 0), through_tunnels(link, frame), "{frame:02x?}");
            }
        }
        assert!(common > 10_000, "only {common} frames were common");
    }
}
