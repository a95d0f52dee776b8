//! Linux cooked captures.

use super::cursor::Cursor;
use super::network::Network;
use super::{Layer, Malformed, NoKey, ethernet, llc};

pub(super) fn read_v1(cursor: &mut Cursor<'_>) -> Result<Network, Malformed> {
    let &[.., high, low] = cursor.take::<16>(Layer::Link)?;
    payload(cursor, u16::from_be_bytes([high, low]))
}

pub(super) fn read_v2(cursor: &mut Cursor<'_>) -> Result<Network, Malformed> {
    let &[high, low, ..] = cursor.take::<20>(Layer::Link)?;
    payload(cursor, u16::from_be_bytes([high, low]))
}

/// The protocol is an `EtherType`, or a small number of Linux's own.
fn payload(cursor: &mut Cursor<'_>, protocol: u16) -> Result<Network, Malformed> {
    match protocol {
        // IEEE 802.3 as Novell has it.
        1 => Ok(Network::Other(NoKey::Llc)),
        4 => llc::read(cursor),
        ..1536 => Ok(Network::Other(NoKey::OtherProtocol)),
        ether_type => ethernet::payload(cursor, ether_type),
    }
}
