//! The digest formula over eight keys at once, with AVX-512.
//!
//! A 64 × 64 → 128-bit product is put together from four 32 × 32 → 64-bit products. The scalar twin,
//! [`crate::scalar`], multiplies in one instruction: it is as fast as narrower vectors, and faster
//! for keys of more than 16 bytes.

use std::arch::x86_64::*;

use crate::digest::Words;

/// Keys digested at once.
const LANES: usize = 8;

/// Digests leading groups of eight keys of 8 or 16 bytes; returns the number of keys digested.
#[target_feature(enable = "avx512f")]
pub(crate) fn digest<W: Words>(
    secret: &[u64; 4],
    keys: &[W],
    bytes: usize,
    out: &mut [u64],
) -> usize {
    let [s0, s1, s2, s3] = *secret;
    let [s0, s1, s2, s3] = [splat(s0), splat(s1), splat(s2 ^ bytes as u64), splat(s3)];
    let mut digested = 0;
    for (keys, out) in keys.as_chunks::<LANES>().0.iter().zip(out.as_chunks_mut().0) {
        let words: &[u8] = bytemuck::bytes_of(keys);
        let (low, high) = match words.as_chunks().0 {
            [words] => multiply(_mm512_xor_si512(load(words), s0), s1),
            [front, back] => {
                let [first, second] = pairs(load(front), load(back));
                multiply(_mm512_xor_si512(first, s0), _mm512_xor_si512(second, s1))
            }
            _ => return 0,
        };
        store(fold(_mm512_xor_si512(low, s2), _mm512_xor_si512(high, s3)), out);
        digested += LANES;
    }
    digested
}

/// Computes `fold(word ^ other, factor)` for leading groups of eight words; returns the number of
/// words folded.
#[target_feature(enable = "avx512f")]
pub(crate) fn fold_each(words: &[u64], other: u64, factor: u64, out: &mut [u64]) -> usize {
    let (other, factor) = (splat(other), splat(factor));
    let mut folded = 0;
    for (words, out) in words.as_chunks::<LANES>().0.iter().zip(out.as_chunks_mut().0) {
        let words = _mm512_xor_si512(load(bytemuck::cast_ref(words)), other);
        store(fold(words, factor), out);
        folded += LANES;
    }
    folded
}

#[target_feature(enable = "avx512f")]
#[inline]
fn splat(word: u64) -> __m512i {
    _mm512_set1_epi64(word.cast_signed())
}

#[target_feature(enable = "avx512f")]
#[inline]
fn load(bytes: &[u8; 64]) -> __m512i {
    // SAFETY: the array is as long as the vector; the load needs no alignment.
    unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) }
}

#[target_feature(enable = "avx512f")]
#[inline]
fn store(words: __m512i, out: &mut [u64; LANES]) {
    // SAFETY: the array is as long as the vector; the store needs no alignment.
    unsafe { _mm512_storeu_si512(out.as_mut_ptr().cast(), words) }
}

/// The first words of eight pairs, and the second ones.
#[target_feature(enable = "avx512f")]
#[inline]
fn pairs(front: __m512i, back: __m512i) -> [__m512i; 2] {
    let even = _mm512_setr_epi64(0, 2, 4, 6, 8, 10, 12, 14);
    let odd = _mm512_setr_epi64(1, 3, 5, 7, 9, 11, 13, 15);
    [_mm512_permutex2var_epi64(front, even, back), _mm512_permutex2var_epi64(front, odd, back)]
}

/// The upper 32 bits in every lane.
#[target_feature(enable = "avx512f")]
#[inline]
fn high(words: __m512i) -> __m512i {
    _mm512_srli_epi64::<32>(words)
}

/// The lower 32 bits in every lane.
#[target_feature(enable = "avx512f")]
#[inline]
fn low(words: __m512i) -> __m512i {
    _mm512_and_si512(words, splat(0xffff_ffff))
}

/// [`crate::scalar::multiply`] in every lane.
#[target_feature(enable = "avx512f")]
#[inline]
fn multiply(a: __m512i, b: __m512i) -> (__m512i, __m512i) {
    let low_low = _mm512_mul_epu32(a, b);
    let middle = _mm512_add_epi64(_mm512_mul_epu32(high(a), b), high(low_low));
    let other_middle = _mm512_add_epi64(_mm512_mul_epu32(a, high(b)), low(middle));
    let high_high = _mm512_mul_epu32(high(a), high(b));
    (
        _mm512_xor_si512(low(low_low), _mm512_slli_epi64::<32>(other_middle)),
        _mm512_add_epi64(_mm512_add_epi64(high_high, high(middle)), high(other_middle)),
    )
}

/// [`crate::scalar::fold`] in every lane.
#[target_feature(enable = "avx512f")]
#[inline]
fn fold(a: __m512i, b: __m512i) -> __m512i {
    let (low, high) = multiply(a, b);
    _mm512_xor_si512(low, high)
}
