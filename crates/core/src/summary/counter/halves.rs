//! Numbers of 16 bits where that suffices, and of 32 where not.

use flowgauge_kernel::{Zeroed, prefetch};

use super::super::{BuildError, Memory};

/// A column of numbers; memory in bytes: 2 a number, or 4 where they are wide.
pub(super) struct Halves {
    low: Zeroed<u16>,
    /// Empty where numbers are not wide.
    high: Zeroed<u16>,
}

impl Halves {
    /// Bytes reserved for so many numbers.
    pub(super) const fn memory_bytes(len: usize, wide: bool) -> usize {
        len * if wide { 4 } else { 2 }
    }

    pub(super) fn new(len: usize, wide: bool, memory: &Memory) -> Result<Self, BuildError> {
        Ok(Self { low: memory.zeroed(len)?, high: memory.zeroed(if wide { len } else { 0 })? })
    }

    pub(super) fn len(&self) -> usize {
        self.low.len()
    }

    #[inline(always)]
    pub(super) fn is_wide(&self) -> bool {
        !self.high.is_empty()
    }

    #[inline(always)]
    pub(super) fn prefetch(&self, at: usize) {
        prefetch(&self.low, at);
        prefetch(&self.high, at);
    }

    #[inline(always)]
    pub(super) fn get(&self, at: usize) -> usize {
        let high = self.high.get(at).map_or(0, |&high| usize::from(high) << 16);
        usize::from(self.low[at]) | high
    }

    #[inline(always)]
    pub(super) fn set(&mut self, at: usize, number: usize) {
        self.low[at] = number as u16;
        if let Some(high) = self.high.get_mut(at) {
            *high = (number >> 16) as u16;
        }
    }

    /// The first `len` numbers; `WIDE` is whether they are.
    #[inline(always)]
    pub(super) fn columns<const WIDE: bool>(&mut self, len: usize) -> HalvesMut<'_, WIDE> {
        let high = if WIDE { &mut self.high[..len] } else { &mut [] };
        HalvesMut { low: &mut self.low[..len], high }
    }
}

/// The numbers, for a loop that knows whether they are wide.
pub(super) struct HalvesMut<'a, const WIDE: bool> {
    low: &'a mut [u16],
    high: &'a mut [u16],
}

impl<const WIDE: bool> HalvesMut<'_, WIDE> {
    #[inline(always)]
    pub(super) fn get(&self, at: usize) -> usize {
        let high = if WIDE { usize::from(self.high[at]) << 16 } else { 0 };
        usize::from(self.low[at]) | high
    }

    #[inline(always)]
    pub(super) fn set(&mut self, at: usize, number: usize) {
        self.low[at] = number as u16;
        if WIDE {
            self.high[at] = (number >> 16) as u16;
        }
    }
}
