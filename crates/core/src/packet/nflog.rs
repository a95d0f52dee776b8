//! Packets logged by Linux's netfilter: a header, then attributes, one of them the packet.

use super::cursor::Cursor;
use super::network::Network;
use super::{Layer, Malformed, NoKey};

const IPV4: u8 = 2;
const ARP: u8 = 3;
const IPV6: u8 = 10;

/// The attribute that holds the packet.
const PAYLOAD: u16 = 9;

/// Lengths and types are in the byte order of the capturing host. Types are below 256, so that only one
/// order makes sense.
pub(super) fn read(cursor: &mut Cursor<'_>) -> Result<Network, Malformed> {
    let &[family, version, _, _] = cursor.peek(Layer::Link)?;
    if version != 0 {
        return Err(cursor.contradiction(Layer::Link));
    }
    cursor.at += 4;
    loop {
        let &[one, other, first, last] = cursor.peek(Layer::Link)?;
        let number: fn([u8; 2]) -> u16 =
            if first == 0 { u16::from_be_bytes } else { u16::from_le_bytes };
        let length = usize::from(number([one, other]));
        if length < 4 {
            return Err(cursor.contradiction(Layer::Link));
        }
        if number([first, last]) == PAYLOAD {
            cursor.bound(length);
            cursor.at += 4;
            return Ok(match family {
                IPV4 => Network::Ipv4,
                IPV6 => Network::Ipv6,
                ARP => Network::Other(NoKey::Arp),
                _ => Network::Other(NoKey::OtherProtocol),
            });
        }
        cursor.skip(length.next_multiple_of(4), Layer::Link)?;
    }
}
