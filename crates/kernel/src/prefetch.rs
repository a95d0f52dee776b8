//! Cache-line prefetch.

/// Bytes of a cache line.
#[cfg(target_arch = "x86_64")]
const LINE: usize = 64;

/// Asks for the cache lines that hold `slots[index]`, which may be two where lines are no multiple of
/// a slot; an index out of range is allowed and useless.
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
