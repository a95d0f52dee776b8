//! IPv4.

use super::cursor::Cursor;
use super::{Ip, Layer, Malformed, Ports, transport};

/// The part of flags and fragment offset that is zero in a whole packet or a first fragment.
const FRAGMENT_OFFSET: u16 = 0x1fff;

pub(super) fn read(cursor: &mut Cursor<'_>) -> Result<Ip<8>, Malformed> {
    let header = cursor.peek::<20>(Layer::Ipv4)?;
    let [version, _, total_high, total_low, _, _, offset_high, offset_low, _, protocol, ..] =
        *header;
    let header_length = 4 * usize::from(version & 15);
    if version >> 4 != 4 || header_length < 20 {
        return Err(cursor.contradiction(Layer::Ipv4));
    }
    // A sender that leaves segmentation to its interface writes 0.
    let total_length = usize::from(u16::from_be_bytes([total_high, total_low]));
    if total_length != 0 {
        cursor.bound(total_length);
    }
    cursor.skip(header_length, Layer::Ipv4)?;
    cursor.fragment = u16::from_be_bytes([offset_high, offset_low]) & FRAGMENT_OFFSET != 0;

    let mut addresses = [0; 8];
    addresses.copy_from_slice(&header[12..]);
    let ports = if cursor.fragment { Ports::Absent } else { transport::ports(cursor, protocol) };
    Ok(Ip { addresses, protocol, ports })
}
