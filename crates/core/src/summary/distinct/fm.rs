//! Probabilistic counting with stochastic averaging: FM, also known as PCSA.
//!
//! Paper: Flajolet, Martin, "Probabilistic counting algorithms for data base applications" (JCSS
//! 1985), §3. A flow selects a bitmap and sets its bit number r with probability 2⁻⁽ʳ⁺¹⁾; the
//! positions of the lowest zero bits give the number of flows. For few flows this is corrected
//! after Scheuermann and Mauve, "Near-optimal compression of probabilistic counting sketches for
//! networking applications" (DIALM-POMC 2007). Below [`FEWEST`] flows per bitmap, the number of
//! empty bitmaps gives the number of flows, as in linear counting.

use super::{Bitmaps, Marks, counting_error, items_for, two_sigma};
use crate::key::FlowKey;
use crate::summary::describe::form;
use crate::summary::{
    BuildError, Describe, Estimate, Info, Laws, Merge, Options, Parameter, Summary,
};

/// Correction of the mean (§2.2, theorem 2).
const PHI: f64 = 0.773_51;

/// The bias of m bitmaps is 1 + `BIAS` / m (§3.3).
const BIAS: f64 = 0.31;

/// The standard error of m bitmaps is `ERROR` / √m. That of the mean position of their lowest
/// zeros, a base-2 logarithm of the number of flows, is `LOG_ERROR` / √m (§3.3).
const ERROR: f64 = 0.78;
const LOG_ERROR: f64 = 1.121;

/// Exponent of the correction for few flows.
const FEW: f64 = 1.75;

/// Maximum number of flows per bitmap that is estimated from empty bitmaps.
const FEWEST: f64 = 2.5;

/// Probability that the number of flows is within two standard errors, from one flow on.
/// Simulations gave 0.937 near [`FEWEST`], and 0.945 to 0.99 elsewhere.
const CONFIDENCE: f64 = 0.93;

/// Default number of bitmaps.
const BITMAPS: usize = 1024;

/// Maximum number of bitmaps: 32 bits of a digest select one.
const MOST_BITMAPS: usize = 1 << 32;

/// FM with bitmaps of 32 bits, in the catalog as `fm`.
///
/// Cost per packet: one bit. Memory in bytes: `4 × bitmaps`.
///
/// ```
/// use flowgauge_core::batch::Batch;
/// use flowgauge_core::catalog;
/// use flowgauge_core::key::{FlowKey, Key8};
/// use flowgauge_core::summary::Options;
///
/// let mut summary = catalog::build::<Key8>("fm", &Options::new(1 << 16, 1).for_keys(4)).unwrap();
/// let mut batch = Batch::new();
/// for packet in 0..200u32 {
///     batch.push(Key8::from_canonical(&(packet % 50).to_be_bytes()).unwrap(), 64, 0);
/// }
/// summary.ingest(&mut batch);
/// let flows = summary.answers().cardinality().unwrap();
/// assert!(flows.low <= 50.0 && 50.0 <= flows.high);
/// ```
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
            // The upper half gives the position, so it shares no bits with the choice of the
            // bitmap.
            let position = (digest >> 32 | 1 << 31).trailing_zeros();
            bitmaps[digest as usize & mask] |= 1 << position;
        }
    }

    fn estimate(bitmaps: &[u32], packets: f64) -> Estimate {
        let m = bitmaps.len() as f64;
        // Each set bit stands for at least one flow.
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
        // The error of the mean is normal, so the bounds are factors.
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
