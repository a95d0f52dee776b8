//! Questions asked at the close of an epoch.
//!
//! One file per task, and one line for each in [`TASKS`]. Every task joins the lanes: items are
//! united against the epoch's common total, counts and sums add up. What a full table could not
//! track widens the bounds, and each task's file says how.

mod addresses;
mod buckets;
mod cardinality;
mod changes;
mod entropy;
mod findings;
mod flow_size;
mod forecast;
mod forecast_cells;
mod forecast_flows;
mod heavy_hitters;
mod hierarchical;
mod history;
mod lane;
mod largest;
mod order;
mod quantiles;
mod registry;
mod size_distribution;
mod sizes;
mod superspreaders;
mod top;

pub use findings::{Finding, FindingKind};
pub use forecast::ForecastModel;
pub use lane::Side;
pub use registry::{HistoryShape, OVERVIEW, TASKS, TaskEntry, TaskOptions, find};
pub use sizes::complete_to;

use crate::key::{CanonicalKey, KeySpec};
use crate::summary::{Answers, Estimate, QuantileOf, Seen, SizeEstimate};
use crate::terms::{Measure, Size, SpreadOf, Threshold};
use crate::timeline::Timeline;

/// What every task of an epoch shares.
#[derive(Clone, Copy, Debug)]
pub struct EpochContext<'a> {
    /// The measure that `--by` names.
    pub by: Measure,
    /// Keyed packets and bytes of the epoch, over all lanes.
    pub keyed: Size,
    /// For heavy hitters, changes and hierarchical heavy hitters.
    pub threshold: Threshold,
    /// How long lists may be.
    pub lists: Lists,
    /// When the packets came, for tasks that ask for it ([`TaskEntry::timeline`]).
    pub timeline: Option<&'a Timeline>,
}

impl EpochContext<'_> {
    /// The weight that a heavy key exceeds.
    pub fn threshold_weight(&self) -> f64 {
        self.threshold.weight(self.keyed.by(self.by))
    }

    /// The share of the keyed weight that `weight` is; 0 in an empty epoch.
    pub fn share(&self, weight: f64) -> f64 {
        match self.keyed.by(self.by) {
            0 => 0.0,
            total => weight / total as f64,
        }
    }
}

/// How long lists may be.
#[derive(Clone, Copy, Debug)]
pub struct Lists {
    /// Items that `top` and `changes` are asked for.
    pub top: usize,
    /// Items that any list has at most: what is left out beyond them is counted.
    pub limit: usize,
}

impl Lists {
    /// `top` and `changes` as long as asked, and the others without a limit.
    pub fn unlimited(top: usize) -> Self {
        Self { top, limit: usize::MAX }
    }
}

/// One summary at the close of its epoch, with what its keys mean.
#[derive(Clone, Copy)]
pub struct Lane<'a> {
    /// The key, prefixes included.
    pub key: KeySpec,
    /// Canonical bytes of a key in this lane.
    pub key_bytes: usize,
    /// What the summary answers.
    pub answers: &'a dyn Answers,
}

/// A question that is asked of the lanes at the close of each epoch.
///
/// A task keeps its own history; what a summary forgets at `clear` does not concern it.
pub trait Task: Send {
    /// The name on the command line.
    fn name(&self) -> &'static str;
    /// Bytes of scratch that [`Self::run`] needs for lanes that can hold `flows` flows in all.
    fn scratch_bytes(&self, flows: usize) -> usize {
        let _ = flows;
        0
    }
    /// Bytes that the task keeps from epoch to epoch, all of them reserved at construction.
    fn history_bytes(&self) -> usize {
        0
    }
    /// Bytes that its report takes at most while it is made, in an epoch of `flows` flows.
    fn report_bytes(&self, lists: Lists, flows: usize) -> usize {
        let _ = (lists, flows);
        0
    }
    /// Whether it compares epochs with each other, so that it has nothing to say of one that goes on.
    fn compares_epochs(&self) -> bool {
        false
    }
    /// Whether the task can answer by the measure `by` from these lanes, which may be empty yet.
    ///
    /// # Errors
    /// When a lane's key or summary cannot answer, with a sentence that says what could.
    fn check(&self, by: Measure, lanes: &[Lane<'_>]) -> Result<(), Unsupported>;
    /// Takes note of epochs without a packet, as if [`Self::run`] had been called on empty lanes
    /// that many times.
    fn pass(&mut self, epochs: u64) {
        let _ = epochs;
    }
    /// Answers, with `scratch` of at least [`Self::scratch_bytes`] bytes to work in.
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

/// Why a task has no answer, and what would have one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unsupported(pub String);

/// The answer of a task.
#[derive(Clone, Debug, PartialEq)]
pub enum Report {
    /// `top`, `heavy-hitters` and `flow-size`.
    Sizes {
        /// Which flows are listed.
        selection: Selection,
        /// Sorted by value, then by key (`flow-size`: in the order asked).
        items: Vec<SizeItem>,
        /// Items that the limit left out.
        truncated: u64,
        /// So many items at the head of the list are the largest flows, in some order, by their bounds
        /// and by what flows that are not listed may weigh (`flow-size`: all).
        complete_to: u64,
    },
    /// `findings`.
    Findings {
        /// By their kind, then by their packets.
        items: Vec<Finding>,
        /// Items that were left out, since a kind lists a few.
        truncated: u64,
    },
    /// `top-sources` and `top-destinations`.
    Addresses {
        /// Which end of the flows is summed up.
        side: Side,
        /// Sorted by value, then by key.
        items: Vec<AddressItem>,
        /// Items that the limit left out.
        truncated: u64,
    },
    /// `superspreaders` and `victims`.
    Spread {
        /// Which end of the flows is counted.
        side: Side,
        /// What is counted as a peer.
        of: SpreadOf,
        /// The number that `distinct` exceeds.
        threshold: u64,
        /// Sorted by value, then by key.
        items: Vec<SpreadItem>,
        /// Items that the limit left out.
        truncated: u64,
    },
    /// `changes`.
    Changes {
        /// What the difference between forecast and now exceeds; `None` before there is a forecast.
        threshold: Option<f64>,
        /// Sorted by the size of the difference, then by key.
        items: Vec<ChangeItem>,
        /// Items that the limit left out.
        truncated: u64,
        /// Flows whose history found no room.
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
        /// Bits over log₂ of the number of flows; 0 for one flow or none.
        normalized: f64,
    },
    /// `size-distribution`.
    SizeDistribution {
        /// Number of flows of each size in packets, by size.
        bins: Vec<(u64, Estimate)>,
    },
    /// `quantiles`.
    Quantiles {
        /// What the sizes are of.
        of: QuantileOf,
        /// Sizes, by share; none where the quantiles are of keys.
        sizes: Vec<(f64, Estimate)>,
        /// Keys in their order that cut the traffic into parts of equal weight.
        keys: Vec<(f64, CanonicalKey)>,
    },
    /// `hierarchical`.
    Hierarchical {
        /// What the discounted weight exceeds.
        threshold: f64,
        /// Sorted by discounted weight, then by prefix.
        items: Vec<HierarchyItem>,
        /// Items that the limit left out.
        truncated: u64,
    },
}

impl Report {
    /// How many items its list has, and how many the limit left out; `None` where it has no list that
    /// is limited.
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

    /// Bytes of memory that its lists take.
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

/// Which flows a list of sizes holds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Selection {
    /// The largest.
    Largest,
    /// Those over this weight.
    Over(f64),
    /// Those named in the configuration.
    Asked,
}

impl Selection {
    /// The weight that every listed flow exceeds, where there is a threshold.
    pub fn threshold(self) -> Option<f64> {
        match self {
            Self::Over(threshold) => Some(threshold),
            Self::Largest | Self::Asked => None,
        }
    }
}

/// An address and the traffic of its flows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AddressItem {
    /// Canonical bytes of the address.
    pub address: CanonicalKey,
    /// Packets and bytes.
    pub size: SizeEstimate,
    /// Flows that the table holds.
    pub flows: u64,
    /// Its value over the keyed weight.
    pub share: f64,
}

/// A flow and its size.
#[derive(Clone, Debug, PartialEq)]
pub struct SizeItem {
    /// The flow.
    pub key: CanonicalKey,
    /// Its size.
    pub size: SizeEstimate,
    /// Its share of the keyed weight, by the measure of `--by`.
    pub share: f64,
    /// When and how it was seen, where the summary tells.
    pub seen: Option<Seen>,
}

/// An address and how many distinct peers it has.
#[derive(Clone, Debug, PartialEq)]
pub struct SpreadItem {
    /// The address (4 or 16 bytes).
    pub address: CanonicalKey,
    /// Distinct endpoints, or addresses.
    pub distinct: Estimate,
}

/// A flow that left its forecast.
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

/// A prefix that is heavy after its heavy descendants are discounted.
#[derive(Clone, Debug, PartialEq)]
pub struct HierarchyItem {
    /// Source address, its host bits zero; the destination where the key is `destination`.
    pub source: CanonicalKey,
    /// Bits of this address that count.
    pub source_bits: u8,
    /// Destination address and bits, in the two-dimensional hierarchy.
    pub destination: Option<(CanonicalKey, u8)>,
    /// Weight of all packets under the prefix, by the measure of `--by`.
    pub total: Estimate,
    /// Weight not covered by any reported descendant; its bounds take the reported set as given.
    pub discounted: Estimate,
}
