//! A key with its counters, inline.

use bytemuck::Zeroable;

use super::codec::{DecodeError, Reader, Writer};
use super::{Counter, Size};
use crate::key::FlowKey;

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

impl<K: FlowKey> Slot<K> {
    /// Bytes of the stored form.
    pub(crate) const STORED_BYTES: usize = K::BYTES + size_of::<u32>() + size_of::<u64>();

    pub(crate) fn save(&self, out: &mut Writer) {
        out.key(self.key);
        out.number(self.packets);
        out.number(self.bytes);
    }

    pub(crate) fn load(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let (key, packets) = (from.key("key")?, from.number("packets")?);
        if packets == 0 {
            return Err(from.invalid("packets", size_of::<u32>(), "a flow has at least one"));
        }
        Ok(Self { key, packets, bytes: from.number("bytes")? })
    }
}
