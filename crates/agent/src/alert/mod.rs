//! Alerts: conditions over reports. Programs, web hooks and the log are notified when a condition
//! starts or stops matching.

pub mod condition;
mod fields;
pub mod notify;
mod rule;
pub mod state;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use flowgauge_engine::Config;
use flowgauge_engine::report::{EpochReport, Gap};
use flowgauge_engine::sink::{Item, Sink, SinkError, Takes, rfc3339};
use serde::Serialize;
use serde_json::json;

pub use rule::Rule;

use crate::log::Warnings;
use crate::replay::now_ns;
use crate::sandbox::Helper;
use condition::{Match, Verdict};
use notify::{LIMIT, Notice, Notifier};
use state::{Change, Evidence, State, Tracker};

/// The state of an alert for one measurement.
#[derive(Clone, Debug, Serialize)]
pub struct Standing {
    /// Its name.
    pub alert: String,
    /// The measurement whose epochs it watches.
    pub measurement: String,
    /// Whether it fires.
    pub state: State,
    /// Start of that state in nanoseconds since the UNIX epoch; `None` before the first change.
    pub since_ns: Option<i64>,
    /// The items that matched last while the alert was pending or firing.
    pub items: Vec<Match>,
}

/// An alert and the measurement it watches.
type Id = (String, Arc<str>);

/// The current state of all alerts, for the console and the metrics.
#[derive(Clone, Debug, Default)]
pub struct Board {
    standings: Arc<Mutex<BTreeMap<Id, Standing>>>,
    missed: Arc<AtomicU64>,
}

impl Board {
    /// The state of every alert that has seen an epoch, by name and measurement.
    pub fn standings(&self) -> Vec<Standing> {
        let standings = self.standings.lock().unwrap_or_else(PoisonError::into_inner);
        standings.values().cloned().collect()
    }

    /// Notifications lost because the notifier's queue was full.
    pub fn missed(&self) -> u64 {
        self.missed.load(Ordering::Relaxed)
    }
}

/// A sink that judges every closed epoch by the alert rules.
pub struct Alerts {
    rules: BTreeMap<String, Rule>,
    trackers: BTreeMap<Id, Tracker>,
    board: Board,
    notifier: Notifier,
}

impl Alerts {
    /// Starts the notifier, which writes to the agent's log and uses `helper` in a sandbox. Adds
    /// the rule `loss` if there is none.
    ///
    /// # Errors
    /// When the operating system refuses a thread.
    pub fn start(rules: BTreeMap<String, Rule>, helper: Option<Helper>) -> io::Result<Self> {
        Ok(Self::new(rules, Notifier::start(Box::new(Warnings::default()), LIMIT, helper)?))
    }

    /// Like [`start`](Self::start), with the given notifier.
    pub fn new(mut rules: BTreeMap<String, Rule>, notifier: Notifier) -> Self {
        rules.entry("loss".to_owned()).or_insert_with(Rule::loss);
        let board = Board { missed: notifier.missed(), ..Board::default() };
        Self { rules, trackers: BTreeMap::new(), board, notifier }
    }

    /// Replaces the rules. Alerts keep their state if neither their rule nor the name of their
    /// measurement changed. Others end, which is notified if they fire.
    pub fn reload(&mut self, mut rules: BTreeMap<String, Rule>, measurements: &[Config]) {
        rules.entry("loss".to_owned()).or_insert_with(Rule::loss);
        let before = std::mem::replace(&mut self.rules, rules);
        let rules = &self.rules;
        let stays = |(name, measurement): &Id| {
            rules.get(name) == before.get(name)
                && measurements.iter().any(|config| config.name == **measurement)
        };
        self.trackers.retain(|id, _| stays(id));
        let mut standings = self.board.standings.lock().unwrap_or_else(PoisonError::into_inner);
        standings.retain(|id, standing| {
            let stays = stays(id);
            if let Some(rule) = before.get(&id.0)
                && standing.state == State::Firing
                && !stays
            {
                let (since_ns, items) = (Some(now_ns()), Vec::new());
                let standing = Standing { since_ns, items, ..standing.clone() };
                self.notifier.tell(notice(rule, Change::Cleared, None, standing));
            }
            stays
        });
    }

    /// A handle that always shows the current state of the alerts.
    pub fn board(&self) -> Board {
        self.board.clone()
    }

    fn epoch(&mut self, report: &EpochReport) {
        let (Some(start_ns), Some(end_ns)) = (report.start_ns, report.end_ns) else { return };
        let length_ns = u64::try_from(end_ns.saturating_sub(start_ns)).unwrap_or(0);
        let account = &report.account;
        let whole = report.coverage >= 1.0
            && account.outages == 0
            && report.missing == 0
            && account.dropped.packets == 0
            && account.lost == 0
            && report.undelivered == 0;
        for (name, rule) in &self.rules {
            if rule.when.measurement().is_some_and(|of| of != &*report.measurement) {
                continue;
            }
            let (evidence, items) = match rule.when.judge(report) {
                Verdict::Matches(items) => (Evidence::Matched, items),
                Verdict::Differs if whole => (Evidence::Quiet, Vec::new()),
                Verdict::Differs | Verdict::Unknown => (Evidence::Doubtful, Vec::new()),
            };
            let id = (name.clone(), Arc::clone(&report.measurement));
            let tracker = self.trackers.entry(id.clone());
            let tracker =
                tracker.or_insert_with(|| Tracker::new(rule.lasting, rule.clear_after_ns));
            let change = tracker.take(end_ns, length_ns, evidence);
            let standing = self.board.update(id, tracker, items);
            if let Some(change) = change {
                self.notifier.tell(notice(rule, change, Some(report.epoch), standing));
            }
        }
    }

    fn gap(&mut self, gap: &Gap) {
        for ((name, measurement), tracker) in &mut self.trackers {
            if *measurement == gap.measurement {
                tracker.take(gap.end_ns, 0, Evidence::Gap);
                self.board.update((name.clone(), Arc::clone(measurement)), tracker, Vec::new());
            }
        }
    }
}

impl Board {
    /// Records the state of an alert. Earlier items stay while it continues without a new match.
    fn update(&self, id: Id, tracker: &Tracker, items: Vec<Match>) -> Standing {
        let mut standings = self.standings.lock().unwrap_or_else(PoisonError::into_inner);
        let (alert, measurement) = (id.0.clone(), id.1.to_string());
        let standing = standings.entry(id).or_insert_with(|| Standing {
            alert,
            measurement,
            state: State::Quiet,
            since_ns: None,
            items: Vec::new(),
        });
        standing.state = tracker.state();
        standing.since_ns = tracker.since_ns();
        if !items.is_empty() || standing.state == State::Quiet {
            standing.items = items;
        }
        standing.clone()
    }
}

impl Sink for Alerts {
    fn takes(&self) -> Takes {
        Takes::Reports
    }

    fn deliver(&mut self, item: &Item) -> Result<(), SinkError> {
        match item {
            // A mid-epoch update may list less than the final report.
            Item::Epoch(report) if !report.update => self.epoch(report),
            Item::Gap(gap) => self.gap(gap),
            Item::Epoch(_) | Item::Snapshot(_) | Item::Total(_) => {}
        }
        Ok(())
    }
}

/// The sink of one run; the alerts outlive the run.
pub struct OfRun(pub Arc<Mutex<Alerts>>);

impl Sink for OfRun {
    fn takes(&self) -> Takes {
        Takes::Reports
    }

    fn deliver(&mut self, item: &Item) -> Result<(), SinkError> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).deliver(item)
    }
}

/// The notification of a change, by an epoch or by a reload.
fn notice(rule: &Rule, change: Change, epoch: Option<u64>, standing: Standing) -> Notice {
    let Standing { alert, measurement, since_ns, items, .. } = standing;
    let (state, when) = (change.name(), rule.when.text());
    let since = since_ns.map(rfc3339);
    let by = epoch.map_or_else(|| "reload".to_owned(), |epoch| format!("epoch {epoch}"));
    let mut line = format!("alert {alert} {state}: {measurement} {by}: {when}");
    for Match { item, field, value, .. } in &items {
        let space = if item.is_empty() { "" } else { " " };
        // Writing to a string cannot fail.
        let _ = write!(line, "; {item}{space}{field} {value}");
    }
    let json = json!({
        "alert": alert,
        "state": state,
        "measurement": measurement,
        "epoch": epoch,
        "since": since,
        "when": when,
        "items": items,
    });
    Notice { alert, state, line, json, run: rule.run.clone(), post: rule.post.clone() }
}
