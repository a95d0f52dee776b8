//! The stored form of a summary.
//!
//! All numbers are little-endian. A frame is `FGSM`, the version (u16), the algorithm's name, the
//! bytes of a key (u16), the options that summaries merge by (seed, measure u8, threshold u8 and
//! u64, spread u64, hierarchy u8), the parameters in force (u8 of them, each a name and the text of
//! its value), the length of the payload (u64), the payload, and the CRC-32 of all bytes before it.
//! Names and values are a length (u8) and that many bytes of UTF-8.
//!
//! A seed is its kind (u8), then: 0, a number (u64); 1, the 256 bits of a random seed; 2, the check
//! value (u64) of a seed file, without which the summary cannot be decoded. Random bits stand in the
//! stored form, so that it must be kept from everyone who may send packets; the state of a sampler's
//! random draws does so under any seed.
//!
//! A summary of a sample has the name of the sampler and a plus before that of its algorithm; the
//! sampler's parameters come first, with its name and a dot before theirs.
//!
//! Decoding checks the checksum first, builds an empty summary from the parameters within the
//! memory limit, and lets it load the payload; nothing else is allocated, but by the library behind
//! HyperLogLog and KLL, for what their sizes allow.

use std::ops::RangeInclusive;

use bytemuck::Zeroable;
use flowgauge_kernel::{Digester, Isa, Seed, SeedId};

use super::{BuildError, Info, Memory, Options, Parameters, Summary};
use crate::catalog;
use crate::key::FlowKey;
use crate::terms::{Hierarchy, Measure, Size, Threshold};

pub(crate) use super::patience::Patience;

const MAGIC: &[u8; 4] = b"FGSM";
const VERSION: u16 = 2;

/// Why bytes are no summary.
#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    /// The bytes end too early.
    #[error("the bytes end within {field}, at offset {offset}")]
    Cut {
        /// What should stand there.
        field: &'static str,
        /// Where it begins.
        offset: usize,
    },
    /// A field has a value that it cannot have.
    #[error("{field} cannot be what stands at offset {offset}: {reason}")]
    Invalid {
        /// The field.
        field: &'static str,
        /// Where it begins.
        offset: usize,
        /// What is wrong.
        reason: &'static str,
    },
    /// The summary was made under a seed file.
    #[error("the summary was made under the seed file {needed}, and {given}; give that file")]
    SeedFile {
        /// The identity of the file's seed.
        needed: SeedId,
        /// What was given instead.
        given: &'static str,
    },
    /// The summary that the bytes speak of cannot be built.
    #[error("the parameters do not make a summary: {0}")]
    Build(#[from] BuildError),
}

/// A summary with what it was built from.
pub struct Decoded<K> {
    /// Its algorithm.
    pub info: &'static Info,
    /// What it was built from.
    pub options: Options,
    /// The summary.
    pub summary: Box<dyn Summary<K>>,
}

/// A number of fixed size in the stored form.
pub trait Number: Copy + Zeroable {
    /// Appends it.
    fn write(self, out: &mut Vec<u8>);
    /// From exactly its number of bytes.
    fn read(bytes: &[u8]) -> Self;
}

macro_rules! numbers {
    ($($number:ty),*) => {$(
        impl Number for $number {
            #[inline(always)]
            fn write(self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }
            #[inline(always)]
            fn read(bytes: &[u8]) -> Self {
                let mut number = [0; size_of::<Self>()];
                number.copy_from_slice(bytes);
                Self::from_le_bytes(number)
            }
        }
    )*};
}
numbers!(u8, u16, u32, u64, i32, i64, f64);

/// Appends fields to the stored form.
#[derive(Debug, Default)]
pub struct Writer {
    bytes: Vec<u8>,
    key_bytes: usize,
}

impl Writer {
    /// The bytes written, behind which their CRC-32 stands.
    pub fn checked(mut self) -> Vec<u8> {
        let checksum = crc32fast::hash(&self.bytes);
        self.number(checksum);
        self.bytes
    }

    /// Canonical bytes of a key.
    pub(crate) fn key_bytes(&self) -> usize {
        self.key_bytes
    }

    /// Appends a number.
    pub fn number(&mut self, number: impl Number) {
        number.write(&mut self.bytes);
    }

    /// Appends numbers, whose count the reader knows.
    pub fn numbers<N: Number>(&mut self, numbers: &[N]) {
        self.bytes.reserve(size_of_val(numbers));
        for number in numbers {
            number.write(&mut self.bytes);
        }
    }

    /// Appends a key.
    pub fn key<K: FlowKey>(&mut self, key: K) {
        self.bytes.extend_from_slice(key.canonical(self.key_bytes));
    }

    /// Appends bytes with their number.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.bytes.extend_from_slice(bytes);
    }

    /// Appends packets and bytes.
    pub fn size(&mut self, size: Size) {
        self.numbers(&[size.packets, size.bytes]);
    }

    /// Appends what `write` appends, records of equal width, in the order of their bytes: so that
    /// equal contents have equal bytes, in whatever order they came.
    pub fn sorted(&mut self, width: usize, write: impl FnOnce(&mut Self)) {
        let start = self.bytes.len();
        write(self);
        let unsorted = self.bytes.split_off(start);
        let mut records: Vec<&[u8]> = unsorted.chunks_exact(width).collect();
        records.sort_unstable();
        self.bytes.extend(records.into_iter().flatten());
    }

    fn text(&mut self, text: &str) {
        debug_assert!(text.len() < 256);
        self.bytes.push(text.len() as u8);
        self.bytes.extend_from_slice(text.as_bytes());
    }
}

/// Takes fields from the stored form, and never reads past its end.
#[derive(Debug)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    offset: usize,
    key_bytes: usize,
}

impl<'a> Reader<'a> {
    /// Reads `bytes` from their start.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, offset: 0, key_bytes: 0 }
    }

    /// Whether all bytes were read.
    pub fn is_at_end(&self) -> bool {
        self.offset == self.bytes.len()
    }

    /// Canonical bytes of a key.
    pub(crate) fn key_bytes(&self) -> usize {
        self.key_bytes
    }

    fn take(&mut self, count: usize, field: &'static str) -> Result<&'a [u8], DecodeError> {
        let rest = &self.bytes[self.offset..];
        let taken = rest.get(..count).ok_or(DecodeError::Cut { field, offset: self.offset })?;
        self.offset += count;
        Ok(taken)
    }

    /// Takes a number.
    ///
    /// # Errors
    /// When the bytes end.
    pub fn number<N: Number>(&mut self, field: &'static str) -> Result<N, DecodeError> {
        Ok(N::read(self.take(size_of::<N>(), field)?))
    }

    /// Takes as many numbers as `out` has.
    ///
    /// # Errors
    /// When the bytes end.
    pub fn numbers<N: Number>(
        &mut self,
        field: &'static str,
        out: &mut [N],
    ) -> Result<(), DecodeError> {
        let bytes = self.take(size_of_val(out), field)?;
        for (number, bytes) in out.iter_mut().zip(bytes.chunks_exact(size_of::<N>())) {
            *number = N::read(bytes);
        }
        Ok(())
    }

    /// Takes a number that counts what follows: at most `most`.
    ///
    /// # Errors
    /// When the bytes end, or the number is larger.
    pub fn count(&mut self, field: &'static str, most: usize) -> Result<usize, DecodeError> {
        let count = self.number::<u64>(field)?;
        usize::try_from(count).ok().filter(|count| *count <= most).ok_or(self.invalid(
            field,
            size_of::<u64>(),
            "it is more than there is room for",
        ))
    }

    /// Takes a key.
    ///
    /// # Errors
    /// When the bytes end.
    pub fn key<K: FlowKey>(&mut self, field: &'static str) -> Result<K, DecodeError> {
        let bytes = self.take(self.key_bytes, field)?;
        K::from_canonical(bytes).ok_or(self.invalid(field, self.key_bytes, "it is no key"))
    }

    /// Takes a byte that is 0 or 1.
    ///
    /// # Errors
    /// When the bytes end, or it is neither.
    pub fn flag(&mut self, field: &'static str) -> Result<bool, DecodeError> {
        match self.number::<u8>(field)? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(self.invalid(field, 1, "it is neither 0 nor 1")),
        }
    }

    /// Takes a key that comes after the one `before` in the order of [`Writer::sorted`], so that
    /// none stands there twice.
    pub(crate) fn next_key<K: FlowKey>(
        &mut self,
        field: &'static str,
        before: &mut Option<K>,
    ) -> Result<K, DecodeError> {
        let key: K = self.key(field)?;
        let width = self.key_bytes;
        let in_order = |before: K| before.canonical(width) < key.canonical(width);
        if before.replace(key).is_some_and(|before| !in_order(before)) {
            return Err(self.invalid(field, width, "keys are in order, each of them once"));
        }
        Ok(key)
    }

    /// Takes bytes with their number, `most` of them at most.
    ///
    /// # Errors
    /// When the bytes end, or there are more.
    pub fn bytes(&mut self, field: &'static str, most: usize) -> Result<&'a [u8], DecodeError> {
        let count = self.count(field, most)?;
        self.take(count, field)
    }

    /// The bytes before the CRC-32 that stands at the end of `bytes`.
    ///
    /// # Errors
    /// When the bytes end, or the checksum is not theirs.
    pub fn checked(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let end = bytes.len().saturating_sub(size_of::<u32>());
        let mut tail = Reader { bytes, offset: end, key_bytes: 0 };
        if tail.number::<u32>("checksum")? != crc32fast::hash(&bytes[..end]) {
            return Err(tail.invalid("checksum", size_of::<u32>(), "the bytes were damaged"));
        }
        Ok(Self::new(&bytes[..end]))
    }

    /// Takes packets and bytes.
    ///
    /// # Errors
    /// When the bytes end.
    pub fn size(&mut self, field: &'static str) -> Result<Size, DecodeError> {
        Ok(Size { packets: self.number(field)?, bytes: self.number(field)? })
    }

    /// The error that the last `width` bytes, which are `field`, are wrong.
    pub fn invalid(&self, field: &'static str, width: usize, reason: &'static str) -> DecodeError {
        DecodeError::Invalid { field, offset: self.offset - width, reason }
    }

    fn text(&mut self, field: &'static str) -> Result<&'a str, DecodeError> {
        let length = self.number::<u8>(field)?.into();
        let bytes = self.take(length, field)?;
        str::from_utf8(bytes).map_err(|_| self.invalid(field, length, "it is not UTF-8"))
    }
}

/// The stored form of `summary`, which was built by the algorithm `info` from `options`.
pub fn encode<K: FlowKey>(info: &Info, options: &Options, summary: &dyn Summary<K>) -> Vec<u8> {
    let key_bytes = options.key_bytes.unwrap_or(K::BYTES);
    let mut out = Writer { key_bytes, ..Writer::default() };
    out.numbers(MAGIC);
    out.number(VERSION);
    let mut name = info.name.to_owned();
    let mut parameters = Vec::new();
    // What passes on all packets leaves no trace.
    let samplers = summary.accelerators().into_iter().filter(|(name, _)| {
        catalog::accelerator_info(name).is_ok_and(|accelerator| accelerator.samples)
    });
    for (sampler, own) in samplers {
        name = format!("{sampler}+{name}");
        parameters
            .extend(own.into_iter().map(|(name, value)| (format!("{sampler}.{name}"), value)));
    }
    let own = summary.parameters().into_iter();
    parameters.extend(own.map(|(name, value)| (name.to_owned(), value)));
    out.text(&name);
    out.number(key_bytes as u16);
    write_seed(&mut out, options.digester.seed());
    out.number(match options.by {
        Measure::Packets => 0u8,
        Measure::Bytes => 1,
    });
    match options.threshold {
        Threshold::Share(share) => {
            out.number(0u8);
            out.number(share);
        }
        Threshold::Weight(weight) => {
            out.number(1u8);
            out.number(weight);
        }
    }
    out.number(options.spread);
    out.number(match options.hierarchy {
        Hierarchy::Bytes => 0u8,
        Hierarchy::Bits => 1,
        Hierarchy::Pair => 2,
    });
    out.number(parameters.len() as u8);
    for (name, value) in parameters {
        out.text(&name);
        out.text(&value.to_string());
    }
    let length_at = out.bytes.len();
    out.number(0u64);
    summary.save(&mut out);
    let payload = (out.bytes.len() - length_at - size_of::<u64>()) as u64;
    out.bytes[length_at..][..size_of::<u64>()].copy_from_slice(&payload.to_le_bytes());
    out.checked()
}

fn write_seed(out: &mut Writer, seed: &Seed) {
    match seed.id() {
        SeedId::Number(value) => {
            out.number(0u8);
            out.number(value);
        }
        SeedId::Random(_) => {
            out.number(1u8);
            out.numbers(seed.root());
        }
        SeedId::File(check) => {
            out.number(2u8);
            out.number(check);
        }
    }
}

/// The seed of a summary, which must be `file` where it was made under a seed file.
fn read_seed(from: &mut Reader<'_>, file: Option<&Seed>) -> Result<Seed, DecodeError> {
    match from.number::<u8>("kind of seed")? {
        0 => Ok(Seed::number(from.number("seed")?)),
        1 => {
            let mut bits = [0; 32];
            from.numbers("seed", &mut bits)?;
            Ok(Seed::random(bits))
        }
        2 => {
            let needed = SeedId::File(from.number("seed")?);
            match file {
                Some(file) if file.id() == needed => Ok(*file),
                Some(_) => Err(DecodeError::SeedFile { needed, given: "another one was given" }),
                None => Err(DecodeError::SeedFile { needed, given: "none was given" }),
            }
        }
        _ => Err(from.invalid("kind of seed", 1, "it is not number, random or file")),
    }
}

/// The summary of keys of type `K` whose stored form is `bytes`, in at most `limit` bytes of memory.
///
/// # Errors
/// When the bytes are no such summary, it was made under a seed file, or it needs more memory.
pub fn decode<K: FlowKey>(bytes: &[u8], limit: usize) -> Result<Decoded<K>, DecodeError> {
    decode_under(bytes, limit, None)
}

/// [`decode`] of a summary that may have been made under a seed file, whose seed `file` is.
///
/// # Errors
/// As [`decode`], or when it was made under another seed file.
pub fn decode_under<K: FlowKey>(
    bytes: &[u8],
    limit: usize,
    file: Option<&Seed>,
) -> Result<Decoded<K>, DecodeError> {
    decode_of(K::SHORTEST..=K::BYTES, bytes, limit, file)
}

/// [`decode_under`] of a summary whose keys have one of these lengths.
///
/// # Errors
/// As [`decode_under`], or when the keys have another length.
pub(crate) fn decode_of<K: FlowKey>(
    lengths: RangeInclusive<usize>,
    bytes: &[u8],
    limit: usize,
    file: Option<&Seed>,
) -> Result<Decoded<K>, DecodeError> {
    let mut from = Reader::new(bytes);
    let invalid = |from: &Reader<'_>, field, width, reason| Err(from.invalid(field, width, reason));
    if from.take(MAGIC.len(), "magic")? != MAGIC {
        return invalid(&from, "magic", MAGIC.len(), "no summary begins so");
    }
    if from.number::<u16>("version")? != VERSION {
        return invalid(&from, "version", 2, "only version 2 is known");
    }
    let end = bytes.len().saturating_sub(size_of::<u32>()).max(from.offset);
    let mut tail = Reader { bytes, offset: end, key_bytes: 0 };
    if tail.number::<u32>("checksum")? != crc32fast::hash(&bytes[..end]) {
        return invalid(&tail, "checksum", size_of::<u32>(), "the bytes were damaged");
    }
    from.bytes = &bytes[..end];

    let name = from.text("algorithm")?;
    let (sampler, name) =
        name.split_once('+').map_or((None, name), |(sampler, name)| (Some(sampler), name));
    let info = catalog::info(name)?;
    from.key_bytes = from.number::<u16>("key bytes")?.into();
    if !lengths.contains(&from.key_bytes) {
        return invalid(&from, "key bytes", 2, "the keys are of another kind");
    }
    let seed = read_seed(&mut from, file)?;
    let by = match from.number::<u8>("measure")? {
        0 => Measure::Packets,
        1 => Measure::Bytes,
        _ => return invalid(&from, "measure", 1, "it is neither packets nor bytes"),
    };
    let threshold = match from.number::<u8>("kind of threshold")? {
        0 => Threshold::Share(from.number("threshold")?),
        1 => Threshold::Weight(from.number("threshold")?),
        _ => return invalid(&from, "kind of threshold", 1, "it is neither share nor weight"),
    };
    if matches!(threshold, Threshold::Share(share) if !(0.0..=1.0).contains(&share)) {
        return invalid(&from, "threshold", 8, "a share is from 0 to 1");
    }
    let spread = from.number("spread")?;
    let hierarchy = match from.number::<u8>("hierarchy")? {
        0 => Hierarchy::Bytes,
        1 => Hierarchy::Bits,
        2 => Hierarchy::Pair,
        _ => return invalid(&from, "hierarchy", 1, "it is not bytes, bits or pair"),
    };
    let (mut parameters, mut of_sampler) = (Vec::new(), Vec::new());
    for _ in 0..from.number::<u8>("number of parameters")? {
        let name = from.text("name of a parameter")?;
        let value = from.text("value of a parameter")?;
        match sampler.and_then(|sampler| name.strip_prefix(sampler)?.strip_prefix('.')) {
            Some(name) => of_sampler.push((name, value)),
            None => parameters.push((name, value)),
        }
    }
    let payload = from.number::<u64>("length")?;
    if payload != (end - from.offset) as u64 {
        return invalid(&from, "length", 8, "as many bytes do not follow");
    }

    let options = Options {
        parameters: Parameters::new(parameters),
        key_bytes: Some(from.key_bytes),
        memory: Memory::limited(limit),
        digester: Digester::new(seed, Isa::best()),
        by,
        threshold,
        spread,
        hierarchy,
        ..Options::new(limit, 0)
    };
    let sampler = sampler.map(|sampler| (sampler.to_owned(), Parameters::new(of_sampler)));
    let mut summary = catalog::build_accelerated(sampler.as_slice(), name, &options)?;
    summary.load(&mut from)?;
    if from.offset != end {
        return invalid(&from, "payload", 0, "there is more than the summary has");
    }
    Ok(Decoded { info, options, summary })
}
