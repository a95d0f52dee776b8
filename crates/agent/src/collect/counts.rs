//! Counts of messages by outcome.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Maximum number of agents whose late snapshots are counted by name.
const NAMED: usize = 1000;

/// The outcome of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Its snapshot was merged.
    Merged,
    /// It is a copy of an earlier one.
    Duplicate,
    /// It has the id of an earlier one, but other bytes.
    Conflict,
    /// Its snapshot cannot be merged with the others, or there was no memory for it.
    LeftOut,
    /// Its epoch is no longer kept.
    Late,
    /// Its measurement is not collected.
    NotCollected,
}

impl Outcome {
    /// All outcomes.
    pub const ALL: [Self; 6] = [
        Self::Merged,
        Self::Duplicate,
        Self::Conflict,
        Self::LeftOut,
        Self::Late,
        Self::NotCollected,
    ];

    /// The name in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Merged => "merged",
            Self::Duplicate => "duplicate",
            Self::Conflict => "conflict",
            Self::LeftOut => "left_out",
            Self::Late => "late",
            Self::NotCollected => "not_collected",
        }
    }

    /// The words for several messages with this outcome.
    #[cfg(feature = "kafka")]
    pub(super) fn words(self) -> &'static str {
        match self {
            Self::Merged => "merged",
            Self::Duplicate => "copies",
            Self::Conflict => "sent again with different bytes",
            Self::LeftOut => "left out",
            Self::Late => "too late",
            Self::NotCollected => "not collected",
        }
    }
}

/// Number of messages since the start, by outcome.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    outcomes: [u64; Outcome::ALL.len()],
    late: BTreeMap<Arc<str>, u64>,
}

impl Counts {
    pub(super) fn add(&mut self, outcome: Outcome, agent: &str) {
        self.outcomes[outcome as usize] += 1;
        if outcome != Outcome::Late {
            return;
        }
        if let Some(late) = self.late.get_mut(agent) {
            *late += 1;
        } else if self.late.len() < NAMED {
            self.late.insert(agent.into(), 1);
        }
    }

    /// Number of messages with this outcome.
    pub fn of(&self, outcome: Outcome) -> u64 {
        self.outcomes[outcome as usize]
    }

    /// Late snapshots by agent, for the first 1,000 agents.
    pub fn late(&self) -> impl Iterator<Item = (&str, u64)> {
        self.late.iter().map(|(agent, late)| (&**agent, *late))
    }
}

/// Counts that the collector sets and other threads read.
#[derive(Clone, Debug, Default)]
pub struct PublishedCounts(Arc<Mutex<Counts>>);

impl PublishedCounts {
    /// Sets the counts.
    pub fn set(&self, counts: &Counts) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone_from(counts);
    }

    /// The current counts.
    pub fn get(&self) -> Counts {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
