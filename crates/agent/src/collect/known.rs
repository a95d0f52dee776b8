//! The agents that a report waits for.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Agents that are learned of a measurement at most.
const MOST: usize = 10_000;

const MINUTE_NS: i64 = 60_000_000_000;

/// The agents that are expected to report.
#[derive(Clone, Debug)]
pub enum Known {
    /// Those of a list, and no others.
    Listed(BTreeSet<Arc<str>>),
    /// Those that sent a snapshot of the measurement not long ago.
    Learned {
        /// How long an agent that sends nothing is waited for, in nanoseconds.
        expire_ns: i64,
        /// When each sent its last one, by measurement.
        seen_ns: BTreeMap<Arc<str>, BTreeMap<Arc<str>, i64>>,
    },
}

impl Known {
    /// No agents yet. Once one sends a snapshot, reports wait for it until this long after its last one.
    pub fn learned(expire_ns: i64) -> Self {
        Self::Learned { expire_ns, seen_ns: BTreeMap::new() }
    }

    /// The agents that were learned, as [`Self::remember`] takes them; empty where there is a list.
    pub fn learned_agents(&self) -> String {
        match self {
            Self::Listed(_) => String::new(),
            Self::Learned { seen_ns, .. } => {
                // To the minute, so that it changes seldom.
                let minute = |seen_ns: &i64| seen_ns - seen_ns.rem_euclid(MINUTE_NS);
                let all: BTreeMap<_, BTreeMap<_, _>> = seen_ns
                    .iter()
                    .map(|(measurement, agents)| {
                        let agents =
                            agents.iter().map(|(agent, seen_ns)| (&**agent, minute(seen_ns)));
                        (&**measurement, agents.collect())
                    })
                    .collect();
                serde_json::to_string(&all).unwrap_or_default()
            }
        }
    }

    /// Knows agents that were learned before a restart; a text that is none is left out.
    pub fn remember(&mut self, learned: &str) {
        let Self::Learned { seen_ns, .. } = self else { return };
        let read: BTreeMap<String, BTreeMap<String, i64>> =
            serde_json::from_str(learned).unwrap_or_default();
        for (measurement, agents) in read {
            let agents = agents.into_iter().map(|(agent, seen_ns)| (agent.into(), seen_ns));
            seen_ns.insert(measurement.into(), agents.take(MOST).collect());
        }
    }

    /// Whether snapshots of this agent are taken.
    pub(super) fn takes(&self, agent: &str) -> bool {
        match self {
            Self::Listed(agents) => agents.contains(agent),
            Self::Learned { .. } => true,
        }
    }

    /// Notes that an agent sent a snapshot that was merged.
    pub(super) fn saw(&mut self, measurement: &Arc<str>, agent: &Arc<str>, now_ns: i64) {
        let Self::Learned { seen_ns, .. } = self else { return };
        let agents = seen_ns.entry(Arc::clone(measurement)).or_default();
        if agents.len() < MOST || agents.contains_key(agent) {
            agents.insert(Arc::clone(agent), now_ns);
        }
    }

    /// Forgets agents that sent nothing for long.
    pub(super) fn forget(&mut self, now_ns: i64) {
        let Self::Learned { expire_ns, seen_ns } = self else { return };
        let since_ns = now_ns.saturating_sub(*expire_ns);
        for agents in seen_ns.values_mut() {
            agents.retain(|_, seen_ns| *seen_ns >= since_ns);
        }
    }

    /// How many agents are expected to report a measurement.
    pub(super) fn len(&self, measurement: &str) -> usize {
        match self {
            Self::Listed(agents) => agents.len(),
            Self::Learned { seen_ns, .. } => seen_ns.get(measurement).map_or(0, BTreeMap::len),
        }
    }

    /// The agents that are expected to report a measurement, in order.
    pub(super) fn of(&self, measurement: &str) -> Vec<Arc<str>> {
        match self {
            Self::Listed(agents) => agents.iter().cloned().collect(),
            Self::Learned { seen_ns, .. } => {
                seen_ns.get(measurement).into_iter().flat_map(BTreeMap::keys).cloned().collect()
            }
        }
    }
}
