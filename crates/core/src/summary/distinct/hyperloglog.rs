//! HyperLogLog, by the `datasketches` crate: its bytes are those of Apache DataSketches.
//!
//! Paper: Flajolet, Fusy, Gandouet, Meunier, "HyperLogLog: the analysis of a near-optimal
//! cardinality estimation algorithm" (AofA 2007), §1 and §2. The library counts few flows exactly
//! before it spreads them over registers, and estimates from the history of its registers.

use datasketches::common::NumStdDev;
use datasketches::hll::{Coupon, HllSketch, HllType, HllUnion};
use flowgauge_kernel::Digester;

use super::super::codec::{DecodeError, Reader, Writer};
use super::super::ingest::{Basis, twin};
use super::super::{
    Answers, BuildError, BuildErrorKind, Describe, Estimate, Incompatible, Info, Ingest, Laws,
    Options, Parameter, Setting, Summary,
};
use super::{CONFIDENCE, items_for};
use crate::batch::{BATCH_PACKETS, Batch};
use crate::key::FlowKey;
use crate::summary::describe::form;

/// Digests of a batch that are remembered.
const SEEN: usize = BATCH_PACKETS;

/// Registers that the library allows.
const LEAST: usize = 1 << 4;
const MOST: usize = 1 << 21;

/// What the library writes before a list or a set of hashes, and before the registers; the lowest bits of
/// byte 7 say which of them follow.
const LIST_PREAMBLE_BYTES: usize = 8;
const SET_PREAMBLE_BYTES: usize = 12;
const SET: u8 = 1;
const PREAMBLE_BYTES: usize = 40;
const REGISTERS: u8 = 2;

/// What follows in an image, where it is long enough to say so.
fn mode(image: &[u8]) -> Option<u8> {
    image.get(7).map(|byte| byte & 3)
}

/// Bits of a hash that choose a register; the run of zeros stands above them.
const SLOT_BITS: u32 = 26;

/// The standard error of m registers is this ÷ √m (§1).
const ERROR: f64 = 1.04;

/// Registers of one byte.
pub struct HllRegisters {
    digester: Digester,
    sketch: HllSketch,
    registers: usize,
    packets: u64,
}

/// HyperLogLog, as the catalog has it.
///
/// Cost: one hash of the digest and one byte, for the first packet of a flow in a batch. Memory in bytes: `registers`, reserved by
/// the library as the flows come, and anew by each `clear`.
pub struct HyperLogLog;

impl Describe for HyperLogLog {
    const INFO: Info = Info {
        name: "hyperloglog",
        idea: "registers of the longest run of zero bits, by the datasketches library",
        paper: "Flajolet et al. (AofA 2007), sections 1 and 2",
        parameters: &[
            Parameter {
                name: "registers",
                help: "number of registers, a power of two from 16 to 2097152 (default: 4096, or \
                       what fits into the memory)",
            },
            Parameter {
                name: "epsilon",
                help: "instead of registers: the standard error, as a share of the flows",
            },
        ],
        memory: "registers",
        forms: &[form![Cardinality]],
        laws: Laws { commutable: true, aggregatable: true, ..Laws::NONE },
    };

    fn build<K: FlowKey>(options: &Options) -> Result<Box<dyn Summary<K>>, BuildError> {
        let parameters = &options.parameters;
        parameters.exclusive("registers", &["epsilon"])?;
        let registers = match parameters.fraction("epsilon")? {
            Some(epsilon) => items_for(epsilon, ERROR, (LEAST, MOST), parameters)?,
            None => parameters.power_of_two("registers", options.memory_bytes.min(4096), 1)?,
        };
        if !(LEAST..=MOST).contains(&registers) {
            return Err(BuildErrorKind::OutOfRange {
                name: "registers",
                value: registers.to_string(),
                range: "a power of two from 16 to 2097152".to_owned(),
            }
            .into());
        }
        options.memory.take(registers)?;
        let sketch = new(registers).ok_or(BuildErrorKind::Unfit {
            algorithm: Self::INFO.name,
            reason: format!("the library refuses {registers} registers"),
        })?;
        Ok(Box::new(HllRegisters { digester: options.digester, sketch, registers, packets: 0 }))
    }
}

fn new(registers: usize) -> Option<HllSketch> {
    HllSketch::new(registers.ilog2() as u8, HllType::Hll8).ok()
}

/// Whether the registers of an image, where it has them, are runs of zeros of 64 bits at most, and
/// as many of them zero as it says. The library relies on both and checks neither.
fn registers_are_possible(image: &[u8]) -> bool {
    if mode(image) != Some(REGISTERS) {
        return true;
    }
    let Some((preamble, registers)) = image.split_at_checked(PREAMBLE_BYTES) else { return false };
    let zeros: u32 = registers.iter().map(|register| u32::from(*register == 0)).sum();
    preamble[32..36] == zeros.to_le_bytes() && registers.iter().all(|register| *register < 64)
}

impl HllRegisters {
    /// The image that every DataSketches library reads. A set of hashes is in their order: where
    /// the library has them depends on when they came.
    pub fn image(&self) -> Vec<u8> {
        let mut image = self.sketch.serialize();
        if mode(&image) == Some(SET) {
            image[SET_PREAMBLE_BYTES..].as_chunks_mut::<4>().0.sort_unstable();
        }
        image
    }
}

impl<K: FlowKey> Ingest<K> for HllRegisters {
    fn ingest(&mut self, batch: &mut Batch<K>) {
        batch.digest(&self.digester);
        // The library hashes a digest once more, which costs more than all else: a flow that comes again
        // is left out, without a branch, since it cannot be predicted. Place 0 is not the place of 1.
        let (mut seen, mut new, mut found) = ([0; SEEN], [0; BATCH_PACKETS], 0);
        seen[0] = 1;
        for &digest in batch.digests() {
            let place = &mut seen[digest as usize % SEEN];
            new[found % BATCH_PACKETS] = digest;
            found += usize::from(*place != digest);
            *place = digest;
        }
        for digest in &new[..found] {
            self.sketch.update_with_coupon(Coupon::from_value(*digest));
        }
        let packets = batch.packets().iter().map(|&packets| u64::from(packets)).sum::<u64>();
        self.packets = self.packets.saturating_add(packets);
    }

    fn wants_bytes(&self) -> bool {
        false
    }
}

impl<K: FlowKey> Summary<K> for HllRegisters {
    fn answers(&self) -> &dyn Answers {
        self
    }

    fn merge(&mut self, other: &dyn Summary<K>) -> Result<(), Incompatible> {
        let other = twin(self, other, |summary| Basis::of(&summary.digester))?;
        let refused = |_| Incompatible("the library refuses to merge them");
        let mut union = HllUnion::new(self.sketch.lg_config_k()).map_err(refused)?;
        union.update(&self.sketch);
        union.update(&other.sketch);
        self.sketch = union.to_sketch(HllType::Hll8);
        self.packets = self.packets.saturating_add(other.packets);
        Ok(())
    }

    fn save(&self, out: &mut Writer) {
        out.number(self.packets);
        out.bytes(&self.image());
    }

    fn load(&mut self, from: &mut Reader<'_>) -> Result<(), DecodeError> {
        self.packets = from.number("packets")?;
        // An image holds a byte a register at most, or four for each of few flows.
        let image = from.bytes("registers", 64 + 4 * self.registers)?;
        let sketch = Some(image)
            .filter(|image| registers_are_possible(image))
            .and_then(|image| HllSketch::deserialize(image).ok())
            .filter(|sketch| sketch.lg_config_k() == self.sketch.lg_config_k())
            .filter(|sketch| sketch.target_type() == HllType::Hll8);
        self.sketch =
            sketch.ok_or(from.invalid("registers", image.len(), "it is not such a sketch"))?;
        Ok(())
    }

    fn clear(&mut self) {
        // The library has no way to empty a sketch; the same size cannot be refused.
        if let Some(sketch) = new(self.registers) {
            self.sketch = sketch;
        }
        self.packets = 0;
    }

    fn parameters(&self) -> Vec<(&'static str, Setting)> {
        vec![("registers", Setting::Integer(self.registers as u64))]
    }

    fn memory_bytes(&self) -> usize {
        self.registers
    }
}

impl Answers for HllRegisters {
    fn cardinality(&self) -> Option<Estimate> {
        let most = self.packets as f64;
        let bounds = |bound: f64| bound.clamp(0.0, most);
        Some(Estimate {
            value: bounds(self.sketch.estimate()),
            low: bounds(self.sketch.lower_bound(NumStdDev::Two)),
            high: bounds(self.sketch.upper_bound(NumStdDev::Two)),
            confidence: Some(CONFIDENCE),
        })
    }

    fn registers(&self) -> Option<Vec<u32>> {
        let image = self.sketch.serialize();
        let hashes = match mode(&image) {
            Some(REGISTERS) => {
                let registers = image.get(PREAMBLE_BYTES..)?;
                return Some(registers.iter().map(|register| u32::from(*register)).collect());
            }
            Some(SET) => image.get(SET_PREAMBLE_BYTES..)?,
            _ => image.get(LIST_PREAMBLE_BYTES..)?,
        };
        let mut registers = vec![0; self.registers];
        for hash in hashes.as_chunks::<4>().0 {
            let hash = u32::from_le_bytes(*hash);
            let register = &mut registers[hash as usize % self.registers];
            *register = (hash >> SLOT_BITS).max(*register);
        }
        Some(registers)
    }
}
