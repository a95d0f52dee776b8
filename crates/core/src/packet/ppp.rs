//! PPP: over Ethernet, over serial lines, or bare.

use super::cursor::Cursor;
use super::network::Network;
use super::{Layer, Malformed, NoKey, hdlc, mpls};

/// Address and control field of HDLC-like framing (RFC 1662).
const FRAMING: [u8; 2] = [0xff, 3];

/// A session of `PPPoE` (RFC 2516). Its length leaves out what pads the Ethernet frame.
pub(super) fn session(cursor: &mut Cursor<'_>) -> Result<Network, Malformed> {
    const VERSION_AND_TYPE: u8 = 0x11;
    const SESSION_DATA: u8 = 0;

    let header = cursor.peek(Layer::Ppp)?;
    let &[VERSION_AND_TYPE, SESSION_DATA, _, _, high, low] = header else {
        return Err(cursor.contradiction(Layer::Ppp));
    };
    cursor.at += header.len();
    cursor.bound(usize::from(u16::from_be_bytes([high, low])));
    read(cursor)
}

/// PPP, or Cisco HDLC, which an address of its own tells.
pub(super) fn serial(cursor: &mut Cursor<'_>) -> Result<Network, Malformed> {
    match cursor.peek(Layer::Ppp)? {
        [hdlc::UNICAST | hdlc::MULTICAST] => hdlc::read(cursor),
        _ => read(cursor),
    }
}

/// PPP, in HDLC-like framing or without. A protocol below 256 may have one byte, which is odd, while
/// the first of two is even.
pub(super) fn read(cursor: &mut Cursor<'_>) -> Result<Network, Malformed> {
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
        0x0281 | 0x0283 => mpls::read(cursor)?,
        _ => Network::Other(NoKey::Ppp),
    })
}
