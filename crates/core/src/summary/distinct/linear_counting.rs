//! Linear counting: a bitmap in which every flow sets one bit.
//!
//! Paper: Whang, Vander-Zanden, Taylor, "A linear-time probabilistic counting algorithm for
//! database applications" (TODS 1990), §3 and §5. If a fraction V of the m bits is zero, the number
//! of flows is −m ln V. A full bitmap gives only a lower bound.

use flowgauge_kernel::prefetch;

use super::{Bitmaps, Marks, counted_linearly, counting_error};
use crate::key::FlowKey;
use crate::summary::describe::form;
use crate::summary::{
    BuildError, BuildErrorKind, CACHED_BYTES, Describe, Estimate, Info, Laws, Merge, Options,
    Parameter, Summary,
};

/// Packets between the prefetch of a word and its use.
const PREFETCH_AHEAD: usize = 32;

/// Default size of the bitmap if the memory allows: that of Agg-Evict.
const DEFAULT_BYTES: usize = 1 << 20;

/// Bits in a word.
const WORD: usize = 64;

/// A bitmap of `bits` bits, in the catalog as `linear-counting`.
///
/// Cost per packet: one bit. Memory in bytes: `bits / 8`.
///
/// ```
/// use flowgauge_core::batch::Batch;
/// use flowgauge_core::catalog;
/// use flowgauge_core::key::{FlowKey, Key8};
/// use flowgauge_core::summary::Options;
///
/// let options = Options::new(1 << 16, 1).for_keys(4);
/// let mut summary = catalog::build::<Key8>("linear-counting", &options).unwrap();
/// let mut batch = Batch::new();
/// for packet in 0..200u32 {
///     batch.push(Key8::from_canonical(&(packet % 50).to_be_bytes()).unwrap(), 64, 0);
/// }
/// summary.ingest(&mut batch);
/// let flows = summary.answers().cardinality().unwrap();
/// assert!(flows.low <= 50.0 && 50.0 <= flows.high);
/// ```
pub struct LinearCounting;

impl Describe for LinearCounting {
    const INFO: Info = Info {
        name: "linear-counting",
        idea: "a bitmap in which every flow sets one bit; its zero bits give the number of flows",
        paper: "Whang et al. (TODS 1990), sections 3 and 5",
        parameters: &[
            Parameter {
                name: "bits",
                help: "number of bits, a power of two from 64 (default: 8388608, or what fits into the \
                       memory)",
            },
            Parameter {
                name: "flows",
                help: "instead of bits: the maximum number of flows, counted with the error epsilon",
            },
            Parameter {
                name: "epsilon",
                help: "standard error at that many flows, as a share (default: 0.01)",
            },
        ],
        memory: "bits / 8",
        forms: &[form![Cardinality]],
        laws: Laws { commutable: true, aggregatable: true, merge: Merge::Equal, ..Laws::NONE },
    };

    fn build<K: FlowKey>(options: &Options) -> Result<Box<dyn Summary<K>>, BuildError> {
        let parameters = &options.parameters;
        parameters.exclusive("bits", &["flows", "epsilon"])?;
        let epsilon = parameters.fraction("epsilon")?;
        let bits = match (parameters.integer("flows", 1..=1 << 40)?, epsilon) {
            (Some(flows), _) => bits_for(flows, epsilon.unwrap_or(0.01)),
            (None, Some(epsilon)) => {
                return Err(BuildErrorKind::OutOfRange {
                    name: "epsilon",
                    value: epsilon.to_string(),
                    range: "given with flows, since the bits for an error depend on the number of \
                         flows"
                        .to_owned(),
                }
                .into());
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
        Bitmaps::<Self>::build(bits / WORD, options)
    }
}

/// The smallest bitmap, in bits, that counts `flows` flows with the standard error `epsilon`.
fn bits_for(flows: u64, epsilon: f64) -> usize {
    let enough = |bits: usize| counting_error(bits as f64, flows as f64 / bits as f64) <= epsilon;
    let mut bits = WORD;
    while bits < 1 << 40 && !enough(bits) {
        bits *= 2;
    }
    bits
}

impl Marks for LinearCounting {
    type Word = u64;
    const ITEMS: (&'static str, usize) = ("bits", WORD);

    #[inline]
    fn mark(words: &mut [u64], digests: &[u64]) {
        let mask = words.len() - 1;
        let set = |words: &mut [u64], digest: u64| {
            words[(digest >> 6) as usize & mask] |= 1 << (digest % 64);
        };
        if size_of_val(words) <= CACHED_BYTES {
            return digests.iter().for_each(|digest| set(words, *digest));
        }
        for (i, &digest) in digests.iter().enumerate() {
            if let Some(&ahead) = digests.get(i + PREFETCH_AHEAD) {
                prefetch(words, (ahead >> 6) as usize & mask);
            }
            set(words, digest);
        }
    }

    fn estimate(words: &[u64], packets: f64) -> Estimate {
        let bits = words.len() * WORD;
        let set: usize = words.iter().map(|word| word.count_ones() as usize).sum();
        let full = set == bits;
        let (bits, set) = (bits as f64, set as f64);
        if full {
            // About m ln m flows set the last bit; any further number is possible.
            let at_least = (bits * bits.ln()).min(packets);
            let low = set.min(packets);
            return Estimate { value: at_least, low, high: packets, confidence: None };
        }
        counted_linearly(bits, set, packets)
    }
}
