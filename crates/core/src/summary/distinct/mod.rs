//! Distinct counts: the number of flows, from bits that several flows may set.

mod fm;
mod hyperloglog;
mod linear_counting;

pub use fm::Fm;
pub use hyperloglog::{HllRegisters, HyperLogLog};
pub use linear_counting::LinearCounting;

use std::marker::PhantomData;
use std::ops::BitOr;

use bytemuck::Zeroable;
use flowgauge_kernel::{Digester, Zeroed};

use crate::batch::Batch;
use crate::key::FlowKey;
use crate::summary::codec::{DecodeError, Number, Reader, Writer};
use crate::summary::ingest::{Basis, twin};
use crate::summary::{
    Answers, BuildError, BuildErrorKind, Estimate, Incompatible, Ingest, Options, Parameters,
    Reads, Setting, Summary,
};

/// Probability that a normal error is within two standard errors.
const CONFIDENCE: f64 = 0.954;

/// An estimate with bounds of two standard errors, limited to `least` and `most`.
fn two_sigma(value: f64, sigma: f64, least: f64, most: f64) -> Estimate {
    let value = value.clamp(least, most.max(least));
    let (low, high) = ((value - 2.0 * sigma).max(least), (value + 2.0 * sigma).min(most));
    Estimate { value, low, high: high.max(value), confidence: Some(CONFIDENCE) }
}

/// The number of flows by linear counting, if each flow uses one of `cells` cells and `used` are in
/// use, but not all. The estimate is limited to `used` and `most`.
pub(crate) fn counted_linearly(cells: f64, used: f64, most: f64) -> Estimate {
    let load = (cells / (cells - used)).ln();
    two_sigma(cells * load, cells * load * counting_error(cells, load), used, most)
}

/// The relative standard error of linear counting with `cells` cells and a mean of `load` flows per
/// cell (Whang et al., TODS 1990, §5.1); 0 without flows.
fn counting_error(cells: f64, load: f64) -> f64 {
    if load <= 0.0 {
        return 0.0;
    }
    // For one flow among many cells the difference is near zero and may round below it.
    (load.exp() - load - 1.0).max(0.0).sqrt() / (cells.sqrt() * load)
}

/// The number of packets in a batch.
#[inline]
fn packets_in<K: FlowKey>(batch: &Batch<K>) -> u64 {
    /// Not compiled for each key.
    #[inline(never)]
    fn sum(packets: &[u32]) -> u64 {
        packets.iter().map(|packets| u64::from(*packets)).sum()
    }
    if batch.is_plain() { batch.len() as u64 } else { sum(batch.packets()) }
}

/// The smallest power of two of items, from `least` to `most`, whose standard error `error /
/// √items` is at most `epsilon`.
fn items_for(
    epsilon: f64,
    error: f64,
    (least, most): (usize, usize),
    parameters: &Parameters,
) -> Result<usize, BuildError> {
    let items = (error / epsilon).powi(2).ceil();
    if items > most as f64 {
        return Err(BuildErrorKind::OutOfRange {
            name: "epsilon",
            value: parameters.get("epsilon").unwrap_or_default().to_owned(),
            range: format!("large enough for {most} items"),
        }
        .into());
    }
    Ok((items as usize).next_power_of_two().max(least))
}

/// How flows mark words, and the number of flows from marked words.
trait Marks: Send + 'static {
    /// The type of the words.
    type Word: Number + BitOr<Output = Self::Word> + Into<u64> + Send;
    /// The parameter that gives the number of items, and the number of items per word.
    const ITEMS: (&'static str, usize);
    /// Marks the flows with these digests.
    fn mark(words: &mut [Self::Word], digests: &[u64]);
    /// The number of flows, at most `packets`.
    fn estimate(words: &[Self::Word], packets: f64) -> Estimate;
}

/// Words that flows mark. Memory in bytes: `words × size_of::<M::Word>()`.
struct Bitmaps<M: Marks> {
    digester: Digester,
    words: Zeroed<M::Word>,
    packets: u64,
    marks: PhantomData<M>,
}

impl<M: Marks> Bitmaps<M> {
    /// Reserves `words` words, a power of two.
    fn build<K: FlowKey>(
        words: usize,
        options: &Options,
    ) -> Result<Box<dyn Summary<K>>, BuildError> {
        let words = options.memory.zeroed(words)?;
        Ok(Box::new(Self { digester: options.digester, words, packets: 0, marks: PhantomData }))
    }
}

impl<K: FlowKey, M: Marks> Ingest<K> for Bitmaps<M> {
    fn ingest(&mut self, batch: &mut Batch<K>) {
        batch.digest(&self.digester);
        M::mark(&mut self.words, batch.digests());
        self.packets = self.packets.saturating_add(packets_in(batch));
    }

    fn reads(&self) -> Reads {
        Reads::NOTHING
    }
}

impl<K: FlowKey, M: Marks> Summary<K> for Bitmaps<M> {
    fn answers(&self) -> &dyn Answers {
        self
    }

    fn merge(&mut self, other: &dyn Summary<K>) -> Result<(), Incompatible> {
        let other = twin(self, other, |summary| Basis::of(&summary.digester))?;
        for (word, other) in self.words.iter_mut().zip(other.words.iter()) {
            *word = *word | *other;
        }
        self.packets = self.packets.saturating_add(other.packets);
        Ok(())
    }

    fn save(&self, out: &mut Writer) {
        out.number(self.packets);
        out.numbers(&self.words);
    }

    fn load(&mut self, from: &mut Reader<'_>) -> Result<(), DecodeError> {
        self.packets = from.number("packets")?;
        from.numbers("bitmaps", &mut self.words)
    }

    fn clear(&mut self) {
        self.words.fill(M::Word::zeroed());
        self.packets = 0;
    }

    fn parameters(&self) -> Vec<(&'static str, Setting)> {
        let (name, items) = M::ITEMS;
        vec![(name, Setting::Integer((self.words.len() * items) as u64))]
    }

    fn memory_bytes(&self) -> usize {
        self.words.memory_bytes()
    }
}

impl<M: Marks> Answers for Bitmaps<M> {
    fn cardinality(&self) -> Option<Estimate> {
        Some(M::estimate(&self.words, self.packets as f64))
    }

    fn registers(&self) -> Option<Vec<u32>> {
        let parts = size_of::<M::Word>() / size_of::<u32>();
        let split = |word: &M::Word| {
            let word: u64 = (*word).into();
            (0..parts).map(move |part| (word >> (32 * part)) as u32)
        };
        Some(self.words.iter().flat_map(split).collect())
    }
}
