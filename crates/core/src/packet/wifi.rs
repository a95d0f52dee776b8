//! IEEE 802.11: data frames with LLC.

use super::cursor::Cursor;
use super::network::Network;
use super::{Layer, Malformed, NoKey, llc};

/// Type and subtype, in the first byte of a header, whose lowest two bits are the version.
const VERSION: u8 = 0x03;
const TYPE: u8 = 0x0c;
const DATA: u8 = 0x08;
const WITHOUT_DATA: u8 = 0x40;
const QOS: u8 = 0x80;

/// Flags, in the second byte.
const BOTH_SYSTEMS: u8 = 0x03;
const PROTECTED: u8 = 0x40;
const HIGH_THROUGHPUT: u8 = 0x80;

/// The fragment number, in the first byte of sequence control.
const FRAGMENT: u8 = 0x0f;
/// In the first byte of QoS control: the frame carries several packets.
const AGGREGATE: u8 = 0x80;

/// Moves to the packet behind the header, which is padded to whole words where `padded` is set.
pub(super) fn read(cursor: &mut Cursor<'_>, padded: bool) -> Result<Network, Malformed> {
    let &[kind, flags] = cursor.peek(Layer::Link)?;
    if kind & VERSION != 0 {
        return Err(cursor.contradiction(Layer::Link));
    }
    if kind & TYPE != DATA || kind & WITHOUT_DATA != 0 {
        return Ok(Network::Other(NoKey::WifiControl));
    }
    if flags & PROTECTED != 0 {
        return Ok(Network::Other(NoKey::WifiProtected));
    }
    let start = cursor.at;
    // Control, duration, three addresses, sequence control; a fourth address between access points.
    let &[.., sequence, _] = cursor.take::<24>(Layer::Link)?;
    if flags & BOTH_SYSTEMS == BOTH_SYSTEMS {
        cursor.skip(6, Layer::Link)?;
    }
    let mut parts = sequence & FRAGMENT != 0;
    if kind & QOS != 0 {
        let &[control, _] = cursor.take(Layer::Link)?;
        parts |= control & AGGREGATE != 0;
        if flags & HIGH_THROUGHPUT != 0 {
            cursor.skip(4, Layer::Link)?;
        }
    }
    if parts {
        return Ok(Network::Other(NoKey::WifiParts));
    }
    if padded {
        cursor.at = start + (cursor.at - start).next_multiple_of(4);
    }
    llc::read(cursor)
}
