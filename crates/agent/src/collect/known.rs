//! The agents that reports wait for.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Maximum number of learned agents per measurement.
const MOST: usize = 10_000;

const MINUTE_NS: i64 = 60_000_000_000;

/// The agents that are expected to report.
///
/// ```
/// use flowgauge_agent::collect::Known;
///
/// let mut known = Known::learned(3_600_000_000_000);
/// let saved = r#"{"web":{"edge-1":1700000040000000000}}"#;
/// known.remember(saved);
/// assert_eq!(known.learned_agents(), saved);
/// ```
#[derive(Clone, Debug)]
pub enum Known {
    /// The agents of a list, and no others.
    Listed(BTreeSet<Arc<str>>),
    /// Agents that sent a snapshot of the measurement recently.
    Learned {
        /// How long to wait for a silent agent, in nanoseconds.
        expire_ns: i64,
        /// Time of each agent's last snapshot, by measurement.
        seen_ns: BTreeMap<Arc<str>, BTreeMap<Arc<str>, i64>>,
    },
}

impl Known {
    /// No agents yet. After an agent's snapshot, reports wait for it for `expire_ns`.
    pub fn learned(expire_ns: i64) -> Self {
        Self::Learned { expire_ns, seen_ns: BTreeMap::new() }
    }

    /// The learned agents in the form that [`Self::remember`] reads; empty if there is a list.
    pub fn learned_agents(&self) -> String {
        match self {
            Self::Listed(_) => String::new(),
            Self::Learned { seen_ns, .. } => {
                // Rounded to the minute, so that it rarely changes.
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

    /// Restores agents learned before a restart. An invalid text is ignored.
    pub fn remember(&mut self, learned: &str) {
        let Self::Learned { seen_ns, .. } = self else { return };
        let read: BTreeMap<String, BTreeMap<String, i64>> =
            serde_json::from_str(learned).unwrap_or_default();
        for (measurement, agents) in read {
            let agents = agents.into_iter().map(|(agent, seen_ns)| (agent.into(), seen_ns));
            seen_ns.insert(measurement.into(), agents.take(MOST).collect());
        }
    }

    /// Whether snapshots of this agent are accepted.
    pub(super) fn takes(&self, agent: &str) -> bool {
        match self {
            Self::Listed(agents) => agents.contains(agent),
            Self::Learned { .. } => true,
        }
    }

    /// Records that an agent's snapshot was merged.
    pub(super) fn saw(&mut self, measurement: &Arc<str>, agent: &Arc<str>, now_ns: i64) {
        let Self::Learned { seen_ns, .. } = self else { return };
        let agents = seen_ns.entry(Arc::clone(measurement)).or_default();
        if agents.len() < MOST || agents.contains_key(agent) {
            agents.insert(Arc::clone(agent), now_ns);
        }
    }

    /// Forgets agents that were silent for too long.
    pub(super) fn forget(&mut self, now_ns: i64) {
        let Self::Learned { expire_ns, seen_ns } = self else { return };
        let since_ns = now_ns.saturating_sub(*expire_ns);
        for agents in seen_ns.values_mut() {
            agents.retain(|_, seen_ns| *seen_ns >= since_ns);
        }
    }

    /// Number of agents expected to report a measurement.
    pub(super) fn len(&self, measurement: &str) -> usize {
        match self {
            Self::Listed(agents) => agents.len(),
            Self::Learned { seen_ns, .. } => seen_ns.get(measurement).map_or(0, BTreeMap::len),
        }
    }

    /// The agents expected to report a measurement, sorted.
    pub(super) fn of(&self, measurement: &str) -> Vec<Arc<str>> {
        match self {
            Self::Listed(agents) => agents.iter().cloned().collect(),
            Self::Learned { seen_ns, .. } => {
                seen_ns.get(measurement).into_iter().flat_map(BTreeMap::keys).cloned().collect()
            }
        }
    }
}
