//! Ethernet, VLAN tags, LLC, MPLS, PPP and Cisco HDLC, which carry each other in front of IP.

use super::cursor::Cursor;
use super::ip::Network;
use super::{Fault, Layer, Malformed, NoKey};

/// The `EtherType` of the outer addresses of Cisco `FabricPath`.
const FABRIC_PATH: u16 = 0x8903;

pub(super) fn read(cursor: &mut Cursor<'_>) -> Result<Network, Malformed> {
    let &[.., high, low] = cursor.take::<14>(Layer::Link)?;
    match untagged(cursor, u16::from_be_bytes([high, low]))? {
        FABRIC_PATH => fabric_path(cursor),
        // Below 1536 the field is the length of an IEEE 802.3 frame.
        length @ ..1536 => {
            cursor.bound(usize::from(length));
            llc(cursor)
        }
        ether_type => payload(cursor, ether_type),
    }
}

/// Cisco `FabricPath`: outer addresses, a tag of two bytes, then a whole Ethernet frame.
fn fabric_path(cursor: &mut Cursor<'_>) -> Result<Network, Malformed> {
    cursor.nest(Layer::Link)?;
    cursor.skip(2, Layer::Link)?;
    read(cursor)
}

/// Moves to the header that `ether_type` names, over VLAN tags and MPLS labels.
pub(super) fn payload(cursor: &mut Cursor<'_>, ether_type: u16) -> Result<Network, Malformed> {
    Ok(match untagged(cursor, ether_type)? {
        0x0800 => Network::Ipv4,
        0x86dd => Network::Ipv6,
        0x8847 | 0x8848 => mpls(cursor)?,
        0x0806 | 0x8035 => Network::Other(NoKey::Arp),
        0x8863 => Network::Other(NoKey::Pppoe),
        0x8864 => pppoe(cursor)?,
        0x88e5 => Network::Other(NoKey::Macsec),
        _ => Network::Other(NoKey::OtherProtocol),
    })
}

/// Whether an `EtherType` begins a VLAN tag.
fn is_tag(ether_type: u16) -> bool {
    matches!(ether_type, 0x8100 | 0x88a8 | 0x9100)
}

/// A tagged Ethernet frame from its fourth byte on: its `EtherType` is then at byte 12, as in an
/// untagged frame. `None` where the frame has no tag.
#[inline(always)]
pub(super) fn behind_tag(frame: &[u8]) -> Option<&[u8]> {
    let &[high, low] = frame.get(12..)?.first_chunk()?;
    is_tag(u16::from_be_bytes([high, low])).then(|| &frame[4..])
}

/// The VLAN ID of an Ethernet frame's first tag.
pub(super) fn vlan_id(frame: &[u8]) -> Option<u16> {
    let &[a, b, c, d] = frame.get(12..)?.first_chunk()?;
    is_tag(u16::from_be_bytes([a, b])).then(|| u16::from_be_bytes([c, d]) & 0xfff)
}

/// Moves over VLAN tags, and returns the `EtherType` behind them. `ether_type` is that of the first
/// tag.
fn untagged(cursor: &mut Cursor<'_>, mut ether_type: u16) -> Result<u16, Malformed> {
    while is_tag(ether_type) {
        cursor.nest(Layer::Vlan)?;
        let &[_, _, high, low] = cursor.take(Layer::Vlan)?;
        ether_type = u16::from_be_bytes([high, low]);
    }
    Ok(ether_type)
}

/// Moves to the bottom of an MPLS label stack. The stack does not name its payload, so the
/// payload's first bits decide.
fn mpls(cursor: &mut Cursor<'_>) -> Result<Network, Malformed> {
    loop {
        cursor.nest(Layer::Mpls)?;
        let &[_, _, bottom, _] = cursor.take(Layer::Mpls)?;
        if bottom & 1 == 1 {
            break;
        }
    }
    Network::by_version(cursor, Layer::Mpls, NoKey::Mpls)
}

/// Unnumbered information, the only kind of LLC frame that carries IP.
const INFORMATION: u8 = 3;

/// IEEE 802.2 LLC, with or without SNAP. Moves to the packet behind the header where an `EtherType`
/// of SNAP or a service access point names IP.
pub(super) fn llc(cursor: &mut Cursor<'_>) -> Result<Network, Malformed> {
    const SNAP: u8 = 0xaa;
    const IP: u8 = 6;

    let Some(&header) = llc_header(cursor)? else { return Ok(Network::Other(NoKey::Llc)) };
    match header {
        [IP, IP, INFORMATION] => {
            cursor.at += header.len();
            Ok(Network::Ipv4)
        }
        [SNAP, SNAP, INFORMATION] => snap(cursor),
        _ => Ok(Network::Other(NoKey::Llc)),
    }
}

/// SNAP: the organizations of RFC 1042 and of IEEE 802.1H announce an `EtherType`.
fn snap(cursor: &mut Cursor<'_>) -> Result<Network, Malformed> {
    match llc_header(cursor)? {
        Some(&[_, _, _, 0, 0, 0 | 0xf8, high, low]) => {
            cursor.at += 8;
            payload(cursor, u16::from_be_bytes([high, low]))
        }
        _ => Ok(Network::Other(NoKey::Llc)),
    }
}

/// The first bytes of an LLC header. `None` where the frame's own length ends before them.
fn llc_header<'a, const N: usize>(cursor: &Cursor<'a>) -> Result<Option<&'a [u8; N]>, Malformed> {
    match cursor.peek(Layer::Link) {
        Err(Malformed { fault: Fault::Contradiction, .. }) => Ok(None),
        header => header.map(Some),
    }
}

/// A `PPPoE` session (RFC 2516). Its length excludes the padding of the Ethernet frame.
pub(super) fn pppoe(cursor: &mut Cursor<'_>) -> Result<Network, Malformed> {
    const VERSION_AND_TYPE: u8 = 0x11;
    const SESSION_DATA: u8 = 0;

    let header = cursor.peek(Layer::Ppp)?;
    let &[VERSION_AND_TYPE, SESSION_DATA, _, _, high, low] = header else {
        return Err(cursor.contradiction(Layer::Ppp));
    };
    cursor.at += header.len();
    cursor.bound(usize::from(u16::from_be_bytes([high, low])));
    ppp(cursor)
}

/// Address and control field of HDLC-like framing (RFC 1662).
const FRAMING: [u8; 2] = [0xff, 3];

/// PPP, with or without HDLC-like framing. A protocol field of one byte is odd; the first byte of a
/// field of two bytes is even.
pub(super) fn ppp(cursor: &mut Cursor<'_>) -> Result<Network, Malformed> {
    let &[mut first] = cursor.peek(Layer::Ppp)?;
    if first == FRAMING[0] {
        if *cursor.peek(Layer::Ppp)? != FRAMING {
            return Err(cursor.contradiction(Layer::Ppp));
        }
        cursor.at += FRAMING.len();
        [first] = *cursor.peek(Layer::Ppp)?;
    }
    let protocol = if first & 1 == 1 {
        cursor.at += 1;
        u16::from(first)
    } else {
        u16::from_be_bytes(*cursor.take(Layer::Ppp)?)
    };
    Ok(match protocol {
        0x0021 => Network::Ipv4,
        0x0057 => Network::Ipv6,
        0x0281 | 0x0283 => mpls(cursor)?,
        _ => Network::Other(NoKey::Ppp),
    })
}

/// A serial line: Cisco HDLC, which has addresses of its own, or PPP.
pub(super) fn serial(cursor: &mut Cursor<'_>) -> Result<Network, Malformed> {
    const UNICAST: u8 = 0x0f;
    const MULTICAST: u8 = 0x8f;

    match cursor.peek(Layer::Ppp)? {
        [UNICAST | MULTICAST] => cisco_hdlc(cursor),
        _ => ppp(cursor),
    }
}

/// Cisco HDLC (RFC 1547, section 4.3.1): an address, a control byte, and an `EtherType`.
pub(super) fn cisco_hdlc(cursor: &mut Cursor<'_>) -> Result<Network, Malformed> {
    /// Keep-alives of the line; Ethernet gives this number to RARP.
    const SLARP: u16 = 0x8035;

    let &[_, _, high, low] = cursor.take(Layer::Link)?;
    match u16::from_be_bytes([high, low]) {
        SLARP => Ok(Network::Other(NoKey::OtherProtocol)),
        protocol => payload(cursor, protocol),
    }
}
