//! The read side of summaries: what tasks ask them at the end of an epoch. Flows are named by
//! canonical key bytes, so that tasks need not know the key type.

use super::{Estimate, Sampling, SizeEstimate};
use crate::key::CanonicalKey;
use crate::terms::{Hierarchy, Measure, Size};

/// The read side of a summary: what it can answer. Each default is "it cannot".
///
/// ```
/// use flowgauge_core::batch::Batch;
/// use flowgauge_core::catalog;
/// use flowgauge_core::key::{FlowKey, Key8};
/// use flowgauge_core::summary::Options;
///
/// let mut counter = catalog::build::<Key8>("hyperloglog", &Options::new(1 << 12, 1).for_keys(4))?;
/// let mut batch = Batch::new();
/// for host in 0..100 {
///     batch.push(Key8::from_canonical(&[10, 0, 0, host]).unwrap(), 64, 0);
/// }
/// counter.ingest(&mut batch);
/// let flows = counter.answers().cardinality().unwrap();
/// assert!(flows.low <= 100.0 && 100.0 <= flows.high);
/// assert!(counter.answers().flows().is_none());
/// # Ok::<(), flowgauge_core::summary::BuildError>(())
/// ```
pub trait Answers {
    /// Packets whose keys found no room, or whose flow is uncertain. If there are [`Self::flows`]:
    /// all packets in none of them.
    fn untracked(&self) -> Size {
        Size::default()
    }
    /// Whether untracked packets come from displaced flows, however much room there was.
    fn displaces(&self) -> bool {
        false
    }
    /// Increments that full counters could not take, in packets and in bytes.
    fn saturated(&self) -> Size {
        Size::default()
    }
    /// Every flow with its size.
    fn flows(&self) -> Option<&dyn Flows> {
        None
    }
    /// The size of a given flow.
    fn size(&self) -> Option<&dyn SizeQuery> {
        None
    }
    /// Flows that the summary can name, heavy hitters included.
    fn candidates(&self) -> Option<&dyn Candidates> {
        None
    }
    /// The number of flows.
    fn cardinality(&self) -> Option<Estimate> {
        None
    }
    /// Σ f log₂ f over the sizes f of all flows in this measure, from which the entropy follows.
    fn weight_logs(&self, by: Measure) -> Option<Estimate> {
        let _ = by;
        None
    }
    /// The number of flows of each size in packets, by size.
    fn distribution(&self) -> Option<Vec<(u64, Estimate)>> {
        None
    }
    /// Quantiles of flows or packets.
    fn quantiles(&self) -> Option<&dyn Quantiles> {
        None
    }
    /// The number of distinct elements of each address.
    fn spread(&self) -> Option<&dyn Spread> {
        None
    }
    /// When and how given flows were seen.
    fn details(&self) -> Option<&dyn Details> {
        None
    }
    /// Flows with a forecast of their size, if the summary keeps one from epoch to epoch.
    fn forecasts(&self) -> Option<&dyn Forecasts> {
        None
    }
    /// Weights of prefixes, if the summary counts prefixes.
    fn prefixes(&self) -> Option<&dyn Prefixes> {
        None
    }
    /// The cells of a linear sketch, for forecasts that are sketches themselves.
    fn cells(&self) -> Option<&dyn Cells> {
        None
    }
    /// The contents of a distinct counter: registers that merge by maximum, or words of bitmaps
    /// that merge by OR.
    fn registers(&self) -> Option<Vec<u32>> {
        None
    }
}

/// Every flow of the epoch with its size, except [untracked](Answers::untracked) ones. Sizes are
/// exact unless flows [may lack](Self::may_lack) packets.
///
/// ```
/// use flowgauge_core::batch::Batch;
/// use flowgauge_core::catalog;
/// use flowgauge_core::key::{FlowKey, Key8};
/// use flowgauge_core::summary::Options;
///
/// let mut table = catalog::build::<Key8>("linear-table", &Options::new(1 << 20, 1).for_keys(4))?;
/// let mut batch = Batch::new();
/// batch.push(Key8::from_canonical(&[10, 0, 0, 1]).unwrap(), 1500, 0);
/// batch.push(Key8::from_canonical(&[10, 0, 0, 2]).unwrap(), 40, 0);
/// table.ingest(&mut batch);
/// let mut bytes = 0;
/// table.answers().flows().unwrap().for_each(&mut |_, size| bytes += size.bytes);
/// assert_eq!(bytes, 1540);
/// # Ok::<(), flowgauge_core::summary::BuildError>(())
/// ```
pub trait Flows {
    /// The number of flows.
    fn len(&self) -> usize;
    /// The number of flows that there is room for.
    fn most(&self) -> usize;
    /// Whether there are no flows.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// The flow number `index`, counted from 0: its canonical key and size. Numbers are valid until
    /// the next packet.
    fn get(&self, index: usize) -> (&[u8], Size);
    /// Visits all flows in the order of their numbers.
    fn for_each(&self, visit: &mut dyn FnMut(&[u8], Size));
    /// Untracked packets that may belong to these flows. There are some where flows of one part of
    /// the traffic found no room in another part's full table, and where flows can move.
    fn may_lack(&self) -> Size {
        Size::default()
    }
}

/// Sizes of given flows.
///
/// ```
/// use flowgauge_core::key::{FlowKey, Key8};
/// use flowgauge_core::{batch::Batch, catalog, summary::Options};
///
/// let mut array = catalog::build::<Key8>("count-array", &Options::new(1 << 20, 1).for_keys(4))?;
/// let mut batch = Batch::new();
/// batch.push(Key8::from_canonical(&[10, 0, 0, 1]).unwrap(), 1500, 0);
/// array.ingest(&mut batch);
/// let size = array.answers().size().unwrap().estimate(&[10, 0, 0, 1]);
/// assert_eq!(size.packets.unwrap().value, 1.0);
/// assert_eq!(size.bytes, None, "the default is to count packets");
/// # Ok::<(), flowgauge_core::summary::BuildError>(())
/// ```
pub trait SizeQuery {
    /// The size of the flow with this canonical key.
    fn estimate(&self, key: &[u8]) -> SizeEstimate;
}

/// When and how given flows were seen.
///
/// ```
/// use flowgauge_core::key::{FlowKey, Key8};
/// use flowgauge_core::{batch::Batch, catalog, summary::Options};
///
/// let options = Options::new(1 << 20, 1).for_keys(4).with([("state", "detail")]);
/// let mut table = catalog::build::<Key8>("linear-table", &options)?;
/// let mut batch = Batch::new();
/// for time_ns in [1_000_000_000, 3_500_000_000] {
///     batch.push(Key8::from_canonical(&[10, 0, 0, 1]).unwrap(), 64, time_ns);
/// }
/// table.ingest(&mut batch);
/// let seen = table.answers().details().unwrap().seen(&[10, 0, 0, 1]).unwrap();
/// assert_eq!(seen.seconds(), 2.5);
/// # Ok::<(), flowgauge_core::summary::BuildError>(())
/// ```
pub trait Details {
    /// The details of the flow with this canonical key; `None` if it has no packet.
    fn seen(&self, key: &[u8]) -> Option<Seen>;
}

/// When and how a flow was seen in the epoch, untracked packets excluded.
///
/// ```
/// use flowgauge_core::summary::Seen;
/// use flowgauge_core::terms::Size;
///
/// let seen = Seen { first_ns: 0, last_ns: 1_500_000_000, tcp_flags: 0x12, back: Size::default() };
/// assert_eq!(seen.seconds(), 1.5);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The time of the earliest packet, in nanoseconds since the UNIX epoch.
    pub first_ns: i64,
    /// The time of the latest packet, likewise.
    pub last_ns: i64,
    /// The union of TCP flags; 0 without TCP.
    pub tcp_flags: u8,
    /// What came back: from the second endpoint of a conversation, or to the host that is the key;
    /// 0 for other keys.
    pub back: Size,
}

impl Seen {
    /// Seconds from the earliest packet to the latest one.
    pub fn seconds(&self) -> f64 {
        (i128::from(self.last_ns) - i128::from(self.first_ns)) as f64 / 1e9
    }
}

/// Flows that a summary can name.
///
/// ```
/// use flowgauge_core::key::{FlowKey, Key8};
/// use flowgauge_core::{batch::Batch, catalog, summary::Options};
///
/// let options = Options::new(1 << 16, 1).for_keys(4);
/// let mut counter = catalog::build::<Key8>("space-saving", &options)?;
/// let mut batch = Batch::new();
/// for _ in 0..100 {
///     batch.push(Key8::from_canonical(&[10, 0, 0, 1]).unwrap(), 64, 0);
/// }
/// counter.ingest(&mut batch);
/// let mut named = Vec::new();
/// counter.answers().candidates().unwrap().for_each(&mut |key, size| {
///     named.push((key.as_bytes().to_vec(), size.packets.unwrap().value));
/// });
/// assert_eq!(named, [(vec![10, 0, 0, 1], 100.0)]);
/// # Ok::<(), flowgauge_core::summary::BuildError>(())
/// ```
pub trait Candidates {
    /// Visits the candidates in any order.
    fn for_each(&self, visit: &mut dyn FnMut(CanonicalKey, SizeEstimate));
    /// How often a candidate found no room in the full set.
    fn overflow(&self) -> u64;
    /// Upper bound of the size of every flow that is not visited, in this measure, if known. It
    /// holds always, or with the confidence of the bounds of the visited flows.
    fn unnamed(&self, by: Measure) -> Option<f64> {
        let _ = by;
        None
    }
}

/// Addresses with their number of distinct elements (peers): superspreaders.
///
/// ```
/// use flowgauge_core::key::{FlowKey, Key8};
/// use flowgauge_core::{batch::Batch, catalog, summary::Options};
///
/// let options = Options::new(1 << 20, 1).for_keys(4).with([("state", "distinct")]);
/// let options = Options { spread: 10, ..options };
/// let mut table = catalog::build::<Key8>("linear-table", &options)?;
/// let (source, mut batch) = (Key8::from_canonical(&[10, 0, 0, 1]).unwrap(), Batch::new());
/// for peer in 1..=20_u64 {
///     let digest = peer.wrapping_mul(0x9e37_79b9_7f4a_7c15).swap_bytes();
///     batch.push_with_element(source, 64, 0, digest);
/// }
/// table.ingest(&mut batch);
/// let mut found = Vec::new();
/// table.answers().spread().unwrap().for_each(&mut |_, peers| found.push(peers));
/// assert!(found[0].low <= 20.0 && 20.0 <= found[0].high);
/// # Ok::<(), flowgauge_core::summary::BuildError>(())
/// ```
pub trait Spread {
    /// Visits the addresses that may have more than the options' `spread` elements, in any order.
    fn for_each(&self, visit: &mut dyn FnMut(CanonicalKey, Estimate));
    /// How often such an address found no room.
    fn overflow(&self) -> u64;
}

/// Weights of address prefixes, by the nodes of a hierarchy. A node is a pair of prefix lengths: of
/// the source (or of the only address) and of the destination.
///
/// ```
/// use flowgauge_core::key::{FlowKey, Key8};
/// use flowgauge_core::{batch::Batch, catalog, summary::Options};
///
/// let mut counter = catalog::build::<Key8>("mst", &Options::new(1 << 20, 1).for_keys(4))?;
/// let mut batch = Batch::new();
/// batch.push(Key8::from_canonical(&[10, 0, 0, 1]).unwrap(), 64, 0);
/// batch.push(Key8::from_canonical(&[10, 0, 0, 2]).unwrap(), 64, 0);
/// counter.ingest(&mut batch);
/// let prefixes = counter.answers().prefixes().unwrap();
/// let node = prefixes.nodes().iter().position(|node| *node == (24, 0)).unwrap();
/// let weight = prefixes.estimate(node, &[10, 0, 0, 0]);
/// assert!(weight.low <= 2.0 && 2.0 <= weight.high);
/// # Ok::<(), flowgauge_core::summary::BuildError>(())
/// ```
pub trait Prefixes {
    /// The measure of the weights.
    fn measure(&self) -> Measure;
    /// The hierarchy.
    fn hierarchy(&self) -> Hierarchy;
    /// The prefix lengths of each node in bits, of source and destination (0 if there is one
    /// address). Each node comes after all nodes below it.
    fn nodes(&self) -> Vec<(u8, u8)>;
    /// Visits the prefixes of a node that the summary can name, heavy ones included, as keys whose
    /// other bits are zero. Bounds are as in [`Self::estimate`].
    fn for_each(&self, node: usize, visit: &mut dyn FnMut(CanonicalKey, Estimate));
    /// The weight of a prefix of this node, with bounds that always hold for the counted packets.
    fn estimate(&self, node: usize, prefix: &[u8]) -> Estimate;
    /// The error by sampling, if only a sample of the packets was counted.
    fn sampling(&self) -> Option<Sampling> {
        None
    }
}

/// Flows with a forecast of their size.
///
/// ```
/// use flowgauge_core::key::{FlowKey, Key8};
/// use flowgauge_core::{batch::Batch, catalog, summary::Options};
///
/// let options = Options::new(1 << 20, 1).for_keys(4).with([("state", "ewma")]);
/// let mut table = catalog::build::<Key8>("linear-table", &options)?;
/// let mut batch = Batch::new();
/// batch.push(Key8::from_canonical(&[10, 0, 0, 1]).unwrap(), 64, 0);
/// table.ingest(&mut batch);
/// table.next_epoch();
/// let mut found = Vec::new();
/// table.answers().forecasts().unwrap().for_each(&mut |_, forecast| found.push(forecast));
/// assert_eq!((found[0].forecast.unwrap().value, found[0].now.value), (1.0, 0.0));
/// # Ok::<(), flowgauge_core::summary::BuildError>(())
/// ```
pub trait Forecasts {
    /// Visits all flows with a size in this epoch or a forecast, in the summary's measure, in any
    /// order.
    fn for_each(&self, visit: &mut dyn FnMut(CanonicalKey, Forecast));
}

/// The size of a flow in two epochs, and its forecast.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Forecast {
    /// Its size in the previous epoch.
    pub before: Estimate,
    /// Its forecast for this epoch; `None` in the first epoch.
    pub forecast: Option<Estimate>,
    /// Its size in this epoch.
    pub now: Estimate,
}

/// The cells of a linear sketch. Sums, differences and averages of cells over epochs are the cells
/// of a sketch of the sums, differences and averages of the flows' sizes.
///
/// ```
/// use flowgauge_core::key::{FlowKey, Key8};
/// use flowgauge_core::{batch::Batch, catalog, summary::Options};
///
/// let mut sketch = catalog::build::<Key8>("k-ary", &Options::new(1 << 20, 1).for_keys(4))?;
/// let mut batch = Batch::new();
/// batch.push(Key8::from_canonical(&[10, 0, 0, 1]).unwrap(), 64, 0);
/// sketch.ingest(&mut batch);
/// let cells = sketch.answers().cells().unwrap();
/// let mut sum = vec![0.0; cells.len()];
/// cells.read(&mut sum);
/// sum.iter_mut().for_each(|cell| *cell *= 3.0);
/// cells.seal(&mut sum);
/// assert!((cells.estimate(&sum, &[10, 0, 0, 1]).value - 3.0).abs() < 0.01);
/// # Ok::<(), flowgauge_core::summary::BuildError>(())
/// ```
pub trait Cells {
    /// The measure of the cells.
    fn measure(&self) -> Measure;
    /// The number of cells, including any other numbers that estimates need.
    fn len(&self) -> usize;
    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Whether they are of a sample. The error is then known for sums and averages of cells, but
    /// not for differences.
    fn sampled(&self) -> bool {
        false
    }
    /// Writes the cells to `cells`.
    fn read(&self, cells: &mut [f64]);
    /// Computes the numbers among the cells that estimates need but sums do not preserve, such as
    /// the scale of the error. Call it once the cells are summed up.
    fn seal(&self, cells: &mut [f64]) {
        let _ = cells;
    }
    /// The size of a flow by sealed cells.
    fn estimate(&self, cells: &[f64], key: &[u8]) -> Estimate;
    /// Whether candidates by the cells `now`, and [`Self::recover`] by these other ones, may visit keys
    /// without a packet.
    fn may_be_false(&self, now: &[f64], cells: &[f64], threshold: f64) -> bool {
        let _ = (now, cells, threshold);
        false
    }
    /// Visits the flows that exceed `threshold` or fall below its negative by these cells, if the
    /// sketch can recover keys.
    fn recover(&self, cells: &[f64], threshold: f64, visit: &mut dyn FnMut(CanonicalKey)) {
        let _ = (cells, threshold, visit);
    }
}

/// What is ranked by quantiles.
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
    /// Packets by the nanoseconds since the previous one of the same lane.
    GapNs,
}

/// Quantiles of flows or packets.
///
/// ```
/// use flowgauge_core::key::{FlowKey, Key8};
/// use flowgauge_core::{batch::Batch, catalog, summary::Options};
///
/// let options = Options::new(1 << 20, 1).for_keys(4).with([("of", "size")]);
/// let mut sketch = catalog::build::<Key8>("kll", &options)?;
/// let mut batch = Batch::new();
/// for bytes in [64, 128, 512, 1500] {
///     batch.push(Key8::from_canonical(&[10, 0, 0, 1]).unwrap(), bytes, 0);
/// }
/// sketch.ingest(&mut batch);
/// let sizes = sketch.answers().quantiles().unwrap();
/// assert_eq!((sizes.count(), sizes.rank(128.0), sizes.largest()), (4, 0.5, 1500.0));
/// # Ok::<(), flowgauge_core::summary::BuildError>(())
/// ```
pub trait Quantiles {
    /// What is ranked.
    fn of(&self) -> QuantileOf;
    /// The number of ranked items.
    fn count(&self) -> u64;
    /// The error of a rank, as a share of the items; 0 if ranks are exact.
    fn error(&self) -> f64;
    /// The probability that a rank is within that error; `None` if it always is.
    fn confidence(&self) -> Option<f64>;
    /// The largest number; 0 without an item, or for keys.
    fn largest(&self) -> f64;
    /// The share of items whose number is at most `size`; 0 for keys.
    fn rank(&self, size: f64) -> f64;
    /// The key at quantile `q`, in the order of keys; `None` without an item, or for numbers.
    fn key(&self, q: f64) -> Option<CanonicalKey>;
}
