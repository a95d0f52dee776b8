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

/// Which of the bytes equal `value`: one bit each, the first byte's lowest.
#[inline(always)]
pub fn equal_in_line(bytes: &[u8; 16], value: u8) -> u32 {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::*;
        // SAFETY: SSE2 is part of x86-64; the load is of the 16 bytes, and asks for no alignment.
        unsafe {
            let line = _mm_loadu_si128(bytes.as_ptr().cast());
            let value = _mm_set1_epi8(value.cast_signed());
            _mm_movemask_epi8(_mm_cmpeq_epi8(line, value)).cast_unsigned()
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    (0..16).fold(0, |equal, at| equal | u32::from(bytes[at] == value) << at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_compared_one_by_one() {
        for value in 0..=u8::MAX {
            let bytes: [u8; 16] = std::array::from_fn(|at| value ^ [0, 1, 128, 0xff][at * 7 % 4]);
            let expected = (0..16).filter(|&at| bytes[at] == value).map(|at| 1 << at);
            assert_eq!(equal_in_line(&bytes, value), expected.sum::<u32>(), "{bytes:x?}");
            assert_eq!(equal_in_line(&[value; 16], value), 0xffff);
        }
    }

    #[test]
    fn words_are_compared_one_by_one_in_the_bits_of_the_mask() {
        let mut state = 1_u64;
        let mut random = move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 32) as u32
        };
        for mask in [0, 1, 0x8000_0000, 0xffff_0000, 0x0001_8000, u32::MAX] {
            for _ in 0..1000 {
                // Few different words, so that many are equal.
                let words: [u32; 8] = std::array::from_fn(|_| {
                    [0, 1, u32::MAX, mask, !mask][random() as usize % 5] ^ (random() & !mask)
                });
                for value in [0, 1 & mask, mask, random() & mask] {
                    let expected = (0..8).filter(|&at| words[at] & mask == value).map(|at| 1 << at);
                    assert_eq!(
                        equal_in_group(&words, mask, value),
                        expected.sum::<u32>(),
                        "{words:x?}"
                    );
                }
            }
        }
    }
}
