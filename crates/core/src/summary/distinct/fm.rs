//! FM, or PCSA: probabilistic counting with stochastic averaging.
//!
//! Paper: Flajolet, Martin, "Probabilistic counting algorithms for data base applications" (JCSS
//! 1985), §3; for few flows with the correction of Scheuermann and Mauve, "Near-optimal
//! compression of probabilistic counting sketches for networking applications" (DIALM-POMC 2007),
//! and for fewer than some two to a bitmap by the bitmaps that have none, as linear counting does.
//! A flow chooses a bitmap, and sets its bit number r with probability 2⁻⁽ʳ⁺¹⁾; the lowest zeros
//! of the bitmaps tell the number of flows.

use super::super::{
    BuildError, Describe, Estimate, Info, Laws, Merge, Options, Parameter, Summary,
};
use super::bitmaps::{Bitmaps, Marks};
use super::{counting_error, items_for, two_sigma};
use crate::key::FlowKey;
use crate::summary::describe::form;

/// The correction of the mean (§2.2, theorem 2).
const PHI: f64 = 0.773_51;

/// The bias of m bitmaps is 1 + this ÷ m (§3.3).
const BIAS: f64 = 0.31;

/// The standard error of m bitmaps is this ÷ √m, and that of their mean of zeros, which is the
/// logarithm to base 2 of the number of flows (§3.3).
const ERROR: f64 = 0.78;
const LOG_ERROR: f64 = 1.121;

/// The exponent of the correction for few flows.
const FEW: f64 = 1.75;

/// So many flows to a bitmap are counted by the bitmaps without one.
const FEWEST: f64 = 2.5;

/// Within two standard errors the number of flows is with this chance at least, from one flow on:
/// simulated 0.937 near [`FEWEST`], and 0.945 to 0.99 elsewhere.
const CONFIDENCE: f64 = 0.93;

/// Bitmaps unless asked otherwise.
const BITMAPS: usize = 1024;

/// As many as have a number of 32 bits, which those of a digest choose.
const MOST_BITMAPS: usize = 1 << 32;

/// Bitmaps of 32 bits.
///
/// Cost: one bit a packet. Memory in bytes: `4 × bitmaps`.
pub struct Fm;

impl Describe for Fm {
    const INFO: Info = Info {
        name: "fm",
        idea: "bitmaps of 32 bits; their lowest zero bits give the number of flows",
        paper: "Flajolet, Martin (JCSS 1985), section 3",
        parameters: &[
            Parameter {
                name: "bitmaps",
                help: "number of bitmaps of 32 bits, a power of two (default: 1024, with a standard error \
                       of 2.4 %; Agg-Evict has 4)",
            },
            Parameter {
                name: "epsilon",
                help: "instead of bitmaps: the standard error, as a share of the flows",
            },
        ],
        memory: "4 x bitmaps",
        forms: &[form![Cardinality]],
        laws: Laws { commutable: true, aggregatable: true, merge: Merge::Equal, ..Laws::NONE },
    };

    fn build<K: FlowKey>(options: &Options) -> Result<Box<dyn Summary<K>>, BuildError> {
        let parameters = &options.parameters;
        parameters.exclusive("bitmaps", &["epsilon"])?;
        let bitmaps = if let Some(epsilon) = parameters.fraction("epsilon")? {
            items_for(epsilon, ERROR, (2, MOST_BITMAPS), parameters)?
        } else {
            let memory_bytes = options.memory_bytes.min(BITMAPS * size_of::<u32>());
            parameters.power_of_two("bitmaps", memory_bytes, size_of::<u32>())?
        };
        Bitmaps::<Self>::build(bitmaps, options)
    }
}

impl Marks for Fm {
    type Word = u32;
    const ITEMS: (&'static str, usize) = ("bitmaps", 1);

    #[inline]
    fn mark(bitmaps: &mut [u32], digests: &[u64]) {
        let mask = bitmaps.len() - 1;
        for &digest in digests {
            // The high bits choose the position, so that up to 2³² bitmaps share none with it.
            let position = (digest >> 32 | 1 << 31).trailing_zeros();
            bitmaps[digest as usize & mask] |= 1 << position;
        }
    }

    fn estimate(bitmaps: &[u32], packets: f64) -> Estimate {
        let m = bitmaps.len() as f64;
        // As many flows at least as bits are set.
        let set = bitmaps.iter().map(|bitmap| bitmap.count_ones()).sum::<u32>().into();
        let empty = bitmaps.iter().filter(|bitmap| **bitmap == 0).count() as f64;
        let load = (m / empty).ln();
        if load <= FEWEST {
            let flows = m * load;
            let bounds = two_sigma(flows, flows * counting_error(m, load), set, packets);
            return Estimate { confidence: Some(CONFIDENCE), ..bounds };
        }
        let zeros: u32 = bitmaps.iter().map(|bitmap| bitmap.trailing_ones()).sum();
        let mean = f64::from(zeros) / m;
        let flows = m / PHI * (mean.exp2() - (-FEW * mean).exp2()) / (1.0 + BIAS / m);
        let flows = flows.max(set);
        // Normal is the error of the mean.
        let factor = (2.0 * LOG_ERROR / m.sqrt()).exp2();
        let within = |flows: f64| flows.clamp(set, packets.max(set));
        Estimate {
            value: within(flows),
            low: within(flows / factor),
            high: within(flows * factor),
            confidence: Some(CONFIDENCE),
        }
    }
}
