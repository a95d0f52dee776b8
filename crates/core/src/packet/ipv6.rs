//! IPv6 with its extension headers.

use super::cursor::Cursor;
use super::{Ip, Layer, Malformed, Ports, transport};

/// Hop-by-hop options.
const HOP_BY_HOP: u8 = 0;
/// Routing header.
const ROUTING: u8 = 43;
/// Fragment header.
const FRAGMENT: u8 = 44;
/// Authentication header.
const AUTHENTICATION: u8 = 51;
/// Destination options.
const DESTINATION_OPTIONS: u8 = 60;

pub(super) fn read(cursor: &mut Cursor<'_>) -> Result<Ip<32>, Malformed> {
    let header = cursor.peek::<40>(Layer::Ipv6)?;
    let [version, _, _, _, payload_high, payload_low, mut protocol, ..] = *header;
    if version >> 4 != 6 {
        return Err(cursor.contradiction(Layer::Ipv6));
    }
    cursor.at += header.len();
    // A jumbogram has 0, and so has a packet that the sender's interface will segment.
    let payload_length = usize::from(u16::from_be_bytes([payload_high, payload_low]));
    if payload_length != 0 {
        cursor.bound(payload_length);
    }

    let mut addresses = [0; 32];
    addresses.copy_from_slice(&header[8..]);
    let ports = match extensions(cursor, &mut protocol) {
        Err(malformed) => Ports::Unreached(malformed),
        Ok(()) if cursor.fragment => Ports::Absent,
        Ok(()) => transport::ports(cursor, protocol),
    };
    Ok(Ip { addresses, protocol, ports })
}

/// Moves over the extension headers, of which `protocol` names the first, and leaves in `protocol`
/// the header behind them. Of each extension header only the first eight bytes, which all of them
/// have, must be there.
fn extensions(cursor: &mut Cursor<'_>, protocol: &mut u8) -> Result<(), Malformed> {
    while matches!(
        *protocol,
        HOP_BY_HOP | ROUTING | FRAGMENT | AUTHENTICATION | DESTINATION_OPTIONS
    ) {
        cursor.nest(Layer::Ipv6)?;
        let &[next, length, offset_high, offset_low, ..] = cursor.peek::<8>(Layer::Ipv6)?;
        let length = usize::from(length);
        cursor.at += match *protocol {
            FRAGMENT => 8,
            AUTHENTICATION => 4 * length + 8,
            _ => 8 * length + 8,
        };
        // The low three bits of the offset's field are flags.
        let offset = u16::from_be_bytes([offset_high, offset_low]) >> 3;
        let fragment = *protocol == FRAGMENT && offset != 0;
        *protocol = next;
        if fragment {
            cursor.fragment = true;
            break;
        }
    }
    Ok(())
}
