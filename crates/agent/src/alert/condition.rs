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

use std::str::FromStr;

use flowgauge_core::unknown::{Unknown, nearest};
use flowgauge_engine::report::EpochReport;
use serde::{Deserialize, Serialize};

pub use super::fields::Task;
use super::fields::{AccountField, Bound};

/// Maximum number of items that a match lists.
pub const MOST_ITEMS: usize = 10;

/// A condition over the reports of one measurement.
///
/// ```
/// use flowgauge_agent::alert::condition::{Condition, Verdict};
/// use flowgauge_capture::Captures;
/// use flowgauge_engine::{Config, Plan, report::EpochReport, run, sink::Each};
/// use flowgauge_synthetic::{Config as Traffic, Traffic as Packets, to_pcap_bytes};
///
/// let condition: Condition = "main.cardinality.flows > 1 and not account.dropped > 0".parse()?;
/// let traffic = Packets::new(Traffic { packets: 1_000, ..Traffic::default() })?;
/// let mut source = Captures::from_bytes("demo.pcap", to_pcap_bytes(traffic));
/// let mut verdicts = Vec::new();
/// let mut judge = Each(|report: &EpochReport| Ok(verdicts.push(condition.judge(report))));
/// let tasks = Some(vec!["cardinality".to_owned()]);
/// let plan = Plan::new(Config { tasks, ..Config::seeded(1) })?;
/// run(plan, &mut source, &mut judge, &mut |_| {})?;
/// assert!(matches!(verdicts[..], [Verdict::Matches(_)]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
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
    Account(AccountField),
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
        let root = parse(text)?;
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

/// Maximum nesting of parentheses and `not`, so that no text can exhaust the stack.
const DEEPEST: usize = 32;

const OPERATORS: [(&str, Operator); 6] = [
    (">=", Operator::AtLeast),
    ("<=", Operator::AtMost),
    ("==", Operator::Equal),
    ("!=", Operator::Unequal),
    (">", Operator::Over),
    ("<", Operator::Under),
];

const BOUNDS: [(&str, Bound); 4] = [
    ("low", Bound::Low),
    ("high", Bound::High),
    ("value", Bound::Value),
    ("estimate", Bound::Value),
];

fn parse(text: &str) -> Result<Node, String> {
    let mut parser = Parser { words: words(text), at: 0 };
    if parser.words.is_empty() {
        return Err("the condition is empty; write one such as 'account.dropped > 0'".to_owned());
    }
    let node = parser.any(0)?;
    match parser.next() {
        None => Ok(node),
        Some(")") => Err("')' has no '(' before it".to_owned()),
        Some(word) => Err(format!("expected 'and' or 'or' before '{word}'")),
    }
}

/// Splits a condition into words, operators and parentheses.
fn words(mut text: &str) -> Vec<&str> {
    let mut words = Vec::new();
    loop {
        text = text.trim_start();
        let Some(first) = text.chars().next() else { return words };
        let symbol = |c: char| matches!(c, '>' | '<' | '=' | '!');
        let end = match first {
            '(' | ')' => 1,
            c if symbol(c) => text.find(|c| !symbol(c)).unwrap_or(text.len()),
            _ => {
                let ends = |c: char| c.is_whitespace() || symbol(c) || matches!(c, '(' | ')');
                text.find(ends).unwrap_or(text.len())
            }
        };
        let (word, rest) = text.split_at(end);
        words.push(word);
        text = rest;
    }
}

struct Parser<'a> {
    words: Vec<&'a str>,
    at: usize,
}

impl<'a> Parser<'a> {
    fn next(&mut self) -> Option<&'a str> {
        let word = self.words.get(self.at).copied();
        self.at += 1;
        word
    }

    fn takes(&mut self, word: &str) -> bool {
        let taken = self.words.get(self.at) == Some(&word);
        self.at += usize::from(taken);
        taken
    }

    fn any(&mut self, depth: usize) -> Result<Node, String> {
        let mut nodes = vec![self.all(depth)?];
        while self.takes("or") {
            nodes.push(self.all(depth)?);
        }
        Ok(if nodes.len() == 1 { nodes.remove(0) } else { Node::Any(nodes) })
    }

    fn all(&mut self, depth: usize) -> Result<Node, String> {
        let mut nodes = vec![self.one(depth)?];
        while self.takes("and") {
            nodes.push(self.one(depth)?);
        }
        Ok(if nodes.len() == 1 { nodes.remove(0) } else { Node::All(nodes) })
    }

    fn one(&mut self, depth: usize) -> Result<Node, String> {
        if depth == DEEPEST {
            return Err(format!("'(' and 'not' are nested more than {DEEPEST} deep"));
        }
        if self.takes("not") {
            return Ok(Node::Not(Box::new(self.one(depth + 1)?)));
        }
        if self.takes("(") {
            let node = self.any(depth + 1)?;
            return if self.takes(")") { Ok(node) } else { Err("'(' has no ')'".to_owned()) };
        }
        Ok(Node::Compare(self.comparison()?))
    }

    fn comparison(&mut self) -> Result<Comparison, String> {
        let Some(field) = self.next() else {
            return Err("the condition ends where a field was expected".to_owned());
        };
        let subject = subject(field)?;
        let operators = || OPERATORS.map(|(name, _)| name).join(" ");
        let Some(sign) = self.next() else {
            return Err(format!(
                "'{field}' is compared with nothing; add an operator ({}) and a \
                                number",
                operators()
            ));
        };
        let Some((_, operator)) = OPERATORS.into_iter().find(|(name, _)| *name == sign) else {
            return Err(format!(
                "unknown operator '{sign}' after '{field}'; available: {}",
                operators()
            ));
        };
        let Some(number) = self.next() else {
            return Err(format!("'{field} {sign}' needs a number"));
        };
        let parsed = number.replace('_', "").parse::<f64>().ok().filter(|it| it.is_finite());
        let Some(parsed) = parsed else {
            return Err(format!("'{number}' after '{field} {sign}' is not a number"));
        };
        Ok(Comparison { subject, operator, number: parsed })
    }
}

fn subject(text: &str) -> Result<Subject, String> {
    let parts: Vec<&str> = text.split('.').collect();
    match parts[..] {
        ["account", field] => AccountField::find(field).map(Subject::Account),
        [measurement, task, field] if !measurement.is_empty() => {
            task_field(measurement, task, field, None)
        }
        [measurement, task, field, bound] if !measurement.is_empty() => {
            let found = BOUNDS.into_iter().find(|(name, _)| *name == bound);
            let unknown = || Unknown::new("bound", bound, BOUNDS.map(|(name, _)| name)).to_string();
            let (_, bound) = found.ok_or_else(unknown)?;
            task_field(measurement, task, field, Some(bound))
        }
        _ => Err(format!(
            "'{text}' is not a field; write MEASUREMENT.TASK.FIELD, such as victims.victims.distinct, \
             or account.FIELD{}",
            match nearest(parts[0], ["account"]) {
                Some("account") if parts.len() == 2 => "; did you mean 'account'?",
                _ => "",
            }
        )),
    }
}

fn task_field(
    measurement: &str,
    task: &str,
    field: &str,
    bound: Option<Bound>,
) -> Result<Subject, String> {
    let task = Task::find(task)?;
    let field = task.field(field)?;
    Ok(Subject::Task { measurement: measurement.to_owned(), task, field, bound })
}
