//! Ethernet, and what an `EtherType` names.

use super::cursor::Cursor;
use super::network::Network;
use super::{Layer, Malformed, NoKey, llc, mpls, ppp, vlan};

/// The `EtherType` of the outer addresses of Cisco `FabricPath`.
const FABRIC_PATH: u16 = 0x8903;

pub(super) fn read(cursor: &mut Cursor<'_>) -> Result<Network, Malformed> {
    let &[.., high, low] = cursor.take::<14>(Layer::Link)?;
    match vlan::untagged(cursor, u16::from_be_bytes([high, low]))? {
        FABRIC_PATH => fabric_path(cursor),
        // So small a number is the length of an IEEE 802.3 frame.
        length @ ..1536 => {
            cursor.bound(usize::from(length));
            llc::read(cursor)
        }
        ether_type => payload(cursor, ether_type),
    }
}

/// Cisco `FabricPath`: a tag of two bytes between outer addresses and a whole frame.
fn fabric_path(cursor: &mut Cursor<'_>) -> Result<Network, Malformed> {
    cursor.nest(Layer::Link)?;
    cursor.skip(2, Layer::Link)?;
    read(cursor)
}

/// Moves to what `ether_type` says comes next, through tags and labels.
pub(super) fn payload(cursor: &mut Cursor<'_>, ether_type: u16) -> Result<Network, Malformed> {
    Ok(match vlan::untagged(cursor, ether_type)? {
        0x0800 => Network::Ipv4,
        0x86dd => Network::Ipv6,
        0x8847 | 0x8848 => mpls::read(cursor)?,
        0x0806 | 0x8035 => Network::Other(NoKey::Arp),
        0x8863 => Network::Other(NoKey::Pppoe),
        0x8864 => ppp::session(cursor)?,
        0x88e5 => Network::Other(NoKey::Macsec),
        _ => Network::Other(NoKey::OtherProtocol),
    })
}
