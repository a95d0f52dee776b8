//! Cisco HDLC (RFC 1547, section 4.3.1): an address, a control byte, and an `EtherType`.

use super::cursor::Cursor;
use super::network::Network;
use super::{Layer, Malformed, NoKey, ethernet};

/// Addresses of frames for one station and for all.
pub(super) const UNICAST: u8 = 0x0f;
pub(super) const MULTICAST: u8 = 0x8f;

/// Keep-alives of the line, by the number that Ethernet gives to RARP.
const SLARP: u16 = 0x8035;

pub(super) fn read(cursor: &mut Cursor<'_>) -> Result<Network, Malformed> {
    let &[_, _, high, low] = cursor.take(Layer::Link)?;
    match u16::from_be_bytes([high, low]) {
        SLARP => Ok(Network::Other(NoKey::OtherProtocol)),
        protocol => ethernet::payload(cursor, protocol),
    }
}
