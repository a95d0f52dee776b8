//! The memory of a summary, counted before it is reserved.

use std::cell::Cell;

use bytemuck::Zeroable;
use flowgauge_kernel::Zeroed;

use super::BuildError;

/// A number of bytes that summaries may still reserve: what bounds a decoder whatever its input
/// says.
#[derive(Clone, Debug)]
pub struct Memory {
    left: Cell<usize>,
}

impl Memory {
    /// As much as the operating system gives.
    pub fn unlimited() -> Self {
        Self::limited(usize::MAX)
    }

    /// At most `bytes`.
    pub fn limited(bytes: usize) -> Self {
        Self { left: Cell::new(bytes) }
    }

    /// Reserves `len` zeroed items.
    ///
    /// # Errors
    /// When they do not fit into what is left, or the operating system refuses.
    pub fn zeroed<T: Zeroable>(&self, len: usize) -> Result<Zeroed<T>, BuildError> {
        self.take(len.saturating_mul(size_of::<T>()))?;
        Zeroed::new(len).map_err(|error| BuildError::Refused {
            bytes: len.saturating_mul(size_of::<T>()),
            error,
        })
    }

    /// Counts `bytes` that are reserved elsewhere.
    ///
    /// # Errors
    /// When they do not fit into what is left.
    pub fn take(&self, bytes: usize) -> Result<(), BuildError> {
        let left = self.left.get();
        let rest = left
            .checked_sub(bytes)
            .ok_or(BuildError::TooLittleMemory { needed: bytes, given: left })?;
        self.left.set(rest);
        Ok(())
    }
}
