//! Eight lanes of 64 bits.

use std::arch::x86_64::*;

use crate::lanes::{self, Lanes};

#[derive(Clone, Copy)]
struct Zmm(__m512i);

// SAFETY: each function is one intrinsic of AVX-512F, or loads and stores what its contract says.
unsafe impl Lanes for Zmm {
    const COUNT: usize = 8;

    #[inline(always)]
    unsafe fn splat(value: u64) -> Self {
        // SAFETY: AVX-512F, by the contract of `Lanes`.
        unsafe { Self(_mm512_set1_epi64(value.cast_signed())) }
    }
    #[inline(always)]
    unsafe fn gather(base: *const u64, stride: usize) -> Self {
        // SAFETY: AVX-512F and eight readable words, by the contract of `Lanes`.
        unsafe {
            if stride == 1 {
                return Self(_mm512_loadu_si512(base.cast()));
            }
            // Eight loads and inserts: on Zen 4 and 5 as fast as the gather instruction.
            let word = |i: usize| base.add(i * stride).read_unaligned().cast_signed();
            Self(_mm512_setr_epi64(
                word(0),
                word(1),
                word(2),
                word(3),
                word(4),
                word(5),
                word(6),
                word(7),
            ))
        }
    }
    #[inline(always)]
    unsafe fn widen(base: *const u32) -> Self {
        // SAFETY: AVX-512F and eight readable words, by the contract of `Lanes`.
        unsafe { Self(_mm512_cvtepu32_epi64(_mm256_loadu_si256(base.cast()))) }
    }
    #[inline(always)]
    unsafe fn pairs(base: *const u64) -> [Self; 2] {
        // SAFETY: AVX-512F and sixteen readable words, by the contract of `Lanes`.
        unsafe {
            let (low, high) =
                (_mm512_loadu_si512(base.cast()), _mm512_loadu_si512(base.add(8).cast()));
            let even = _mm512_setr_epi64(0, 2, 4, 6, 8, 10, 12, 14);
            let odd = _mm512_setr_epi64(1, 3, 5, 7, 9, 11, 13, 15);
            [
                Self(_mm512_permutex2var_epi64(low, even, high)),
                Self(_mm512_permutex2var_epi64(low, odd, high)),
            ]
        }
    }
    #[inline(always)]
    unsafe fn store(self, out: *mut u64) {
        // SAFETY: AVX-512F and eight writable words, by the contract of `Lanes`.
        unsafe { _mm512_storeu_si512(out.cast(), self.0) }
    }
    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        // SAFETY: AVX-512F, by the contract of `Lanes`.
        unsafe { Self(_mm512_add_epi64(self.0, other.0)) }
    }
    #[inline(always)]
    unsafe fn xor(self, other: Self) -> Self {
        // SAFETY: AVX-512F, by the contract of `Lanes`.
        unsafe { Self(_mm512_xor_si512(self.0, other.0)) }
    }
    #[inline(always)]
    unsafe fn and(self, other: Self) -> Self {
        // SAFETY: AVX-512F, by the contract of `Lanes`.
        unsafe { Self(_mm512_and_si512(self.0, other.0)) }
    }
    #[inline(always)]
    unsafe fn high(self) -> Self {
        // SAFETY: AVX-512F, by the contract of `Lanes`.
        unsafe { Self(_mm512_srli_epi64::<32>(self.0)) }
    }
    #[inline(always)]
    unsafe fn raise(self) -> Self {
        // SAFETY: AVX-512F, by the contract of `Lanes`.
        unsafe { Self(_mm512_slli_epi64::<32>(self.0)) }
    }
    #[inline(always)]
    unsafe fn multiply_low(self, other: Self) -> Self {
        // SAFETY: AVX-512F, by the contract of `Lanes`.
        unsafe { Self(_mm512_mul_epu32(self.0, other.0)) }
    }
}

/// As [`lanes::digest`].
///
/// # Safety
/// AVX-512F must have been detected; `keys` must be readable and `out` writable for `count` keys.
#[target_feature(enable = "avx512f")]
pub(crate) unsafe fn digest<const WORDS: usize>(
    secret: &[u64; 4],
    keys: *const u64,
    bytes: usize,
    count: usize,
    out: *mut u64,
) -> usize {
    // SAFETY: as promised by the caller.
    unsafe { lanes::digest::<Zmm>(secret, keys, WORDS, bytes, count, out) }
}

/// As [`lanes::fold_each`].
///
/// # Safety
/// AVX-512F must have been detected; `words` must be readable and `out` writable for `count` words.
#[target_feature(enable = "avx512f")]
pub(crate) unsafe fn fold_each(
    words: *const u64,
    other: u64,
    factor: u64,
    count: usize,
    out: *mut u64,
) -> usize {
    // SAFETY: as promised by the caller.
    unsafe { lanes::fold_each::<Zmm>(words, other, factor, count, out) }
}
