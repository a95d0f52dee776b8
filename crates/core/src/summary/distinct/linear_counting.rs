//! Linear Counting: a bitmap in which every flow sets one bit.
//!
//! Paper: Whang, Vander-Zanden, Taylor, "A linear-time probabilistic counting algorithm for
//! database applications" (TODS 1990), §3 and §5. With the share V of bits that are zero, the
//! number of flows is −m ln V; a full bitmap can only say "at least".

use std::any::Any;

use flowgauge_kernel::{Digester, Zeroed, prefetch};

use super::super::codec::{DecodeError, Reader, Writer};
use super::super::{
    Answers, BuildError, Describe, Estimate, Incompatible, Info, Ingest, Laws, Merge, Options,
    Parameter, Setting,
};
use super::two_sigma;
use crate::batch::Batch;
use crate::key::FlowKey;

/// Words whose cache lines are asked for ahead of the one in hand.
const PREFETCH_AHEAD: usize = 32;

/// As large a bitmap as Agg-Evict has, unless asked otherwise or the memory is small.
const DEFAULT_BYTES: usize = 1 << 20;

/// Bits of a word.
const WORD: usize = 64;

/// A bitmap of `bits` bits.
///
/// Cost: one bit a packet. Memory in bytes: `bits ÷ 8`.
pub struct LinearCounting {
    digester: Digester,
    words: Zeroed<u64>,
    packets: u64,
}

impl Describe for LinearCounting {
    const INFO: Info = Info {
        name: "linear-counting",
        idea: "a bitmap in which every flow sets one bit; its zeros tell their number",
        paper: "Whang et al. (TODS 1990), sections 3 and 5",
        parameters: &[
            Parameter {
                name: "bits",
                help: "number of bits, a power of two from 64 (default: 8388608, or what fits into the \
                       memory)",
            },
            Parameter {
                name: "flows",
                help: "instead of bits: the most flows that are expected, for the error epsilon",
            },
            Parameter {
                name: "epsilon",
                help: "standard error at that many flows, as a share (default: 0.01)",
            },
        ],
        memory: "bits / 8",
        laws: Laws { commutable: true, aggregatable: true, merge: Merge::Equal },
    };

    fn build<K: FlowKey>(options: &Options) -> Result<Box<dyn Ingest<K>>, BuildError> {
        let parameters = &options.parameters;
        parameters.exclusive("bits", &["flows", "epsilon"])?;
        let epsilon = parameters.fraction("epsilon")?;
        let bits = match (parameters.integer("flows", 1..=1 << 40)?, epsilon) {
            (Some(flows), _) => bits_for(flows, epsilon.unwrap_or(0.01)),
            (None, Some(epsilon)) => {
                return Err(BuildError::OutOfRange {
                    name: "epsilon",
                    value: epsilon.to_string(),
                    range:
                        "enough alone: the bits for an error depend on the flows, so give flows \
                            too"
                        .to_owned(),
                });
            }
            (None, None) => {
                WORD * parameters.words(
                    "bits",
                    WORD,
                    options.memory_bytes.min(DEFAULT_BYTES),
                    size_of::<u64>(),
                )?
            }
        };
        let words = options.memory.zeroed(bits / WORD)?;
        Ok(Box::new(Self { digester: options.digester, words, packets: 0 }))
    }
}

/// The standard error of the number of flows, as a share of it, at `load` flows a bit (§5.1).
fn standard_error(bits: f64, load: f64) -> f64 {
    // Of one flow among many bits the difference below is lost in rounding, and next to nothing.
    let excess = (load.exp() - load - 1.0).max(0.0);
    excess.sqrt() / (bits.sqrt() * load)
}

/// The smallest bitmap that counts `flows` flows with this standard error.
fn bits_for(flows: u64, epsilon: f64) -> usize {
    let enough = |bits: usize| standard_error(bits as f64, flows as f64 / bits as f64) <= epsilon;
    let mut bits = WORD;
    while bits < 1 << 40 && !enough(bits) {
        bits *= 2;
    }
    bits
}

impl LinearCounting {
    fn set_bits(&self) -> u64 {
        self.words.iter().map(|word| u64::from(word.count_ones())).sum()
    }

    fn estimate(&self) -> Estimate {
        let (bits, set) = (self.words.len() * WORD, self.set_bits());
        let full = set == bits as u64;
        let (bits, set, most) = (bits as f64, set as f64, self.packets as f64);
        if full {
            // The last bit is set by the flow number m ln m, or so; there may be any number more.
            let at_least = (bits * bits.ln()).min(most);
            return Estimate { value: at_least, low: set.min(most), high: most, confidence: None };
        }
        let value = -bits * ((bits - set) / bits).ln();
        let sigma = if value <= 0.0 { 0.0 } else { value * standard_error(bits, value / bits) };
        two_sigma(value, sigma, set, most)
    }
}

impl<K: FlowKey> Ingest<K> for LinearCounting {
    fn ingest(&mut self, batch: &mut Batch<K>) {
        batch.digest(&self.digester);
        let digests = batch.digests();
        let words = &mut *self.words;
        let mask = words.len() - 1;
        for (i, &digest) in digests.iter().enumerate() {
            if let Some(&ahead) = digests.get(i + PREFETCH_AHEAD) {
                prefetch(words, (ahead >> 6) as usize & mask);
            }
            words[(digest >> 6) as usize & mask] |= 1 << (digest % 64);
        }
        let packets = batch.packets().iter().map(|&packets| u64::from(packets)).sum::<u64>();
        self.packets = self.packets.saturating_add(packets);
    }

    fn answers(&self) -> &dyn Answers {
        self
    }

    fn merge(&mut self, other: &dyn Ingest<K>) -> Result<(), Incompatible> {
        let other = other.as_any().downcast_ref::<Self>().ok_or(Incompatible("types differ"))?;
        if other.digester.seed() != self.digester.seed() {
            return Err(Incompatible("seeds differ"));
        }
        if other.words.len() != self.words.len() {
            return Err(Incompatible("sizes differ"));
        }
        for (word, other) in self.words.iter_mut().zip(other.words.iter()) {
            *word |= other;
        }
        self.packets = self.packets.saturating_add(other.packets);
        Ok(())
    }

    fn save(&self, out: &mut Writer) {
        out.number(self.packets);
        out.numbers(&self.words);
    }

    fn load(&mut self, from: &mut Reader<'_>) -> Result<(), DecodeError> {
        self.packets = from.number("packets")?;
        from.numbers("bitmap", &mut self.words)
    }

    fn clear(&mut self) {
        self.words.fill(0);
        self.packets = 0;
    }

    fn parameters(&self) -> Vec<(&'static str, Setting)> {
        vec![("bits", Setting::Integer((self.words.len() * WORD) as u64))]
    }

    fn memory_bytes(&self) -> usize {
        self.words.memory_bytes()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Answers for LinearCounting {
    fn cardinality(&self) -> Option<Estimate> {
        Some(self.estimate())
    }
}
