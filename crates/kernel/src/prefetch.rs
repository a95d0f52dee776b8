//! Cache-line prefetch.

/// Asks for the cache line that holds `slots[index]`; an index out of range is allowed and useless.
#[inline(always)]
pub fn prefetch<T>(slots: &[T], index: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let address = slots.as_ptr().wrapping_add(index).cast::<i8>();
        // SAFETY: a prefetch never faults, whatever its address; SSE is part of x86-64.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (slots, index);
}
