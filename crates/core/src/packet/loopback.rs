//! BSD loopback: four bytes of address family in front of the packet.

use super::cursor::Cursor;
use super::network::Network;
use super::{Layer, Malformed, NoKey};

/// The family in the byte order of the capturing host, which the file does not tell reliably.
pub(super) fn read_null(cursor: &mut Cursor<'_>) -> Result<Network, Malformed> {
    let family = u32::from_be_bytes(*cursor.take(Layer::Link)?);
    // Families are below 256, so only one of the two orders makes sense.
    Ok(payload(family.min(family.swap_bytes())))
}

/// The family in network order.
pub(super) fn read_loop(cursor: &mut Cursor<'_>) -> Result<Network, Malformed> {
    let family = u32::from_be_bytes(*cursor.take(Layer::Link)?);
    Ok(payload(family))
}

fn payload(family: u32) -> Network {
    match family {
        2 => Network::Ipv4,
        // Linux, then NetBSD and OpenBSD, FreeBSD, Darwin.
        10 | 24 | 28 | 30 => Network::Ipv6,
        _ => Network::Other(NoKey::OtherProtocol),
    }
}
