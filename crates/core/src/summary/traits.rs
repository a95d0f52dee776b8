//! What a measurement structure takes and what it answers.
//!
//! [`Ingest`] is the write side, called once per batch; a [`Summary`] keeps what it takes until the
//! epoch ends. [`Answers`] is the read side, called once
//! per epoch; it speaks canonical key bytes, so that tasks need not know the key type.

use std::any::Any;

use super::codec::{DecodeError, Reader, Writer};
use super::{LevelIngest, RowIngest, Setting};
use crate::accelerator::HeaderRate;
use crate::batch::Batch;
use crate::key::{CanonicalKey, FlowKey};
use crate::terms::{Hierarchy, Measure, Size};

/// Takes batches: summaries, and accelerators, which pass them on.
pub trait Ingest<K: FlowKey>: Send {
    /// Takes a batch, digesting it where that was not done before.
    fn ingest(&mut self, batch: &mut Batch<K>);
    /// Passes on what is held back; may be called at any time, again and again. What is not passed
    /// on is neither in answers, nor in stored bytes, nor in what others merge of it.
    fn settle(&mut self) {}
    /// Whether it reads the batch's elements: the peers of addresses, or details of packets.
    fn wants_elements(&self) -> bool {
        false
    }
    /// Whether it reads the batch's bytes.
    fn wants_bytes(&self) -> bool {
        true
    }
}

/// Holds the packets of an epoch: asked and merged at its end, stored, and cleared for the next.
pub trait Summary<K: FlowKey>: Ingest<K> + Any {
    /// The read side.
    fn answers(&self) -> &dyn Answers;
    /// Adds another summary of the same type, parameters and seed, and of the same options where
    /// what it counts depends on them.
    ///
    /// # Errors
    /// When they differ in one of these; the summary is then unchanged.
    fn merge(&mut self, other: &dyn Summary<K>) -> Result<(), Incompatible>;
    /// Writes what it holds, but for its parameters; the catalog frames that.
    fn save(&self, out: &mut Writer);
    /// Takes over what [`Self::save`] wrote of a summary with the same parameters and seed; this
    /// one is empty.
    ///
    /// # Errors
    /// When the bytes are not what any summary could have written.
    fn load(&mut self, from: &mut Reader<'_>) -> Result<(), DecodeError>;
    /// Forgets everything, without reallocation.
    fn clear(&mut self);
    /// Begins a new epoch: forgets the packets, and keeps what it forecasts from them, where it
    /// does.
    fn next_epoch(&mut self) {
        self.clear();
    }
    /// Begins another part of the same epoch: forgets the packets. Until [`Self::clear`] or
    /// [`Self::next_epoch`] it is only merged into others, not asked, so that it may keep places for
    /// flows that will come again.
    fn next_part(&mut self) {
        self.next_epoch();
    }
    /// The parameters in force, by their names in the catalog: a summary built from them has the
    /// same shape.
    fn parameters(&self) -> Vec<(&'static str, Setting)> {
        Vec::new()
    }
    /// The accelerators before it, outermost first, with their parameters in force.
    fn accelerators(&self) -> Vec<(&'static str, Vec<(&'static str, Setting)>)> {
        Vec::new()
    }
    /// Its rows, where they may be sampled one by one.
    fn rows(&mut self) -> Option<&mut dyn RowIngest<K>> {
        None
    }
    /// Its levels, where each of them may be a sample of its own.
    fn levels(&mut self) -> Option<&mut dyn LevelIngest<K>> {
        None
    }
    /// How few packets it takes, where the meter draws them before headers are read.
    fn header_rate(&self) -> Option<HeaderRate> {
        None
    }
    /// Takes note that the meter passed over so many packets of the epoch, none of which was more than
    /// one in `one_in`; in place of what was noted before.
    fn passed_over(&mut self, packets: u64, one_in: u64) {
        let _ = (packets, one_in);
    }
    /// Bytes of memory reserved.
    fn memory_bytes(&self) -> usize;
    /// The summary that holds the packets, where this one only passes them on: merges take it for that.
    fn held(&self) -> Option<&dyn Summary<K>> {
        None
    }
}

impl<K: FlowKey> dyn Summary<K> + '_ {
    /// The summary as one of type `S`, or the one that holds its packets.
    pub fn downcast_ref<S: Summary<K>>(&self) -> Option<&S> {
        match self.held() {
            Some(held) => held.downcast_ref(),
            None => (self as &dyn Any).downcast_ref(),
        }
    }
}

/// Why two summaries cannot be merged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("summaries cannot be merged: {0}")]
pub struct Incompatible(pub &'static str);

/// A number with its bounds. Exact numbers have `low = value = high` and no confidence.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The best guess.
    pub value: f64,
    /// The lower bound.
    pub low: f64,
    /// The upper bound.
    pub high: f64,
    /// Probability that the bounds hold; `None` where they always do.
    pub confidence: Option<f64>,
}

impl Estimate {
    /// A number without error.
    pub fn exact(value: u64) -> Self {
        let value = value as f64;
        Self { value, low: value, high: value, confidence: None }
    }

    /// A number that is surely within these bounds.
    pub fn between(low: f64, value: f64, high: f64) -> Self {
        Self { value, low, high, confidence: None }
    }

    /// The same, for a part of `total`.
    pub(crate) fn within(self, total: u64) -> Self {
        let most = total as f64;
        let Self { value, low, high, confidence } = self;
        Self { value: value.min(most), low: low.min(most), high: high.min(most), confidence }
    }
}

/// A size whose measures a summary may hold or not.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SizeEstimate {
    /// Packets, where the summary counts them.
    pub packets: Option<Estimate>,
    /// Bytes, where the summary counts them.
    pub bytes: Option<Estimate>,
}

impl SizeEstimate {
    /// An estimate of `measure` alone.
    pub fn of(measure: Measure, estimate: Estimate) -> Self {
        match measure {
            Measure::Packets => Self { packets: Some(estimate), bytes: None },
            Measure::Bytes => Self { packets: None, bytes: Some(estimate) },
        }
    }

    /// A size known exactly.
    #[inline(never)]
    pub fn exact(size: Size) -> Self {
        Self {
            packets: Some(Estimate::exact(size.packets)),
            bytes: Some(Estimate::exact(size.bytes)),
        }
    }

    /// A size that was counted exactly, unless its 32-bit counter of packets is full: then some
    /// of the `saturated` increments may have been its own.
    #[inline(never)]
    pub fn counted(size: Size, saturated: Size) -> Self {
        let full = size.packets >= u64::from(u32::MAX);
        Self::between(size, size, if full { size + saturated } else { size })
    }

    /// A size that is surely within these bounds, in both measures.
    #[inline(never)]
    pub fn between(low: Size, value: Size, high: Size) -> Self {
        let estimate = |low: u64, value: u64, high: u64| {
            Some(Estimate::between(low as f64, value as f64, high as f64))
        };
        Self {
            packets: estimate(low.packets, value.packets, high.packets),
            bytes: estimate(low.bytes, value.bytes, high.bytes),
        }
    }

    /// The one that `measure` names.
    pub fn by(&self, measure: Measure) -> Option<Estimate> {
        match measure {
            Measure::Packets => self.packets,
            Measure::Bytes => self.bytes,
        }
    }
}

/// Read side: what a summary can answer. Each default is "cannot".
pub trait Answers {
    /// Weight of the packets whose keys found no room, or whose flows are not certain: where there
    /// are [`Self::flows`], all that is in none of them.
    fn untracked(&self) -> Size {
        Size::default()
    }
    /// Whether untracked packets are of flows that others displaced, however much room there was.
    fn displaces(&self) -> bool {
        false
    }
    /// Increments that a full counter could not take, in packets and in bytes.
    fn saturated(&self) -> Size {
        Size::default()
    }
    /// Every flow with its exact size.
    fn flows(&self) -> Option<&dyn Flows> {
        None
    }
    /// The size of a given flow.
    fn size(&self) -> Option<&dyn SizeQuery> {
        None
    }
    /// Flows that the summary can name, the heavy ones among them.
    fn candidates(&self) -> Option<&dyn Candidates> {
        None
    }
    /// Number of flows.
    fn cardinality(&self) -> Option<Estimate> {
        None
    }
    /// Σ f log₂ f over the flows, f being their sizes in this measure: entropy, but for the total.
    fn weight_logs(&self, by: Measure) -> Option<Estimate> {
        let _ = by;
        None
    }
    /// Number of flows of each size in packets, by size.
    fn distribution(&self) -> Option<Vec<(u64, Estimate)>> {
        None
    }
    /// Quantiles of what the summary saw.
    fn quantiles(&self) -> Option<&dyn Quantiles> {
        None
    }
    /// Number of distinct elements of each address.
    fn spread(&self) -> Option<&dyn Spread> {
        None
    }
    /// When and how given flows were seen.
    fn details(&self) -> Option<&dyn Details> {
        None
    }
    /// Flows with a forecast of their size, where the summary keeps one from epoch to epoch.
    fn forecasts(&self) -> Option<&dyn Forecasts> {
        None
    }
    /// Weights of prefixes, where the summary counts them as such.
    fn prefixes(&self) -> Option<&dyn Prefixes> {
        None
    }
    /// The counters of a linear sketch, for forecasts that are sketches themselves.
    fn cells(&self) -> Option<&dyn Cells> {
        None
    }
    /// What a distinct counter has marked: registers that merge by their maximum, or the bits of its bitmaps
    /// in words that merge by OR.
    fn registers(&self) -> Option<Vec<u32>> {
        None
    }
}

/// Every flow of the epoch with its exact size (but for [`Answers::untracked`] ones).
pub trait Flows {
    /// Number of flows.
    fn len(&self) -> usize;
    /// Number of flows that there is room for.
    fn most(&self) -> usize;
    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// The flow number `index`, counted from 0: its canonical key and size. Numbers stay until the
    /// next packet.
    fn get(&self, index: usize) -> (&[u8], Size);
    /// Visits all flows in the order of their numbers.
    fn for_each(&self, visit: &mut dyn FnMut(&[u8], Size));
}

/// Sizes of given flows.
pub trait SizeQuery {
    /// The size of the flow with this canonical key.
    fn estimate(&self, key: &[u8]) -> SizeEstimate;
}

/// When and how given flows were seen.
pub trait Details {
    /// That of the flow with this canonical key; `None` where it has no packet.
    fn seen(&self, key: &[u8]) -> Option<Seen>;
}

/// When and how a flow was seen in the epoch. What found no room in the summary is not in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The time of the earliest packet, in nanoseconds since the UNIX epoch.
    pub first_ns: i64,
    /// That of the latest.
    pub last_ns: i64,
    /// The union of the TCP flags; 0 without TCP.
    pub tcp_flags: u8,
    /// What came back: from the second endpoint of a conversation, or to the host that is the key; 0 of
    /// other keys.
    pub back: Size,
}

impl Seen {
    /// Seconds from the earliest packet to the latest.
    pub fn seconds(&self) -> f64 {
        (i128::from(self.last_ns) - i128::from(self.first_ns)) as f64 / 1e9
    }
}

/// Flows that a summary can name.
pub trait Candidates {
    /// Visits them in any order.
    fn for_each(&self, visit: &mut dyn FnMut(CanonicalKey, SizeEstimate));
    /// How often a candidate found no room because the set of them was full.
    fn overflow(&self) -> u64;
    /// What a flow that is not visited weighs at most in this measure, where that is known. It holds as
    /// the bounds of those that are visited do: surely, or with their confidence.
    fn unnamed(&self, by: Measure) -> Option<f64> {
        let _ = by;
        None
    }
}

/// Addresses with their number of distinct elements (peers).
pub trait Spread {
    /// Visits, in any order, the addresses that may have more than the options' `spread` elements.
    fn for_each(&self, visit: &mut dyn FnMut(CanonicalKey, Estimate));
    /// How often such an address found no room.
    fn overflow(&self) -> u64;
}

/// Weights of the prefixes of addresses, node by node of a hierarchy: a node is a length of the
/// source's prefix (or of the only address') and one of the destination's.
pub trait Prefixes {
    /// What is counted.
    fn measure(&self) -> Measure;
    /// The hierarchy.
    fn hierarchy(&self) -> Hierarchy;
    /// The prefix lengths of each node in bits, source and destination (0 where there is one
    /// address); each node comes after all that are below it.
    fn nodes(&self) -> Vec<(u8, u8)>;
    /// Visits the prefixes of a node that the summary can name, the heavy ones among them, as keys
    /// whose other bits are zero. Bounds are those of [`Self::estimate`].
    fn for_each(&self, node: usize, visit: &mut dyn FnMut(CanonicalKey, Estimate));
    /// The weight of a prefix of this node, within bounds that the packets counted surely keep.
    fn estimate(&self, node: usize, prefix: &[u8]) -> Estimate;
    /// Where only a sample of the packets was counted: how the weights err for that.
    fn sampling(&self) -> Option<Sampling> {
        None
    }
}

/// How weights err that are known from a random sample of the packets.
#[derive(Clone, Copy, Debug)]
pub struct Sampling {
    /// The square of the error is at most this times the weight that was sampled from.
    pub unit: f64,
    /// Probability that it is.
    pub confidence: f64,
}

impl Sampling {
    /// That of a sample of whole packets, none of which stands for more than `weight`: how the luckiest
    /// of so many `flows` errs, with the chance `delta` for more. `None` where no packet was left out.
    pub fn of_packets(weight: f64, flows: u64, delta: f64) -> Option<Self> {
        // Chernoff's bounds for sums of numbers from 0 to this weight, half of the chance for each side:
        // sums that are t on average fall short by √(2 weight ln(2/δ) t) at most, and exceed t by less
        // than the same for what they are then.
        let chances = 2.0 * flows.max(1) as f64 / delta;
        let unit = 2.0 * weight * chances.ln();
        (unit > 0.0).then_some(Self { unit, confidence: 1.0 - delta })
    }

    /// The weight of all packets, from that of the sample, within the bounds of which it is.
    pub fn widen(&self, sampled: Estimate) -> Estimate {
        let Estimate { value, low, high, confidence } = sampled;
        // Either the sample or the summary is off.
        let confidence = (confidence.unwrap_or(1.0) + self.confidence - 1.0).max(0.0);
        let (low, high) = (low - self.error(low.max(0.0)), high + self.error(high.max(0.0)));
        Estimate { value, low, high, confidence: Some(confidence) }
    }

    /// How far a sum of weights, some of them taken off, may be off whose terms are estimated to
    /// weigh `estimated` in all: the weights that a true one of t is taken for are within √(unit t),
    /// and the largest t for which this one is decides (Wilson, JASA 1927).
    pub fn error(&self, estimated: f64) -> f64 {
        let root = f64::midpoint(self.unit.sqrt(), (self.unit + 4.0 * estimated).sqrt());
        self.unit.sqrt() * root
    }

    /// The least weight that is known to half of itself.
    pub fn least(&self) -> f64 {
        6.0 * self.unit
    }
}

/// Flows whose summary forecasts their size.
pub trait Forecasts {
    /// Visits, in any order, flows with a size now or a forecast, in the summary's measure.
    fn for_each(&self, visit: &mut dyn FnMut(CanonicalKey, Forecast));
}

/// The size of a flow and what was expected of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Forecast {
    /// Its size in the epoch before.
    pub before: Estimate,
    /// Its forecast for this epoch; `None` in the first epoch.
    pub forecast: Option<Estimate>,
    /// Its size in this epoch.
    pub now: Estimate,
}

/// A summary that is a linear function of the flows' sizes: sums, differences and averages of its
/// cells over epochs are the cells of a summary of the sums, differences and averages of the sizes.
pub trait Cells {
    /// What the cells count.
    fn measure(&self) -> Measure;
    /// Number of cells, whatever else the estimates need among them.
    fn len(&self) -> usize;
    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Whether they are of a sample: how estimates err is then known of sums and averages of cells, not
    /// of differences.
    fn sampled(&self) -> bool {
        false
    }
    /// Writes the cells as they are.
    fn read(&self, cells: &mut [f64]);
    /// Fills in what estimates from such cells need and sums do not carry, such as the scale of
    /// their error: to be called once the cells are summed up.
    fn seal(&self, cells: &mut [f64]) {
        let _ = cells;
    }
    /// The size of a flow, in such cells, which are sealed.
    fn estimate(&self, cells: &[f64], key: &[u8]) -> Estimate;
    /// Visits flows that these cells alone say to exceed `threshold` either way, where they can.
    fn recover(&self, cells: &[f64], threshold: f64, visit: &mut dyn FnMut(CanonicalKey)) {
        let _ = (cells, threshold, visit);
    }
}

/// What quantiles are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuantileOf {
    /// Flows by their packets.
    FlowPackets,
    /// Flows by their bytes.
    FlowBytes,
    /// Packets in the order of their keys.
    Key,
    /// Packets by their bytes on the wire.
    PacketBytes,
    /// Packets by the nanoseconds since the one before.
    GapNs,
}

/// Quantiles of packets.
pub trait Quantiles {
    /// What they are of.
    fn of(&self) -> QuantileOf;
    /// How many packets there are to rank.
    fn count(&self) -> u64;
    /// The error of a rank as a share of the packets, 0 where ranks are exact.
    fn error(&self) -> f64;
    /// Probability that a rank keeps that error; `None` where it always does.
    fn confidence(&self) -> Option<f64>;
    /// The largest number; 0 without a packet, or of keys.
    fn largest(&self) -> f64;
    /// The share of packets whose number is at most `size`; 0 of keys.
    fn rank(&self, size: f64) -> f64;
    /// The key up to which a share `q` of the packets is, in the order of keys; `None` without a
    /// packet, or of numbers.
    fn key(&self, q: f64) -> Option<CanonicalKey>;
}
