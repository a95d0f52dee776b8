//! Atomic numbers and columns of them, or their twins that loom checks.

#[cfg(not(all(loom, test)))]
mod plain {
    use bytemuck::Zeroable;
    use flowgauge_kernel::Zeroed;
    pub(in super::super) use std::sync::atomic::{AtomicU32, AtomicU64};

    use super::super::super::{BuildError, Memory};

    /// Zeros, as many as they were at first.
    pub(in super::super) type Column<T> = Zeroed<T>;

    /// Reserves `len` zeros.
    pub(in super::super) fn column<T: Zeroable>(
        len: usize,
        memory: &Memory,
    ) -> Result<Column<T>, BuildError> {
        memory.zeroed(len)
    }
}

#[cfg(all(loom, test))]
mod plain {
    pub(in super::super) use loom::sync::atomic::{AtomicU32, AtomicU64};

    use super::super::super::{BuildError, Memory};

    pub(in super::super) type Column<T> = Box<[T]>;

    pub(in super::super) fn column<T: Default>(
        len: usize,
        _: &Memory,
    ) -> Result<Column<T>, BuildError> {
        Ok((0..len).map(|_| T::default()).collect())
    }
}

pub(super) use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

pub(super) use plain::{AtomicU32, AtomicU64, Column, column};

/// Adds up to the largest number.
pub(super) fn add_saturating(number: &AtomicU64, other: u64) {
    if other > 0 {
        // The function given always has an answer.
        let _ = number.fetch_update(Relaxed, Relaxed, |sum| Some(sum.saturating_add(other)));
    }
}
