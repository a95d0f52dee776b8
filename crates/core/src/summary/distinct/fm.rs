//! FM, or PCSA: probabilistic counting with stochastic averaging.
//!
//! Paper: Flajolet, Martin, "Probabilistic counting algorithms for data base applications" (JCSS
//! 1985), §3; for few flows with the correction of Scheuermann and Mauve, "Near-optimal
//! compression of probabilistic counting sketches for networking applications" (DIALM-POMC 2007).
//! A flow chooses a bitmap, and sets its bit number r with probability 2⁻⁽ʳ⁺¹⁾; the lowest zeros
//! of the bitmaps tell the number of flows.

use std::any::Any;

use flowgauge_kernel::{Digester, Zeroed};

use super::super::codec::{DecodeError, Reader, Writer};
use super::super::{
    Answers, BuildError, Describe, Estimate, Incompatible, Info, Ingest, Laws, Merge, Options,
    Parameter, Setting,
};
use super::{items_for, two_sigma};
use crate::batch::Batch;
use crate::key::FlowKey;

/// The correction of the mean (§2.2, theorem 2).
const PHI: f64 = 0.773_51;

/// The standard error of m bitmaps is this ÷ √m (§3.3).
const ERROR: f64 = 0.78;

/// The exponent of the correction for few flows.
const FEW: f64 = 1.75;

/// As many as have a number of 32 bits, which those of a digest choose.
const MOST_BITMAPS: usize = 1 << 32;

/// Bitmaps of 32 bits.
///
/// Cost: one bit a packet. Memory in bytes: `4 × bitmaps`.
pub struct Fm {
    digester: Digester,
    bitmaps: Zeroed<u32>,
    packets: u64,
}

impl Describe for Fm {
    const INFO: Info = Info {
        name: "fm",
        idea: "a few bitmaps of 32 bits, whose lowest zeros tell the number of flows",
        paper: "Flajolet, Martin (JCSS 1985), section 3",
        parameters: &[
            Parameter {
                name: "bitmaps",
                help: "number of bitmaps of 32 bits, a power of two (default: 4, as Agg-Evict has it)",
            },
            Parameter {
                name: "epsilon",
                help: "instead of bitmaps: the standard error, as a share of the flows",
            },
        ],
        memory: "4 x bitmaps",
        laws: Laws { commutable: true, aggregatable: true, merge: Merge::Equal },
    };

    fn build<K: FlowKey>(options: &Options) -> Result<Box<dyn Ingest<K>>, BuildError> {
        let parameters = &options.parameters;
        parameters.exclusive("bitmaps", &["epsilon"])?;
        let bitmaps = match parameters.fraction("epsilon")? {
            Some(epsilon) => items_for(epsilon, ERROR, (2, MOST_BITMAPS), parameters)?,
            None => parameters.power_of_two("bitmaps", 4 * size_of::<u32>(), size_of::<u32>())?,
        };
        let bitmaps = options.memory.zeroed(bitmaps)?;
        Ok(Box::new(Self { digester: options.digester, bitmaps, packets: 0 }))
    }
}

impl Fm {
    fn estimate(&self) -> Estimate {
        let m = self.bitmaps.len() as f64;
        let zeros: u32 = self.bitmaps.iter().map(|bitmap| bitmap.trailing_ones()).sum();
        let mean = f64::from(zeros) / m;
        let value = m / PHI * (mean.exp2() - (-FEW * mean).exp2());
        // As many flows at least as one bitmap has bits.
        let set = self.bitmaps.iter().map(|bitmap| bitmap.count_ones()).sum::<u32>();
        two_sigma(value, value * ERROR / m.sqrt(), f64::from(set), self.packets as f64)
    }
}

impl<K: FlowKey> Ingest<K> for Fm {
    fn ingest(&mut self, batch: &mut Batch<K>) {
        batch.digest(&self.digester);
        let bitmaps = &mut *self.bitmaps;
        let mask = bitmaps.len() - 1;
        for &digest in batch.digests() {
            // The high bits choose the position, so that up to 2³² bitmaps share none with it.
            let position = (digest >> 32 | 1 << 31).trailing_zeros();
            bitmaps[digest as usize & mask] |= 1 << position;
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
        if other.bitmaps.len() != self.bitmaps.len() {
            return Err(Incompatible("sizes differ"));
        }
        for (bitmap, other) in self.bitmaps.iter_mut().zip(other.bitmaps.iter()) {
            *bitmap |= other;
        }
        self.packets = self.packets.saturating_add(other.packets);
        Ok(())
    }

    fn save(&self, out: &mut Writer) {
        out.number(self.packets);
        out.numbers(&self.bitmaps);
    }

    fn load(&mut self, from: &mut Reader<'_>) -> Result<(), DecodeError> {
        self.packets = from.number("packets")?;
        from.numbers("bitmaps", &mut self.bitmaps)
    }

    fn clear(&mut self) {
        self.bitmaps.fill(0);
        self.packets = 0;
    }

    fn parameters(&self) -> Vec<(&'static str, Setting)> {
        vec![("bitmaps", Setting::Integer(self.bitmaps.len() as u64))]
    }

    fn memory_bytes(&self) -> usize {
        self.bitmaps.memory_bytes()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Answers for Fm {
    fn cardinality(&self) -> Option<Estimate> {
        Some(self.estimate())
    }
}
