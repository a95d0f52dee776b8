//! Conditions over reports: `victims.victims.distinct > 1000 and not account.dropped > 0`.
//!
//! ```text
//! any     = all ("or" all)*
//! all     = one ("and" one)*
//! one     = "not" one | "(" any ")" | field operator number
//! field   = MEASUREMENT "." TASK "." FIELD ["." BOUND] | "account." FIELD
//! ```
//!
//! Without a bound, a comparison takes the bound that cannot raise a false alarm: it matches only where
//! every number within the bounds would.

mod fields;
mod parse;

use std::str::FromStr;

use flowgauge_engine::report::EpochReport;
use serde::{Deserialize, Serialize};

pub use fields::Task;

/// Maximum number of items that a match lists.
pub const MOST_ITEMS: usize = 10;

/// A condition over the reports of one measurement.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(try_from = "String")]
pub struct Condition {
    text: String,
    root: Node,
}

#[derive(Clone, Debug, PartialEq)]
enum Node {
    Compare(Comparison),
    Not(Box<Self>),
    All(Vec<Self>),
    Any(Vec<Self>),
}

#[derive(Clone, Debug, PartialEq)]
struct Comparison {
    subject: Subject,
    operator: Operator,
    number: f64,
}

#[derive(Clone, Debug, PartialEq)]
enum Subject {
    Account(fields::AccountField),
    Task { measurement: String, task: Task, field: &'static str, bound: Option<Bound> },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Over,
    AtLeast,
    Under,
    AtMost,
    Equal,
    Unequal,
}

/// The part of an estimate that a comparison uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bound {
    Low,
    Value,
    High,
}

/// An item that made a condition match.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Match {
    /// The flow, address or prefix; empty if the number describes the whole epoch.
    pub item: String,
    /// The field, such as `victims.distinct` or `account.dropped`.
    pub field: String,
    /// Its value.
    pub value: f64,
    /// Its lower bound.
    pub low: f64,
    /// Its upper bound.
    pub high: f64,
}

/// The result of judging a report.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// It matches for these items, at most [`MOST_ITEMS`] of them.
    Matches(Vec<Match>),
    /// It does not match.
    Differs,
    /// The report lacks an answer that the condition needs.
    Unknown,
}

impl Condition {
    /// The condition as it was written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The measurement it names, or `None` if it only uses account fields.
    pub fn measurement(&self) -> Option<&str> {
        self.root.subjects().into_iter().find_map(Subject::measurement)
    }

    /// The tasks it needs.
    pub fn tasks(&self) -> impl Iterator<Item = Task> {
        self.root.subjects().into_iter().filter_map(|subject| match subject {
            Subject::Task { task, .. } => Some(*task),
            Subject::Account(_) => None,
        })
    }

    /// Judges a report of the condition's measurement.
    pub fn judge(&self, report: &EpochReport) -> Verdict {
        let mut matches = Vec::new();
        match self.root.judge(report, false, &mut matches) {
            Some(true) => Verdict::Matches(matches),
            Some(false) => Verdict::Differs,
            None => Verdict::Unknown,
        }
    }
}

impl FromStr for Condition {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let root = parse::parse(text)?;
        let mut named = root.subjects().into_iter().filter_map(Subject::measurement);
        if let Some(first) = named.next()
            && let Some(other) = named.find(|other| *other != first)
        {
            return Err(format!(
                "'{first}' and '{other}' are different measurements, whose epochs end at different \
                 times; write an alert for each"
            ));
        }
        Ok(Self { text: text.to_owned(), root })
    }
}

impl TryFrom<String> for Condition {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl Subject {
    fn measurement(&self) -> Option<&str> {
        match self {
            Self::Account(_) => None,
            Self::Task { measurement, .. } => Some(measurement),
        }
    }
}

impl Node {
    fn subjects(&self) -> Vec<&Subject> {
        match self {
            Self::Compare(comparison) => vec![&comparison.subject],
            Self::Not(node) => node.subjects(),
            Self::All(nodes) | Self::Any(nodes) => nodes.iter().flat_map(Self::subjects).collect(),
        }
    }

    /// Whether the node matches, or `None` if the report cannot say. Under a `not`, a comparison
    /// matches if any number within the bounds would.
    fn judge(&self, report: &EpochReport, negated: bool, matches: &mut Vec<Match>) -> Option<bool> {
        match self {
            Self::Compare(comparison) => comparison.judge(report, negated, matches),
            Self::Not(node) => {
                // Items below a `not` did not cause the match.
                node.judge(report, !negated, &mut Vec::new()).map(|matched| !matched)
            }
            Self::All(nodes) => combine(nodes, report, negated, matches, false),
            Self::Any(nodes) => combine(nodes, report, negated, matches, true),
        }
    }
}

/// `decisive` if any node returns it, else `None` if any node is unknown, else the opposite.
fn combine(
    nodes: &[Node],
    report: &EpochReport,
    negated: bool,
    matches: &mut Vec<Match>,
    decisive: bool,
) -> Option<bool> {
    let answers: Vec<_> = nodes.iter().map(|node| node.judge(report, negated, matches)).collect();
    if answers.contains(&Some(decisive)) {
        Some(decisive)
    } else if answers.contains(&None) {
        None
    } else {
        Some(!decisive)
    }
}

impl Comparison {
    fn judge(&self, report: &EpochReport, negated: bool, matches: &mut Vec<Match>) -> Option<bool> {
        let (numbers, bound, name) = match &self.subject {
            Subject::Account(field) => {
                (vec![field.number(&report.account)], None, format!("account.{}", field.name()))
            }
            Subject::Task { task, field, bound, .. } => {
                (task.numbers(field, report)?, *bound, format!("{}.{field}", task.name()))
            }
        };
        let before = matches.len();
        let mut matched = false;
        for number in numbers {
            if !self.holds(number.chosen(bound), negated) {
                continue;
            }
            matched = true;
            if matches.len() < MOST_ITEMS {
                matches.push(Match {
                    item: number.item(report),
                    field: name.clone(),
                    value: number.value,
                    low: number.low,
                    high: number.high,
                });
            }
        }
        debug_assert!(matched || matches.len() == before, "only matches are told");
        Some(matched)
    }

    /// Whether the comparison holds for all numbers within the bounds, or for any of them if
    /// negated.
    fn holds(&self, (low, high): (f64, f64), negated: bool) -> bool {
        let number = self.number;
        let (least, most) = if negated { (high, low) } else { (low, high) };
        match self.operator {
            Operator::Over => least > number,
            Operator::AtLeast => least >= number,
            Operator::Under => most < number,
            Operator::AtMost => most <= number,
            Operator::Equal => equal((low, high), number, negated),
            Operator::Unequal => !equal((low, high), number, !negated),
        }
    }
}

/// Whether all numbers within the bounds equal `number`, or with `possible`, whether any of them
/// may.
#[expect(clippy::float_cmp, reason = "counts are whole, and 'equal' means equal")]
fn equal((low, high): (f64, f64), number: f64, possible: bool) -> bool {
    if possible { low <= number && number <= high } else { low == number && high == number }
}
