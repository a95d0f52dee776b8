//! What came of trying a candidate.

use std::{fmt, iter};

use super::Wanted;
use super::candidate::Candidate;
use super::trial::Trial;
use crate::config::Config;

/// A candidate, and what its trial found.
#[derive(Clone, Debug)]
pub struct Tried {
    /// The algorithm, behind its accelerator.
    pub name: String,
    /// Nanoseconds a packet, from its frame to its summary.
    pub ns: f64,
    /// Half the width of the widest bounds, as [`Wanted::error`], where the sample tells it.
    pub error: Option<f64>,
    /// Why it was not taken; `None` for the choice.
    pub reason: Option<Reason>,
    pub(super) candidate: Candidate,
}

impl Tried {
    pub(super) fn new(candidate: Candidate, trial: &Trial, wanted: &Wanted, flows: &[f64]) -> Self {
        let error = trial.error.map(|error| error.max(candidate.sampling));
        // The flows of one lane have no room in another.
        let mut lanes = flows.iter().zip(trial.room.iter().copied().chain(iter::repeat(Some(0))));
        let full = lanes.find_map(|(flows, room)| room.filter(|room| *flows > *room as f64));
        let table = trial.room.iter().all(Option::is_some);
        let reason = match (error, full) {
            (_, Some(room)) => Some(Reason::Full(room)),
            (Err(reason), _) => Some(reason),
            (Ok(error), _) if error > wanted.error => Some(Reason::Wide),
            // What is exact on a sample may not be so on more: only a table surely is.
            _ if wanted.error == 0.0 && !table => Some(Reason::Wide),
            _ if wanted.rate.is_some_and(|rate| trial.ns * rate > 1e9) => Some(Reason::Slow),
            _ => None,
        };
        let (name, error) = (candidate.name(), error.ok());
        Self { name, ns: trial.ns, error, reason, candidate }
    }

    /// The run `asked`, with this to measure.
    pub fn config(&self, asked: &Config) -> Config {
        self.candidate.config(asked)
    }
}

/// Why a candidate was not taken.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reason {
    /// Its bounds are wider than wanted.
    Wide,
    /// A lane has room for so many flows only.
    Full(usize),
    /// Its table was full on the sample, so that its bounds are not those of all flows.
    Overflowed,
    /// It lists nothing where the largest flow is surely large enough.
    Silent,
    /// The sample has nothing that it lists, and so its bounds are not known.
    Unknown,
    /// It does not keep up with the rate.
    Slow,
    /// Another one is faster.
    Slower,
    /// Another one is about as fast, and more exact.
    LessExact,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Wide => f.write_str("bounds are too wide"),
            Self::Full(flows) => write!(f, "room for only {flows} flows"),
            Self::Overflowed => f.write_str("its table is full"),
            Self::Silent => f.write_str("does not list the largest flow"),
            Self::Unknown => f.write_str("lists no flow, so its error is unknown"),
            Self::Slow => f.write_str("too slow for the rate"),
            Self::Slower => f.write_str("slower"),
            Self::LessExact => f.write_str("about as fast, but less exact"),
        }
    }
}
