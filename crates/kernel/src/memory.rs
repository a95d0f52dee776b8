//! Table memory: reserved at start, resident once touched, prefetched by slot.

use std::io;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

use bytemuck::Zeroable;
use memmap2::MmapMut;

/// A slice of fixed length in its own anonymous mapping, all zero at first.
///
/// The mapping asks for huge pages: otherwise random reads of a table of many megabytes miss the
/// translation buffer almost every time. Memory: `len × size_of::<T>()` bytes reserved; only
/// touched pages are resident.
///
/// ```
/// use flowgauge_kernel::{Zeroed, prefetch};
///
/// let mut counters = Zeroed::<u32>::new(1 << 20)?;
/// prefetch(&counters, 70_000);
/// counters[70_000] += 3;
/// assert_eq!((counters[0], counters[70_000]), (0, 3));
/// assert_eq!(counters.memory_bytes(), 4 << 20);
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct Zeroed<T> {
    map: MmapMut,
    len: usize,
    item: PhantomData<T>,
}

impl<T: Zeroable> Zeroed<T> {
    /// Reserves `len` zeroed items.
    ///
    /// # Errors
    /// When the address space or the memory limit of the process does not allow it.
    pub fn new(len: usize) -> io::Result<Self> {
        let bytes = len.checked_mul(size_of::<T>()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self::of(Blank::new(bytes)?, len))
    }

    /// Uses `memory` for `len` items.
    ///
    /// # Panics
    /// When `memory` is too small.
    pub fn of(memory: Blank, len: usize) -> Self {
        const { assert!(align_of::<T>() <= 4096, "a mapping is aligned to a page") };
        const { assert!(!std::mem::needs_drop::<T>(), "what is unmapped is not dropped") };
        assert!(len.checked_mul(size_of::<T>()).is_some_and(|bytes| bytes <= memory.0.len()));
        Self { map: memory.0, len, item: PhantomData }
    }

    /// Bytes reserved.
    pub fn memory_bytes(&self) -> usize {
        self.len * size_of::<T>()
    }
}

/// Zeroed memory without a type yet: the reservation that all tables share.
///
/// ```
/// use flowgauge_kernel::{Blank, Zeroed};
///
/// let counters: Zeroed<u32> = Zeroed::of(Blank::new(8)?, 2);
/// assert_eq!(counters[..], [0, 0]);
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct Blank(MmapMut);

impl Blank {
    /// Reserves `bytes`.
    ///
    /// # Errors
    /// As [`Zeroed::new`].
    #[inline(never)]
    pub fn new(bytes: usize) -> io::Result<Self> {
        let map = MmapMut::map_anon(bytes.max(1))?;
        #[cfg(target_os = "linux")]
        if bytes >= HUGE_PAGE {
            // A kernel without huge pages refuses; the table then uses small pages.
            let _ = map.advise(memmap2::Advice::HugePage);
        }
        Ok(Self(map))
    }

    /// Faults all pages in and locks them in memory. Returns whether the operating system allows
    /// it.
    pub fn lock(&self) -> bool {
        #[cfg(target_os = "linux")]
        let _ = self.0.advise(memmap2::Advice::PopulateWrite);
        self.0.lock().is_ok()
    }
}

/// Smaller mappings cannot use huge pages.
#[cfg(target_os = "linux")]
const HUGE_PAGE: usize = 2 << 20;

impl<T: Zeroable> Deref for Zeroed<T> {
    type Target = [T];
    #[inline(always)]
    fn deref(&self) -> &[T] {
        // SAFETY: the mapping holds `len` items in at most `isize::MAX` bytes (`map_anon` refuses
        // more), is aligned to a page, and was all zero at first, which `Zeroable` makes a valid
        // `T`; since then only `T`s were written, through `deref_mut` or, where `T` is an atomic,
        // through a shared reference. No one else has the mapping; the borrow of `self` covers it.
        unsafe { std::slice::from_raw_parts(self.map.as_ptr().cast(), self.len) }
    }
}

impl<T: Zeroable> DerefMut for Zeroed<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `deref`; the exclusive borrow of `self` makes the slice exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.map.as_mut_ptr().cast(), self.len) }
    }
}

/// Bytes of a cache line.
#[cfg(target_arch = "x86_64")]
const LINE: usize = 64;

/// Prefetches the cache lines that hold `slots[index]`: two of them where a slot crosses a line. An
/// index out of range is allowed and has no effect.
#[inline(always)]
pub fn prefetch<T>(slots: &[T], index: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let bytes = size_of::<T>();
        let slot = slots.as_ptr().wrapping_add(index).cast::<i8>();
        // SAFETY: a prefetch never faults, whatever its address; SSE is part of x86-64.
        let ask = |at| unsafe { _mm_prefetch::<_MM_HINT_T0>(slot.wrapping_add(at)) };
        ask(0);
        if !LINE.is_multiple_of(bytes) {
            (LINE..bytes).step_by(LINE).for_each(ask);
            if align_of::<T>() < LINE {
                ask(bytes.saturating_sub(1));
            }
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (slots, index);
}
