//! HyperLogLog, in the format of Apache DataSketches.
//!
//! Paper: Flajolet, Fusy, Gandouet, Meunier, "HyperLogLog: the analysis of a near-optimal
//! cardinality estimation algorithm" (AofA 2007), §1 and §2. As in that library, few flows are
//! counted exactly before there are registers. Whenever a register is raised, the estimate grows by
//! the mean number of flows between two such events (Cohen, "All-distances sketches, revisited: HIP
//! estimators for massive graphs analysis", PODS 2014). Packets are counted here; the
//! `datasketches` crate merges two sketches, and gives bounds.

use datasketches::common::NumStdDev;
use datasketches::hll::{HllSketch, HllType, HllUnion};
use flowgauge_kernel::{Digester, Zeroed};

use super::{CONFIDENCE, items_for, packets_in};
use crate::batch::Batch;
use crate::key::FlowKey;
use crate::summary::codec::{DecodeError, Reader, Writer};
use crate::summary::describe::form;
use crate::summary::ingest::{Basis, twin};
use crate::summary::{
    Answers, BuildError, BuildErrorKind, Describe, Estimate, Incompatible, Info, Ingest, Laws,
    Options, Parameter, Reads, Setting, Summary,
};

/// Numbers of registers that the library allows.
const LEAST: usize = 1 << 4;
const MOST: usize = 1 << 21;

/// Bits of a coupon that select a register: the low bits of the digest. The run of zeros above
/// them, counted from the highest bit on and from 1, is in the coupon's other bits.
const SLOT_BITS: u32 = 26;

/// Ends the run of zeros above the bits of the slot.
const FLOOR: u64 = 1 << (SLOT_BITS - 1);

/// Fewer registers than this begin with a list of [`LIST`] coupons, others with a set of them.
const LEAST_WITH_SET: usize = 1 << 8;
const LIST: usize = 8;

/// Slots of the smallest set.
const SET: usize = 1 << 5;

/// Bytes before coupons of a list, coupons of a set, or registers in an image.
const LIST_BYTES: usize = 8;
const SET_BYTES: usize = 12;
const REGISTER_BYTES: usize = 40;

/// Flags of an image.
const EMPTY: u8 = 4;
const COMPACT: u8 = 8;
const MERGED: u8 = 16;

/// The standard error of m registers is `ERROR` / √m (§1).
const ERROR: f64 = 1.04;

/// The content of an image.
#[derive(Clone, Copy)]
enum Content {
    List,
    Set,
    Registers,
}

impl Content {
    /// The content of this image, and its bytes behind the preamble.
    fn of(image: &[u8]) -> Option<(Self, &[u8])> {
        let (content, preamble) = match image.get(7)? & 3 {
            0 => (Self::List, LIST_BYTES),
            1 => (Self::Set, SET_BYTES),
            2 => (Self::Registers, REGISTER_BYTES),
            _ => return None,
        };
        Some((content, image.get(preamble..)?))
    }

    /// The first eight bytes of an image.
    fn preamble(self, registers: usize, log_slots: u32, flags: u8, count: usize) -> [u8; 8] {
        const VERSION: u8 = 1;
        const FAMILY: u8 = 7;
        const BYTE_WIDE: u8 = 2 << 2;
        let (words, mode) = match self {
            Self::List => (2, 0),
            Self::Set => (3, 1),
            Self::Registers => (10, 2),
        };
        let log_registers = registers.ilog2() as u8;
        let (log_slots, count) = (log_slots as u8, count as u8);
        [words, VERSION, FAMILY, log_registers, log_slots, flags, count, mode | BYTE_WIDE]
    }
}

/// A HyperLogLog sketch with registers of one byte.
///
/// ```
/// use datasketches::hll::HllSketch;
/// use flowgauge_core::batch::Batch;
/// use flowgauge_core::catalog;
/// use flowgauge_core::key::{FlowKey, Key8};
/// use flowgauge_core::summary::{Options, distinct::HllRegisters};
///
/// let options = Options::new(1 << 16, 1).for_keys(4);
/// let mut summary = catalog::build::<Key8>("hyperloglog", &options).unwrap();
/// let mut batch = Batch::new();
/// batch.push(Key8::from_canonical(&[192, 0, 2, 1]).unwrap(), 64, 0);
/// summary.ingest(&mut batch);
/// // Other DataSketches libraries read the image.
/// let image = summary.downcast_ref::<HllRegisters>().unwrap().image();
/// let sketch = HllSketch::deserialize(&image).unwrap();
/// assert_eq!(sketch.estimate().round(), 1.0);
/// ```
pub struct HllRegisters {
    digester: Digester,
    registers: Zeroed<u8>,
    /// A hash set of the coupons of few flows; 0 is a free slot.
    coupons: Zeroed<u32>,
    /// The number of coupons; `None` once there are registers instead.
    few: Option<usize>,
    sums: Sums,
    /// The estimate for the number of coupons at which registers replace them.
    first_estimate: f64,
    /// Whether coupons follow from the library's hash of the digest, as stored ones once did.
    rehashed: bool,
    packets: u64,
}

/// Sums over the registers, from which the estimate follows.
#[derive(Clone, Copy)]
struct Sums {
    /// The number of flows so far. `None` once sketches were merged, since it depends on the order of
    /// the flows; the library then estimates from the other sums.
    estimate: Option<f64>,
    /// The sum of 2^-r over all registers r below 32, and over the others. Each sum is exact.
    inverse: [f64; 2],
    /// The number of registers that are 0.
    zeros: usize,
}

impl Sums {
    fn new(registers: usize) -> Self {
        Self { estimate: Some(0.0), inverse: [registers as f64, 0.0], zeros: registers }
    }

    /// The sums of registers whose estimate is known otherwise.
    fn of(registers: &[u8], estimate: Option<f64>) -> Self {
        let mut sums = Self { estimate, inverse: [0.0; 2], zeros: 0 };
        for &register in registers {
            sums.zeros += usize::from(register == 0);
            *sums.part(register) += inverse(register);
        }
        sums
    }

    fn part(&mut self, register: u8) -> &mut f64 {
        &mut self.inverse[usize::from(register >= 32)]
    }

    /// A register of `registers` is raised.
    fn raise(&mut self, registers: usize, from: u8, to: u8) {
        let mean = registers as f64 / (self.inverse[0] + self.inverse[1]);
        self.estimate = self.estimate.map(|estimate| estimate + mean);
        *self.part(from) -= inverse(from);
        *self.part(to) += inverse(to);
        self.zeros -= usize::from(from == 0);
    }
}

/// 2^-register.
fn inverse(register: u8) -> f64 {
    1.0 / (1_u64 << register) as f64
}

/// The run of zeros of a digest above the bits that select a register, counted from 1.
#[inline(always)]
fn run(digest: u64) -> u8 {
    (digest | FLOOR).leading_zeros() as u8 + 1
}

fn coupon(digest: u64) -> u32 {
    u32::from(run(digest)) << SLOT_BITS | digest as u32 & ((1 << SLOT_BITS) - 1)
}

/// HyperLogLog, in the catalog as `hyperloglog`.
///
/// Cost: the digest and one register. Memory in bytes: `registers`, and half as much for coupons (64
/// for fewer than 128 registers).
///
/// ```
/// use flowgauge_core::batch::Batch;
/// use flowgauge_core::catalog;
/// use flowgauge_core::key::{FlowKey, Key8};
/// use flowgauge_core::summary::Options;
///
/// let options = Options::new(1 << 16, 1).for_keys(4);
/// let mut summary = catalog::build::<Key8>("hyperloglog", &options).unwrap();
/// let mut batch = Batch::new();
/// for packet in 0..200u32 {
///     batch.push(Key8::from_canonical(&(packet % 50).to_be_bytes()).unwrap(), 64, 0);
/// }
/// summary.ingest(&mut batch);
/// let flows = summary.answers().cardinality().unwrap();
/// assert!(flows.low <= 50.0 && 50.0 <= flows.high);
/// ```
pub struct HyperLogLog;

impl Describe for HyperLogLog {
    const INFO: Info = Info {
        name: "hyperloglog",
        idea: "registers of the longest run of zero bits, in the format of Apache DataSketches",
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
        memory: "3/2 x registers; below 128: registers + 64",
        forms: &[form![Cardinality]],
        laws: Laws { commutable: true, aggregatable: true, ..Laws::NONE },
    };

    fn build<K: FlowKey>(options: &Options) -> Result<Box<dyn Summary<K>>, BuildError> {
        Ok(Box::new(HllRegisters::new(options)?))
    }
}

/// The coupons that replace nothing yet: with so many, registers do.
fn most_coupons(registers: usize) -> usize {
    if registers < LEAST_WITH_SET { LIST } else { most_in(registers / 8) + 1 }
}

/// The coupons at most in a set of so many slots.
fn most_in(slots: usize) -> usize {
    3 * slots / 4
}

/// The image of these coupons.
fn image_of(coupons: &[u32], registers: usize) -> Vec<u8> {
    let count = coupons.len();
    let mut image = Vec::with_capacity(SET_BYTES + size_of_val(coupons));
    if count < LIST || registers < LEAST_WITH_SET {
        let flags = COMPACT | if count == 0 { EMPTY } else { 0 };
        image.extend(Content::List.preamble(registers, LIST.ilog2(), flags, count));
    } else {
        let mut slots = SET;
        while count > most_in(slots) && 8 * slots < registers {
            slots *= 2;
        }
        image.extend(Content::Set.preamble(registers, slots.ilog2(), COMPACT, 0));
        image.extend((count as u32).to_le_bytes());
    }
    image.extend(coupons.iter().flat_map(|coupon| coupon.to_le_bytes()));
    image
}

/// Whether the coupons or registers of an image are some that a sketch can have. The library relies
/// on most of it but checks little.
fn is_possible(image: &[u8], registers: usize) -> bool {
    match Content::of(image) {
        Some((Content::Registers, runs)) => {
            let zeros: u32 = runs.iter().map(|run| u32::from(*run == 0)).sum();
            let estimate = number(image, 8);
            runs.len() == registers
                && image[32..36] == zeros.to_le_bytes()
                && runs.iter().all(|run| *run < 64)
                && estimate.is_finite()
                && estimate >= 0.0
        }
        Some((_, coupons)) => {
            let (coupons, rest) = coupons.as_chunks::<4>();
            let mut coupons = coupons.iter().map(|coupon| u32::from_le_bytes(*coupon));
            rest.is_empty()
                && coupons.len() < most_coupons(registers)
                && coupons.all(|coupon| coupon >> SLOT_BITS != 0)
        }
        None => false,
    }
}

/// The floating-point number at this offset of an image of registers.
fn number(image: &[u8], at: usize) -> f64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&image[at..at + 8]);
    f64::from_le_bytes(bytes)
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
        let refused = BuildErrorKind::Unfit {
            algorithm: HyperLogLog::INFO.name,
            reason: format!("the library refuses {registers} registers"),
        };
        Ok(Self {
            digester: options.digester,
            registers: options.memory.zeroed(registers)?,
            coupons: options.memory.zeroed((registers / 8).max(2 * LIST))?,
            few: Some(0),
            sums: Sums::new(registers),
            first_estimate: first_estimate(registers).ok_or(refused)?,
            rehashed: false,
            packets: 0,
        })
    }

    /// The image in the format of the DataSketches libraries, with sorted coupons.
    pub fn image(&self) -> Vec<u8> {
        if self.few.is_some() {
            let mut coupons: Vec<u32> = self.coupons().collect();
            coupons.sort_unstable();
            return image_of(&coupons, self.registers.len());
        }
        let Sums { estimate, inverse, zeros } = self.sums;
        let flags = if estimate.is_none() { MERGED } else { 0 };
        let mut image = Vec::with_capacity(REGISTER_BYTES + self.registers.len());
        image.extend(Content::Registers.preamble(self.registers.len(), 0, flags, 0));
        for number in [estimate.unwrap_or(0.0), inverse[0], inverse[1]] {
            image.extend(number.to_le_bytes());
        }
        image.extend((zeros as u64).to_le_bytes());
        image.extend(&*self.registers);
        image
    }

    /// The coupons in the set.
    fn coupons(&self) -> impl Iterator<Item = u32> {
        self.coupons.iter().copied().filter(|coupon| *coupon != 0)
    }

    /// The same sketch of the library.
    fn sketch(&self) -> Option<HllSketch> {
        HllSketch::deserialize(&self.image()).ok()
    }

    /// Takes over the sketch of an image that [is possible](is_possible).
    fn restore(&mut self, image: &[u8]) {
        self.empty();
        match Content::of(image) {
            Some((Content::Registers, runs)) => {
                self.registers.copy_from_slice(runs);
                let estimate = (image[5] & MERGED == 0).then(|| number(image, 8));
                self.sums = Sums::of(&self.registers, estimate);
                self.few = None;
            }
            Some((_, coupons)) => {
                for coupon in coupons.as_chunks::<4>().0 {
                    self.take(u32::from_le_bytes(*coupon));
                }
            }
            None => {}
        }
    }

    #[inline(never)]
    fn empty(&mut self) {
        match self.few {
            Some(_) => self.coupons.fill(0),
            None => self.registers.fill(0),
        }
        self.few = Some(0);
        self.sums = Sums::new(self.registers.len());
    }

    /// Counts the flows with these digests.
    #[inline(never)]
    fn count(&mut self, mut digests: &[u64]) {
        if self.rehashed {
            return digests.iter().for_each(|digest| self.take(rehashed(*digest)));
        }
        while let (Some(_), [digest, rest @ ..]) = (self.few, digests) {
            self.take(coupon(*digest));
            digests = rest;
        }
        while let Some(at) = first_higher(&self.registers, digests) {
            self.take(coupon(digests[at]));
            digests = &digests[at + 1..];
        }
    }

    /// Counts the flow with this coupon.
    #[inline(never)]
    fn take(&mut self, coupon: u32) {
        match self.few {
            Some(few) => self.insert(coupon, few),
            None => self.raise(coupon),
        }
    }

    /// Inserts a coupon beside so many others, and replaces them by registers if they are too many.
    fn insert(&mut self, coupon: u32, few: usize) {
        let last = self.coupons.len() - 1;
        let mut slot = coupon as usize & last;
        while self.coupons[slot] != 0 {
            if self.coupons[slot] == coupon {
                return;
            }
            slot = (slot + 1) & last;
        }
        self.coupons[slot] = coupon;
        self.few = Some(few + 1);
        if few + 1 == most_coupons(self.registers.len()) {
            self.few = None;
            for slot in 0..=last {
                let coupon = std::mem::take(&mut self.coupons[slot]);
                self.raise(coupon);
            }
            self.sums.estimate = Some(self.first_estimate);
        }
    }

    /// Raises the register of a coupon, if it is lower.
    fn raise(&mut self, coupon: u32) {
        let (registers, run) = (self.registers.len(), (coupon >> SLOT_BITS) as u8);
        let register = &mut self.registers[coupon as usize & (registers - 1)];
        if run > *register {
            self.sums.raise(registers, *register, run);
            *register = run;
        }
    }

    /// Adds the flows of another sketch.
    #[inline(never)]
    fn add(&mut self, other: &Self) -> Result<(), Incompatible> {
        if self.packets == 0 {
            self.rehashed = other.rehashed;
        }
        if self.rehashed != other.rehashed && other.packets > 0 {
            return Err(Incompatible("hash functions differ"));
        }
        let refused = Incompatible("the library refuses to merge them");
        let sketches = self.sketch().zip(other.sketch());
        let union = HllUnion::new(self.registers.len().ilog2() as u8).ok();
        let (Some((own, theirs)), Some(mut union)) = (sketches, union) else {
            return Err(refused);
        };
        union.update(&own);
        union.update(&theirs);
        self.restore(&union.to_sketch(HllType::Hll8).serialize());
        self.packets = self.packets.saturating_add(other.packets);
        Ok(())
    }

    /// As [`Summary::save`], which is compiled for each key.
    #[inline(never)]
    fn write(&self, out: &mut Writer) {
        out.number(self.packets);
        out.number(u8::from(self.rehashed));
        out.bytes(&self.image());
    }

    /// As [`Summary::load`].
    #[inline(never)]
    fn read(&mut self, from: &mut Reader<'_>) -> Result<(), DecodeError> {
        self.packets = from.number("packets")?;
        self.rehashed = from.is_rehashed() || from.flag("whether digests were hashed")?;
        let registers = self.registers.len();
        // At most one byte per register, or four for each of few flows.
        let image = from.bytes("registers", 64 + 4 * registers)?;
        let possible = is_possible(image, registers)
            && HllSketch::deserialize(image).is_ok_and(|sketch| {
                1 << sketch.lg_config_k() == registers && sketch.target_type() == HllType::Hll8
            });
        if !possible {
            return Err(from.invalid("registers", image.len(), "it is not such a sketch"));
        }
        self.restore(image);
        Ok(())
    }
}

/// The library's estimate of the flows when registers replace their coupons.
fn first_estimate(registers: usize) -> Option<f64> {
    let coupons: Vec<u32> =
        (1..).take(most_coupons(registers)).map(|slot| 1 << SLOT_BITS | slot).collect();
    HllSketch::deserialize(&image_of(&coupons, registers)).ok().map(|sketch| sketch.estimate())
}

/// The place of the first digest that raises its register.
#[inline(always)]
fn first_higher(registers: &[u8], digests: &[u64]) -> Option<usize> {
    let last = registers.len().checked_sub(1)?;
    digests.iter().position(|digest| {
        // Its run is above the register if it has at least so many leading zeros: no higher bit is
        // set. A shift by 64 would be one by none.
        let register = registers[*digest as usize & last];
        ((digest | FLOOR) >> 1).wrapping_shr(63 - u32::from(register)) == 0
    })
}

/// The coupon of a digest in sketches that were stored when the library hashed digests: by its hash.
fn rehashed(digest: u64) -> u32 {
    let Ok(mut sketch) = HllSketch::new(LEAST.ilog2() as u8, HllType::Hll8) else { return 0 };
    sketch.update(digest);
    sketch.serialize()[LIST_BYTES..].first_chunk().map_or(0, |coupon| u32::from_le_bytes(*coupon))
}

impl<K: FlowKey> Ingest<K> for HllRegisters {
    fn ingest(&mut self, batch: &mut Batch<K>) {
        batch.digest(&self.digester);
        self.count(batch.digests());
        self.packets = self.packets.saturating_add(packets_in(batch));
    }

    fn reads(&self) -> Reads {
        Reads::NOTHING
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
        self.write(out);
    }

    fn load(&mut self, from: &mut Reader<'_>) -> Result<(), DecodeError> {
        self.read(from)
    }

    fn clear(&mut self) {
        self.empty();
        self.rehashed = false;
        self.packets = 0;
    }

    fn parameters(&self) -> Vec<(&'static str, Setting)> {
        vec![("registers", Setting::Integer(self.registers.len() as u64))]
    }

    fn memory_bytes(&self) -> usize {
        self.registers.memory_bytes() + self.coupons.memory_bytes()
    }
}

impl Answers for HllRegisters {
    fn cardinality(&self) -> Option<Estimate> {
        let sketch = self.sketch()?;
        let most = self.packets as f64;
        let bounds = |bound: f64| bound.clamp(0.0, most);
        Some(Estimate {
            value: bounds(sketch.estimate()),
            low: bounds(sketch.lower_bound(NumStdDev::Two)),
            high: bounds(sketch.upper_bound(NumStdDev::Two)),
            confidence: Some(CONFIDENCE),
        })
    }

    /// `None` for a sketch with another hash: its registers do not compare with those of others.
    fn registers(&self) -> Option<Vec<u32>> {
        if self.rehashed {
            return None;
        }
        let mut registers: Vec<u32> = self.registers.iter().map(|run| u32::from(*run)).collect();
        for coupon in self.coupons() {
            let register = &mut registers[coupon as usize % self.registers.len()];
            *register = (coupon >> SLOT_BITS).max(*register);
        }
        Some(registers)
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use super::*;
    use crate::batch::BATCH_PACKETS;
    use crate::key::Key8;
    use crate::summary::Parameters;

    fn summary(registers: usize) -> HllRegisters {
        let mut options = Options::new(1 << 20, 1);
        options.parameters = Parameters::new([("registers", registers)]);
        HllRegisters::new(&options).unwrap()
    }

    /// The library's sketch as an image with sorted coupons.
    fn sorted(sketch: &HllSketch) -> Vec<u8> {
        let mut image = sketch.serialize();
        let coupons = match Content::of(&image).unwrap() {
            (Content::Registers, _) => return image,
            (_, coupons) => image.len() - coupons.len(),
        };
        image[coupons..].as_chunks_mut::<4>().0.sort_by_key(|coupon| u32::from_le_bytes(*coupon));
        image
    }

    #[test]
    fn the_same_coupons_give_the_library_s_image() {
        for (registers, flows) in [
            (16, 5),
            (16, 1000),
            (128, 8),
            (256, 25),
            (1024, 90),
            (1024, 96),
            (1024, 97),
            (4096, 50_000),
        ] {
            let mut summary = summary(registers);
            let mut sketch = HllSketch::new(registers.ilog2() as u8, HllType::Hll8).unwrap();
            summary.rehashed = true;
            let mut random = fastrand::Rng::with_seed(1);
            for digest in (0..flows).map(|_| random.u64(..)) {
                for _ in 0..2 {
                    summary.count(&[digest]);
                    sketch.update(digest);
                }
            }
            assert_eq!(summary.image(), sorted(&sketch), "{flows} flows, {registers} registers");
        }
    }

    #[test]
    fn batches_count_as_their_coupons_do() {
        for (registers, flows) in [(16, 1000), (1024, 500), (1024, 200_000)] {
            let (mut batches, mut coupons) = (summary(registers), summary(registers));
            let mut random = fastrand::Rng::with_seed(2);
            let digests: Vec<u64> = (0..flows).map(|_| random.u64(..)).collect();
            for _ in 0..3 {
                for digests in digests.chunks(BATCH_PACKETS) {
                    batches.count(digests);
                }
                for digest in &digests {
                    coupons.take(coupon(*digest));
                }
            }
            assert_eq!(batches.image(), coupons.image(), "{flows} flows, {registers} registers");
        }
    }

    #[test]
    fn runs_are_counted_above_the_slot() {
        let coupons = [u64::MAX, 1 << 63, 1 << 62, 1 << 26, 5, 0].map(coupon);
        let runs = coupons.map(|coupon| coupon >> SLOT_BITS);
        assert_eq!(runs, [1, 1, 2, 38, 39, 39]);
        assert_eq!(coupons.map(|coupon| coupon % 64), [63, 0, 0, 0, 5, 0]);
    }

    #[test]
    fn sums_are_those_of_the_registers() {
        let mut summary = summary(64);
        let mut random = fastrand::Rng::with_seed(3);
        // Long runs of zeros are in the second sum.
        let digests: Vec<u64> = (0..5000).map(|_| random.u64(..) >> (random.u32(..40))).collect();
        summary.count(&digests);
        let Sums { inverse, zeros, estimate } = Sums::of(&summary.registers, None);
        assert_eq!((inverse, zeros), (summary.sums.inverse, summary.sums.zeros));
        assert!(inverse[1] > 0.0 && estimate.is_none());
    }

    #[test]
    fn merged_registers_are_known() {
        let mut random = fastrand::Rng::with_seed(2);
        let (mut one, mut other, mut all) = (summary(64), summary(64), summary(64));
        for summary in [&mut one, &mut other] {
            let digests = [(); BATCH_PACKETS].map(|()| random.u64(..));
            summary.count(&digests);
            all.count(&digests);
            summary.packets = 256;
        }
        Summary::<Key8>::merge(&mut one, &other).unwrap();
        assert_eq!(one.registers[..], all.registers[..]);
        assert_eq!(one.sums.estimate, None);
        Summary::<Key8>::clear(&mut one);
        assert_eq!(one.image(), summary(64).image());
    }

    #[test]
    fn sketches_with_other_hashes_do_not_merge() {
        let (mut own, mut other) = (summary(64), summary(64));
        other.rehashed = true;
        for summary in [&mut own, &mut other] {
            summary.count(&[7; 3]);
            summary.packets = 3;
        }
        assert!(other.registers().is_none() && own.registers().is_some());
        assert_eq!(
            Summary::<Key8>::merge(&mut own, &other),
            Err(Incompatible("hash functions differ"))
        );
        let mut empty = summary(64);
        Summary::<Key8>::merge(&mut empty, &other).unwrap();
        assert_eq!((empty.image(), empty.rehashed), (other.image(), true));
    }
}
