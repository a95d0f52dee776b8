//! RCC and FlowRegulator, which forward few packets of each flow to a flow table.
//!
//! Paper: InstaMeasure (ICDCS 2019), §3.A and algorithm 1. A flow has eight bits of a word, its
//! virtual vector, which other flows may use too. With one layer this is the recyclable counter
//! (RCC): a packet sets a random bit of its vector; the packet that saturates the vector is
//! forwarded and represents 9.743 packets, and all eight bits are cleared, marks of other flows
//! included. With two layers it is the FlowRegulator: a packet that saturates the first layer sets
//! a bit of the same vector in the second layer, which has one array for each number of clear bits
//! at saturation (the noise level) or one for all. A packet that saturates the second layer is
//! forwarded and represents 94.9 packets.

use flowgauge_kernel::{Zeroed, prefetch};

use crate::batch::BATCH_PACKETS;
use crate::summary::codec::{DecodeError, Number, Reader, Writer};
use crate::summary::remix::remix;
use crate::summary::{BuildError, BuildErrorKind, Options, Parameter, Setting};

/// Default size of all arrays in bytes, if the memory allows.
const SKETCH_BYTES: usize = 128 << 10;

/// The smallest arrays: four of two words of 64 bits.
const LEAST_SKETCH_BYTES: usize = 64;

pub(crate) const SKETCH: Parameter = Parameter {
    name: "sketch",
    help: "bytes of all counter arrays, a power of two \
           (default: 131072, or what a quarter of the memory holds)",
};
pub(crate) const WORD: Parameter =
    Parameter { name: "word", help: "bits in a word of the arrays, 32 or 64 (default: 32)" };
pub(crate) const LEVELS: Parameter = Parameter {
    name: "levels",
    help: "arrays of the second layer: 3, one for each noise level, or 1 (default: 3)",
};

pub(crate) const DECODE: Parameter = Parameter {
    name: "decode",
    help: "how to estimate a flow's size: marks (the default), from packets passed on and the \
           marks left behind; or saturation, as in the paper, only from packets passed on",
};

const MARKS: &str = "marks";
const SATURATION: &str = "saturation";

/// The size of all arrays in bytes.
///
/// # Errors
/// If it is not a power of two, or too small.
pub(crate) fn sketch_bytes(options: &Options) -> Result<usize, BuildError> {
    let default = SKETCH_BYTES.min(options.memory_bytes / 4);
    let bytes = options.parameters.power_of_two("sketch", default, 1)?;
    let refused = || {
        BuildErrorKind::OutOfRange {
            name: "sketch",
            value: bytes.to_string(),
            range: format!("a power of two from {LEAST_SKETCH_BYTES}"),
        }
        .into()
    };
    (bytes >= LEAST_SKETCH_BYTES).then_some(bytes).ok_or_else(refused)
}

/// Forwards about one packet in `UNIT` of each flow. `LAYERS` is 1 (RCC) or 2 (FlowRegulator).
///
/// Cost per packet: one word and one random number, and a second word for one packet in ten. Memory
/// in bytes: `words × size_of::<W>() × (1 + levels)`, with no levels for one layer.
///
/// ```
/// use flowgauge_core::summary::Options;
/// use flowgauge_core::summary::instant::Regulator;
///
/// let mut regulator = Regulator::<u32, 1>::from_options(&Options::new(1 << 20, 1)).unwrap();
/// let mut forwarded = 0;
/// regulator.regulate(&[7; 1000], None, &mut |_| forwarded += 1);
/// let packets = f64::from(forwarded) * Regulator::<u32, 1>::UNIT + regulator.residual(7);
/// assert!((packets - 1000.0).abs() < 100.0);
/// ```
pub struct Regulator<W, const LAYERS: usize> {
    seed: u64,
    random: fastrand::Rng,
    first: Zeroed<W>,
    /// The arrays of the second layer, concatenated.
    second: Zeroed<W>,
    levels: usize,
    /// Whether the residual marks of a flow count towards its size.
    reads_marks: bool,
}

impl<W: Word, const LAYERS: usize> Regulator<W, LAYERS> {
    /// Mean number of packets represented by each forwarded packet.
    pub const UNIT: f64 = Self::WAIT * if LAYERS == 1 { 1.0 } else { Self::WAIT };

    /// Variance of that number for a flow that is alone in its words, divided by `UNIT` squared:
    /// the variance of the wait for the sixth bit and, with two layers, of a sum of such waits.
    pub(crate) const VARIANCE: f64 = {
        let mut waits = 0.0;
        let mut clear = VECTOR_BITS;
        while clear > SATURATED_ZEROS {
            let hit = clear as f64 / VECTOR_BITS as f64;
            waits += (1.0 - hit) / (hit * hit);
            clear -= 1;
        }
        let relative = waits / (Self::WAIT * Self::WAIT);
        if LAYERS == 1 { relative } else { relative / Self::WAIT + relative }
    };

    /// Mean number of marks that saturate a vector.
    const WAIT: f64 = decode(SATURATED_ZEROS);

    /// Builds a regulator from its parameters. A second layer has 1 or 3 arrays.
    ///
    /// # Errors
    /// If a parameter is out of range, or the memory does not suffice.
    pub fn from_options(options: &Options) -> Result<Self, BuildError> {
        let levels = match options.parameters.word("levels", &["3", "1"])? {
            _ if LAYERS == 1 => 0,
            "1" => 1,
            _ => 3,
        };
        let words = sketch_bytes(options)? / (1 + levels) / size_of::<W>();
        let seed = remix(options.digester.seed().draws(), 0);
        Ok(Self {
            seed,
            random: fastrand::Rng::with_seed(seed),
            first: options.memory.zeroed(words)?,
            second: options.memory.zeroed(words * levels)?,
            levels,
            reads_marks: options.parameters.word(DECODE.name, &[MARKS, SATURATION])? == MARKS,
        })
    }

    /// Marks the packets of the flows with these digests, one packet each or `packets[i]` of flow
    /// `i`, and calls `emit` with `i` for each forwarded packet.
    #[inline(never)]
    pub fn regulate(
        &mut self,
        digests: &[u64],
        packets: Option<&[u32]>,
        emit: &mut dyn FnMut(usize),
    ) {
        let mask = self.first.len() - 1;
        for &digest in digests {
            prefetch(&self.first, digest as usize & mask);
        }
        let Some(packets) = packets else {
            for (chunk, digests) in digests.chunks(BATCH_PACKETS).enumerate() {
                self.regulate_singles(digests, |i| emit(BATCH_PACKETS * chunk + i));
            }
            return;
        };
        for (i, (&digest, &packets)) in digests.iter().zip(packets).enumerate() {
            let vector = W::vector(digest);
            for _ in 0..packets {
                let draw = self.random.u64(..);
                let word = &mut self.first[digest as usize & mask];
                if word.mark(vector, draw) {
                    let missing = word.missing(vector);
                    word.erase(vector, true);
                    if self.forwards(digest, missing, draw >> 32) {
                        emit(i);
                    }
                }
            }
        }
    }

    /// The same for at most a batch of flows with one packet each. One word in ten saturates, which
    /// is unpredictable: saturated rows are noted without a branch and reach the second layer
    /// afterwards.
    #[inline(always)]
    fn regulate_singles(&mut self, digests: &[u64], mut emit: impl FnMut(usize)) {
        let first = &mut *self.first;
        let mask = first.len() - 1;
        let mut notes = [(0, W::zeroed(), 0); BATCH_PACKETS];
        let mut noted = 0;
        // A local copy stays in registers; in memory each draw would wait for the previous store.
        let mut random = self.random.clone();
        for (i, &digest) in digests.iter().enumerate() {
            let (vector, draw) = (W::vector(digest), random.u64(..));
            let word = &mut first[digest as usize & mask];
            let saturated = word.mark(vector, draw);
            notes[noted % BATCH_PACKETS] = (i as u32, word.missing(vector), (draw >> 32) as u32);
            word.erase(vector, saturated);
            noted += usize::from(saturated);
        }
        self.random = random;
        for &(i, missing, draw) in &notes[..noted] {
            if self.forwards(digests[i as usize], missing, draw.into()) {
                emit(i as usize);
            }
        }
    }

    /// Whether to forward a packet that saturated its vector in the first layer, with the bits
    /// `missing` clear. `draw` holds random bits that the first layer did not use.
    #[inline(always)]
    fn forwards(&mut self, digest: u64, missing: W, draw: u64) -> bool {
        if LAYERS == 1 {
            return true;
        }
        let words = self.first.len();
        let level = (missing.ones() as usize).min(self.levels - 1);
        let word = &mut self.second[level * words + (digest as usize & (words - 1))];
        let vector = W::vector(digest);
        let saturated = word.mark(vector, draw);
        word.erase(vector, saturated);
        saturated
    }

    /// Packets that the residual marks of a flow represent if all marks are its own. With the
    /// forwarded packets this gives the size of a flow after any packet, not only at saturation.
    pub fn residual(&self, digest: u64) -> f64 {
        let (vector, words) = (W::vector(digest), self.first.len());
        let place = digest as usize & (words - 1);
        let marks = |word: W| decode(word.missing(vector).ones());
        let second = self.second.chunks_exact(words).map(|words| marks(words[place]));
        marks(self.first[place]) + Self::WAIT * second.sum::<f64>()
    }

    /// The part of the residual that counts towards sizes: none with `decode=saturation`.
    pub(super) fn counted_residual(&self, digest: u64) -> f64 {
        if self.reads_marks { self.residual(digest) } else { 0.0 }
    }

    /// The size of all arrays in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.first.memory_bytes() + self.second.memory_bytes()
    }

    /// The parameters in use.
    pub(crate) fn settings(&self) -> Vec<(&'static str, Setting)> {
        let mut settings = vec![
            ("sketch", Setting::Integer(self.memory_bytes() as u64)),
            ("word", Setting::Word(W::NAME)),
        ];
        match self.levels {
            0 => {}
            1 => settings.push(("levels", Setting::Word("1"))),
            _ => settings.push(("levels", Setting::Word("3"))),
        }
        // Older snapshots lack this parameter, so the default is not named.
        if !self.reads_marks {
            settings.push((DECODE.name, Setting::Word(SATURATION)));
        }
        settings
    }

    /// Fraction of all marks in the first layer that fall on a given vector.
    pub(super) fn vector_fraction(&self) -> f64 {
        f64::from(VECTOR_BITS) / (self.first.len() as f64 * f64::from(W::BITS))
    }

    /// Clears all marks and restarts the random numbers.
    pub fn clear(&mut self) {
        self.random = fastrand::Rng::with_seed(self.seed);
        self.first.fill(W::zeroed());
        self.second.fill(W::zeroed());
    }

    /// Writes the marks and the random state.
    pub fn save(&self, out: &mut Writer) {
        out.number(self.random.get_seed());
        out.numbers(&self.first);
        out.numbers(&self.second);
    }

    /// Reads the form that [`Self::save`] wrote.
    ///
    /// # Errors
    /// If the bytes end early.
    pub fn load(&mut self, from: &mut Reader<'_>) -> Result<(), DecodeError> {
        self.random = fastrand::Rng::with_seed(from.number("random state")?);
        from.numbers("first layer", &mut self.first)?;
        from.numbers("second layer", &mut self.second)
    }
}

/// Bits of a virtual vector.
const VECTOR_BITS: u32 = 8;

/// Maximum number of clear bits of a saturated vector: 0.3 of its bits, rounded down.
const SATURATED_ZEROS: u32 = 2;

/// The mean number of packets after which a clear vector has `zeros` clear bits. A packet hits a
/// clear bit with probability `clear / VECTOR_BITS`, so the waits are those of a coupon collector.
const fn decode(zeros: u32) -> f64 {
    let mut packets = 0.0;
    let mut clear = VECTOR_BITS;
    while clear > zeros {
        packets += VECTOR_BITS as f64 / clear as f64;
        clear -= 1;
    }
    packets
}

/// A word of 32 or 64 bits that holds virtual vectors.
///
/// A flow owns one bit in each eighth of its word, selected by its digest. A packet sets one of the
/// eight at random. The vector is saturated when at most two of its bits are clear.
pub trait Word: Number + Send + 'static {
    /// The number of bits as a value of the parameter `word`.
    const NAME: &'static str;
    /// The number of bits.
    const BITS: u32;

    /// The vector of a flow, from the upper bits of its digest.
    fn vector(digest: u64) -> Self;
    /// Sets the bit of `vector` that the lowest three bits of `random` select; returns whether the
    /// vector is saturated now.
    fn mark(&mut self, vector: Self, random: u64) -> bool;
    /// The clear bits of `vector`.
    #[must_use]
    fn missing(self, vector: Self) -> Self;
    /// The number of bits set.
    fn ones(self) -> u32;
    /// Clears all bits of `vector` if it is `saturated`.
    fn erase(&mut self, vector: Self, saturated: bool);
}

/// A table of 16-bit parts of vectors: for each of the `N` values of some bits of a digest, groups
/// of `2^offset_bits` bits with one bit set in each.
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
                // Saturated if removing the two lowest clear bits leaves none: cheaper than
                // counting.
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
                // A mask instead of a branch: saturation is unpredictable.
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
        assert_eq!(seen.count_ones(), W::BITS, "no flow uses some bit");
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
