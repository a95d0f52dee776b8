//! More words from a digest, for structures that need more than its 64 bits.

use flowgauge_kernel::Digester;

/// The `SplitMix64` sequence from 0.
const fn odd(n: u64) -> u64 {
    let mut z = (n + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (z ^ (z >> 31)) | 1
}

/// The word number `n` of a digest: as good as a digest with another seed, for one folded multiply.
/// Keys with equal digests have all words in common.
#[inline(always)]
pub(crate) const fn remix(digest: u64, n: u64) -> u64 {
    let product = (digest ^ odd(2 * n)) as u128 * odd(2 * n + 1) as u128;
    (product >> 64) as u64 ^ product as u64
}

/// The word number `n` of each digest.
#[inline]
pub(crate) fn remix_batch(digester: &Digester, digests: &[u64], n: u64, out: &mut [u64]) {
    digester.fold_batch(digests, odd(2 * n), odd(2 * n + 1), out);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Over 4,096 random digests each pair of bits of two words agrees half the time. A run exceeds
    /// 8 standard errors once in 10¹².
    #[test]
    fn words_of_a_digest_are_independent() {
        let mut random = fastrand::Rng::with_seed(1);
        let digests: Vec<u64> = (0..4096).map(|_| random.u64(..)).collect();
        for (a, b) in [(0, 1), (0, 2), (1, 2), (1, 7)] {
            for turn in 0..64 {
                let agree: u32 = digests
                    .iter()
                    .map(|&d| (!(remix(d, a) ^ remix(d, b).rotate_left(turn))).count_ones())
                    .sum();
                let mean = f64::from(agree) / 64.0 / 4096.0;
                assert!(
                    (mean - 0.5).abs() < 8.0 * 0.5 / f64::sqrt(64.0 * 4096.0),
                    "{a} {b} {turn}"
                );
            }
        }
    }
}
