//! Compares a small group of words, tags or bytes with one value at once.
//!
//! x86-64 uses SSE2, which each of its processors has; other architectures use the functions of
//! `scalar`. `cfg` decides, not the [`Isa`](crate::Isa): the comparisons are inlined in probe
//! loops, where a branch per group would cost more than it could gain. On x86-64 the tests compare
//! both.

/// Bit `i` is set where `words[i] & mask == value`, of 8 or 16 words.
///
/// ```
/// use flowgauge_kernel::equal_in_group;
///
/// let words = [0x0107, 0x0207, 0x0109, 0, 0, 0, 0, 0x0307];
/// assert_eq!(equal_in_group(&words, 0xff, 0x07), 0b1000_0011);
/// ```
#[inline(always)]
pub fn equal_in_group<const N: usize>(words: &[u32; N], mask: u32, value: u32) -> u32 {
    const { assert!(N == 8 || N == 16) };
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::*;
        // SAFETY: SSE2 is part of x86-64; all loads are of four of the 8 or 16 words, and need no
        // alignment.
        unsafe {
            let (mask, value) =
                (_mm_set1_epi32(mask.cast_signed()), _mm_set1_epi32(value.cast_signed()));
            let equal = |at: usize| {
                let four = _mm_loadu_si128(words.as_ptr().add(at).cast());
                _mm_cmpeq_epi32(_mm_and_si128(four, mask), value)
            };
            // The bits of a result are all equal, so each step can halve its width.
            let eight = |at| _mm_packs_epi32(equal(at), equal(at + 4));
            let all = _mm_packs_epi16(eight(0), eight(N - 8));
            _mm_movemask_epi8(all).cast_unsigned() & ((1 << N) - 1)
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    scalar::equal_in_group(words, mask, value)
}

/// Bit `i` is set where `bytes[i] == value`.
///
/// ```
/// use flowgauge_kernel::equal_in_line;
///
/// assert_eq!(equal_in_line(&[3, 9, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3], 3), 0x8005);
/// ```
#[inline(always)]
pub fn equal_in_line(bytes: &[u8; 16], value: u8) -> u32 {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::*;
        // SAFETY: SSE2 is part of x86-64; the load is of the 16 bytes, and needs no alignment.
        unsafe {
            let line = _mm_loadu_si128(bytes.as_ptr().cast());
            let value = _mm_set1_epi8(value.cast_signed());
            _mm_movemask_epi8(_mm_cmpeq_epi8(line, value)).cast_unsigned()
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    scalar::equal_in_line(bytes, value)
}

/// Sixteen tags, half a cache line.
///
/// ```
/// use flowgauge_kernel::Tags;
///
/// let tags = Tags(std::array::from_fn(|i| 100 + i as u16));
/// assert_eq!(tags.find(103), Some(3));
/// assert_eq!(tags.find(7), None);
/// ```
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C, align(32))]
pub struct Tags(pub [u16; 16]);

impl Tags {
    /// The index of the first tag equal to `tag`. AVX2 and AVX-512 are no faster here than SSE2.
    #[inline(always)]
    pub fn find(&self, tag: u16) -> Option<usize> {
        #[cfg(target_arch = "x86_64")]
        return std::num::NonZero::new(self.equal(tag)).map(|bits| bits.trailing_zeros() as usize);
        #[cfg(not(target_arch = "x86_64"))]
        scalar::find(&self.0, tag)
    }

    /// Bit `i` is set where tag `i` equals `tag`.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    fn equal(&self, tag: u16) -> u16 {
        use std::arch::x86_64::*;
        // SAFETY: SSE2 is part of x86-64; both loads are of 16 bytes within the 32 of the tags,
        // which are aligned.
        let bits = unsafe {
            let tag = _mm_set1_epi16(tag.cast_signed());
            let equal =
                |at: usize| _mm_cmpeq_epi16(_mm_load_si128(self.0.as_ptr().add(at).cast()), tag);
            _mm_movemask_epi8(_mm_packs_epi16(equal(0), equal(8)))
        };
        bits as u16
    }
}

/// The portable twins.
#[cfg(any(test, not(target_arch = "x86_64")))]
mod scalar {
    #[inline(always)]
    pub(super) fn equal_in_group<const N: usize>(words: &[u32; N], mask: u32, value: u32) -> u32 {
        (0..N).fold(0, |equal, at| equal | u32::from(words[at] & mask == value) << at)
    }

    #[inline(always)]
    pub(super) fn equal_in_line(bytes: &[u8; 16], value: u8) -> u32 {
        (0..16).fold(0, |equal, at| equal | u32::from(bytes[at] == value) << at)
    }

    #[inline(always)]
    pub(super) fn find(tags: &[u16; 16], tag: u16) -> Option<usize> {
        tags.iter().position(|other| *other == tag)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn random() -> impl FnMut() -> u32 {
        let mut state = 1_u64;
        move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 32) as u32
        }
    }

    #[test]
    fn bytes_are_compared() {
        for value in 0..=u8::MAX {
            let bytes: [u8; 16] = std::array::from_fn(|at| value ^ [0, 1, 128, 0xff][at * 7 % 4]);
            let expected = (0..16).filter(|&at| bytes[at] == value).map(|at| 1 << at);
            assert_eq!(equal_in_line(&bytes, value), expected.sum::<u32>(), "{bytes:x?}");
            assert_eq!(equal_in_line(&[value; 16], value), 0xffff);
        }
    }

    #[test]
    fn bytes_compare_as_in_the_scalar_twin() {
        let mut random = random();
        for _ in 0..100_000 {
            // Few different bytes, so that many are equal.
            let bytes: [u8; 16] = std::array::from_fn(|_| (random() % 3 * 0x7f) as u8);
            let value = (random() % 3 * 0x7f) as u8;
            let expected = scalar::equal_in_line(&bytes, value);
            assert_eq!(equal_in_line(&bytes, value), expected, "{value} in {bytes:x?}");
        }
    }

    #[test]
    fn words_are_compared_in_the_bits_of_the_mask() {
        let mut random = random();
        for mask in [0, 1, 0x8000_0000, 0xffff_0000, 0x0001_8000, u32::MAX] {
            for _ in 0..5000 {
                // Few different words, so that many are equal.
                let words: [u32; 8] = std::array::from_fn(|_| {
                    [0, 1, u32::MAX, mask, !mask][random() as usize % 5] ^ (random() & !mask)
                });
                for value in [0, 1 & mask, mask, random() & mask] {
                    let found = equal_in_group(&words, mask, value);
                    let expected = (0..8).filter(|&at| words[at] & mask == value).map(|at| 1 << at);
                    assert_eq!(found, expected.sum::<u32>(), "{words:x?}");
                    assert_eq!(found, scalar::equal_in_group(&words, mask, value), "{words:x?}");
                }
            }
        }
    }

    #[test]
    fn tags_are_found_as_by_the_scalar_twin() {
        let mut random = random();
        let tags = [0, 1, 0x80, 0x8000, 0xff00, u16::MAX, 0xbeef];
        let mut found = [0; 17];
        for _ in 0..20_000 {
            let line = Tags(std::array::from_fn(|_| match random() as u16 % 60 {
                at @ 0..7 => tags[usize::from(at)],
                _ => random() as u16,
            }));
            for tag in tags {
                let place = line.find(tag);
                assert_eq!(place, scalar::find(&line.0, tag), "{tag} in {:?}", line.0);
                found[place.unwrap_or(16)] += 1;
            }
        }
        assert!(found.iter().all(|times| *times > 0), "{found:?}");
    }
}
