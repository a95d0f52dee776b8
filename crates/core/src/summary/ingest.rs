//! The write side of summaries: they take batches, merge, and are stored.

use std::any::Any;

use flowgauge_kernel::{Digester, Seed};

use super::codec::{DecodeError, Reader, Writer};
use super::{Answers, Setting};
use crate::accelerator::HeaderRate;
use crate::batch::{BATCH_PACKETS, Batch};
use crate::key::FlowKey;
use crate::terms::{Measure, Threshold};

/// Takes batches of packets: a summary counts them, an accelerator passes on fewer.
///
/// ```
/// use flowgauge_core::batch::Batch;
/// use flowgauge_core::catalog;
/// use flowgauge_core::key::{FlowKey, Key8};
/// use flowgauge_core::summary::{Ingest, Options};
///
/// let options = Options::new(1 << 20, 1).for_keys(4);
/// let mut summary = catalog::build::<Key8>("space-saving", &options)?;
/// let mut batch = Batch::new();
/// batch.push(Key8::from_canonical(&[10, 0, 0, 1]).unwrap(), 1500, 0);
/// summary.ingest(&mut batch);
/// let size = summary.answers().size().unwrap().estimate(&[10, 0, 0, 1]);
/// assert_eq!(size.packets.unwrap().value, 1.0);
/// # Ok::<(), flowgauge_core::summary::BuildError>(())
/// ```
pub trait Ingest<K: FlowKey>: Send {
    /// Takes a batch, and digests it if that was not done before.
    fn ingest(&mut self, batch: &mut Batch<K>);
    /// Passes on all packets that are held back; may be called at any time. Until then such packets
    /// are missing from answers, from stored bytes, and from merges.
    fn settle(&mut self) {}
    /// The columns of batches that it reads. The others may hold anything.
    fn reads(&self) -> Reads {
        Reads { times: true, ..Reads::BYTES }
    }
}

/// The columns of batches that a summary reads, beside keys, digests and numbers of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reads {
    /// The bytes.
    pub bytes: bool,
    /// The times.
    pub times: bool,
    /// The elements: the peers of addresses, or details of packets.
    pub elements: bool,
}

impl Reads {
    /// No other column.
    pub const NOTHING: Self = Self { bytes: false, times: false, elements: false };
    /// The bytes alone.
    pub const BYTES: Self = Self { bytes: true, ..Self::NOTHING };

    /// The columns with the sizes of packets in a measure.
    pub const fn sizes(by: Measure) -> Self {
        Self { bytes: matches!(by, Measure::Bytes), ..Self::NOTHING }
    }

    /// The columns that one or both of two summaries read.
    #[must_use]
    pub const fn or(self, other: Self) -> Self {
        Self {
            bytes: self.bytes || other.bytes,
            times: self.times || other.times,
            elements: self.elements || other.elements,
        }
    }
}

/// Summarizes the packets of an epoch. At its end the summary is queried, merged or stored, and
/// then cleared for the next epoch.
///
/// ```
/// use flowgauge_core::batch::Batch;
/// use flowgauge_core::catalog;
/// use flowgauge_core::key::{FlowKey, Key8};
/// use flowgauge_core::summary::Options;
///
/// let mut sketch = catalog::build::<Key8>("count-min", &Options::new(1 << 20, 1).for_keys(4))?;
/// let mut batch = Batch::new();
/// batch.push(Key8::from_canonical(&[10, 0, 0, 1]).unwrap(), 1500, 0);
/// sketch.ingest(&mut batch);
/// let sizes = sketch.answers().size().unwrap();
/// assert!(sizes.estimate(&[10, 0, 0, 1]).packets.unwrap().value >= 1.0);
/// sketch.clear();
/// # Ok::<(), flowgauge_core::summary::BuildError>(())
/// ```
pub trait Summary<K: FlowKey>: Ingest<K> + Any {
    /// The read side.
    fn answers(&self) -> &dyn Answers;
    /// Adds another summary of the same type, parameters and seed, and of the same options as far
    /// as the counts depend on them.
    ///
    /// # Errors
    /// When one of these differs; the summary is then unchanged.
    fn merge(&mut self, other: &dyn Summary<K>) -> Result<(), Incompatible>;
    /// Writes the contents without the parameters, which the catalog writes.
    fn save(&self, out: &mut Writer);
    /// Reads contents that [`Self::save`] wrote from a summary of the same parameters and seed into
    /// this empty one.
    ///
    /// # Errors
    /// When no summary could have written these bytes.
    fn load(&mut self, from: &mut Reader<'_>) -> Result<(), DecodeError>;
    /// Removes all contents, without reallocation.
    fn clear(&mut self);
    /// Begins a new epoch: removes the packets, and keeps the forecasts, if there are any.
    fn next_epoch(&mut self) {
        self.clear();
    }
    /// Begins another part of the same epoch: removes the packets. Until [`Self::clear`] or
    /// [`Self::next_epoch`] the summary is only merged into others, not queried, so it may keep the
    /// entries of flows that will come again.
    fn next_part(&mut self) {
        self.next_epoch();
    }
    /// The effective parameters, by their names in the catalog: a summary built from them has the
    /// same shape.
    fn parameters(&self) -> Vec<(&'static str, Setting)> {
        Vec::new()
    }
    /// The accelerators before it, outermost first, with their effective parameters.
    fn accelerators(&self) -> Vec<(&'static str, Vec<(&'static str, Setting)>)> {
        Vec::new()
    }
    /// Its rows, if each of them may take its own sample.
    fn rows(&mut self) -> Option<&mut dyn RowIngest<K>> {
        None
    }
    /// Its levels, if each of them may have its own sampling rate.
    fn levels(&mut self) -> Option<&mut dyn LevelIngest<K>> {
        None
    }
    /// The sampling rate, if the meter samples packets before it reads their headers.
    fn header_rate(&self) -> Option<HeaderRate> {
        None
    }
    /// Tells how many packets of the epoch the meter skipped so far, at sampling rates of one in
    /// `one_in` or higher.
    fn passed_over(&mut self, packets: u64, one_in: u64) {
        let _ = (packets, one_in);
    }
    /// Bytes of memory reserved.
    fn memory_bytes(&self) -> usize;
    /// The summary behind an accelerator that itself holds no packets: merges use that summary
    /// instead.
    fn held(&self) -> Option<&dyn Summary<K>> {
        None
    }
}

impl<K: FlowKey> dyn Summary<K> + '_ {
    /// The summary as type `S`; of an accelerator that holds no packets, the summary behind it.
    pub fn downcast_ref<S: Summary<K>>(&self) -> Option<&S> {
        match self.held() {
            Some(held) => held.downcast_ref(),
            None => (self as &dyn Any).downcast_ref(),
        }
    }
}

/// A sketch of rows, each of which estimates sizes on its own. If each row takes its own sample of
/// the packets, all of them are unbiased, whichever rows a packet goes to.
pub trait RowIngest<K: FlowKey> {
    /// The number of rows.
    fn rows(&self) -> usize;

    /// The number of cells, all of which [`Self::squared_l2`] reads.
    fn cells(&self) -> usize;

    /// Counts each packet in one row: packet `i` of the batch in row `rows[i]`, in each sketch that
    /// its key is in. Its weight is that of all packets that it represents.
    ///
    /// Heavy hitters are judged by the last total that [`Self::sampled_from`] gave.
    fn ingest_rows(&mut self, batch: &mut Batch<K>, rows: &[u8]);

    /// Describes the samples of the rows so far: they are of packets with the weight `total`, and
    /// in each row the variance of a flow's weight is at most `unit` times that weight. A `unit` of
    /// 0 means that nothing was sampled.
    fn sampled_from(&mut self, total: u64, unit: u64);

    /// The sum of the squares of all flows' sizes, L2²: the estimate of the median row. Sampling
    /// adds its own variance.
    fn squared_l2(&self) -> f64;
}

/// The largest number of levels.
pub const MOST_LEVELS: usize = 16;

/// The first level that samplers count in full. From it on, levels have one in 256 of the flows.
/// Sums over all flows start from these: there every flow is known, whatever its size and the
/// stream's.
pub(crate) const FIRST_WHOLE: usize = 8;

/// A summary of levels, which a packet's key chooses. Deep levels get few packets, so each level
/// has its own sampling rate.
pub trait LevelIngest<K: FlowKey> {
    /// The number of levels, at most [`MOST_LEVELS`].
    fn levels(&self) -> usize;

    /// Digests a batch, and writes the level of each packet.
    fn levels_of(&self, batch: &mut Batch<K>, levels: &mut [u8; BATCH_PACKETS]);

    /// The number of cells of a level, all of which [`Self::level_squared_l2`] reads.
    fn level_cells(&self, level: usize) -> usize;

    /// The sum of the squares of the sizes of a level's flows. Sampling adds its own variance.
    fn level_squared_l2(&self, level: usize) -> f64;

    /// Describes the samples of the levels so far: they are of packets with the weight `total`.
    /// `delta` is the probability that the error of a sample of whole packets exceeds its bound;
    /// `None` if each row has its own sample.
    fn levels_sampled_from(&mut self, total: u64, levels: &[LevelSample], delta: Option<f64>);
}

/// How the packets of a level were sampled.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LevelSample {
    /// Upper bound of the variance of a flow's sampled weight, divided by that weight; 0 if every
    /// packet is counted.
    pub most: u64,
    /// The same ratio for a flow whose packets arrived as those of the level did, some of them at
    /// higher sampling rates.
    pub mean: f64,
}

impl LevelSample {
    /// A sample at a constant rate.
    pub(crate) fn steady(unit: u64) -> Self {
        Self { most: unit, mean: unit as f64 }
    }
}

/// Why two summaries cannot be merged.
///
/// ```
/// use flowgauge_core::catalog;
/// use flowgauge_core::key::Key8;
/// use flowgauge_core::summary::Options;
///
/// let options = Options::new(1 << 20, 1).for_keys(4);
/// let mut one = catalog::build::<Key8>("count-min", &options).unwrap();
/// let other = catalog::build::<Key8>("count-min", &Options::new(1 << 20, 2).for_keys(4)).unwrap();
/// assert!(one.merge(&*other).unwrap_err().to_string().contains("seeds differ"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("summaries cannot be merged: {0}")]
pub struct Incompatible(pub &'static str);

/// The options that the contents of a summary depend on, besides its parameters; `None` for those
/// that they do not depend on. Merged summaries must agree in all of them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Basis<'a> {
    pub(crate) seed: &'a Seed,
    pub(crate) key_bytes: usize,
    pub(crate) by: Option<Measure>,
    pub(crate) threshold: Option<Threshold>,
    pub(crate) spread: Option<u64>,
}

impl<'a> Basis<'a> {
    /// The basis of a summary that depends on its digests alone.
    pub(crate) fn of(digester: &'a Digester) -> Self {
        let (seed, key_bytes) = (digester.seed(), digester.key_bytes());
        Self { seed, key_bytes, by: None, threshold: None, spread: None }
    }

    /// Names the first option in which two differ.
    #[inline(never)]
    fn difference(&self, other: &Self) -> Option<&'static str> {
        let same = [
            (self.seed == other.seed, "seeds differ"),
            (self.key_bytes == other.key_bytes, "key lengths differ"),
            (self.by == other.by, "measures differ"),
            (self.threshold == other.threshold, "thresholds differ"),
            (self.spread == other.spread, "spreads differ"),
        ];
        same.into_iter().find(|(same, _)| !same).map(|(_, what)| what)
    }
}

/// The other summary as the same type, if its basis and parameters are the same.
///
/// # Errors
/// When they differ, with the first difference.
pub(crate) fn twin<'a, K: FlowKey, S: Summary<K> + 'static>(
    own: &S,
    other: &'a dyn Summary<K>,
    basis: impl Fn(&S) -> Basis<'_>,
) -> Result<&'a S, Incompatible> {
    let other = other.downcast_ref::<S>().ok_or(Incompatible("types differ"))?;
    match basis(own).difference(&basis(other)) {
        Some(what) => Err(Incompatible(what)),
        None => same_parameters(own, other).map(|()| other),
    }
}

/// Compiled once per key type, not for each summary.
#[inline(never)]
fn same_parameters<K: FlowKey>(
    own: &dyn Summary<K>,
    other: &dyn Summary<K>,
) -> Result<(), Incompatible> {
    let same = own.parameters() == other.parameters();
    same.then_some(()).ok_or(Incompatible("parameters differ"))
}
