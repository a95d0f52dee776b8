//! HyperLogLog, by the `datasketches` crate, in the format of Apache DataSketches.
//!
//! Paper: Flajolet, Fusy, Gandouet, Meunier, "HyperLogLog: the analysis of a near-optimal
//! cardinality estimation algorithm" (AofA 2007), §1 and §2. The library counts few flows exactly
//! before it switches to registers, and estimates from the history of its registers.

use datasketches::common::NumStdDev;
use datasketches::hll::{Coupon, HllSketch, HllType, HllUnion};
use flowgauge_kernel::{Digester, SLOT_BITS, coupons};

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
    /// A copy of the library's registers, once it has some: most hashes raise none of them, and
    /// need not be passed to it.
    copy: Vec<u8>,
    /// Hashes that may be passed to the library before it is asked again whether it has registers.
    left: usize,
}

/// HyperLogLog, in the catalog as `hyperloglog`.
///
/// Cost: one hash of the digest and one register. Memory in bytes: `2 × registers`; half of it is the
/// library's, allocated as flows arrive, and again after each `clear`.
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
        memory: "2 x registers",
        forms: &[form![Cardinality]],
        laws: Laws { commutable: true, aggregatable: true, ..Laws::NONE },
    };

    fn build<K: FlowKey>(options: &Options) -> Result<Box<dyn Summary<K>>, BuildError> {
        Ok(Box::new(HllRegisters::new(options)?))
    }
}

/// An empty sketch, unless the library refuses the number of registers.
fn empty(registers: usize) -> Option<HllSketch> {
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
    fn new(options: &Options) -> Result<Self, BuildError> {
        let parameters = &options.parameters;
        parameters.exclusive("registers", &["epsilon"])?;
        let registers = match parameters.fraction("epsilon")? {
            Some(epsilon) => items_for(epsilon, ERROR, (LEAST, MOST), parameters)?,
            None => parameters.power_of_two("registers", options.memory_bytes.min(2 * 4096), 2)?,
        };
        if !(LEAST..=MOST).contains(&registers) {
            return Err(BuildErrorKind::OutOfRange {
                name: "registers",
                value: registers.to_string(),
                range: "a power of two from 16 to 2097152".to_owned(),
            }
            .into());
        }
        options.memory.take(2 * registers)?;
        let sketch = empty(registers).ok_or(BuildErrorKind::Unfit {
            algorithm: HyperLogLog::INFO.name,
            reason: format!("the library refuses {registers} registers"),
        })?;
        let (digester, copy) = (options.digester, Vec::with_capacity(registers));
        Ok(Self { digester, sketch, registers, packets: 0, copy, left: registers })
    }

    /// The image in the format of the DataSketches libraries. A set of hashes is sorted, since its
    /// order in the library depends on the order of arrival.
    pub fn image(&self) -> Vec<u8> {
        let mut image = self.sketch.serialize();
        if mode(&image) == Some(SET) {
            image[SET_PREAMBLE_BYTES..].as_chunks_mut::<4>().0.sort_unstable();
        }
        image
    }

    /// Counts the flows with these digests, a batch of them at most.
    fn count(&mut self, digests: &[u64]) {
        if self.copy.is_empty() {
            return self.count_few(digests);
        }
        let mut hashes = [0; BATCH_PACKETS];
        let hashes = &mut hashes[..digests.len()];
        coupons(self.digester.isa(), digests, hashes);
        let last = self.copy.len() - 1;
        for (hash, digest) in hashes.iter().zip(digests) {
            let run = (hash >> SLOT_BITS) as u8;
            let register = &mut self.copy[*hash as usize & last];
            if run > *register {
                *register = run;
                self.pass_on(*digest);
            }
        }
    }

    /// Counts flows while the library keeps their hashes. Digests that are repeated are skipped,
    /// without a branch because repetition is unpredictable.
    fn count_few(&mut self, digests: &[u64]) {
        let (mut seen, mut new, mut found) = ([0; SEEN], [0; BATCH_PACKETS], 0);
        // Its own place is 1, so that it matches no digest.
        seen[0] = 1;
        for &digest in digests {
            let place = &mut seen[digest as usize % SEEN];
            new[found % BATCH_PACKETS] = digest;
            found += usize::from(*place != digest);
            *place = digest;
        }
        for digest in &new[..found] {
            self.pass_on(*digest);
        }
        match self.left.checked_sub(found) {
            Some(left) => self.left = left,
            None => self.look(),
        }
    }

    /// Adds the flows of another sketch.
    #[inline(never)]
    fn add(&mut self, other: &Self) -> Result<(), Incompatible> {
        let refused = |_| Incompatible("the library refuses to merge them");
        let mut union = HllUnion::new(self.sketch.lg_config_k()).map_err(refused)?;
        union.update(&self.sketch);
        union.update(&other.sketch);
        self.sketch = union.to_sketch(HllType::Hll8);
        self.look();
        self.packets = self.packets.saturating_add(other.packets);
        Ok(())
    }

    #[inline(never)]
    fn pass_on(&mut self, digest: u64) {
        self.sketch.update_with_coupon(Coupon::from_value(digest));
    }

    /// Copies the registers of the library, if it has some. It keeps hashes only of few flows, so
    /// that looking again after as many hashes as there are registers takes little time.
    fn look(&mut self) {
        let image = self.sketch.serialize();
        let registers = image.get(PREAMBLE_BYTES..).filter(|_| mode(&image) == Some(REGISTERS));
        self.copy.clear();
        self.copy.extend_from_slice(registers.unwrap_or_default());
        self.left = self.registers;
    }
}

impl<K: FlowKey> Ingest<K> for HllRegisters {
    fn ingest(&mut self, batch: &mut Batch<K>) {
        batch.digest(&self.digester);
        self.count(batch.digests());
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
        self.add(other)
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
        self.look();
        Ok(())
    }

    fn clear(&mut self) {
        // The library cannot empty a sketch. It does not refuse a size that it accepted before.
        if let Some(sketch) = empty(self.registers) {
            self.sketch = sketch;
        }
        self.look();
        self.packets = 0;
    }

    fn parameters(&self) -> Vec<(&'static str, Setting)> {
        vec![("registers", Setting::Integer(self.registers as u64))]
    }

    fn memory_bytes(&self) -> usize {
        2 * self.registers
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

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use flowgauge_kernel::{Isa, Seed};

    use super::*;
    use crate::key::Key8;

    /// An empty summary, and the library's sketch of the same size.
    fn pair(registers: usize, isa: Isa) -> (HllRegisters, HllSketch) {
        let digester = Digester::new(Seed::number(1), isa);
        let (sketch, copy) = (empty(registers).unwrap(), Vec::new());
        let summary =
            HllRegisters { digester, sketch, registers, packets: 0, copy, left: registers };
        (summary, empty(registers).unwrap())
    }

    #[test]
    fn the_library_gets_every_hash_that_changes_its_sketch() {
        for isa in Isa::available() {
            for (registers, flows) in [(16, 5), (16, 1000), (1024, 90), (1024, 200_000)] {
                let (mut summary, mut sketch) = pair(registers, isa);
                let mut random = fastrand::Rng::with_seed(1);
                let digests: Vec<u64> = (0..flows).map(|_| random.u64(..)).collect();
                for _ in 0..3 {
                    for batch in digests.chunks(BATCH_PACKETS) {
                        summary.count(batch);
                    }
                    for digest in &digests {
                        sketch.update_with_coupon(Coupon::from_value(*digest));
                    }
                }
                let mut image = sketch.serialize();
                if mode(&image) == Some(SET) {
                    image[SET_PREAMBLE_BYTES..].as_chunks_mut::<4>().0.sort_unstable();
                }
                assert_eq!(summary.image(), image, "{isa}: {flows} flows, {registers} registers");
                assert_eq!(summary.copy.is_empty(), flows < 100);
            }
        }
    }

    #[test]
    fn merged_registers_are_known() {
        let mut random = fastrand::Rng::with_seed(2);
        let (mut one, mut all) = pair(64, Isa::best());
        let (mut other, _) = pair(64, Isa::best());
        for summary in [&mut one, &mut other] {
            let digests = [(); BATCH_PACKETS].map(|()| random.u64(..));
            summary.count(&digests);
            for digest in &digests {
                all.update_with_coupon(Coupon::from_value(*digest));
            }
        }
        Summary::<Key8>::merge(&mut one, &other).unwrap();
        assert_eq!(one.copy, all.serialize()[PREAMBLE_BYTES..]);
        Summary::<Key8>::clear(&mut one);
        assert!(one.copy.is_empty());
    }
}
