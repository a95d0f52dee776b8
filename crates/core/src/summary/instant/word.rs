//! A word of a recyclable counter: the virtual vectors of all flows whose digests meet there.
//!
//! Paper: InstaMeasure (ICDCS 2019), §3.A. A flow owns one bit in each eighth of its word, by
//! digest; a packet sets one of the eight at random, whether it was set before or not. The vector
//! is saturated when two bits or fewer are clear.

use super::super::codec::Number;

/// Bits of a virtual vector.
pub(super) const VECTOR_BITS: u32 = 8;

/// Clear bits of a saturated vector, at most: 0.3 of the bits, rounded down.
pub(super) const SATURATED_ZEROS: u32 = 2;

/// The mean number of packets after which a vector that was clear has `zeros` clear bits: each
/// packet hits a clear bit with the share that they are, so that the waits are harmonic numbers.
pub(super) const fn decode(zeros: u32) -> f64 {
    let mut packets = 0.0;
    let mut clear = VECTOR_BITS;
    while clear > zeros {
        packets += VECTOR_BITS as f64 / clear as f64;
        clear -= 1;
    }
    packets
}

/// A word of 32 or 64 bits.
pub trait Word: Number + Send + 'static {
    /// Its number of bits, as the parameter `word` has it.
    const NAME: &'static str;
    /// Its number of bits.
    const BITS: u32;

    /// The eight bits of the flow with this digest, from the digest's upper bits.
    fn vector(digest: u64) -> Self;
    /// Sets the bit of `vector` that the lowest three bits of `random` say; returns whether the
    /// vector is now saturated.
    fn mark(&mut self, vector: Self, random: u64) -> bool;
    /// The bits of `vector` that are clear.
    #[must_use]
    fn missing(self, vector: Self) -> Self;
    /// How many bits are set.
    fn ones(self) -> u32;
    /// Clears the bits of `vector`, whoever set them, if it is `saturated`.
    fn erase(&mut self, vector: Self, saturated: bool);
}

/// Sixteen bits of a vector for each value of the `N` that the digest's bits can have: groups of
/// `2^offset_bits` bits with one bit set in each.
const fn half_words<const N: usize>(offset_bits: u32) -> [u16; N] {
    let mut table = [0; N];
    let mut value = 0;
    while value < N {
        let mut group = 0;
        while group < 16 >> offset_bits {
            let offset = (value as u32 >> (group * offset_bits)) & ((1 << offset_bits) - 1);
            table[value] |= 1 << ((group << offset_bits) + offset);
            group += 1;
        }
        value += 1;
    }
    table
}

macro_rules! word {
    ($word:ty, $name:literal, $offset_bits:literal, $values:literal) => {
        impl Word for $word {
            const NAME: &'static str = $name;
            const BITS: u32 = <$word>::BITS;

            #[inline(always)]
            fn vector(digest: u64) -> Self {
                const HALF_WORDS: [u16; $values] = half_words($offset_bits);
                const USED_BITS: u32 = HALF_WORDS.len().ilog2();
                let mut vector = 0;
                for half in 0..Self::BITS / 16 {
                    let value = digest >> (64 - (half + 1) * USED_BITS);
                    vector |= Self::from(HALF_WORDS[value as usize & ($values - 1)]) << (16 * half);
                }
                vector
            }

            #[inline(always)]
            fn mark(&mut self, vector: Self, random: u64) -> bool {
                const GROUP_BITS: u32 = <$word>::BITS / VECTOR_BITS;
                const GROUP: $word = (1 << GROUP_BITS) - 1;
                let number = random as u32 % VECTOR_BITS;
                *self |= vector & (GROUP << (number * GROUP_BITS));
                // Without its two lowest bits nothing is left: cheaper than to count them.
                let clear = vector & !*self;
                let clear = clear & clear.wrapping_sub(1);
                clear & clear.wrapping_sub(1) == 0
            }

            #[inline(always)]
            fn missing(self, vector: Self) -> Self {
                vector & !self
            }

            #[inline(always)]
            fn ones(self) -> u32 {
                self.count_ones()
            }

            #[inline(always)]
            fn erase(&mut self, vector: Self, saturated: bool) {
                // By a mask: it cannot be foreseen which packet saturates.
                *self &= !(vector & Self::from(saturated).wrapping_neg());
            }
        }
    };
}
word!(u32, "32", 2, 256);
word!(u64, "64", 3, 64);

#[cfg(test)]
mod tests {
    use super::*;

    fn vectors_have_a_bit_in_each_eighth<W: Word + Into<u64>>() {
        let mut random = fastrand::Rng::with_seed(1);
        let group_bits = W::BITS / VECTOR_BITS;
        let mut seen = 0;
        for _ in 0..4096 {
            let vector: u64 = W::vector(random.u64(..)).into();
            for group in 0..VECTOR_BITS {
                let bits = vector >> (group * group_bits) & ((1 << group_bits) - 1);
                assert_eq!(bits.count_ones(), 1);
            }
            seen |= vector;
        }
        assert_eq!(seen.count_ones(), W::BITS, "some bit is no flow's");
    }

    #[test]
    fn a_flow_has_one_bit_in_each_eighth_of_its_word() {
        vectors_have_a_bit_in_each_eighth::<u32>();
        vectors_have_a_bit_in_each_eighth::<u64>();
    }

    #[test]
    fn a_vector_saturates_with_its_sixth_bit() {
        let vector = u32::vector(0x0123_4567_89ab_cdef);
        let mut word = 0u32;
        for number in 0..8 {
            assert_eq!(word.missing(vector).ones(), 8 - number as u32);
            assert!(!word.mark(vector, number) || number >= 5);
        }
        assert_eq!(word, vector);
        word.erase(vector, false);
        assert_eq!(word, vector);
        word.erase(vector, true);
        assert_eq!(word, 0);
    }

    #[test]
    fn decoding_is_the_mean_wait_for_the_sixth_bit() {
        assert!((decode(SATURATED_ZEROS) - 9.742_857).abs() < 1e-6);
        assert!(decode(VECTOR_BITS).abs() < 1e-9);
    }
}
