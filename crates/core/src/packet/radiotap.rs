//! What radios say of an 802.11 frame, in front of it: radiotap and PPI.

use super::cursor::Cursor;
use super::network::Network;
use super::{Layer, LinkType, Malformed, parse, wifi};

/// Bits of the words that say which fields of radiotap there are.
const TIME: u32 = 1;
const FLAGS: u32 = 2;
const ANOTHER_WORD: u32 = 1 << 31;

/// The frame's header is padded to whole words.
const PADDED: u8 = 0x20;

/// Radiotap. Fields are aligned from the first byte on, and behind all words that say which there are.
pub(super) fn read(cursor: &mut Cursor<'_>) -> Result<Network, Malformed> {
    let &[version, _, low, high, ref present @ ..] = cursor.peek::<8>(Layer::Link)?;
    let length = usize::from(u16::from_le_bytes([low, high]));
    if version != 0 || length < 8 {
        return Err(cursor.contradiction(Layer::Link));
    }
    let mut field = cursor.clone();
    field.bound(length);
    cursor.skip(length, Layer::Link)?;

    let first = u32::from_le_bytes(*present);
    let start = field.at;
    field.at += 4;
    while u32::from_le_bytes(*field.take(Layer::Link)?) & ANOTHER_WORD != 0 {}
    if first & FLAGS == 0 {
        return wifi::read(cursor, false);
    }
    if first & TIME != 0 {
        field.at = start + (field.at - start).next_multiple_of(8) + 8;
    }
    let &[flags] = field.peek(Layer::Link)?;
    wifi::read(cursor, flags & PADDED != 0)
}

/// PPI, which names the link type of what it stands in front of.
pub(super) fn read_ppi(cursor: &mut Cursor<'_>) -> Result<Network, Malformed> {
    let &[version, _, low, high, ref link @ ..] = cursor.peek::<8>(Layer::Link)?;
    let length = usize::from(u16::from_le_bytes([low, high]));
    let Ok(link) = u16::try_from(u32::from_le_bytes(*link)) else {
        return Err(cursor.contradiction(Layer::Link));
    };
    if version != 0 || length < 8 {
        return Err(cursor.contradiction(Layer::Link));
    }
    cursor.nest(Layer::Link)?;
    cursor.skip(length, Layer::Link)?;
    parse::first(LinkType(link), cursor)
}
