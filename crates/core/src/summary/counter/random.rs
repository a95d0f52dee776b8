//! Random draws of a summary, whose state is part of it.

use fastrand::Rng;

use super::super::codec::{DecodeError, Reader, Writer};

/// One packet in so many is chosen: each with the same probability, whatever came before. What is
/// drawn is how many to pass over, so that packets which are not chosen cost nothing.
#[derive(Debug)]
pub(crate) struct Sampler {
    seed: u64,
    rng: Rng,
    /// The logarithm of the probability that a packet is not chosen.
    passed_over: f64,
    /// Packets to pass over before the next one is chosen.
    skip: u64,
}

impl Sampler {
    pub(crate) fn new(seed: u64, probability: f64) -> Self {
        let mut sampler = Self { seed, rng: Rng::with_seed(seed), passed_over: 0.0, skip: 0 };
        sampler.change(probability);
        sampler
    }

    /// Chooses with another probability from here on.
    pub(crate) fn change(&mut self, probability: f64) {
        self.passed_over = (-probability.min(1.0)).ln_1p();
        self.skip = self.draw();
    }

    /// Goes back to the first state.
    pub(crate) fn reset(&mut self) {
        self.rewind();
        self.skip = self.draw();
    }

    /// Draws from the beginning again, with the next [`Self::change`].
    pub(crate) fn rewind(&mut self) {
        self.rng = Rng::with_seed(self.seed);
    }

    /// A number of packets to pass over, geometrically distributed.
    fn draw(&mut self) -> u64 {
        if self.passed_over.is_infinite() {
            return 0;
        }
        // Strictly between 0 and 1, so that the logarithm is a number.
        let uniform = (self.rng.u64(..) >> 11) as f64 + 0.5;
        let log = (uniform / (1u64 << 53) as f64).ln();
        (log / self.passed_over) as u64
    }

    /// Passes over as many of `packets` as are to be; whether one of them is then chosen, which
    /// counts among those passed.
    #[inline(always)]
    pub(crate) fn choose(&mut self, packets: &mut u64) -> bool {
        if self.pass(*packets) {
            *packets = 0;
            return false;
        }
        *packets -= self.skip + 1;
        self.skip = self.draw();
        true
    }

    /// Passes over all of `packets`, unless one of them is to be chosen; whether it did.
    #[inline(always)]
    pub(crate) fn pass(&mut self, packets: u64) -> bool {
        let passed = self.skip >= packets;
        if passed {
            self.skip -= packets;
        }
        passed
    }

    /// Which of `slots` is chosen first, given that one of them is. The slots behind it are drawn as
    /// any others.
    pub(crate) fn first_of(&mut self, slots: u32) -> u32 {
        if self.passed_over.is_infinite() {
            return 0;
        }
        let any = -(f64::from(slots) * self.passed_over).exp_m1();
        let uniform = ((self.rng.u64(..) >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
        let first = (-uniform * any).ln_1p() / self.passed_over;
        (first as u32).min(slots - 1)
    }

    /// A number below `end`.
    #[inline(always)]
    pub(crate) fn below(&mut self, end: u32) -> u32 {
        ((u64::from(self.rng.u32(..)) * u64::from(end)) >> 32) as u32
    }

    pub(crate) fn save(&self, out: &mut Writer) {
        out.number(self.rng.get_seed());
        out.number(self.skip);
    }

    pub(crate) fn load(&mut self, from: &mut Reader<'_>) -> Result<(), DecodeError> {
        self.rng = Rng::with_seed(from.number("random state")?);
        self.skip = from.number("packets to pass over")?;
        Ok(())
    }
}
