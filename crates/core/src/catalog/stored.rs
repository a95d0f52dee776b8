//! The stored form of a summary.
//!
//! All numbers are little-endian. A frame is `FGSM`, the version (u16), the algorithm's name, the
//! bytes of a key (u16), the options that summaries merge by (seed, measure u8, threshold u8 and
//! u64, spread u64, hierarchy u8), the parameters in force (u8 of them, each a name and the text of
//! its value), the length of the payload (u64), the payload, and the CRC-32 of all bytes before it.
//! Names and values are a length (u8) and that many bytes of UTF-8.
//!
//! The counters of Count-Min, Count Sketch, K-ary and UnivMon are stored in as few bytes as the
//! largest of them needs: their number (u8) is 1, 2, 4 or 8. Version 3 lacks it, and stores them as
//! wide as they are in memory.
//!
//! The flows of an exact table are sorted by their keys. With `state=counter`, packets and bytes of
//! a flow take as many bytes as they need (LEB128). Versions 3 and 4 store them in 4 and 8 bytes.
//!
//! Registers of HyperLogLog follow from digests. Up to version 5 they followed from MurmurHash3 of
//! the digests. From version 6 on, a byte before them is 1 if they do.
//!
//! A seed is its kind (u8), then: 0, a number (u64); 1, the 256 bits of a random seed; 2, the check
//! value (u64) of a seed file, which is needed for decoding. The stored form contains the bits of a
//! random seed, so it must be kept from anyone who can send packets. Under any seed it also
//! contains the random state of a sampler.
//!
//! A summary of a sample is named by the sampler, a plus and the algorithm. The sampler's
//! parameters come first, prefixed by the sampler's name and a dot.
//!
//! Decoding checks the checksum first, builds an empty summary from the parameters within the
//! memory limit, and lets it load the payload. Nothing else is allocated, except by the library
//! that checks HyperLogLog and holds KLL, within the bounds of their sizes.

use std::ops::RangeInclusive;

use flowgauge_kernel::{Digester, Isa, Seed, SeedId};

use crate::key::FlowKey;
use crate::summary::codec::{DecodeError, DecodeErrorKind, Reader, Writer};
use crate::summary::{Info, Memory, Options, Parameters, Setting, Summary};
use crate::terms::{Hierarchy, Measure};

const MAGIC: &[u8; 4] = b"FGSM";
const VERSION: u16 = 6;

/// The earliest version that can still be read; [`Reader`] knows what differs.
const EARLIEST: u16 = 3;

/// A decoded summary with its algorithm and options.
///
/// ```
/// use flowgauge_core::catalog::{self, stored};
/// use flowgauge_core::key::Key8;
/// use flowgauge_core::summary::Options;
///
/// let options = Options::new(1 << 16, 1).for_keys(4);
/// let summary = catalog::build::<Key8>("count-min", &options).unwrap();
/// let bytes = stored::encode(catalog::info("count-min").unwrap(), &options, &*summary);
/// let decoded = stored::decode::<Key8>(&bytes, 1 << 20).unwrap();
/// assert_eq!(decoded.info.name, "count-min");
/// assert_eq!(stored::encode(decoded.info, &decoded.options, &*decoded.summary), bytes);
/// ```
pub struct Decoded<K> {
    /// Its algorithm.
    pub info: &'static Info,
    /// The options that it was built from.
    pub options: Options,
    /// The summary.
    pub summary: Box<dyn Summary<K>>,
}

/// Upper bound of a stored form's length in bytes, apart from the summary's memory: names and
/// parameters.
pub const FRAME_BYTES: usize = 1 << 12;

/// The stored form of `summary`, which was built by the algorithm `info` from `options`.
pub fn encode<K: FlowKey>(info: &Info, options: &Options, summary: &dyn Summary<K>) -> Vec<u8> {
    let mut out = Writer::default();
    write(&mut out, info, options, summary);
    out.into_bytes()
}

/// Appends the stored form of `summary`, which was built by the algorithm `info` from `options`.
pub(crate) fn write<K: FlowKey>(
    out: &mut Writer,
    info: &Info,
    options: &Options,
    summary: &dyn Summary<K>,
) {
    let start = out.written();
    out.numbers(MAGIC);
    out.number(VERSION);
    write_head(out, info, options, summary);
    out.measured(|out| summary.save(out));
    out.check(start);
}

/// Appends everything between the version and the payload. Summaries with equal heads are built
/// alike.
fn write_head<K: FlowKey>(
    out: &mut Writer,
    info: &Info,
    options: &Options,
    summary: &dyn Summary<K>,
) {
    let key_bytes = options.key_bytes.unwrap_or(K::BYTES);
    write_settings(out, info, options, key_bytes, summary.parameters(), summary.accelerators());
}

/// [`write_head`] for any key type, so that it is compiled once.
fn write_settings(
    out: &mut Writer,
    info: &Info,
    options: &Options,
    key_bytes: usize,
    own: Vec<(&'static str, Setting)>,
    accelerators: Vec<(&'static str, Vec<(&'static str, Setting)>)>,
) {
    out.write_keys(key_bytes);
    let mut name = info.name.to_owned();
    let mut parameters = Vec::new();
    // Accelerators that pass on all packets are not stored.
    let samplers = accelerators.into_iter().filter(|(name, _)| {
        super::accelerator_info(name).is_ok_and(|accelerator| accelerator.samples)
    });
    for (sampler, own) in samplers {
        name = format!("{sampler}+{name}");
        parameters
            .extend(own.into_iter().map(|(name, value)| (format!("{sampler}.{name}"), value)));
    }
    parameters.extend(own.into_iter().map(|(name, value)| (name.to_owned(), value)));
    out.text(&name);
    out.number(key_bytes as u16);
    write_seed(out, options.digester.seed());
    out.number(match options.by {
        Measure::Packets => 0u8,
        Measure::Bytes => 1,
    });
    out.threshold(options.threshold);
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

/// Reads the seed of a summary, which must be `file` if the summary was made with a seed file.
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
                Some(_) => {
                    Err(DecodeErrorKind::SeedFile { needed, given: "another one was given" }.into())
                }
                None => Err(DecodeErrorKind::SeedFile { needed, given: "none was given" }.into()),
            }
        }
        _ => Err(from.invalid("kind of seed", 1, "it is not number, random or file")),
    }
}

/// Decodes a summary of keys of type `K` from its stored form `bytes`, in at most `limit` bytes of
/// memory.
///
/// # Errors
/// When the bytes are not such a summary, when it was made with a seed file, or when it needs more
/// memory.
pub fn decode<K: FlowKey>(bytes: &[u8], limit: usize) -> Result<Decoded<K>, DecodeError> {
    decode_under(bytes, limit, None)
}

/// As [`decode`], for a summary that may have been made with the seed file of seed `file`.
///
/// # Errors
/// Those of [`decode`], and when it was made with another seed file.
pub fn decode_under<K: FlowKey>(
    bytes: &[u8],
    limit: usize,
    file: Option<&Seed>,
) -> Result<Decoded<K>, DecodeError> {
    decode_of(K::SHORTEST..=K::BYTES, Reader::new(bytes), limit, file, None)
}

/// As [`decode_under`], but reuses the memory of a spare summary if both are built alike, since
/// allocating fresh pages takes longer than the rest of decoding. `limit` must be the limit that
/// the spare one was decoded with.
///
/// # Errors
/// Those of [`decode_under`].
pub fn decode_again<K: FlowKey>(
    bytes: &[u8],
    limit: usize,
    file: Option<&Seed>,
    spare: Decoded<K>,
) -> Result<Decoded<K>, DecodeError> {
    decode_of(K::SHORTEST..=K::BYTES, Reader::new(bytes), limit, file, Some(spare))
}

/// As [`decode_under`], for a summary whose keys have one of these lengths; as [`decode_again`] if
/// there is a `spare` summary.
///
/// # Errors
/// Those of [`decode_under`], and when the keys have another length.
pub(crate) fn decode_of<K: FlowKey>(
    lengths: RangeInclusive<usize>,
    mut from: Reader<'_>,
    limit: usize,
    file: Option<&Seed>,
    spare: Option<Decoded<K>>,
) -> Result<Decoded<K>, DecodeError> {
    let invalid = |from: &Reader<'_>, field, width, reason| Err(from.invalid(field, width, reason));
    if from.take(MAGIC.len(), "magic")? != MAGIC {
        return invalid(&from, "magic", MAGIC.len(), "no known summary begins with these bytes");
    }
    let version = from.number::<u16>("version")?;
    if !(EARLIEST..=VERSION).contains(&version) {
        return invalid(&from, "version", 2, "only versions 3 to 6 are known");
    }
    from.expect_version(version);
    from.check()?;

    let before_head = from.left();
    let name = from.text("algorithm")?;
    let (sampler, name) =
        name.split_once('+').map_or((None, name), |(sampler, name)| (Some(sampler), name));
    let info = super::info(name)?;
    let key_bytes = from.number::<u16>("key bytes")?.into();
    if !lengths.contains(&key_bytes) {
        return invalid(&from, "key bytes", 2, "the keys are of another kind");
    }
    from.expect_keys(key_bytes);
    let seed = read_seed(&mut from, file)?;
    let by = match from.number::<u8>("measure")? {
        0 => Measure::Packets,
        1 => Measure::Bytes,
        _ => return invalid(&from, "measure", 1, "it is neither packets nor bytes"),
    };
    let threshold = from.threshold()?;
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
    let head = from.read_since(before_head);
    let payload = from.number::<u64>("length")?;
    if payload != from.left() as u64 {
        return invalid(&from, "length", 8, "it differs from the number of bytes that follow");
    }

    let options = Options {
        parameters: Parameters::new(parameters),
        key_bytes: Some(key_bytes),
        memory: Memory::limited(limit),
        digester: Digester::new(seed, Isa::best()),
        by,
        threshold,
        spread,
        hierarchy,
        ..Options::new(limit, 0)
    };
    let sampler = sampler.map(|sampler| (sampler.to_owned(), Parameters::new(of_sampler)));
    let spare = spare.filter(|spare| {
        let mut out = Writer::default();
        write_head(&mut out, spare.info, &spare.options, &*spare.summary);
        out.into_bytes() == head
    });
    let mut summary = match spare {
        Some(Decoded { mut summary, .. }) => {
            summary.clear();
            summary
        }
        None => super::build_accelerated(sampler.as_slice(), name, &options)?,
    };
    summary.load(&mut from)?;
    if !from.is_at_end() {
        return invalid(&from, "payload", 0, "bytes follow the end of the summary");
    }
    Ok(Decoded { info, options, summary })
}
