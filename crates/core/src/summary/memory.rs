//! The memory of a summary, counted before it is reserved.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytemuck::Zeroable;
use flowgauge_kernel::{Blank, Zeroed};

use super::{BuildError, BuildErrorKind};

/// An array of so many bytes is in a cache that the processor reaches in time by looking ahead by
/// itself: asking for its lines costs more than it spares.
pub(crate) const CACHED_BYTES: usize = 1 << 20;

/// A number of bytes that summaries may still reserve: what bounds a decoder whatever its input
/// says.
#[derive(Clone, Debug)]
pub struct Memory {
    left: Cell<usize>,
    /// Where memory is to be locked: the bytes of which that was refused.
    unlocked: Option<Arc<AtomicUsize>>,
}

impl Memory {
    /// As much as the operating system gives.
    pub fn unlimited() -> Self {
        Self::limited(usize::MAX)
    }

    /// At most `bytes`.
    pub fn limited(bytes: usize) -> Self {
        Self { left: Cell::new(bytes), unlocked: None }
    }

    /// The same, faulted in and locked as it is reserved. Bytes that the operating system refuses to lock
    /// are added to `unlocked`, and are faulted in all the same.
    #[must_use]
    pub fn locked(self, unlocked: &Arc<AtomicUsize>) -> Self {
        Self { unlocked: Some(Arc::clone(unlocked)), ..self }
    }

    /// Reserves `len` zeroed items.
    ///
    /// # Errors
    /// When they do not fit into what is left, or the operating system refuses.
    pub fn zeroed<T: Zeroable>(&self, len: usize) -> Result<Zeroed<T>, BuildError> {
        Ok(Zeroed::of(self.reserve(len.saturating_mul(size_of::<T>()))?, len))
    }

    #[inline(never)]
    fn reserve(&self, bytes: usize) -> Result<Blank, BuildError> {
        self.take(bytes)?;
        let memory = Blank::new(bytes).map_err(|error| BuildErrorKind::Refused { bytes, error })?;
        if let Some(unlocked) = &self.unlocked
            && !memory.lock()
        {
            unlocked.fetch_add(bytes, Ordering::Relaxed);
        }
        Ok(memory)
    }

    /// Counts `bytes` that are reserved elsewhere.
    ///
    /// # Errors
    /// When they do not fit into what is left.
    #[inline(never)]
    pub fn take(&self, bytes: usize) -> Result<(), BuildError> {
        let left = self.left.get();
        let rest = left
            .checked_sub(bytes)
            .ok_or(BuildErrorKind::TooLittleMemory { needed: bytes, given: left })?;
        self.left.set(rest);
        Ok(())
    }
}
