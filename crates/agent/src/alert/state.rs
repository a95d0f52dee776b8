//! The state of an alert over the epochs of one measurement.
//!
//! An epoch says yes, no, or nothing that is sure ([`Evidence`]). Consecutive yeses make the alert
//! pending, then firing. Only epochs that surely say no add to the quiet time after which it is
//! cleared, so that a gap, a partial or a lossy epoch never clears it; and since that time begins with
//! the last yes, an alert that flaps is notified once.

use serde::Serialize;

/// How long a condition must match before its alert fires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lasting {
    /// So many epochs in a row.
    Epochs(u64),
    /// So many nanoseconds of epochs in a row.
    Time(u64),
}

/// The judgement of an epoch about a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evidence {
    /// It matches. Losses only hide traffic, so that this is sure in a lossy epoch, too.
    Matched,
    /// It does not match, in an epoch that was observed as a whole.
    Quiet,
    /// It does not match as far as is known: packets were lost, or the epoch is partial.
    Doubtful,
    /// There was no packet.
    Gap,
}

/// Where an alert is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Its condition does not match.
    #[default]
    Quiet,
    /// Its condition matches, not yet for long enough.
    Pending,
    /// It was notified, and is not cleared.
    Firing,
}

/// A change that is notified.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Change {
    /// The alert fires.
    Firing,
    /// It is over.
    Cleared,
}

impl Change {
    /// Its name, as programs get it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Firing => "firing",
            Self::Cleared => "cleared",
        }
    }
}

/// The state of an alert, fed with one epoch after another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tracker {
    lasting: Lasting,
    clear_after_ns: u64,
    state: State,
    /// The end of the first epoch in this state, by packet time.
    since_ns: Option<i64>,
    /// Epochs in a row that matched, and their length.
    epochs: u64,
    matched_ns: u64,
    /// Length of the quiet epochs since the last one that matched.
    quiet_ns: u64,
}

impl Tracker {
    /// A quiet alert.
    pub fn new(lasting: Lasting, clear_after_ns: u64) -> Self {
        Self {
            lasting,
            clear_after_ns,
            state: State::Quiet,
            since_ns: None,
            epochs: 0,
            matched_ns: 0,
            quiet_ns: 0,
        }
    }

    /// Where the alert is.
    pub fn state(&self) -> State {
        self.state
    }

    /// Since when, by packet time; `None` before the first change.
    pub fn since_ns(&self) -> Option<i64> {
        self.since_ns
    }

    /// Takes an epoch that ended at `end_ns` after `length_ns`, and returns the change to notify.
    pub fn take(&mut self, end_ns: i64, length_ns: u64, evidence: Evidence) -> Option<Change> {
        match (self.state, evidence) {
            (State::Firing, Evidence::Matched) => self.quiet_ns = 0,
            (State::Firing, Evidence::Quiet) => {
                self.quiet_ns = self.quiet_ns.saturating_add(length_ns);
                if self.quiet_ns >= self.clear_after_ns {
                    self.enter(State::Quiet, end_ns);
                    return Some(Change::Cleared);
                }
            }
            (_, Evidence::Matched) => {
                if self.state == State::Quiet {
                    self.enter(State::Pending, end_ns);
                }
                self.epochs += 1;
                self.matched_ns = self.matched_ns.saturating_add(length_ns);
                let lasted = match self.lasting {
                    Lasting::Epochs(epochs) => self.epochs >= epochs,
                    Lasting::Time(ns) => self.matched_ns >= ns,
                };
                if lasted {
                    self.enter(State::Firing, end_ns);
                    return Some(Change::Firing);
                }
            }
            (State::Pending, Evidence::Quiet | Evidence::Gap) => self.enter(State::Quiet, end_ns),
            (State::Quiet, _) | (_, Evidence::Doubtful | Evidence::Gap) => {}
        }
        None
    }

    fn enter(&mut self, state: State, at_ns: i64) {
        *self =
            Self { state, since_ns: Some(at_ns), ..Self::new(self.lasting, self.clear_after_ns) };
    }
}
