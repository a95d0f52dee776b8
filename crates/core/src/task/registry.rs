//! The list of tasks. A new one is a file, and a line here.

use std::io;

use flowgauge_kernel::Seed;

use super::{ForecastModel, Task};
use super::{
    addresses, cardinality, changes, entropy, findings, flow_size, heavy_hitters, hierarchical,
    quantiles, size_distribution, superspreaders, top,
};
use crate::key::CanonicalKey;
use crate::terms::{Hierarchy, SpreadOf};
use crate::unknown::Unknown;

/// Every task, in the order in which a report shows them.
pub static TASKS: [&TaskEntry; 14] = [
    &findings::ENTRY,
    &top::ENTRY,
    &addresses::SOURCES,
    &addresses::DESTINATIONS,
    &heavy_hitters::ENTRY,
    &flow_size::ENTRY,
    &superspreaders::SUPERSPREADERS,
    &superspreaders::VICTIMS,
    &changes::ENTRY,
    &cardinality::ENTRY,
    &entropy::ENTRY,
    &size_distribution::ENTRY,
    &quantiles::ENTRY,
    &hierarchical::ENTRY,
];

/// The tasks of a first look at traffic: what stands out, and who is behind it.
pub const OVERVIEW: [&str; 8] = [
    "findings",
    "top",
    "top-sources",
    "top-destinations",
    "heavy-hitters",
    "cardinality",
    "entropy",
    "size-distribution",
];

/// The task of this name.
///
/// # Errors
/// When there is none.
pub fn find(name: &str) -> Result<&'static TaskEntry, Unknown> {
    let found = TASKS.into_iter().find(|entry| entry.name == name);
    found.ok_or_else(|| Unknown::new("task", name, TASKS.map(|entry| entry.name)))
}

/// A task that can be asked for.
#[derive(Debug)]
pub struct TaskEntry {
    /// The name on the command line.
    pub name: &'static str,
    /// What it answers, in one line.
    pub question: &'static str,
    /// Whether it runs when no task is named.
    pub by_default: bool,
    /// Whether it needs the [`Timeline`](crate::timeline::Timeline) of the epoch.
    pub timeline: bool,
    /// Its constructor.
    pub(super) build: fn(&TaskOptions) -> io::Result<Box<dyn Task>>,
}

impl TaskEntry {
    /// Makes the task, reserving what it keeps from epoch to epoch.
    ///
    /// # Errors
    /// When the memory cannot be reserved.
    pub fn build(&self, options: &TaskOptions) -> io::Result<Box<dyn Task>> {
        (self.build)(options)
    }
}

/// What is fixed for the tasks at start.
#[derive(Clone, Debug)]
pub struct TaskOptions {
    /// Superspreaders and victims have more distinct peers than this.
    pub spread: u64,
    /// What a peer is.
    pub spread_of: SpreadOf,
    /// Which prefixes `hierarchical` looks at.
    pub hierarchy: Hierarchy,
    /// The flows that `flow-size` is asked for.
    pub flows: Vec<CanonicalKey>,
    /// The history that `changes` keeps, one for each lane.
    pub history: Vec<HistoryShape>,
    /// How `changes` forecasts.
    pub forecast: ForecastModel,
    /// The secret of the history's digests.
    pub seed: Seed,
}

impl TaskOptions {
    /// The usual options: spreaders of more than 128 endpoints, hierarchy by bytes, no history.
    pub fn new(seed: Seed) -> Self {
        Self {
            spread: 128,
            spread_of: SpreadOf::Endpoint,
            hierarchy: Hierarchy::Bytes,
            flows: Vec::new(),
            history: Vec::new(),
            forecast: ForecastModel::Ewma,
            seed,
        }
    }
}

/// The size of the history of one lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistoryShape {
    /// Canonical bytes of a key in this lane.
    pub key_bytes: usize,
    /// Flows that it can hold, of a summary that lists them.
    pub flows: usize,
    /// Cells that it forecasts, of a summary that has them and does not list its flows.
    pub cells: usize,
}
