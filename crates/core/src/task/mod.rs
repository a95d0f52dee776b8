//! Tasks: the questions that are answered at the close of each epoch.
//!
//! A task is one file and one line in [`TASKS`]. Every task combines the lanes: it lists their
//! items together, as shares of the epoch's total, and adds their counts and sums. Packets that a
//! full table could not track widen the bounds; each task's file says how.

mod addresses;
mod cardinality;
mod changes;
mod entropy;
mod findings;
mod hierarchical;
mod largest;
mod order;
mod quantiles;
mod registry;
mod size_distribution;
mod sizes;
mod superspreaders;

pub use changes::ForecastModel;
pub use findings::{Finding, FindingKind};
pub use registry::{HistoryShape, OVERVIEW, TASKS, TaskEntry, TaskOptions, find};
pub use sizes::complete_to;

use std::ops::Range;

use crate::key::{CanonicalKey, Field, KeySpec};
use crate::summary::{Answers, Estimate, Flows, QuantileOf, Seen, SizeEstimate};
use crate::terms::{Measure, Size, SpreadOf, Threshold};
use crate::timeline::Timeline;

/// The context of an epoch, for all its tasks.
///
/// ```
/// use flowgauge_core::task::{EpochContext, Lists};
/// use flowgauge_core::terms::{Measure, Size, Threshold};
///
/// let epoch = EpochContext {
///     by: Measure::Packets,
///     keyed: Size { packets: 1000, bytes: 60_000 },
///     threshold: Threshold::Share(0.05),
///     lists: Lists::unlimited(10),
///     timeline: None,
/// };
/// assert_eq!(epoch.threshold_weight(), 50.0);
/// assert_eq!(epoch.share(250.0), 0.25);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct EpochContext<'a> {
    /// The measure that `--by` names.
    pub by: Measure,
    /// Keyed packets and bytes of the epoch, over all lanes.
    pub keyed: Size,
    /// The threshold of heavy hitters, changes and hierarchical heavy hitters.
    pub threshold: Threshold,
    /// The maximum lengths of lists.
    pub lists: Lists,
    /// The packets over time, for tasks that need them ([`TaskEntry::timeline`]).
    pub timeline: Option<&'a Timeline>,
}

impl EpochContext<'_> {
    /// The threshold as a weight.
    pub fn threshold_weight(&self) -> f64 {
        self.threshold.weight(self.keyed.by(self.by))
    }

    /// `weight` as a share of the keyed weight; 0 in an empty epoch.
    pub fn share(&self, weight: f64) -> f64 {
        match self.keyed.by(self.by) {
            0 => 0.0,
            total => weight / total as f64,
        }
    }
}

/// The maximum lengths of lists.
#[derive(Clone, Copy, Debug)]
pub struct Lists {
    /// Items that `top` and `changes` list.
    pub top: usize,
    /// Maximum number of items in any list. Further items are counted as truncated.
    pub limit: usize,
}

impl Lists {
    /// Lists of `top` items for `top` and `changes`, and unlimited lists for other tasks.
    pub fn unlimited(top: usize) -> Self {
        Self { top, limit: usize::MAX }
    }
}

/// The summary of one lane at the close of its epoch, with the meaning of its keys.
#[derive(Clone, Copy)]
pub struct Lane<'a> {
    /// The key, prefixes included.
    pub key: KeySpec,
    /// Canonical bytes of a key in this lane.
    pub key_bytes: usize,
    /// The answers of the summary.
    pub answers: &'a dyn Answers,
}

impl Lane<'_> {
    /// The byte range of a field of one end in the lane's keys; `None` where they lack it, or do
    /// not distinguish the ends.
    pub(super) fn place(&self, field: Field) -> Option<Range<usize>> {
        self.key.place(field, self.key_bytes).filter(|_| !self.key.kind().is_in_order())
    }
}

/// The end of a reason that another algorithm would remove. A caller who knows the algorithm and its
/// accelerators may replace it.
pub const USE_TABLE: &str = "use --algorithm linear-table";

/// All flows of the lane with exact sizes, fewer than 2³². `instead` names the alternative to a
/// table in the error message.
fn exact<'a>(task: &str, instead: &str, lane: &Lane<'a>) -> Result<&'a dyn Flows, Unsupported> {
    let flows = lane.answers.flows().ok_or_else(|| {
        Unsupported(format!("{task} needs {instead}, or a table of every flow; {USE_TABLE}"))
    })?;
    if u32::try_from(flows.len()).is_err() {
        return Err(Unsupported(format!(
            "{task} supports at most 4294967295 flows; use shorter epochs"
        )));
    }
    Ok(flows)
}

/// The sum of independent estimates.
fn all_hold(parts: &[Estimate]) -> Estimate {
    let sum = |part: fn(&Estimate) -> f64| parts.iter().map(part).sum();
    Estimate {
        value: sum(|part| part.value),
        low: sum(|part| part.low),
        high: sum(|part| part.high),
        confidence: parts.iter().filter_map(|part| part.confidence).reduce(|a, b| a * b),
    }
}

/// One end of a flow.
///
/// ```
/// use flowgauge_core::key::Field;
/// use flowgauge_core::task::Side;
///
/// assert_eq!(Side::Source.address(), Field::Source);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The source.
    Source,
    /// The destination.
    Destination,
}

impl Side {
    pub(super) fn other(self) -> Self {
        match self {
            Self::Source => Self::Destination,
            Self::Destination => Self::Source,
        }
    }

    /// The address field of this end.
    pub fn address(self) -> Field {
        match self {
            Self::Source => Field::Source,
            Self::Destination => Field::Destination,
        }
    }

    /// The port field of this end.
    pub(super) fn port(self) -> Field {
        match self {
            Self::Source => Field::SourcePort,
            Self::Destination => Field::DestinationPort,
        }
    }
}

/// A question about the lanes, answered at the close of each epoch.
///
/// A task keeps its own history, which does not depend on the summaries' `clear`.
///
/// ```
/// use flowgauge_core::{batch::Batch, catalog, key::{FlowKey, Key8, KeyKind}, summary::Options};
/// use flowgauge_core::task::{EpochContext, Lane, Lists, Report, TaskOptions, find};
/// use flowgauge_core::terms::{Measure, Threshold};
///
/// let options = Options::new(1 << 20, 1).for_keys(4);
/// let mut table = catalog::build::<Key8>("linear-table", &options).unwrap();
/// let hosts = [1, 1, 2].map(|host| Key8::from_canonical(&[10, 0, 0, host]).unwrap());
/// let mut batch = Batch::new();
/// batch.fill(&hosts, 60);
/// table.ingest(&mut batch);
/// let lane = Lane { key: KeyKind::SOURCE.into(), key_bytes: 4, answers: table.answers() };
/// let (by, threshold, lists) = (Measure::Packets, Threshold::Share(0.5), Lists::unlimited(10));
/// let epoch = EpochContext { by, keyed: batch.size(), threshold, lists, timeline: None };
/// let mut task = find("heavy-hitters").unwrap().build(&TaskOptions::new(1.into())).unwrap();
/// let Ok(Report::Sizes { items, .. }) = task.run(&epoch, &[lane], &mut []) else { panic!() };
/// assert_eq!(items[0].key.as_bytes(), [10, 0, 0, 1]);
/// ```
pub trait Task: Send {
    /// The name on the command line.
    fn name(&self) -> &'static str;
    /// Bytes of scratch memory that [`Self::run`] needs for lanes that can hold `flows` flows
    /// together.
    fn scratch_bytes(&self, flows: usize) -> usize {
        let _ = flows;
        0
    }
    /// Bytes of history that the task keeps from epoch to epoch, all reserved at construction.
    fn history_bytes(&self) -> usize {
        0
    }
    /// Maximum memory in bytes while its report is made, in an epoch of `flows` flows.
    fn report_bytes(&self, lists: Lists, flows: usize) -> usize {
        let _ = (lists, flows);
        0
    }
    /// Whether it compares epochs, so that it cannot answer in the middle of one.
    fn compares_epochs(&self) -> bool {
        false
    }
    /// Checks that the task can answer by the measure `by` from these lanes, which may still be
    /// empty.
    ///
    /// # Errors
    /// When a lane's key or summary cannot answer, with a sentence that says which could.
    fn check(&self, by: Measure, lanes: &[Lane<'_>]) -> Result<(), Unsupported>;
    /// Records epochs without a packet, as if [`Self::run`] had been called that many times on
    /// empty lanes.
    fn pass(&mut self, epochs: u64) {
        let _ = epochs;
    }
    /// Answers. `scratch` has at least [`Self::scratch_bytes`] bytes.
    ///
    /// # Errors
    /// When a lane's key or summary cannot answer, as [`Self::check`] says.
    ///
    /// # Panics
    /// When `scratch` is smaller than promised.
    fn run(
        &mut self,
        epoch: &EpochContext<'_>,
        lanes: &[Lane<'_>],
        scratch: &mut [u64],
    ) -> Result<Report, Unsupported>;
}

/// Why a task has no answer, and the remedy.
///
/// ```
/// use flowgauge_core::key::{Key8, KeyKind};
/// use flowgauge_core::task::{Lane, TaskOptions, find};
/// use flowgauge_core::{catalog, summary::Options, terms::Measure};
///
/// let options = Options::new(1 << 20, 1).for_keys(4);
/// let sketch = catalog::build::<Key8>("count-min", &options).unwrap();
/// let lane = Lane { key: KeyKind::SOURCE.into(), key_bytes: 4, answers: sketch.answers() };
/// let task = find("cardinality").unwrap().build(&TaskOptions::new(1.into())).unwrap();
/// let refusal = task.check(Measure::Packets, &[lane]).unwrap_err();
/// assert!(refusal.to_string().contains("--algorithm"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unsupported(pub String);

/// The answer of a task.
///
/// ```
/// use flowgauge_core::summary::Estimate;
/// use flowgauge_core::task::Report;
///
/// let report = Report::Cardinality { flows: Estimate::exact(3) };
/// assert_eq!(report.listed(), None);
/// let report = Report::Hierarchical { threshold: 50.0, items: Vec::new(), truncated: 2 };
/// assert_eq!(report.listed(), Some((0, 2)));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub enum Report {
    /// `top`, `heavy-hitters` and `flow-size`.
    Sizes {
        /// How the listed flows were selected.
        selection: Selection,
        /// Sorted by value, then by key (`flow-size`: in the order asked).
        items: Vec<SizeItem>,
        /// Items that the limit left out.
        truncated: u64,
        /// The number of the largest flows that are certainly all listed, by the bounds of the
        /// items and by the possible weight of unlisted flows (`flow-size`: all items).
        complete_to: u64,
    },
    /// `findings`.
    Findings {
        /// Sorted by kind, then by packets.
        items: Vec<Finding>,
        /// Items left out, since only a few of each kind are listed.
        truncated: u64,
    },
    /// `top-sources` and `top-destinations`.
    Addresses {
        /// The end of the flows whose addresses are listed.
        side: Side,
        /// Sorted by value, then by key.
        items: Vec<AddressItem>,
        /// Items that the limit left out.
        truncated: u64,
    },
    /// `superspreaders` and `victims`.
    Spread {
        /// The end of the flows whose addresses are listed.
        side: Side,
        /// The part of a peer that is counted.
        of: SpreadOf,
        /// The threshold that `distinct` exceeds.
        threshold: u64,
        /// Sorted by value, then by key.
        items: Vec<SpreadItem>,
        /// Items that the limit left out.
        truncated: u64,
    },
    /// `changes`.
    Changes {
        /// The threshold that the difference between forecast and size exceeds; `None` before the
        /// first forecast.
        threshold: Option<f64>,
        /// Sorted by the size of the difference, then by key.
        items: Vec<ChangeItem>,
        /// Items that the limit left out.
        truncated: u64,
        /// Flows without room in the history.
        untracked: u64,
    },
    /// `cardinality`.
    Cardinality {
        /// Number of flows.
        flows: Estimate,
    },
    /// `entropy`.
    Entropy {
        /// −Σ (f/N) log₂ (f/N).
        bits: Estimate,
        /// Bits divided by log₂ of the number of flows; 0 for at most one flow.
        normalized: f64,
    },
    /// `size-distribution`.
    SizeDistribution {
        /// Number of flows of each size in packets, by size.
        bins: Vec<(u64, Estimate)>,
    },
    /// `quantiles`.
    Quantiles {
        /// The values that the quantiles are of.
        of: QuantileOf,
        /// Quantiles of sizes, each with its share; empty where the quantiles are of keys.
        sizes: Vec<(f64, Estimate)>,
        /// Keys in order that divide the traffic into parts of equal weight, each with its share.
        keys: Vec<(f64, CanonicalKey)>,
    },
    /// `hierarchical`.
    Hierarchical {
        /// The threshold that the discounted weight exceeds.
        threshold: f64,
        /// Sorted by discounted weight, then by prefix.
        items: Vec<HierarchyItem>,
        /// Items that the limit left out.
        truncated: u64,
    },
}

impl Report {
    /// The number of items in its list, and the number that the limit left out; `None` without a
    /// limited list.
    pub fn listed(&self) -> Option<(u64, u64)> {
        let (items, truncated) = match self {
            Self::Sizes { items, truncated, .. } => (items.len(), *truncated),
            Self::Addresses { items, truncated, .. } => (items.len(), *truncated),
            Self::Spread { items, truncated, .. } => (items.len(), *truncated),
            Self::Changes { items, truncated, .. } => (items.len(), *truncated),
            Self::Hierarchical { items, truncated, .. } => (items.len(), *truncated),
            Self::Findings { .. }
            | Self::Cardinality { .. }
            | Self::Entropy { .. }
            | Self::SizeDistribution { .. }
            | Self::Quantiles { .. } => return None,
        };
        Some((items as u64, truncated))
    }

    /// Memory of its lists in bytes.
    pub fn memory_bytes(&self) -> usize {
        match self {
            Self::Sizes { items, .. } => size_of_val(&items[..]),
            Self::Findings { items, .. } => size_of_val(&items[..]),
            Self::Addresses { items, .. } => size_of_val(&items[..]),
            Self::Spread { items, .. } => size_of_val(&items[..]),
            Self::Changes { items, .. } => size_of_val(&items[..]),
            Self::Cardinality { .. } | Self::Entropy { .. } => 0,
            Self::SizeDistribution { bins } => size_of_val(&bins[..]),
            Self::Quantiles { sizes, keys, .. } => size_of_val(&sizes[..]) + size_of_val(&keys[..]),
            Self::Hierarchical { items, .. } => size_of_val(&items[..]),
        }
    }
}

/// How the flows of a list of sizes were selected.
///
/// ```
/// use flowgauge_core::task::Selection;
///
/// assert_eq!(Selection::Over(50.0).threshold(), Some(50.0));
/// assert_eq!(Selection::Largest.threshold(), None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Selection {
    /// The largest flows.
    Largest,
    /// All flows over this weight.
    Over(f64),
    /// The flows given in the configuration.
    Asked,
}

impl Selection {
    /// The threshold that every listed flow exceeds, if there is one.
    pub fn threshold(self) -> Option<f64> {
        match self {
            Self::Over(threshold) => Some(threshold),
            Self::Largest | Self::Asked => None,
        }
    }
}

/// An address with the traffic of its flows, listed by `top-sources` and `top-destinations`.
///
/// ```
/// use flowgauge_core::{batch::Batch, catalog, key::{FlowKey, Key8, KeyKind}, summary::Options};
/// use flowgauge_core::task::{EpochContext, Lane, Lists, Report, TaskOptions, find};
/// use flowgauge_core::terms::{Measure, Threshold};
///
/// let mut table = catalog::build::<Key8>("linear-table", &Options::new(1 << 20, 1)).unwrap();
/// let mut batch = Batch::new();
/// batch.fill(&[1, 2].map(|end| Key8::from_canonical(&[10, 0, 0, 1, 10, 0, 1, end]).unwrap()), 60);
/// table.ingest(&mut batch);
/// let lane = Lane { key: KeyKind::PAIR.into(), key_bytes: 8, answers: table.answers() };
/// let (by, threshold, lists) = (Measure::Packets, Threshold::Share(0.5), Lists::unlimited(10));
/// let epoch = EpochContext { by, keyed: batch.size(), threshold, lists, timeline: None };
/// let mut task = find("top-sources").unwrap().build(&TaskOptions::new(1.into())).unwrap();
/// let mut scratch = vec![0; task.scratch_bytes(2).div_ceil(8)];
/// let report = task.run(&epoch, &[lane], &mut scratch);
/// assert!(matches!(report, Ok(Report::Addresses { items, .. }) if items[0].flows == 2));
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AddressItem {
    /// Canonical bytes of the address.
    pub address: CanonicalKey,
    /// Packets and bytes.
    pub size: SizeEstimate,
    /// Number of its flows in the table.
    pub flows: u64,
    /// Its share of the keyed weight.
    pub share: f64,
}

/// A flow with its size, listed by `top`, `heavy-hitters` and `flow-size`.
#[derive(Clone, Debug, PartialEq)]
pub struct SizeItem {
    /// The flow.
    pub key: CanonicalKey,
    /// Its size.
    pub size: SizeEstimate,
    /// Its share of the keyed weight, by the measure of `--by`.
    pub share: f64,
    /// When it was first and last seen, and its TCP flags, where the summary records them.
    pub seen: Option<Seen>,
}

/// An address with its distinct count of peers, listed by `superspreaders` and `victims`.
#[derive(Clone, Debug, PartialEq)]
pub struct SpreadItem {
    /// The address (4 or 16 bytes).
    pub address: CanonicalKey,
    /// The distinct count of its peers.
    pub distinct: Estimate,
}

/// A flow whose size deviates from its forecast, listed by `changes`.
#[derive(Clone, Debug, PartialEq)]
pub struct ChangeItem {
    /// The flow.
    pub key: CanonicalKey,
    /// Its size in the epoch before.
    pub before: Estimate,
    /// Its forecast for this epoch.
    pub forecast: Estimate,
    /// Its size in this epoch.
    pub now: Estimate,
}

/// A prefix that is heavy after its heavy descendants are discounted, listed by `hierarchical`.
#[derive(Clone, Debug, PartialEq)]
pub struct HierarchyItem {
    /// The prefix of the source address, with zero host bits; of the destination where the key is
    /// `destination`.
    pub source: CanonicalKey,
    /// Length of this prefix in bits.
    pub source_bits: u8,
    /// The destination prefix and its length, in the two-dimensional hierarchy.
    pub destination: Option<(CanonicalKey, u8)>,
    /// Weight of all packets under the prefix, by the measure of `--by`.
    pub total: Estimate,
    /// Weight not covered by any reported descendant. Its bounds assume that the reported set is as
    /// it is.
    pub discounted: Estimate,
}
