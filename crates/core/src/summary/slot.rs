//! A key with its counters, inline.

use bytemuck::Zeroable;

use super::{Counter, Size};

/// A key and its packets and bytes. Empty while `packets` is 0: a stored key has at least one, so
/// that the zero key is a key like any other.
#[derive(Clone, Copy, Debug, Zeroable)]
#[repr(C)]
pub(crate) struct Slot<K> {
    pub(crate) key: K,
    pub(crate) packets: u32,
    pub(crate) bytes: u64,
}

impl<K: Copy> Slot<K> {
    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.packets == 0
    }

    /// Adds to both counters; returns what found no room.
    #[inline(always)]
    pub(crate) fn add(&mut self, packets: u32, bytes: u64) -> Size {
        Size { packets: self.packets.add(packets), bytes: self.bytes.add(bytes) }
    }

    #[inline(always)]
    pub(crate) fn size(&self) -> Size {
        Size { packets: u64::from(self.packets), bytes: self.bytes }
    }
}
