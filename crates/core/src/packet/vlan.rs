//! VLAN tags in any stacking.

use super::cursor::Cursor;
use super::{Layer, Malformed};

/// Whether an `EtherType` begins a tag.
fn is_tag(ether_type: u16) -> bool {
    matches!(ether_type, 0x8100 | 0x88a8 | 0x9100)
}

/// The Ethernet frame from its fourth byte on, if it has a tag: there stands behind 12 bytes what the
/// tag is in front of, as in a frame without.
#[inline(always)]
pub(super) fn behind_tag(frame: &[u8]) -> Option<&[u8]> {
    let &[high, low] = frame.get(12..)?.first_chunk()?;
    is_tag(u16::from_be_bytes([high, low])).then(|| &frame[4..])
}

/// The VLAN ID of an Ethernet frame's first tag.
pub(super) fn id(frame: &[u8]) -> Option<u16> {
    let &[a, b, c, d] = frame.get(12..)?.first_chunk()?;
    is_tag(u16::from_be_bytes([a, b])).then(|| u16::from_be_bytes([c, d]) & 0xfff)
}

/// Moves over the tags that `ether_type` begins with; the `EtherType` behind them.
pub(super) fn untagged(cursor: &mut Cursor<'_>, mut ether_type: u16) -> Result<u16, Malformed> {
    while is_tag(ether_type) {
        cursor.nest(Layer::Vlan)?;
        let &[_, _, high, low] = cursor.take(Layer::Vlan)?;
        ether_type = u16::from_be_bytes([high, low]);
    }
    Ok(ether_type)
}
