//! A regulator with virtual vectors of any number of bits, in one layer or two. The engine's has
//! vectors of eight bits; this one follows the paper's rules without regard for speed.

/// Shared words in which each flow has a vector of `bits` bits.
struct Layer {
    words: Vec<u64>,
    bits: u32,
    saturated: u32,
}

/// Tenths of the bits that are clear in a saturated vector, by the paper's rules.
pub(super) const TENTHS: u32 = 3;

/// The number of clear bits at which a vector of `bits` bits is saturated.
fn saturated(bits: u32, tenths: u32) -> u32 {
    tenths * bits / 10
}

/// Mean number of marks that saturate a vector of `bits` bits.
pub(super) fn wait(bits: u32) -> f64 {
    (saturated(bits, TENTHS) + 1..=bits).map(|clear| f64::from(bits) / f64::from(clear)).sum()
}

/// The linear counting estimate for a saturated vector of `bits` bits.
pub(super) fn linear(bits: u32) -> f64 {
    let clear = f64::from(saturated(bits, TENTHS)) / f64::from(bits);
    -f64::from(bits) * clear.ln()
}

impl Layer {
    fn new(bytes: usize, bits: u32, tenths: u32) -> Self {
        Self { words: vec![0; (bytes / 8).max(1)], bits, saturated: saturated(bits, tenths) }
    }

    /// Marks a random bit of a flow's vector, which has one bit in each of `bits` parts of a word.
    /// If that saturates it, clears the vector and returns the number of clear bits.
    fn mark(&mut self, digest: u64, random: &mut fastrand::Rng) -> Option<u32> {
        let place = (digest as u32 as usize) % self.words.len();
        let part = u64::BITS / self.bits;
        let mut offsets = digest.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut vector = [0; u64::BITS as usize];
        let vector = &mut vector[..self.bits as usize];
        for (at, bit) in (0..).zip(&mut *vector) {
            *bit = 1 << (at * part + (offsets >> 32) as u32 % part);
            offsets = offsets.wrapping_mul(0xd134_2543_de82_ef95).wrapping_add(1);
        }
        let word = &mut self.words[place];
        *word |= vector[random.usize(0..vector.len())];
        let all = vector.iter().fold(0, |all, bit| all | bit);
        let clear = self.bits - (*word & all).count_ones();
        let full = clear <= self.saturated;
        if full {
            *word &= !all;
        }
        full.then_some(clear)
    }
}

/// RCC with one layer, or a flow regulator with two.
pub(super) struct Vectors {
    first: Layer,
    /// One layer per number of clear bits at saturation; empty for RCC.
    second: Vec<Layer>,
    random: fastrand::Rng,
}

impl Vectors {
    /// A structure of `bytes` in all, with vectors of `bits` bits in each layer.
    pub(super) fn new(bytes: usize, bits: u32, layers: usize, seed: u64) -> Self {
        let levels = if layers == 1 { 0 } else { saturated(bits, TENTHS) as usize + 1 };
        let layer = || Layer::new(bytes / (1 + levels), bits, TENTHS);
        let second = (0..levels).map(|_| layer()).collect();
        Self { first: layer(), second, random: fastrand::Rng::with_seed(seed) }
    }

    /// One layer with vectors that are saturated with this many tenths of the bits clear.
    pub(super) fn saturated_at(tenths: u32, bytes: usize, bits: u32, seed: u64) -> Self {
        let first = Layer::new(bytes, bits, tenths);
        Self { first, second: Vec::new(), random: fastrand::Rng::with_seed(seed) }
    }

    /// Whether a packet passes.
    pub(super) fn takes(&mut self, digest: u64) -> bool {
        let Some(clear) = self.first.mark(digest, &mut self.random) else { return false };
        match self.second.get_mut(clear as usize) {
            Some(layer) => layer.mark(digest, &mut self.random).is_some(),
            None => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The paper's numbers: 9.7 packets for eight bits, 77 for 64.
    #[test]
    fn a_flow_alone_waits_as_long_as_theory_says() {
        assert!((wait(8) - 9.743).abs() < 1e-3 && (wait(64) - 76.6).abs() < 0.1);
        for (bits, layers) in [(4, 1), (8, 1), (8, 2), (64, 1)] {
            let mut vectors = Vectors::new(1 << 10, bits, layers, 1);
            let packets = 400_000;
            let through = (0..packets).filter(|_| vectors.takes(0x1234_5678_9abc_def0)).count();
            let expected = f64::from(packets) / wait(bits).powf(layers as f64);
            let ratio = through as f64 / expected;
            assert!((0.95..1.05).contains(&ratio), "{bits} bits, {layers} layers: {ratio}");
        }
    }
}
