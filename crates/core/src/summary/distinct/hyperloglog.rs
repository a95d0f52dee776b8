//! HyperLogLog, by the `datasketches` crate, in the format of Apache DataSketches.
//!
//! Paper: Flajolet, Fusy, Gandouet, Meunier, "HyperLogLog: the analysis of a near-optimal
//! cardinality estimation algorithm" (AofA 2007), §1 and §2. The library counts few flows exactly
//! before it switches to registers, and estimates from the history of its registers.

use datasketches::common::NumStdDev;
use datasketches::hll::{Coupon, HllSketch, HllType, HllUnion};
use flowgauge_kernel::Digester;

use super::{CONFIDENCE, items_for};
use crate::batch::{BATCH_PACKETS, Batch};
use crate::key::FlowKey;
use crate::summary::codec::{DecodeError, Reader, Writer};
use crate::summary::describe::form;
use crate::summary::ingest::{Basis, twin};
use crate::summary::{
    Answers, BuildError, BuildErrorKind, Describe, Estimate, Incompatible, Info, Ingest, Laws,
    Options, Parameter, Setting, Summary,
};

/// Places for digests seen earlier in a batch.
const SEEN: usize = BATCH_PACKETS;

/// Numbers of registers that the library allows.
const LEAST: usize = 1 << 4;
const MOST: usize = 1 << 21;

/// Bytes before a list of hashes, a set of hashes, or the registers in an image. The lowest bits of
/// byte 7 say which of them follows.
const LIST_PREAMBLE_BYTES: usize = 8;
const SET_PREAMBLE_BYTES: usize = 12;
const SET: u8 = 1;
const PREAMBLE_BYTES: usize = 40;
const REGISTERS: u8 = 2;

/// The kind of content of an image, if it is long enough.
fn mode(image: &[u8]) -> Option<u8> {
    image.get(7).map(|byte| byte & 3)
}

/// Bits of a hash that select a register; the run of zeros is stored above them.
const SLOT_BITS: u32 = 26;

/// The standard error of m registers is `ERROR` / √m (§1).
const ERROR: f64 = 1.04;

/// A HyperLogLog sketch with registers of one byte.
///
/// ```
/// use datasketches::hll::HllSketch;
/// use flowgauge_core::batch::Batch;
/// use flowgauge_core::catalog;
/// use flowgauge_core::key::{FlowKey, Key4};
/// use flowgauge_core::summary::{Options, distinct::HllRegisters};
///
/// let mut summary = catalog::build::<Key4>("hyperloglog", &Options::new(1 << 16, 1)).unwrap();
/// let mut batch = Batch::new();
/// batch.push(Key4::from_canonical(&[192, 0, 2, 1]).unwrap(), 64, 0);
/// summary.ingest(&mut batch);
/// // Other DataSketches libraries read the image.
/// let image = summary.downcast_ref::<HllRegisters>().unwrap().image();
/// let sketch = HllSketch::deserialize(&image).unwrap();
/// assert_eq!(sketch.estimate().round(), 1.0);
/// ```
pub struct HllRegisters {
    digester: Digester,
    sketch: HllSketch,
    registers: usize,
    packets: u64,
}

/// HyperLogLog, in the catalog as `hyperloglog`.
///
/// Cost: one hash of the digest and one register, for the first packet of a flow in a batch. Memory
/// in bytes: `registers`, allocated by the library as flows arrive, and again after each `clear`.
///
/// ```
/// use flowgauge_core::batch::Batch;
/// use flowgauge_core::catalog;
/// use flowgauge_core::key::{FlowKey, Key4};
/// use flowgauge_core::summary::Options;
///
/// let mut summary = catalog::build::<Key4>("hyperloglog", &Options::new(1 << 16, 1)).unwrap();
/// let mut batch = Batch::new();
/// for packet in 0..200u32 {
///     batch.push(Key4::from_canonical(&(packet % 50).to_be_bytes()).unwrap(), 64, 0);
/// }
/// summary.ingest(&mut batch);
/// let flows = summary.answers().cardinality().unwrap();
/// assert!(flows.low <= 50.0 && 50.0 <= flows.high);
/// ```
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

/// An empty sketch, unless the library refuses the number of registers.
fn new(registers: usize) -> Option<HllSketch> {
    HllSketch::new(registers.ilog2() as u8, HllType::Hll8).ok()
}

/// Whether the registers of an image, if it has any, are runs of fewer than 64 zeros, and the
/// stated number of them is zero. The library relies on both but checks neither.
fn registers_are_possible(image: &[u8]) -> bool {
    if mode(image) != Some(REGISTERS) {
        return true;
    }
    let Some((preamble, registers)) = image.split_at_checked(PREAMBLE_BYTES) else { return false };
    let zeros: u32 = registers.iter().map(|register| u32::from(*register == 0)).sum();
    preamble[32..36] == zeros.to_le_bytes() && registers.iter().all(|register| *register < 64)
}

impl HllRegisters {
    /// The image in the format of the DataSketches libraries. A set of hashes is sorted, since its
    /// order in the library depends on the order of arrival.
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
        // The library hashes each digest again, which costs more than all other steps. So digests
        // seen earlier in the batch are skipped, without a branch because repetition is
        // unpredictable. `seen[0]` starts as 1, whose own place is 1, so that it matches no digest.
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
        // At most one byte per register, or four for each of few flows.
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
        // The library cannot empty a sketch. It does not refuse a size that it accepted before.
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
