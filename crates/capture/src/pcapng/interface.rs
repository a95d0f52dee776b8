//! Interface description blocks.

use flowgauge_core::packet::LinkType;

use super::clock::Clock;
use crate::format::ByteOrder;

const END_OF_OPTIONS: u16 = 0;
const TIME_RESOLUTION: u16 = 9;
const TIME_OFFSET: u16 = 14;

/// What the packets of an interface have in common.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Interface {
    pub(super) link: LinkType,
    /// Most bytes captured of a packet; `u32::MAX` where there is no limit.
    pub(super) snap_length: u32,
    pub(super) clock: Clock,
}

impl Interface {
    /// Reads a whole block of at least its 20 fixed bytes, and says whether its options are
    /// irregular: running past the block, or of a wrong length and so without effect.
    pub(super) fn read(order: ByteOrder, block: &[u8]) -> (Self, bool) {
        let snap_length = match order.u32(block, 12) {
            0 => u32::MAX,
            length => length,
        };
        let (mut resolution, mut offset_s, mut irregular) = (6, 0, false);
        let mut options = &block[16..block.len() - 4];
        while options.len() >= 4 {
            let (code, length) = (order.u16(options, 0), order.u16(options, 2));
            let padded = 4 + usize::from(length).next_multiple_of(4);
            if code == END_OF_OPTIONS {
                break;
            }
            let Some(value) = options.get(4..4 + usize::from(length)) else {
                irregular = true;
                break;
            };
            match (code, value.len()) {
                (TIME_RESOLUTION, 1) => resolution = value[0],
                (TIME_OFFSET, 8) => offset_s = order.i64(value, 0),
                (TIME_RESOLUTION | TIME_OFFSET, _) => irregular = true,
                _ => {}
            }
            options = options.get(padded..).unwrap_or_default();
        }
        let link = LinkType(order.u16(block, 8));
        (Self { link, snap_length, clock: Clock::new(resolution, offset_s) }, irregular)
    }
}
