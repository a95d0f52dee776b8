//! The digest formula over several keys at once, written once for every vector width.
//!
//! A 64 × 64 → 128-bit product is put together from four 32 × 32 → 64-bit products, which every
//! vector instruction set has. [`crate::scalar`] is the scalar twin.

use std::arch::x86_64::*;

/// A vector register of 64-bit lanes.
///
/// # Safety
/// Call these functions only where the instruction set of the implementation was detected. They are
/// inlined, so they compile to that instruction set only inside a function that enables it.
unsafe trait Vector: Copy {
    /// Number of lanes.
    const LANES: usize;
    /// The same value in every lane.
    unsafe fn splat(value: u64) -> Self;
    /// Lane `i` is `base[i × stride]`; `base` must be readable that far.
    unsafe fn gather(base: *const u64, stride: usize) -> Self;
    /// Reads [`Self::LANES`] consecutive pairs: all first words, then all second words.
    unsafe fn pairs(base: *const u64) -> [Self; 2];
    /// Writes the lanes to `out`, which must be writable for all of them.
    unsafe fn store(self, out: *mut u64);
    unsafe fn add(self, other: Self) -> Self;
    unsafe fn xor(self, other: Self) -> Self;
    unsafe fn and(self, other: Self) -> Self;
    /// Shifts right by 32 bits.
    unsafe fn high(self) -> Self;
    /// Shifts left by 32 bits.
    unsafe fn raise(self) -> Self;
    /// Products of the lower 32 bits.
    unsafe fn multiply_low(self, other: Self) -> Self;
}

/// Implements [`Vector`] for a register type, and defines the module that runs [`digest`] and
/// [`fold_each`] with it. The intrinsics are listed in the order of the trait's functions.
macro_rules! instruction_set {
    (
        $name:ident = $feature:literal, $lanes:literal lanes of $vector:ty,
        $splat:ident, $load:ident, $set:ident($($lane:literal),+),
        pairs($low:ident, $high:ident): $pairs:expr, $store:ident, $add:ident, $xor:ident, $and:ident, $shift_right:ident,
        $shift_left:ident, $multiply:ident
    ) => {
        // SAFETY: each function is one intrinsic of this instruction set, or loads and stores
        // exactly the words that the contract of `Vector` names.
        unsafe impl Vector for $vector {
            const LANES: usize = $lanes;

            #[inline(always)]
            unsafe fn splat(value: u64) -> Self {
                // SAFETY: the instruction set, by the contract of `Vector`.
                unsafe { $splat(value.cast_signed()) }
            }
            #[inline(always)]
            unsafe fn gather(base: *const u64, stride: usize) -> Self {
                // SAFETY: the instruction set and one readable word per lane, by the contract of
                // `Vector`.
                unsafe {
                    if stride == 1 {
                        return $load(base.cast());
                    }
                    // Loads and inserts: on Zen 4 and 5 as fast as the gather instruction.
                    $set($(base.add($lane * stride).read_unaligned().cast_signed()),+)
                }
            }
            #[inline(always)]
            unsafe fn pairs(base: *const u64) -> [Self; 2] {
                // SAFETY: the instruction set and two readable words per lane, by the contract of
                // `Vector`.
                unsafe {
                    let ($low, $high) = ($load(base.cast()), $load(base.add($lanes).cast()));
                    $pairs
                }
            }
            #[inline(always)]
            unsafe fn store(self, out: *mut u64) {
                // SAFETY: the instruction set and one writable word per lane, by the contract of
                // `Vector`.
                unsafe { $store(out.cast(), self) }
            }
            #[inline(always)]
            unsafe fn add(self, other: Self) -> Self {
                // SAFETY: the instruction set, by the contract of `Vector`.
                unsafe { $add(self, other) }
            }
            #[inline(always)]
            unsafe fn xor(self, other: Self) -> Self {
                // SAFETY: the instruction set, by the contract of `Vector`.
                unsafe { $xor(self, other) }
            }
            #[inline(always)]
            unsafe fn and(self, other: Self) -> Self {
                // SAFETY: the instruction set, by the contract of `Vector`.
                unsafe { $and(self, other) }
            }
            #[inline(always)]
            unsafe fn high(self) -> Self {
                // SAFETY: the instruction set, by the contract of `Vector`.
                unsafe { $shift_right::<32>(self) }
            }
            #[inline(always)]
            unsafe fn raise(self) -> Self {
                // SAFETY: the instruction set, by the contract of `Vector`.
                unsafe { $shift_left::<32>(self) }
            }
            #[inline(always)]
            unsafe fn multiply_low(self, other: Self) -> Self {
                // SAFETY: the instruction set, by the contract of `Vector`.
                unsafe { $multiply(self, other) }
            }
        }

        pub(crate) mod $name {
            use super::*;

            /// As [`super::digest`].
            ///
            /// # Safety
            /// The instruction set must have been detected; `keys` must be readable and `out`
            /// writable for `count` keys.
            #[target_feature(enable = $feature)]
            pub(crate) unsafe fn digest<const WORDS: usize>(
                secret: &[u64; 4],
                keys: *const u64,
                bytes: usize,
                count: usize,
                out: *mut u64,
            ) -> usize {
                // SAFETY: as promised by the caller.
                unsafe { super::digest::<$vector>(secret, keys, WORDS, bytes, count, out) }
            }

            /// As [`super::fold_each`].
            ///
            /// # Safety
            /// The instruction set must have been detected; `words` must be readable and `out`
            /// writable for `count` words.
            #[target_feature(enable = $feature)]
            pub(crate) unsafe fn fold_each(
                words: *const u64,
                other: u64,
                factor: u64,
                count: usize,
                out: *mut u64,
            ) -> usize {
                // SAFETY: as promised by the caller.
                unsafe { super::fold_each::<$vector>(words, other, factor, count, out) }
            }
        }
    };
}

instruction_set! {
    avx2 = "avx2", 4 lanes of __m256i,
    _mm256_set1_epi64x, _mm256_loadu_si256, _mm256_setr_epi64x(0, 1, 2, 3),
    pairs(low, high): {
        // Unpacking works within 128 bits and leaves the lanes in the order 0 2 1 3; the
        // permutation restores it.
        let (even, odd) = (_mm256_unpacklo_epi64(low, high), _mm256_unpackhi_epi64(low, high));
        [
            _mm256_permute4x64_epi64::<0b11_01_10_00>(even),
            _mm256_permute4x64_epi64::<0b11_01_10_00>(odd),
        ]
    },
    _mm256_storeu_si256, _mm256_add_epi64, _mm256_xor_si256, _mm256_and_si256, _mm256_srli_epi64,
    _mm256_slli_epi64, _mm256_mul_epu32
}

instruction_set! {
    avx512 = "avx512f", 8 lanes of __m512i,
    _mm512_set1_epi64, _mm512_loadu_si512, _mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7),
    pairs(low, high): {
        let even = _mm512_setr_epi64(0, 2, 4, 6, 8, 10, 12, 14);
        let odd = _mm512_setr_epi64(1, 3, 5, 7, 9, 11, 13, 15);
        [
            _mm512_permutex2var_epi64(low, even, high),
            _mm512_permutex2var_epi64(low, odd, high),
        ]
    },
    _mm512_storeu_si512, _mm512_add_epi64, _mm512_xor_si512, _mm512_and_si512, _mm512_srli_epi64,
    _mm512_slli_epi64, _mm512_mul_epu32
}

/// [`crate::scalar::multiply`] in every lane.
///
/// # Safety
/// As for [`Vector`].
#[inline(always)]
unsafe fn multiply<V: Vector>(a: V, b: V) -> (V, V) {
    // SAFETY: the caller detected the instruction set.
    unsafe {
        let low_half = V::splat(0xffff_ffff);
        let (a_high, b_high) = (a.high(), b.high());
        let low_low = a.multiply_low(b);
        let middle = a_high.multiply_low(b).add(low_low.high());
        let other_middle = a.multiply_low(b_high).add(middle.and(low_half));
        let low = low_low.and(low_half).xor(other_middle.raise());
        let high = a_high.multiply_low(b_high).add(middle.high()).add(other_middle.high());
        (low, high)
    }
}

/// [`crate::scalar::fold`] in every lane.
///
/// # Safety
/// As for [`Vector`].
#[inline(always)]
unsafe fn fold<V: Vector>(a: V, b: V) -> V {
    // SAFETY: the caller detected the instruction set.
    unsafe {
        let (low, high) = multiply(a, b);
        low.xor(high)
    }
}

/// The four secrets and the key length, each in every lane.
struct Secret<V> {
    words: [V; 4],
    bytes: V,
}

impl<V: Vector> Secret<V> {
    #[inline(always)]
    unsafe fn new(secret: &[u64; 4], bytes: usize) -> Self {
        // SAFETY: the caller detected the instruction set.
        unsafe { Self { words: secret.map(|word| V::splat(word)), bytes: V::splat(bytes as u64) } }
    }

    #[inline(always)]
    unsafe fn finish(&self, (low, high): (V, V)) -> V {
        // SAFETY: the caller detected the instruction set.
        unsafe { fold(low.xor(self.words[2]).xor(self.bytes), high.xor(self.words[3])) }
    }
}

/// Digests keys of `words` 64-bit words each. Returns the number of keys
/// digested: all but the last few, which do not fill a vector.
///
/// # Safety
/// As for [`Vector`]; `keys` must be readable and `out` writable for `count` keys.
#[inline(always)]
unsafe fn digest<V: Vector>(
    secret: &[u64; 4],
    keys: *const u64,
    words: usize,
    bytes: usize,
    count: usize,
    out: *mut u64,
) -> usize {
    // SAFETY: the caller detected the instruction set; every access is to one of the first
    // `whole` keys or digests.
    unsafe {
        let secret = Secret::<V>::new(secret, bytes);
        let [s0, s1, ..] = secret.words;
        let whole = count - count % V::LANES;
        for at in (0..whole).step_by(V::LANES) {
            let key = keys.add(at * words);
            let product = match words {
                1 => multiply(V::gather(key, 1).xor(s0), s1),
                2 => {
                    let [first, second] = V::pairs(key);
                    multiply(first.xor(s0), second.xor(s1))
                }
                _ => {
                    let word = |index: usize| V::gather(key.add(index), words);
                    let head = fold(word(0).xor(s0), word(1).xor(s1));
                    let (third, fourth) = (word(2).xor(s1).xor(head), word(3).xor(s0));
                    if bytes <= 32 {
                        multiply(third, fourth)
                    } else {
                        multiply(word(4).xor(s0).xor(fold(third, fourth)), s1)
                    }
                }
            };
            secret.finish(product).store(out.add(at));
        }
        whole
    }
}

/// Computes `fold(word ^ other, factor)` for each word (see [`crate::scalar::fold`]). Returns the
/// number of words folded: all but the last few, which do not fill a vector.
///
/// # Safety
/// As for [`Vector`]; `words` must be readable and `out` writable for `count` words.
#[inline(always)]
unsafe fn fold_each<V: Vector>(
    words: *const u64,
    other: u64,
    factor: u64,
    count: usize,
    out: *mut u64,
) -> usize {
    // SAFETY: the caller detected the instruction set; every access is to one of the first
    // `whole` words.
    unsafe {
        let (other, factor) = (V::splat(other), V::splat(factor));
        let whole = count - count % V::LANES;
        for at in (0..whole).step_by(V::LANES) {
            fold(V::gather(words.add(at), 1).xor(other), factor).store(out.add(at));
        }
        whole
    }
}
