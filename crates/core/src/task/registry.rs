//! The list of tasks. Adding a task takes a file and a line here.

use std::io;

use flowgauge_kernel::Seed;

use super::{ForecastModel, Task};
use super::{
    addresses, cardinality, changes, entropy, findings, hierarchical, quantiles, size_distribution,
    sizes, superspreaders,
};
use crate::key::CanonicalKey;
use crate::terms::{Hierarchy, SpreadOf};
use crate::unknown::Unknown;

/// Every task, in the order in which a report shows them.
pub static TASKS: [&TaskEntry; 14] = [
    &findings::ENTRY,
    &sizes::TOP,
    &addresses::SOURCES,
    &addresses::DESTINATIONS,
    &sizes::HEAVY_HITTERS,
    &sizes::FLOW_SIZE,
    &superspreaders::SUPERSPREADERS,
    &superspreaders::VICTIMS,
    &changes::ENTRY,
    &cardinality::ENTRY,
    &entropy::ENTRY,
    &size_distribution::ENTRY,
    &quantiles::ENTRY,
    &hierarchical::ENTRY,
];

/// The tasks of an overview: what stands out, and which addresses cause it.
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

/// An entry in the list of tasks.
///
/// ```
/// use flowgauge_core::task::find;
///
/// assert_eq!(find("top").unwrap().question, "the largest flows");
/// let unknown = find("topp").unwrap_err();
/// assert_eq!(unknown.to_string(), "unknown task 'topp'; did you mean 'top'?");
/// ```
#[derive(Debug)]
pub struct TaskEntry {
    /// The name on the command line.
    pub name: &'static str,
    /// The question that it answers, in one line.
    pub question: &'static str,
    /// Whether it runs when no task is named.
    pub by_default: bool,
    /// Whether it needs the [`Timeline`](crate::timeline::Timeline) of the epoch.
    pub timeline: bool,
    /// Its constructor.
    pub(super) build: fn(&TaskOptions) -> io::Result<Box<dyn Task>>,
}

impl TaskEntry {
    /// Builds the task, and reserves its history.
    ///
    /// # Errors
    /// When the memory cannot be reserved.
    pub fn build(&self, options: &TaskOptions) -> io::Result<Box<dyn Task>> {
        (self.build)(options)
    }
}

/// The options of all tasks, fixed at start.
///
/// ```
/// use flowgauge_core::task::{TaskOptions, find};
/// use flowgauge_core::terms::SpreadOf;
///
/// let defaults = TaskOptions::new(1.into());
/// let options = TaskOptions { spread: 1000, spread_of: SpreadOf::Port, ..defaults };
/// assert_eq!(find("superspreaders").unwrap().build(&options)?.name(), "superspreaders");
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct TaskOptions {
    /// Threshold of superspreaders and victims: they have more distinct peers than this.
    pub spread: u64,
    /// The part of a peer that must differ.
    pub spread_of: SpreadOf,
    /// The hierarchy of `hierarchical`.
    pub hierarchy: Hierarchy,
    /// The flows of `flow-size`.
    pub flows: Vec<CanonicalKey>,
    /// The history that `changes` keeps, one for each lane.
    pub history: Vec<HistoryShape>,
    /// The forecast model of `changes`.
    pub forecast: ForecastModel,
    /// The seed of the history's digests.
    pub seed: Seed,
}

impl TaskOptions {
    /// The default options: superspreaders of more than 128 endpoints, hierarchy by bytes, no
    /// history.
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
    /// Number of flows that it can hold, of a summary that lists its flows.
    pub flows: usize,
    /// Number of cells that it forecasts, of a summary with cells that does not list its flows.
    pub cells: usize,
}
