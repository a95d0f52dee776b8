//! VLAN tags in any stacking.

use super::cursor::Cursor;
use super::{Layer, Malformed};

/// Moves over the tags that `ether_type` begins with; the `EtherType` behind them.
pub(super) fn untagged(cursor: &mut Cursor<'_>, mut ether_type: u16) -> Result<u16, Malformed> {
    while matches!(ether_type, 0x8100 | 0x88a8 | 0x9100) {
        cursor.nest(Layer::Vlan)?;
        let &[_, _, high, low] = cursor.take(Layer::Vlan)?;
        ether_type = u16::from_be_bytes([high, low]);
    }
    Ok(ether_type)
}
