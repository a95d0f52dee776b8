//! A counter that takes more room: the experiment on the size of entries (Simple, §4.1).

use bytemuck::Zeroable;

use super::super::codec::{DecodeError, Reader, Writer};
use super::{Count, State};
use crate::terms::Size;

/// A counter and `4 × WORDS` bytes.
///
/// The paper fills them with the first bytes of the latest packet. Here they get the number of
/// packets, at each packet: the same stores, and equal contents stay equal in whatever order they
/// came. They say nothing of their own, so the stored form lacks them.
#[derive(Clone, Copy, Zeroable)]
#[repr(C)]
pub(crate) struct Padded<const WORDS: usize> {
    count: Count,
    padding: [u32; WORDS],
}

impl<const WORDS: usize> Padded<WORDS> {
    #[inline(always)]
    fn of(count: Count) -> Self {
        Self { count, padding: [count.packets(); WORDS] }
    }
}

impl<const WORDS: usize> State for Padded<WORDS> {
    const NAME: &'static str = "padded";
    const PADDING: Option<&'static str> = match WORDS {
        3 => Some("12"),
        7 => Some("28"),
        15 => Some("60"),
        _ => panic!("no parameter says so"),
    };
    const STORED_BYTES: usize = Count::STORED_BYTES;

    #[inline(always)]
    fn add(&mut self, packets: u32, bytes: u64, element: u64) -> Size {
        let mut count = self.count;
        let excess = count.add(packets, bytes, element);
        *self = Self::of(count);
        excess
    }

    fn merge(&mut self, other: &Self) -> Size {
        let excess = self.count.merge(&other.count);
        *self = Self::of(self.count);
        excess
    }

    #[inline(always)]
    fn size(&self) -> Size {
        self.count.size()
    }

    fn save(&self, out: &mut Writer) {
        self.count.save(out);
    }

    fn load(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self::of(Count::load(from)?))
    }
}
