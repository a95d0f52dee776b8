//! The three kinds of block that hold a packet.

use flowgauge_core::packet::Frame;

use super::{OBSOLETE_PACKET, SIMPLE_PACKET, TRAILER, interface::Interface};
use crate::{
    damage::{Damage, MAX_CAPTURED},
    format::ByteOrder,
};

/// Reads a whole block of at least its fixed bytes: the frame, and whether it is irregular.
#[inline(always)]
pub(super) fn read<'a>(
    order: ByteOrder,
    kind: u32,
    block: &'a [u8],
    interfaces: &[Interface],
) -> Result<(Frame<'a>, bool), Damage> {
    let field = |at| order.u32(block, at);
    let number = match kind {
        SIMPLE_PACKET => 0,
        // It shares the field with a count of drops.
        OBSOLETE_PACKET => u32::from(order.u16(block, 8)),
        _ => field(8),
    };
    let interface = interfaces.get(number as usize);
    let (offset, captured, wire) = if kind == SIMPLE_PACKET {
        let snap_length = interface.map_or(u32::MAX, |interface| interface.snap_length);
        (12, field(8).min(snap_length), field(8))
    } else {
        (28, field(20), field(24))
    };
    if captured > MAX_CAPTURED {
        return Err(Damage::CapturedLength(captured));
    }
    let room = (block.len() - TRAILER - offset) as u32;
    if captured > room {
        return Err(Damage::CapturedOverBlock { captured, room });
    }
    let interface = interface.ok_or(Damage::Interface(number))?;
    let time_ns = match kind {
        // It has no time; the epoch's begin is what libpcap gives it too.
        SIMPLE_PACKET => 0,
        _ => interface.clock.time_ns((u64::from(field(12)) << 32) | u64::from(field(16))),
    };
    let bytes = &block[offset..offset + captured as usize];
    let frame = Frame { bytes, wire, link: interface.link, time_ns };
    Ok((frame, captured > wire.min(interface.snap_length)))
}
