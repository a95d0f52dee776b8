//! RCC and FlowRegulator: which packets reach a flow table, and what each of them stands for.
//!
//! Paper: InstaMeasure (ICDCS 2019), §3.A and algorithm 1. With one layer this is the recyclable
//! counter (RCC): a packet sets a random bit of its flow's virtual vector; the packet that
//! saturates the vector is let through, stands for 9.743 packets, and all eight bits are cleared,
//! other flows' marks included. With two layers it is the FlowRegulator: what saturates the first
//! layer sets a bit of the same vector in an array of the second, one array for each number of
//! clear bits at saturation (the noise level) or one for all; what saturates that stands for 94.9
//! packets.

use flowgauge_kernel::{Zeroed, prefetch};

use super::super::codec::{DecodeError, Reader, Writer};
use super::super::remix::remix;
use super::super::{BuildError, BuildErrorKind, Options, Parameter, Setting};
use super::word::{SATURATED_ZEROS, VECTOR_BITS, Word, decode};
use crate::batch::BATCH_PACKETS;

/// Bytes of the arrays, unless asked otherwise or the memory is small.
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

/// Bytes of all arrays that these options ask for.
///
/// # Errors
/// When it is no power of two, or too few.
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

/// Lets about one packet in `UNIT` of each flow through, for `LAYERS` of 1 (RCC) or 2
/// (FlowRegulator).
///
/// Cost: one word a packet, a second one for one packet in ten, one random number. Memory in
/// bytes: `words × size_of::<W>() × (1 + levels)`, with no levels for one layer.
pub struct Regulator<W, const LAYERS: usize> {
    seed: u64,
    random: fastrand::Rng,
    first: Zeroed<W>,
    /// The arrays of the second layer, one after the other.
    second: Zeroed<W>,
    levels: usize,
    /// Whether the marks that a flow left behind tell a part of its size.
    reads_marks: bool,
}

impl<W: Word, const LAYERS: usize> Regulator<W, LAYERS> {
    /// Packets that each one which is let through stands for, in the mean.
    pub const UNIT: f64 = Self::WAIT * if LAYERS == 1 { 1.0 } else { Self::WAIT };

    /// The variance of that number for a flow that is alone in its words, over `UNIT` squared: of
    /// the waits for the sixth bit, and of the sums of such waits.
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

    /// Marks that saturate one vector, in the mean.
    const WAIT: f64 = decode(SATURATED_ZEROS);

    /// A regulator of the arrays that its parameters ask for: one, and 1 or 3 of the second layer
    /// where there is one.
    ///
    /// # Errors
    /// When a parameter is out of range, or the memory does not suffice.
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

    /// Takes packets by their flows' digests, one of each or `packets[i]` of flow `i`, and calls
    /// `emit` with `i` for each that is let through.
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
                    if self.goes_on(digest, missing, draw >> 32) {
                        emit(i);
                    }
                }
            }
        }
    }

    /// The same for at most a batch of flows with a packet each. One word in ten saturates, which
    /// cannot be foreseen: so what saturates is noted without a branch, and goes on afterwards.
    #[inline(always)]
    fn regulate_singles(&mut self, digests: &[u64], mut emit: impl FnMut(usize)) {
        let first = &mut *self.first;
        let mask = first.len() - 1;
        let mut notes = [(0, W::zeroed(), 0); BATCH_PACKETS];
        let mut noted = 0;
        // A copy in registers: in memory each packet would wait for the store of the one before.
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
            if self.goes_on(digests[i as usize], missing, draw.into()) {
                emit(i as usize);
            }
        }
    }

    /// Whether a packet that saturated its word in the first layer is let through, `missing` being
    /// the bits that were clear; of the draw come those bits that the first layer did not use.
    #[inline(always)]
    fn goes_on(&mut self, digest: u64, missing: W, draw: u64) -> bool {
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

    /// Packets that the flow with this digest has left behind, if all marks were its own: added to
    /// what was let through, this decodes at any packet and not only at saturation.
    pub fn residual(&self, digest: u64) -> f64 {
        let (vector, words) = (W::vector(digest), self.first.len());
        let place = digest as usize & (words - 1);
        let marks = |word: W| decode(word.missing(vector).ones());
        let second = self.second.chunks_exact(words).map(|words| marks(words[place]));
        marks(self.first[place]) + Self::WAIT * second.sum::<f64>()
    }

    /// The same as sizes are read: nothing where they are decoded at saturation only.
    pub(super) fn behind(&self, digest: u64) -> f64 {
        if self.reads_marks { self.residual(digest) } else { 0.0 }
    }

    /// Bytes of all arrays.
    pub fn memory_bytes(&self) -> usize {
        self.first.memory_bytes() + self.second.memory_bytes()
    }

    /// The parameters in force.
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
        // Older snapshots do not name the default.
        if !self.reads_marks {
            settings.push((DECODE.name, Setting::Word(SATURATION)));
        }
        settings
    }

    /// Share of all packets' marks that fall on any one vector of the first layer.
    pub(super) fn vector_share(&self) -> f64 {
        f64::from(VECTOR_BITS) / (self.first.len() as f64 * f64::from(W::BITS))
    }

    /// Forgets all marks and begins the random numbers anew.
    pub fn clear(&mut self) {
        self.random = fastrand::Rng::with_seed(self.seed);
        self.first.fill(W::zeroed());
        self.second.fill(W::zeroed());
    }

    /// Writes the marks, and where the random numbers stand.
    pub fn save(&self, out: &mut Writer) {
        out.number(self.random.get_seed());
        out.numbers(&self.first);
        out.numbers(&self.second);
    }

    /// Takes over what [`Self::save`] wrote.
    ///
    /// # Errors
    /// When the bytes end.
    pub fn load(&mut self, from: &mut Reader<'_>) -> Result<(), DecodeError> {
        self.random = fastrand::Rng::with_seed(from.number("random state")?);
        from.numbers("first layer", &mut self.first)?;
        from.numbers("second layer", &mut self.second)
    }
}
