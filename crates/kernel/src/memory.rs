//! Table memory: reserved at start, resident once touched, prefetched by slot.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::io;
use std::marker::PhantomData;
use std::mem;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use bytemuck::Zeroable;
use memmap2::MmapMut;

/// A slice of fixed length, all zero at first, that begins at a cache line.
///
/// A slice of 128 KiB or more has its own anonymous mapping, of which only touched pages are
/// resident. A mapping of 2 MiB or more asks for huge pages: otherwise random reads of a table of
/// many megabytes miss the translation buffer almost every time. Smaller slices are on the heap,
/// because mapping and unmapping takes system calls and interrupts all threads of the process.
/// Memory: `len × size_of::<T>()` bytes reserved.
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
    start: NonNull<T>,
    len: usize,
    /// What `start` points into. `None`: the heap.
    map: Option<Box<MmapMut>>,
    item: PhantomData<T>,
}

// SAFETY: the memory belongs to this value alone, and neither heap nor mapping is tied to a thread.
unsafe impl<T: Send> Send for Zeroed<T> {}
// SAFETY: as above; a shared reference gives shared references to items only.
unsafe impl<T: Sync> Sync for Zeroed<T> {}

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
    /// When `memory` has another size.
    pub fn of(memory: Blank, len: usize) -> Self {
        const { assert!(align_of::<T>() <= LINE, "memory begins at a cache line") };
        const { assert!(!mem::needs_drop::<T>(), "what is freed is not dropped") };
        let mut bytes = memory.0;
        assert!(len.checked_mul(size_of::<T>()) == Some(bytes.len));
        let zeroed =
            Self { start: bytes.start.cast(), len, map: bytes.map.take(), item: PhantomData };
        mem::forget(bytes);
        zeroed
    }
}

impl<T> Zeroed<T> {
    /// Bytes reserved.
    pub fn memory_bytes(&self) -> usize {
        self.len * size_of::<T>()
    }
}

impl<T> Drop for Zeroed<T> {
    fn drop(&mut self) {
        if self.map.is_none()
            && let Some(layout) = on_heap(self.memory_bytes())
        {
            // SAFETY: it was allocated with the layout of as many bytes, and is freed once.
            unsafe { dealloc(self.start.as_ptr().cast(), layout) };
        }
    }
}

/// The layout on the heap. Nothing is reserved as one byte, which an allocation must have.
fn on_heap(bytes: usize) -> Option<Layout> {
    Layout::from_size_align(bytes.max(1), LINE).ok()
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
pub struct Blank(Zeroed<u8>);

impl Blank {
    /// Reserves `bytes`.
    ///
    /// # Errors
    /// As [`Zeroed::new`].
    #[inline(never)]
    pub fn new(bytes: usize) -> io::Result<Self> {
        if bytes >= MAPPED {
            return Self::mapped(bytes);
        }
        let layout = on_heap(bytes).ok_or(io::ErrorKind::OutOfMemory)?;
        // SAFETY: the layout has a byte or more.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) });
        let start = start.ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self(Zeroed { start, len: bytes, map: None, item: PhantomData }))
    }

    fn mapped(bytes: usize) -> io::Result<Self> {
        let mut map = MmapMut::map_anon(bytes.max(1))?;
        #[cfg(target_os = "linux")]
        if bytes >= HUGE_PAGE {
            // A kernel without huge pages refuses; the table then uses small pages.
            let _ = map.advise(memmap2::Advice::HugePage);
        }
        let start = NonNull::new(map.as_mut_ptr()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self(Zeroed { start, len: bytes, map: Some(Box::new(map)), item: PhantomData }))
    }

    /// As much memory with all pages faulted in and locked, and whether the operating system allows
    /// that.
    #[must_use]
    pub fn locked(mut self) -> (Self, bool) {
        // On the heap, other memory of the same page would be locked, and unlocked, with it.
        if self.0.map.is_none()
            && let Ok(mapped) = Self::mapped(self.0.len)
        {
            self = mapped;
        }
        let is_locked = self.0.map.as_mut().is_some_and(|map| {
            #[cfg(target_os = "linux")]
            let is_populated = map.advise(memmap2::Advice::PopulateWrite).is_ok();
            #[cfg(not(target_os = "linux"))]
            let is_populated = false;
            let is_locked = map.lock().is_ok();
            if !is_populated && !is_locked {
                touch(map);
            }
            is_locked
        });
        (self, is_locked)
    }
}

/// Faults all pages of zeroed memory in: Linux before 5.14 can only do that while it locks them.
fn touch(map: &mut [u8]) {
    map.iter_mut().step_by(SMALLEST_PAGE).for_each(|byte| *byte = 0);
}

/// No processor has smaller pages.
const SMALLEST_PAGE: usize = 4 << 10;

/// From this size on, memory is mapped.
const MAPPED: usize = 128 << 10;

/// Smaller mappings cannot use huge pages.
#[cfg(target_os = "linux")]
const HUGE_PAGE: usize = 2 << 20;

impl<T: Zeroable> Deref for Zeroed<T> {
    type Target = [T];
    #[inline(always)]
    fn deref(&self) -> &[T] {
        // SAFETY: the memory holds `len` items in at most `isize::MAX` bytes (neither heap nor
        // mapping gives more), is aligned to a line, and was all zero at first, which `Zeroable`
        // makes a valid `T`; since then only `T`s were written, through `deref_mut` or, where `T` is
        // an atomic, through a shared reference. No one else has the memory; the borrow of `self`
        // covers it.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl<T: Zeroable> DerefMut for Zeroed<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `deref`; the exclusive borrow of `self` makes the slice exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

/// Bytes of a cache line.
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

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]
mod tests {
    use super::*;

    /// Bit 63 of an entry of `pagemap` says that the page is resident.
    #[cfg(target_os = "linux")]
    #[test]
    fn touched_memory_is_resident() {
        use std::os::unix::fs::FileExt;
        let pagemap = std::fs::File::open("/proc/self/pagemap").unwrap();
        let mut map = MmapMut::map_anon(MAPPED).unwrap();
        let _ = map.advise(memmap2::Advice::NoHugePage);
        let first = map.as_ptr() as u64 / SMALLEST_PAGE as u64;
        let resident = || {
            let mut entries = [0; MAPPED / SMALLEST_PAGE * 8];
            pagemap.read_exact_at(&mut entries, first * 8).unwrap();
            entries.chunks(8).filter(|entry| entry[7] & 0x80 != 0).count()
        };
        assert_eq!(resident(), 0);
        touch(&mut map);
        assert_eq!(resident(), MAPPED / SMALLEST_PAGE);
    }

    /// Memory of either kind begins at a line and is zero, also where freed memory is used again.
    #[test]
    fn memory_is_aligned_and_zero() {
        for bytes in [0, 1, LINE + 1, MAPPED - 1, MAPPED] {
            for locked in [false, true, false] {
                let blank = Blank::new(bytes).unwrap();
                let blank = if locked { blank.locked().0 } else { blank };
                let mut zeroed = Zeroed::<u8>::of(blank, bytes);
                assert_eq!(zeroed.map.is_some(), locked || bytes >= MAPPED, "{bytes}");
                assert_eq!(zeroed.as_ptr().align_offset(LINE), 0, "{bytes}");
                assert!(zeroed.iter().all(|byte| *byte == 0), "{bytes}");
                zeroed.fill(1);
            }
        }
    }
}
