//! The random numbers of the generator: xoshiro256++, seeded by `SplitMix64` (Blackman and Vigna).
//!
//! Equal configurations must give equal bytes on every machine and in every release.
//! General-purpose crates do not guarantee their values across versions.

/// Mixes all bits of a number, with the finalizer of `SplitMix64`.
#[inline]
pub(super) fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The purpose of random draws. Each purpose has its own stream, so that other packet sizes, for
/// example, do not change the order of flows.
#[derive(Clone, Copy)]
pub(super) enum Stream {
    Order = 1,
    Sizes,
    Flows,
    Plants,
}

impl Stream {
    /// The seed of this stream.
    pub(super) fn seed(self, seed: u64) -> u64 {
        mix(mix(seed) ^ self as u64)
    }
}

/// Scales `value`, a fraction of 2⁶⁴, to `0..below`; 0 if `below` is 0.
#[inline]
pub(super) fn scale(value: u64, below: u64) -> u64 {
    ((u128::from(value) * u128::from(below)) >> 64) as u64
}

/// A stream of random numbers.
#[derive(Clone, Debug)]
pub(super) struct Random([u64; 4]);

impl Random {
    pub(super) fn new(seed: u64, stream: Stream) -> Self {
        let start = stream.seed(seed);
        Self(std::array::from_fn(|i| {
            mix(start.wrapping_add((i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)))
        }))
    }

    /// 64 random bits.
    #[inline]
    pub(super) fn bits(&mut self) -> u64 {
        let [a, b, c, d] = &mut self.0;
        let bits = a.wrapping_add(*d).rotate_left(23).wrapping_add(*a);
        let shifted = *b << 17;
        *c ^= *a;
        *d ^= *b;
        *b ^= *c;
        *a ^= *d;
        *c ^= shifted;
        *d = d.rotate_left(45);
        bits
    }

    /// A multiple of 2⁻⁵³ in `0.0..1.0`.
    #[inline]
    pub(super) fn fraction(&mut self) -> f64 {
        const STEP: f64 = 1.0 / (1_u64 << 53) as f64;
        (self.bits() >> 11) as f64 * STEP
    }

    /// A number in `0..below`; the bias is under `below` ÷ 2⁶⁴.
    #[inline]
    pub(super) fn below(&mut self, below: u64) -> u64 {
        scale(self.bits(), below)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first outputs of the reference implementation for the state 1, 2, 3, 4.
    #[test]
    fn xoshiro_gives_the_reference_values() {
        let mut random = Random([1, 2, 3, 4]);
        let drawn: [u64; 4] = std::array::from_fn(|_| random.bits());
        assert_eq!(drawn, [41_943_041, 58_720_359, 3_588_806_011_781_223, 3_591_011_842_654_386]);
    }

    /// The first outputs of the reference `SplitMix64` for the seed 1234567.
    #[test]
    fn mix_gives_the_reference_values() {
        let start = 1_234_567_u64;
        assert_eq!(mix(start), 6_457_827_717_110_365_317);
        let second = start.wrapping_add(0x9e37_79b9_7f4a_7c15);
        assert_eq!(mix(second), 3_203_168_211_198_807_973);
    }

    #[test]
    fn streams_of_one_seed_differ() {
        let first = |stream| Random::new(7, stream).bits();
        assert_ne!(first(Stream::Order), first(Stream::Sizes));
    }
}
