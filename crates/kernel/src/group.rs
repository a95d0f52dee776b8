//! Comparing some words at once.

/// Which of the words equal `value` in the bits of `mask`: one bit each, the first word's lowest.
#[inline(always)]
pub fn equal_in_group(words: &[u32; 8], mask: u32, value: u32) -> u32 {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::*;
        // SAFETY: SSE2 is part of x86-64; both loads are of 16 bytes within the 32 of `words`, and
        // ask for no alignment.
        unsafe {
            let (mask, value) =
                (_mm_set1_epi32(mask.cast_signed()), _mm_set1_epi32(value.cast_signed()));
            let equal = |at: usize| {
                let four = _mm_loadu_si128(words.as_ptr().add(at).cast());
                _mm_cmpeq_epi32(_mm_and_si128(four, mask), value)
            };
            // Each step narrows the results, of which all bits are equal, by half.
            let pairs = _mm_packs_epi32(equal(0), equal(4));
            _mm_movemask_epi8(_mm_packs_epi16(pairs, pairs)).cast_unsigned() & 0xff
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    (0..8).fold(0, |equal, at| equal | u32::from(words[at] & mask == value) << at)
}
