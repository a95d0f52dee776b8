//! The state of an alert over the epochs of one measurement.
//!
//! Each epoch gives [`Evidence`]: a match, no match, or doubt. Consecutive matches make the alert
//! pending, then firing; epochs in doubt between them are passed over. Only epochs that certainly do
//! not match count towards the quiet time that clears it, so a gap, a partial or a lossy epoch, or
//! one in which an interface was down, never clears an alert. The quiet time restarts at each match,
//! so a flapping alert is notified once.

use serde::Serialize;

/// How long a condition must match before its alert fires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lasting {
    /// This many consecutive epochs, without those in doubt.
    Epochs(u64),
    /// Consecutive epochs of this many nanoseconds in total.
    Time(u64),
}

/// What an epoch says about a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evidence {
    /// It matches. Losses only hide traffic, so a match is certain in a lossy epoch too.
    Matched,
    /// It does not match, and the epoch was observed completely.
    Quiet,
    /// It does not match, but packets were lost, late or passed unseen, or the epoch is partial.
    Doubtful,
    /// The epoch had no packets.
    Gap,
}

/// The state of an alert.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// The condition does not match.
    #[default]
    Quiet,
    /// The condition matches, but not for long enough yet.
    Pending,
    /// It was notified and is not cleared yet.
    Firing,
}

/// A change to notify.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Change {
    /// The alert fires.
    Firing,
    /// The alert is cleared.
    Cleared,
}

impl Change {
    /// The name that programs receive.
    pub fn name(self) -> &'static str {
        match self {
            Self::Firing => "firing",
            Self::Cleared => "cleared",
        }
    }
}

/// Tracks the state of an alert from epoch to epoch.
///
/// ```
/// use flowgauge_agent::alert::state::{Change, Evidence, Lasting, Tracker};
///
/// const SECOND: u64 = 1_000_000_000;
/// let mut tracker = Tracker::new(Lasting::Epochs(2), 3 * SECOND);
/// let mut epochs = (1..).map(|end| end * SECOND.cast_signed());
/// let mut take = |evidence| tracker.take(epochs.next()?, SECOND, evidence);
/// assert_eq!(take(Evidence::Matched), None);
/// assert_eq!(take(Evidence::Matched), Some(Change::Firing));
/// assert_eq!([(); 3].map(|()| take(Evidence::Quiet)), [None, None, Some(Change::Cleared)]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tracker {
    lasting: Lasting,
    clear_after_ns: u64,
    state: State,
    /// End of the first epoch in this state, in packet time.
    since_ns: Option<i64>,
    /// Number of consecutive matching epochs, and their total length.
    epochs: u64,
    matched_ns: u64,
    /// Total length of quiet epochs since the last match.
    quiet_ns: u64,
}

impl Tracker {
    /// A tracker in the state quiet.
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

    /// The current state.
    pub fn state(&self) -> State {
        self.state
    }

    /// Start of the current state in packet time; `None` before the first change.
    pub fn since_ns(&self) -> Option<i64> {
        self.since_ns
    }

    /// Adds an epoch that ended at `end_ns` and lasted `length_ns`, and returns the change to
    /// notify.
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
