//! A flow each way, where its key has both.

use flowgauge_core::key::KeyKind;
use flowgauge_core::summary::{Seen, SizeEstimate};
use flowgauge_core::terms::Size;

/// What went from the first endpoint of a conversation or from a host, and what came back.
pub(super) struct Ways {
    pub(super) forward: Size,
    pub(super) back: Size,
}

impl Ways {
    /// Those of a flow of this size; `None` where its key has one way.
    pub(super) fn of(seen: &Seen, size: &SizeEstimate, kind: KeyKind) -> Option<Self> {
        let (packets, bytes) = (size.packets?.value as u64, size.bytes?.value as u64);
        let back = seen.back;
        let forward = Size {
            packets: packets.saturating_sub(back.packets),
            bytes: bytes.saturating_sub(back.bytes),
        };
        Self::has(kind).then_some(Self { forward, back })
    }

    /// Whether keys of this kind have both ways.
    pub(super) fn has(kind: KeyKind) -> bool {
        kind.is_in_order() || kind.is_either()
    }

    /// The mean size of a flow's packets in bytes.
    pub(super) fn mean(size: &SizeEstimate) -> Option<f64> {
        let packets = size.packets?.value;
        (packets > 0.0).then_some(size.bytes?.value / packets)
    }
}
