//! Four lanes of 64 bits.

use std::arch::x86_64::*;

use crate::lanes::{self, Lanes};

#[derive(Clone, Copy)]
struct Ymm(__m256i);

// SAFETY: each function is one intrinsic of AVX2, or loads and stores what its contract says.
unsafe impl Lanes for Ymm {
    const COUNT: usize = 4;

    #[inline(always)]
    unsafe fn splat(value: u64) -> Self {
        // SAFETY: AVX2, by the contract of `Lanes`.
        unsafe { Self(_mm256_set1_epi64x(value.cast_signed())) }
    }
    #[inline(always)]
    unsafe fn gather(base: *const u64, stride: usize) -> Self {
        // SAFETY: AVX2 and four readable words, by the contract of `Lanes`.
        unsafe {
            if stride == 1 {
                return Self(_mm256_loadu_si256(base.cast()));
            }
            let word = |i: usize| base.add(i * stride).read_unaligned().cast_signed();
            Self(_mm256_setr_epi64x(word(0), word(1), word(2), word(3)))
        }
    }
    #[inline(always)]
    unsafe fn widen(base: *const u32) -> Self {
        // SAFETY: AVX2 and four readable words, by the contract of `Lanes`.
        unsafe { Self(_mm256_cvtepu32_epi64(_mm_loadu_si128(base.cast()))) }
    }
    #[inline(always)]
    unsafe fn pairs(base: *const u64) -> [Self; 2] {
        // SAFETY: AVX2 and eight readable words, by the contract of `Lanes`.
        unsafe {
            let low = _mm256_loadu_si256(base.cast());
            let high = _mm256_loadu_si256(base.add(4).cast());
            // Lanes 0 2 1 3 after the unpacking within 128 bits; the permutation mends the order.
            let even = _mm256_unpacklo_epi64(low, high);
            let odd = _mm256_unpackhi_epi64(low, high);
            [
                Self(_mm256_permute4x64_epi64::<0b11_01_10_00>(even)),
                Self(_mm256_permute4x64_epi64::<0b11_01_10_00>(odd)),
            ]
        }
    }
    #[inline(always)]
    unsafe fn store(self, out: *mut u64) {
        // SAFETY: AVX2 and four writable words, by the contract of `Lanes`.
        unsafe { _mm256_storeu_si256(out.cast(), self.0) }
    }
    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        // SAFETY: AVX2, by the contract of `Lanes`.
        unsafe { Self(_mm256_add_epi64(self.0, other.0)) }
    }
    #[inline(always)]
    unsafe fn xor(self, other: Self) -> Self {
        // SAFETY: AVX2, by the contract of `Lanes`.
        unsafe { Self(_mm256_xor_si256(self.0, other.0)) }
    }
    #[inline(always)]
    unsafe fn and(self, other: Self) -> Self {
        // SAFETY: AVX2, by the contract of `Lanes`.
        unsafe { Self(_mm256_and_si256(self.0, other.0)) }
    }
    #[inline(always)]
    unsafe fn high(self) -> Self {
        // SAFETY: AVX2, by the contract of `Lanes`.
        unsafe { Self(_mm256_srli_epi64::<32>(self.0)) }
    }
    #[inline(always)]
    unsafe fn raise(self) -> Self {
        // SAFETY: AVX2, by the contract of `Lanes`.
        unsafe { Self(_mm256_slli_epi64::<32>(self.0)) }
    }
    #[inline(always)]
    unsafe fn multiply_low(self, other: Self) -> Self {
        // SAFETY: AVX2, by the contract of `Lanes`.
        unsafe { Self(_mm256_mul_epu32(self.0, other.0)) }
    }
}

/// As [`lanes::digest`].
///
/// # Safety
/// AVX2 must have been detected; `keys` must be readable and `out` writable for `count` keys.
#[target_feature(enable = "avx2")]
pub(crate) unsafe fn digest<const WORDS: usize>(
    secret: &[u64; 4],
    keys: *const u64,
    bytes: usize,
    count: usize,
    out: *mut u64,
) -> usize {
    // SAFETY: as promised by the caller.
    unsafe { lanes::digest::<Ymm>(secret, keys, WORDS, bytes, count, out) }
}

/// As [`lanes::fold_each`].
///
/// # Safety
/// AVX2 must have been detected; `words` must be readable and `out` writable for `count` words.
#[target_feature(enable = "avx2")]
pub(crate) unsafe fn fold_each(
    words: *const u64,
    other: u64,
    factor: u64,
    count: usize,
    out: *mut u64,
) -> usize {
    // SAFETY: as promised by the caller.
    unsafe { lanes::fold_each::<Ymm>(words, other, factor, count, out) }
}
