//! Ethernet, and what an `EtherType` names.

use super::cursor::Cursor;
use super::network::Network;
use super::{Layer, Malformed, NoKey, mpls, vlan};

pub(super) fn read(cursor: &mut Cursor<'_>) -> Result<Network, Malformed> {
    let &[.., high, low] = cursor.take::<14>(Layer::Link)?;
    payload(cursor, u16::from_be_bytes([high, low]))
}

/// Moves to what `ether_type` says comes next, through tags and labels.
pub(super) fn payload(cursor: &mut Cursor<'_>, ether_type: u16) -> Result<Network, Malformed> {
    Ok(match vlan::untagged(cursor, ether_type)? {
        0x0800 => Network::Ipv4,
        0x86dd => Network::Ipv6,
        0x8847 | 0x8848 => mpls::read(cursor)?,
        0x0806 | 0x8035 => Network::Other(NoKey::Arp),
        0x8863 | 0x8864 => Network::Other(NoKey::Pppoe),
        0x88e5 => Network::Other(NoKey::Macsec),
        // So small a number is the length of an IEEE 802.3 frame.
        ..1536 => Network::Other(NoKey::Llc),
        _ => Network::Other(NoKey::OtherProtocol),
    })
}
