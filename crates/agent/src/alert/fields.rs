//! The fields that conditions compare, and how to read them from reports.

use flowgauge_core::key::CanonicalKey;
use flowgauge_core::summary::{Estimate, SizeEstimate};
use flowgauge_core::task::{self, Finding, HierarchyItem, Report, Side, TaskEntry};
use flowgauge_core::terms::Measure;
use flowgauge_core::unknown::Unknown;
use flowgauge_engine::account::Account;
use flowgauge_engine::report::EpochReport;

use crate::lines;

/// The part of an estimate that a comparison uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bound {
    Low,
    Value,
    High,
}

/// A number with its bounds, and the item it describes.
pub(super) struct Number<'a> {
    pub(super) value: f64,
    pub(super) low: f64,
    pub(super) high: f64,
    of: Of<'a>,
}

/// The item that a number describes.
#[derive(Clone, Copy)]
enum Of<'a> {
    Epoch,
    Flow(&'a CanonicalKey),
    Address(Side, &'a CanonicalKey),
    Prefix(&'a HierarchyItem),
    Finding(&'a Finding),
}

impl<'a> Number<'a> {
    fn new(estimate: &Estimate, scale: f64, of: Of<'a>) -> Self {
        let Estimate { value, low, high, .. } = *estimate;
        Self { value: value * scale, low: low * scale, high: high * scale, of }
    }

    fn exact(value: f64, of: Of<'a>) -> Self {
        Self { value, low: value, high: value, of }
    }

    /// The bounds to compare by.
    pub(super) fn chosen(&self, bound: Option<Bound>) -> (f64, f64) {
        match bound {
            None => (self.low, self.high),
            Some(Bound::Low) => (self.low, self.low),
            Some(Bound::Value) => (self.value, self.value),
            Some(Bound::High) => (self.high, self.high),
        }
    }

    /// The item as text.
    pub(super) fn item(&self, report: &EpochReport) -> String {
        match self.of {
            Of::Epoch => String::new(),
            Of::Flow(key) => lines::key(report.key, key),
            Of::Address(side, address) => lines::address(report.key, side, address),
            Of::Prefix(item) => lines::prefix(item),
            Of::Finding(item) => lines::finding(item),
        }
    }
}

/// A field of the account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AccountField(&'static str);

impl AccountField {
    const ALL: [&'static str; 13] = [
        "read",
        "skipped",
        "filtered",
        "malformed",
        "no_key",
        "keyed",
        "untracked",
        "dropped",
        "lost",
        "saturated",
        "late",
        "backwards",
        "jumps",
    ];

    pub(super) fn find(name: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|known| *known == name);
        let unknown = || Unknown::new("field", name, Self::ALL).to_string();
        found.map(Self).ok_or_else(|| {
            unknown().replacen(&format!("'{name}'"), &format!("'{name}' of account"), 1)
        })
    }

    pub(super) fn name(self) -> &'static str {
        self.0
    }

    /// Its value. `dropped` counts all packets that arrived but were not counted: lost by the
    /// workers, or before they could be read.
    pub(super) fn number(self, account: &Account) -> Number<'static> {
        let packets = match self.0 {
            "read" => account.read,
            "skipped" => account.skipped.packets,
            "filtered" => account.filtered,
            "malformed" => account.malformed,
            "no_key" => account.no_key,
            "keyed" => account.keyed,
            "untracked" => account.untracked.packets,
            "lost" => account.lost,
            "saturated" => account.saturated.packets,
            "late" => account.late,
            "backwards" => account.backwards,
            "jumps" => account.jumps,
            _ => account.dropped.packets + account.lost,
        };
        Number::exact(packets as f64, Of::Epoch)
    }
}

const SIZES: &[&str] = &["packets", "bytes", "packets_per_second", "bits_per_second", "share"];
const ADDRESSES: &[&str] =
    &["packets", "bytes", "packets_per_second", "bits_per_second", "share", "flows"];
const FINDINGS: &[&str] =
    &["packets", "bytes", "packets_per_second", "bits_per_second", "share", "peers"];
const PREFIXES: &[&str] =
    &["packets", "bytes", "packets_per_second", "bits_per_second", "discounted"];

/// The tasks with fields, and their fields.
const FIELDS: [(&str, &[&str]); 12] = [
    ("findings", FINDINGS),
    ("top", SIZES),
    ("top-sources", ADDRESSES),
    ("top-destinations", ADDRESSES),
    ("heavy-hitters", SIZES),
    ("flow-size", SIZES),
    ("superspreaders", &["distinct"]),
    ("victims", &["distinct"]),
    ("changes", &["before", "forecast", "now"]),
    ("cardinality", &["flows"]),
    ("entropy", &["bits", "normalized"]),
    ("hierarchical", PREFIXES),
];

/// A task that conditions can name.
#[derive(Clone, Copy, Debug)]
pub struct Task(&'static TaskEntry);

impl PartialEq for Task {
    fn eq(&self, other: &Self) -> bool {
        self.0.name == other.0.name
    }
}

impl Task {
    /// Finds a task by name.
    ///
    /// # Errors
    /// When the name is unknown; the message suggests the nearest one.
    pub(super) fn find(name: &str) -> Result<Self, String> {
        task::find(name).map(Self).map_err(|unknown| unknown.to_string())
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        self.0.name
    }

    /// Whether it runs when the configuration names no tasks.
    pub fn by_default(self) -> bool {
        self.0.by_default
    }

    /// Finds a field by name.
    pub(super) fn field(self, name: &str) -> Result<&'static str, String> {
        let known = FIELDS.into_iter().find(|(task, _)| *task == self.name());
        let Some((task, fields)) = known else {
            return Err(format!("task '{}' has no field that a condition compares", self.name()));
        };
        let found = fields.iter().copied().find(|field| *field == name);
        found.ok_or_else(|| {
            let unknown = Unknown::new("field", name, fields.iter().copied());
            Unknown { of: Some(task), ..unknown }.to_string()
        })
    }

    /// The numbers of a field, one per item, or `None` if the report lacks the answer.
    pub(super) fn numbers<'a>(
        self,
        field: &str,
        report: &'a EpochReport,
    ) -> Option<Vec<Number<'a>>> {
        let (_, answer) = report.tasks.iter().find(|(name, _)| *name == self.name())?;
        let sized = |size: &SizeEstimate, share: f64, of| sized(field, size, share, report, of);
        Some(match answer {
            Report::Sizes { items, .. } => {
                let each = items.iter();
                each.filter_map(|item| sized(&item.size, item.share, Of::Flow(&item.key))).collect()
            }
            Report::Addresses { side, items, .. } => {
                let each = items.iter().map(|item| (Of::Address(*side, &item.address), item));
                each.filter_map(|(of, item)| match field {
                    "flows" => Some(Number::exact(item.flows as f64, of)),
                    _ => sized(&item.size, item.share, of),
                })
                .collect()
            }
            Report::Findings { items, .. } => {
                let each = items.iter().map(|item| (Of::Finding(item), item));
                each.filter_map(|(of, item)| match field {
                    "peers" => item.peers.as_ref().map(|peers| Number::new(peers, 1.0, of)),
                    _ => sized(&item.size, item.share, of),
                })
                .collect()
            }
            Report::Spread { side, items, .. } => {
                let of = |item: &'a task::SpreadItem| Of::Address(*side, &item.address);
                items.iter().map(|item| Number::new(&item.distinct, 1.0, of(item))).collect()
            }
            Report::Changes { items, .. } => {
                let each = items.iter().map(|item| {
                    let estimate = match field {
                        "before" => &item.before,
                        "forecast" => &item.forecast,
                        _ => &item.now,
                    };
                    Number::new(estimate, 1.0, Of::Flow(&item.key))
                });
                each.collect()
            }
            Report::Hierarchical { items, .. } => {
                let each = items.iter().map(|item| (Of::Prefix(item), item));
                each.filter_map(|(of, item)| {
                    if field == "discounted" {
                        return Some(Number::new(&item.discounted, 1.0, of));
                    }
                    let total = |measure| (measure == report.by).then_some(item.total);
                    let (packets, bytes) = (total(Measure::Packets), total(Measure::Bytes));
                    sized(&SizeEstimate { packets, bytes }, 0.0, of)
                })
                .collect()
            }
            Report::Cardinality { flows } => vec![Number::new(flows, 1.0, Of::Epoch)],
            Report::Entropy { bits, normalized } => {
                // A fraction of the maximum entropy, which follows from the number of flows. It
                // scales the bounds.
                let part = if bits.value > 0.0 { normalized / bits.value } else { 0.0 };
                match field {
                    // A single flow has no entropy to normalize.
                    "normalized" if bits.high <= 0.0 => Vec::new(),
                    "normalized" => vec![Number::new(bits, part, Of::Epoch)],
                    _ => vec![Number::new(bits, 1.0, Of::Epoch)],
                }
            }
            Report::SizeDistribution { .. } | Report::Quantiles { .. } => return None,
        })
    }
}

/// A size as a number, or `None` if the summary does not count it or the epoch has no duration.
fn sized<'a>(
    field: &str,
    size: &SizeEstimate,
    share: f64,
    report: &EpochReport,
    of: Of<'a>,
) -> Option<Number<'a>> {
    let number = |estimate: &Option<Estimate>, scale| {
        estimate.as_ref().map(|estimate| Number::new(estimate, scale, of))
    };
    let rate = || Some(seconds(report)).filter(|seconds| *seconds > 0.0).map(f64::recip);
    match field {
        "packets" => number(&size.packets, 1.0),
        "bytes" => number(&size.bytes, 1.0),
        "packets_per_second" => number(&size.packets, rate()?),
        "bits_per_second" => number(&size.bytes, 8.0 * rate()?),
        _ => Some(Number::exact(share, of)),
    }
}

/// Observed seconds of an epoch.
pub(crate) fn seconds(report: &EpochReport) -> f64 {
    match (report.start_ns, report.end_ns) {
        (Some(start_ns), Some(end_ns)) => {
            end_ns.saturating_sub(start_ns).max(0) as f64 / 1e9 * report.coverage
        }
        _ => 0.0,
    }
}
