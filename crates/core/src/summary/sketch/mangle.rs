//! Mangling: an invertible map that makes any keys look like random ones.
//!
//! Paper: Schweller et al., "Reversible sketches" (ToN 2007), on IP mangling. Modular hashing hashes
//! the words of a key apart, so that keys with words in common, such as the addresses of one
//! network, would crowd into few columns.

use fastrand::Rng;

use crate::key::FlowKey;

const ROUNDS: usize = 3;

/// A seeded permutation of the numbers of 32 or 64 bits that keys of 4 or 8 bytes are.
///
/// Each round adds a secret by exclusive or, multiplies by a secret odd number, which carries every
/// bit to the higher half, and folds that half onto the lower one. Cost: three multiplies.
pub(super) struct Mangle {
    half_bits: u32,
    mask: u64,
    add: [u64; ROUNDS],
    multiply: [u64; ROUNDS],
    /// What undoes the multiplications.
    divide: [u64; ROUNDS],
}

/// The number that a key of at most 8 bytes is.
#[inline(always)]
pub(super) fn number<K: FlowKey>(key: &K) -> u64 {
    let mut bytes = [0; 8];
    let width = K::BYTES.min(8);
    bytes[..width].copy_from_slice(key.canonical(width));
    u64::from_le_bytes(bytes)
}

impl Mangle {
    /// A permutation of the numbers of `bits` bits, 32 or 64.
    pub(super) fn new(bits: u32, random: &mut Rng) -> Self {
        let mask = u64::MAX >> (64 - bits);
        let add = std::array::from_fn(|_| random.u64(..) & mask);
        let multiply: [u64; ROUNDS] = std::array::from_fn(|_| (random.u64(..) & mask) | 1);
        let divide = multiply.map(inverse);
        Self { half_bits: bits / 2, mask, add, multiply, divide }
    }

    /// The mangled number.
    #[inline(always)]
    pub(super) fn apply(&self, mut number: u64) -> u64 {
        for round in 0..ROUNDS {
            number = (number ^ self.add[round]).wrapping_mul(self.multiply[round]) & self.mask;
            number ^= number >> self.half_bits;
        }
        number
    }

    /// The number that was mangled.
    pub(super) fn undo(&self, mut number: u64) -> u64 {
        for round in (0..ROUNDS).rev() {
            number ^= number >> self.half_bits;
            number = (number.wrapping_mul(self.divide[round]) & self.mask) ^ self.add[round];
        }
        number
    }
}

/// The inverse of an odd number modulo 2⁶⁴, by Newton's iteration: each step doubles the bits that
/// are right, of which an odd number has three to begin with.
fn inverse(odd: u64) -> u64 {
    (0..5).fold(odd, |x, _| x.wrapping_mul(2u64.wrapping_sub(odd.wrapping_mul(x))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn undo_is_the_inverse() {
        let mut random = Rng::with_seed(1);
        for bits in [32, 64] {
            let mangle = Mangle::new(bits, &mut random);
            for number in [0, 1, mangle.mask].into_iter().chain((0..1000).map(|n| n << 20)) {
                let number = number & mangle.mask;
                let mangled = mangle.apply(number);
                assert!(mangled <= mangle.mask);
                assert_eq!(mangle.undo(mangled), number);
            }
        }
    }

    /// Of the 4096 addresses of a network, each byte of the mangled numbers takes every value about
    /// 16 times: chi-square of 255 degrees of freedom, over 400 once in 10⁸ times for random ones.
    #[test]
    fn keys_of_one_network_spread_over_every_byte() {
        for (seed, bits) in (0..32).flat_map(|seed| [(seed, 32), (seed, 64)]) {
            let mangle = Mangle::new(bits, &mut Rng::with_seed(seed));
            for step in [1, 1 << 8, 1 << 20] {
                for byte in 0..bits / 8 {
                    let mut counts = [0f64; 256];
                    for n in 0..4096u64 {
                        counts[(mangle.apply(n * step) >> (8 * byte)) as usize & 0xff] += 1.0;
                    }
                    let chi: f64 = counts.iter().map(|count| (count - 16.0).powi(2) / 16.0).sum();
                    assert!(
                        chi < 400.0,
                        "seed {seed}, {bits} bits, step {step}, byte {byte}: {chi}"
                    );
                }
            }
        }
    }
}
