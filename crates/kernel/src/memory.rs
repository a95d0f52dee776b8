//! Table memory: reserved at start, touched only as it is used.

use std::fs;
use std::io;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

use bytemuck::Zeroable;
use memmap2::MmapMut;

/// A slice of fixed length in its own anonymous mapping, all zero at first.
///
/// The mapping asks for huge pages, since a table of many megabytes read at random otherwise
/// misses the translation buffer at nearly every access. Memory: `len × size_of::<T>()` bytes
/// reserved, of which only the touched pages are resident.
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

    /// `len` items in memory that has room for them.
    ///
    /// # Panics
    /// When it has not.
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

/// Whether the machine has so many bytes of memory to give. Where it has not, faulting them in would end
/// this process or another one, since a mapping is refused only if it is larger than all memory.
pub fn is_available(bytes: usize) -> bool {
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<usize>().ok());
    kilobytes.is_none_or(|kilobytes| bytes / 1024 < kilobytes)
}

/// Memory that holds nothing yet, of a number of bytes and no type: what all tables reserve alike.
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
            // A kernel without huge pages refuses; the table then works with small ones.
            let _ = map.advise(memmap2::Advice::HugePage);
        }
        Ok(Self(map))
    }

    /// Faults all of it in, and keeps it from being swapped out; returns whether the operating system
    /// allows that.
    pub fn lock(&self) -> bool {
        #[cfg(target_os = "linux")]
        let _ = self.0.advise(memmap2::Advice::PopulateWrite);
        self.0.lock().is_ok()
    }
}

/// Below the size of a huge page there is nothing to ask for.
#[cfg(target_os = "linux")]
const HUGE_PAGE: usize = 2 << 20;

impl<T: Zeroable> Deref for Zeroed<T> {
    type Target = [T];
    #[inline(always)]
    fn deref(&self) -> &[T] {
        // SAFETY: the mapping holds `len` items in at most `isize::MAX` bytes (`map_anon` refuses
        // more), is aligned to a page, and was all zero at first, which `Zeroable` makes a valid
        // `T`; since then only `T`s were written through `deref_mut`, or through the atomics that a
        // `T` may be. Nobody else has the mapping, and the borrow of `self` covers the slice.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_os = "linux")]
    fn a_page_is_available_and_an_exabyte_is_not() {
        assert!(is_available(4096));
        assert!(!is_available(1 << 60));
    }
}
