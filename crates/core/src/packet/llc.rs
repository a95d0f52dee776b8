//! IEEE 802.2 LLC, with or without SNAP.

use super::cursor::Cursor;
use super::network::Network;
use super::{Fault, Layer, Malformed, NoKey, ethernet};

/// Unnumbered information, the only kind of LLC frame that carries IP.
const INFORMATION: u8 = 3;
const SNAP: u8 = 0xaa;
const IP: u8 = 6;

/// Moves to the packet behind the header, where it names IP by an `EtherType` of SNAP or by a service
/// access point.
pub(super) fn read(cursor: &mut Cursor<'_>) -> Result<Network, Malformed> {
    let Some(&header) = header(cursor)? else { return Ok(Network::Other(NoKey::Llc)) };
    match header {
        [IP, IP, INFORMATION] => {
            cursor.at += header.len();
            Ok(Network::Ipv4)
        }
        [SNAP, SNAP, INFORMATION] => snap(cursor),
        _ => Ok(Network::Other(NoKey::Llc)),
    }
}

/// The organizations of RFC 1042 and of IEEE 802.1H say that an `EtherType` follows.
fn snap(cursor: &mut Cursor<'_>) -> Result<Network, Malformed> {
    match header(cursor)? {
        Some(&[_, _, _, 0, 0, 0 | 0xf8, high, low]) => {
            cursor.at += 8;
            ethernet::payload(cursor, u16::from_be_bytes([high, low]))
        }
        _ => Ok(Network::Other(NoKey::Llc)),
    }
}

/// The first bytes of the header; `None` where the frame ends before them by its own length.
fn header<'a, const N: usize>(cursor: &Cursor<'a>) -> Result<Option<&'a [u8; N]>, Malformed> {
    match cursor.peek(Layer::Link) {
        Err(Malformed { fault: Fault::Contradiction, .. }) => Ok(None),
        header => header.map(Some),
    }
}
