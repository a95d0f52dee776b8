//! The two ways through a frame: to its first IP header, and to its innermost one.

use flowgauge_kernel::ScalarHeaders;

use super::cursor::Cursor;
use super::network::Network;
use super::transport::{self, Transport};
use super::{
    Frame, Headers, Layer, LinkType, Malformed, NoKey, common, cooked, ethernet, hdlc, loopback,
    nflog, ppp, radiotap, tunnel, wifi,
};

/// Reads the captured bytes `frame` up to the ports behind the first IP header.
///
/// Total: any bytes of any link type have an outcome. Once the ports are found, more captured bytes
/// of the same frame do not change it.
///
/// Cost: a length check and a branch for TCP and UDP in IPv4 without options or IPv6 without extension
/// headers, in Ethernet with at most one VLAN tag; a call for everything else.
#[inline]
pub fn parse(link: LinkType, frame: &[u8]) -> Headers {
    let common = common::packet(ScalarHeaders, link, frame, false);
    common.unwrap_or_else(|| outer(link, frame))
}

/// Reads the captured bytes `frame` up to the ports behind the innermost IP header: through IP in
/// IP, GRE, VXLAN, Geneve, GTP-U and Teredo, in any nesting.
///
/// A packet that is no tunnel after all (its version or flags say so, it ends before the tunnel
/// header, it is a non-first fragment), or whose tunnel carries no IP, stands for itself. But where
/// a tunnel header or what it carries is cut or contradicts itself, the outcome is malformed rather
/// than the outer packet, for else the key would depend on how much was captured. One such case
/// stays: UDP that is cut before its ports cannot be told for a tunnel, so the addresses are the
/// outer ones.
///
/// Cost: as [`parse`], where neither protocol nor destination port is that of a tunnel.
#[inline]
pub fn parse_inner(link: LinkType, frame: &[u8]) -> Headers {
    let common = common::packet(ScalarHeaders, link, frame, true);
    common.unwrap_or_else(|| innermost(link, frame).0)
}

/// Which packet of a tunnel is measured, and whose bytes it counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tunnels {
    /// The outer packet.
    #[default]
    Outer,
    /// The inner packet, by the bytes of the frame.
    Inner,
    /// The inner packet, by the bytes that the frame would have without the tunnel: those of the frame
    /// but for what stands from the outer IP header to the inner one.
    InnerBytes,
}

impl Tunnels {
    /// Whether the inner packet is measured.
    #[inline(always)]
    pub fn are_followed(self) -> bool {
        self != Self::Outer
    }

    /// Reads a frame; the bytes that its packet counts.
    ///
    /// Cost: as [`parse`] or [`parse_inner`].
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

/// As [`Tunnels::read`], with what the transport header says beside its ports, where it was captured.
///
/// Cost: two calls. It is for a few packets of many.
pub fn parse_transport(frame: &Frame<'_>, tunnels: Tunnels) -> (Headers, u32, Option<Transport>) {
    let mut cursor = Cursor::new(frame.bytes);
    let (headers, around) = match tunnels {
        Tunnels::Outer => (to_outer(frame.link, &mut cursor), 0),
        Tunnels::Inner => (to_innermost(frame.link, &mut cursor).0, 0),
        Tunnels::InnerBytes => to_innermost(frame.link, &mut cursor),
    };
    let transport = match &headers {
        Headers::V4(ip) => transport::read(&cursor, ip.protocol),
        Headers::V6(ip) => transport::read(&cursor, ip.protocol),
        Headers::NoKey(_) | Headers::Unread(_) | Headers::Malformed(_) => None,
    };
    (headers, frame.wire.saturating_sub(around), transport)
}

#[inline(never)]
fn outer(link: LinkType, frame: &[u8]) -> Headers {
    to_outer(link, &mut Cursor::new(frame))
}

/// Reads up to the first IP header, and leaves the cursor behind it.
fn to_outer(link: LinkType, cursor: &mut Cursor<'_>) -> Headers {
    match first(link, cursor) {
        Ok(network) => network.read(cursor),
        Err(malformed) => Headers::Malformed(malformed),
    }
}

/// The innermost packet, and the bytes of the tunnels around it. Most packets are no tunnels: to look
/// for one behind them costs more than to start again for the others.
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

/// Reads up to the innermost IP header, and leaves the cursor behind it; the bytes from the outer header
/// to it.
fn to_innermost(link: LinkType, cursor: &mut Cursor<'_>) -> (Headers, u32) {
    let mut network = first(link, cursor);
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

/// Moves to the first header above the link layer.
pub(super) fn first(link: LinkType, cursor: &mut Cursor<'_>) -> Result<Network, Malformed> {
    match link {
        LinkType::ETHERNET => ethernet::read(cursor),
        LinkType::RAW | LinkType::DLT_RAW | LinkType::DLT_RAW_OPENBSD => raw(cursor),
        LinkType::IPV4 => Ok(Network::Ipv4),
        LinkType::IPV6 => Ok(Network::Ipv6),
        LinkType::LINUX_SLL => cooked::read_v1(cursor),
        LinkType::LINUX_SLL2 => cooked::read_v2(cursor),
        LinkType::NULL => loopback::read_null(cursor),
        LinkType::LOOP => loopback::read_loop(cursor),
        LinkType::PPP => ppp::read(cursor),
        LinkType::PPP_HDLC => ppp::serial(cursor),
        LinkType::PPP_ETHER => ppp::session(cursor),
        LinkType::PPP_WITH_DIR => {
            cursor.skip(1, Layer::Link)?;
            ppp::read(cursor)
        }
        LinkType::C_HDLC => hdlc::read(cursor),
        LinkType::NFLOG => nflog::read(cursor),
        LinkType::IEEE802_11 => wifi::read(cursor, false),
        LinkType::IEEE802_11_RADIOTAP => radiotap::read(cursor),
        LinkType::PPI => radiotap::read_ppi(cursor),
        link => Ok(Network::Unread(link)),
    }
}

/// Nothing stands in front of raw IP, so anything else than IP is wrong.
fn raw(cursor: &Cursor<'_>) -> Result<Network, Malformed> {
    match Network::by_version(cursor, Layer::Link, NoKey::OtherProtocol)? {
        Network::Other(_) => Err(cursor.contradiction(Layer::Link)),
        ip => Ok(ip),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The short way must find what the long way finds, whatever the bytes.
    #[test]
    fn common_packets_agree_with_the_long_way() {
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
