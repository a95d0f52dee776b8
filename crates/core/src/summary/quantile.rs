//! KLL quantiles, by the `datasketches` crate: of keys in their order, of packet lengths, or of the
//! gaps between packets.
//!
//! Paper: Karnin, Lang, Liberty, "Optimal quantile approximation in streams" (FOCS 2016), §2. The
//! library draws unseeded random bits, so two runs over the same packets differ within the error.

use std::cmp::Ordering;

use datasketches::codec::{SketchBytes, SketchSlice};
use datasketches::common::SearchCriteria;
use datasketches::error::{Error, ErrorKind};
use datasketches::kll::{KllFloat, KllSketch, KllValue};
use flowgauge_kernel::Digester;

use super::codec::{DecodeError, Reader, Writer};
use super::ingest::{Basis, twin};
use super::{
    Answers, BuildError, BuildErrorKind, Describe, Incompatible, Info, Ingest, Laws, Options,
    Parameter, Parameters, QuantileOf, Quantiles, Reads, Setting, Summary,
};
use crate::batch::Batch;
use crate::key::{CanonicalKey, FlowKey};
use crate::summary::describe::form;
use crate::terms::Measure;

/// The library's fit of the rank error, with a confidence of 99 %: `ERROR / k.powf(POWER)`.
const ERROR: f64 = 2.296;
const POWER: f64 = 0.9021;
const CONFIDENCE: f64 = 0.99;

/// The range of `k`.
const LEAST_K: u64 = 8;
const MOST_K: u64 = 65_535;

/// Maximum number of packets of a stored or merged sketch: the library panics at 2⁶⁴.
const MOST_PACKETS: u64 = 1 << 62;

/// Maximum number of items of a sketch: 3 k in levels that shrink by a third, and at least 8 in
/// each of 60 levels.
const fn capacity(k: u64) -> usize {
    3 * k as usize + 8 * 60
}

/// KLL, in the catalog as `kll`.
///
/// Cost per packet: one push, and sometimes the sorting of a level. Memory in bytes: `(3 k + 480) ×
/// 8`, or `× size_of::<K>()` for keys, allocated by the library as packets arrive.
///
/// ```
/// use flowgauge_core::batch::Batch;
/// use flowgauge_core::catalog;
/// use flowgauge_core::key::{FlowKey, Key8};
/// use flowgauge_core::summary::Options;
///
/// let options = Options::new(1 << 16, 1).for_keys(4).with([("of", "size")]);
/// let mut summary = catalog::build::<Key8>("kll", &options).unwrap();
/// let key = Key8::from_canonical(&[192, 0, 2, 1]).unwrap();
/// let mut batch = Batch::new();
/// (1..=200).for_each(|bytes| batch.push(key, bytes, 0));
/// summary.ingest(&mut batch);
/// // So few packets are all kept: half of them have at most 100 bytes.
/// let sizes = summary.answers().quantiles().unwrap();
/// assert_eq!((sizes.rank(100.0), sizes.error()), (0.5, 0.0));
/// ```
pub struct Kll;

impl Describe for Kll {
    const INFO: Info = Info {
        name: "kll",
        idea: "quantiles in bounded memory, by the datasketches library; its random bits are \
               unseeded, so runs differ within the error",
        paper: "Karnin, Lang, Liberty (FOCS 2016), section 2",
        parameters: &[
            Parameter {
                name: "of",
                help: "what to rank packets by: key (their keys in order), size (their bytes) or \
                       gap (nanoseconds since the previous packet, of the same IP version if the \
                       key has an address) (default: key)",
            },
            Parameter {
                name: "k",
                help: "size of the largest level, 8 to 65535 (default: 200, or what fits into \
                       the memory)",
            },
            Parameter { name: "epsilon", help: "instead of k: the error of a rank, as a share" },
        ],
        memory: "(3 k + 480) x (key, or 8)",
        forms: &[
            form![Quantiles(QuantileOf::Key)],
            form![of = "size"; Quantiles(QuantileOf::PacketBytes)],
            form![of = "gap"; Quantiles(QuantileOf::GapNs)],
        ],
        laws: Laws { commutable: true, aggregatable: true, ..Laws::NONE },
    };

    /// A weighted update lacks the lengths and times of its packets, and gaps depend on packet
    /// order.
    fn laws(parameters: &Parameters) -> Laws {
        let of = parameters.get("of");
        let (commutable, aggregatable) = (of != Some("gap"), !matches!(of, Some("size" | "gap")));
        Laws { commutable, aggregatable, ..Self::INFO.laws }
    }

    fn fits(options: &Options) -> Result<(), BuildError> {
        let of = of(&options.parameters)?;
        if of == QuantileOf::Key && options.by == Measure::Bytes {
            return Err(BuildErrorKind::Unfit {
                algorithm: Self::INFO.name,
                reason: "its quantiles of keys count packets; use --by packets, or --algorithm \
                         linear-table"
                    .to_owned(),
            }
            .into());
        }
        Ok(())
    }

    fn build<K: FlowKey>(options: &Options) -> Result<Box<dyn Summary<K>>, BuildError> {
        Self::fits(options)?;
        let parameters = &options.parameters;
        parameters.exclusive("k", &["epsilon"])?;
        let of = of(parameters)?;
        let item = item_bytes::<K>(of);
        let fits = |k: &u64| capacity(*k) * item <= options.memory_bytes;
        let k = match (parameters.integer("k", LEAST_K..=MOST_K)?, parameters.fraction("epsilon")?)
        {
            (Some(k), _) => k,
            (None, Some(epsilon)) => {
                ((ERROR / epsilon).powf(1.0 / POWER).ceil() as u64).max(LEAST_K)
            }
            (None, None) => (LEAST_K..=200).rev().find(fits).unwrap_or(LEAST_K),
        };
        if k > MOST_K {
            return Err(BuildErrorKind::OutOfRange {
                name: "epsilon",
                value: parameters.get("epsilon").unwrap_or_default().to_owned(),
                range: "0.00011 or more".to_owned(),
            }
            .into());
        }
        options.memory.take(capacity(k) * item)?;
        let k = k as u16;
        let sketch = QuantileSketch::<K>::empty(k, of).ok_or(BuildErrorKind::Unfit {
            algorithm: Self::INFO.name,
            reason: format!("the library refuses k={k}"),
        })?;
        Ok(Box::new(QuantileSketch::<K> {
            digester: options.digester,
            k,
            of,
            sketch,
            latest_ns: None,
        }))
    }
}

/// A key, ordered by its canonical bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
struct OrderedKey<K>(K);

impl<K: FlowKey> Ord for OrderedKey<K> {
    fn cmp(&self, other: &Self) -> Ordering {
        // A shorter key is padded with zeros.
        self.0.canonical(K::BYTES).cmp(other.0.canonical(K::BYTES))
    }
}

impl<K: FlowKey> PartialOrd for OrderedKey<K> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Serialized with the length of the longest key; [`with_items`] cuts the padding off.
impl<K: FlowKey> KllValue for OrderedKey<K> {
    const MIN_SERIALIZED_SIZE: usize = K::BYTES;

    fn serialized_size(_: &Self) -> usize {
        K::BYTES
    }

    fn serialize(value: &Self, bytes: &mut SketchBytes) {
        bytes.write(value.0.canonical(K::BYTES));
    }

    fn deserialize(input: &mut SketchSlice<'_>) -> Result<Self, Error> {
        let key = input.remaining().get(..K::BYTES).and_then(K::from_canonical);
        let key = key.ok_or_else(|| Error::new(ErrorKind::InvalidData, "a key is cut short"))?;
        input.advance(K::BYTES as u64);
        Ok(Self(key))
    }
}

/// A sketch of keys or of numbers.
enum Sketch<K> {
    Keys(KllSketch<OrderedKey<K>>),
    Numbers(KllSketch<KllFloat<f64>>),
}

/// A KLL sketch with its parameters.
///
/// The library writes to the sketch itself for each packet. The alignment keeps its cache lines,
/// and the adjacent ones that are prefetched with them, apart from those of other workers.
///
/// ```
/// use datasketches::kll::{KllFloat, KllSketch};
/// use flowgauge_core::batch::Batch;
/// use flowgauge_core::catalog;
/// use flowgauge_core::key::{FlowKey, Key8};
/// use flowgauge_core::summary::{Options, quantile::QuantileSketch};
///
/// let options = Options::new(1 << 16, 1).for_keys(4).with([("of", "size")]);
/// let mut summary = catalog::build::<Key8>("kll", &options).unwrap();
/// let mut batch = Batch::new();
/// batch.push(Key8::from_canonical(&[192, 0, 2, 1]).unwrap(), 64, 0);
/// summary.ingest(&mut batch);
/// // Other DataSketches libraries read the image.
/// let image = summary.downcast_ref::<QuantileSketch<Key8>>().unwrap().image();
/// assert_eq!(KllSketch::<KllFloat<f64>>::deserialize(&image).unwrap().n(), 1);
/// ```
#[repr(align(128))]
pub struct QuantileSketch<K> {
    digester: Digester,
    k: u16,
    of: QuantileOf,
    sketch: Sketch<K>,
    latest_ns: Option<i64>,
}

/// The value of the parameter `of`.
fn of(parameters: &Parameters) -> Result<QuantileOf, BuildError> {
    Ok(match parameters.word("of", &["key", "size", "gap"])? {
        "size" => QuantileOf::PacketBytes,
        "gap" => QuantileOf::GapNs,
        _ => QuantileOf::Key,
    })
}

const fn item_bytes<K>(of: QuantileOf) -> usize {
    match of {
        QuantileOf::Key => size_of::<K>(),
        _ => size_of::<f64>(),
    }
}

impl<K: FlowKey> QuantileSketch<K> {
    fn empty(k: u16, of: QuantileOf) -> Option<Sketch<K>> {
        Some(match of {
            QuantileOf::Key => Sketch::Keys(KllSketch::new(k).ok()?),
            _ => Sketch::Numbers(KllSketch::new(k).ok()?),
        })
    }

    /// The image in the format of the DataSketches libraries; numbers are doubles.
    pub fn image(&self) -> Vec<u8> {
        match &self.sketch {
            Sketch::Keys(sketch) => {
                with_items(&sketch.serialize(), K::BYTES, self.digester.key_bytes())
            }
            Sketch::Numbers(sketch) => sketch.serialize(),
        }
    }
}

/// Changes the length of the items in an image from `from` to `to` bytes, by cutting them or
/// padding them with zeros.
fn with_items(image: &[u8], from: usize, to: usize) -> Vec<u8> {
    // A single item follows two words of preamble; several follow five words and one per level.
    let words = match image {
        [2, ..] => 2,
        image => 5 + image.get(18).map_or(0, |levels| usize::from(*levels)),
    };
    let (head, items) = image.split_at((4 * words).min(image.len()));
    let mut out = head.to_vec();
    for item in items.chunks(from) {
        out.extend_from_slice(&item[..item.len().min(to)]);
        out.resize(out.len() + to.saturating_sub(from), 0);
    }
    out
}

/// The sketch of numbers in an image. It is apart from those of keys, so that the code exists once.
#[inline(never)]
fn numbers(image: &[u8]) -> Option<KllSketch<KllFloat<f64>>> {
    KllSketch::deserialize(image).ok()
}

/// Adds `number` `packets` times.
fn add(sketch: &mut KllSketch<KllFloat<f64>>, number: f64, packets: u32) {
    // Nanoseconds and bytes are never NaN.
    if let Ok(number) = KllFloat::<f64>::new(number) {
        (0..packets).for_each(|_| sketch.update(number));
    }
}

impl<K: FlowKey> Ingest<K> for QuantileSketch<K> {
    fn ingest(&mut self, batch: &mut Batch<K>) {
        // Allocated by the thread that fills it, since memory that another thread allocates may
        // share cache lines with what that thread writes.
        if self.count() == 0
            && let Some(sketch) = Self::empty(self.k, self.of)
        {
            self.sketch = sketch;
        }
        let packets = batch.packets();
        match &mut self.sketch {
            Sketch::Keys(sketch) => {
                for (&key, &packets) in batch.keys().iter().zip(packets) {
                    (0..packets).for_each(|_| sketch.update(OrderedKey(key)));
                }
            }
            Sketch::Numbers(sketch) if self.of == QuantileOf::PacketBytes => {
                for (&bytes, &packets) in batch.bytes().iter().zip(packets) {
                    // A weighted update counts as packets of their mean length.
                    add(sketch, bytes as f64 / f64::from(packets), packets);
                }
            }
            Sketch::Numbers(sketch) => {
                for &time_ns in batch.times_ns() {
                    if let Some(latest_ns) = self.latest_ns.replace(time_ns) {
                        add(sketch, time_ns.saturating_sub(latest_ns).max(0) as f64, 1);
                    }
                }
            }
        }
    }

    fn reads(&self) -> Reads {
        let of = |of| self.of == of;
        Reads { bytes: of(QuantileOf::PacketBytes), times: of(QuantileOf::GapNs), elements: false }
    }
}

impl<K: FlowKey> Summary<K> for QuantileSketch<K> {
    fn answers(&self) -> &dyn Answers {
        self
    }

    fn merge(&mut self, other: &dyn Summary<K>) -> Result<(), Incompatible> {
        let other = twin(self, other, |summary| Basis::of(&summary.digester))?;
        if self.count().saturating_add(other.count()) > MOST_PACKETS {
            return Err(Incompatible("there are too many packets in total"));
        }
        let refused = |_| Incompatible("the library refuses to merge them");
        match (&mut self.sketch, &other.sketch) {
            (Sketch::Keys(sketch), Sketch::Keys(other)) => sketch.merge(other).map_err(refused)?,
            (Sketch::Numbers(sketch), Sketch::Numbers(numbers)) => {
                sketch.merge(numbers).map_err(refused)?;
            }
            _ => return Err(Incompatible("types differ")),
        }
        self.latest_ns = self.latest_ns.max(other.latest_ns);
        Ok(())
    }

    fn save(&self, out: &mut Writer) {
        out.number(u8::from(self.latest_ns.is_some()));
        out.number(self.latest_ns.unwrap_or(0));
        out.bytes(&self.image());
    }

    fn load(&mut self, from: &mut Reader<'_>) -> Result<(), DecodeError> {
        let timed = from.flag("whether there is a latest time")?;
        let latest_ns = from.number("latest time")?;
        self.latest_ns = timed.then_some(latest_ns);
        let most = 64 + capacity(self.k.into()) * (item_bytes::<K>(self.of) + 8);
        let image = from.bytes("levels", most)?;
        let possible = |k: u16, n: u64| k == self.k && n <= MOST_PACKETS;
        let sketch = match self.of {
            QuantileOf::Key => {
                KllSketch::deserialize(&with_items(image, from.key_bytes(), K::BYTES))
                    .ok()
                    .filter(|sketch| possible(sketch.k(), sketch.n()))
                    .map(Sketch::Keys)
            }
            _ => numbers(image)
                .filter(|sketch| possible(sketch.k(), sketch.n()))
                .map(Sketch::Numbers),
        };
        self.sketch =
            sketch.ok_or(from.invalid("levels", image.len(), "it is not such a sketch"))?;
        Ok(())
    }

    fn clear(&mut self) {
        match &mut self.sketch {
            Sketch::Keys(sketch) => sketch.reset(),
            Sketch::Numbers(sketch) => sketch.reset(),
        }
        self.latest_ns = None;
    }

    fn parameters(&self) -> Vec<(&'static str, Setting)> {
        let of = match self.of {
            QuantileOf::PacketBytes => "size",
            QuantileOf::GapNs => "gap",
            _ => "key",
        };
        vec![("of", Setting::Word(of)), ("k", Setting::Integer(self.k.into()))]
    }

    fn memory_bytes(&self) -> usize {
        capacity(self.k.into()) * item_bytes::<K>(self.of)
    }
}

impl<K: FlowKey> Answers for QuantileSketch<K> {
    fn quantiles(&self) -> Option<&dyn Quantiles> {
        Some(self)
    }
}

impl<K: FlowKey> Quantiles for QuantileSketch<K> {
    fn of(&self) -> QuantileOf {
        self.of
    }

    fn count(&self) -> u64 {
        match &self.sketch {
            Sketch::Keys(sketch) => sketch.n(),
            Sketch::Numbers(sketch) => sketch.n(),
        }
    }

    fn error(&self) -> f64 {
        match &self.sketch {
            Sketch::Keys(sketch) if sketch.is_estimation_mode() => sketch.normalized_rank_error(),
            Sketch::Numbers(sketch) if sketch.is_estimation_mode() => {
                sketch.normalized_rank_error()
            }
            _ => 0.0,
        }
    }

    fn confidence(&self) -> Option<f64> {
        (self.error() > 0.0).then_some(CONFIDENCE)
    }

    fn largest(&self) -> f64 {
        match &self.sketch {
            Sketch::Numbers(sketch) => sketch.max_item().map_or(0.0, |item| item.into_inner()),
            Sketch::Keys(_) => 0.0,
        }
    }

    fn rank(&self, size: f64) -> f64 {
        match (&self.sketch, KllFloat::<f64>::new(size)) {
            (Sketch::Numbers(sketch), Ok(size)) => {
                sketch.rank(&size, SearchCriteria::Inclusive).unwrap_or(0.0)
            }
            _ => 0.0,
        }
    }

    fn key(&self, q: f64) -> Option<CanonicalKey> {
        let Sketch::Keys(sketch) = &self.sketch else { return None };
        let found = sketch.quantile(q.clamp(0.0, 1.0), SearchCriteria::Inclusive).ok()??;
        Some(found.0.to_canonical(&self.digester))
    }
}
