//! Limits which flows may be named in labels.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a name stays in use after its flow was last listed: longer than Prometheus keeps a
/// series in memory without samples.
const HOLD: Duration = Duration::from_secs(3 * 3600);

/// The names in use, limited in number for any traffic.
#[derive(Debug)]
pub(super) struct Flows {
    most: usize,
    names: HashMap<(Arc<str>, &'static str, String), Instant>,
}

impl Flows {
    pub(super) fn new(most: usize) -> Self {
        Self { most, names: HashMap::new() }
    }

    /// Number of names in use.
    pub(super) fn len(&self) -> usize {
        self.names.len()
    }

    /// Whether the flow may be named in this list now.
    pub(super) fn admit(
        &mut self,
        measurement: &Arc<str>,
        task: &'static str,
        flow: &str,
        now: Instant,
    ) -> bool {
        let name = (Arc::clone(measurement), task, flow.to_owned());
        if let Some(listed) = self.names.get_mut(&name) {
            *listed = now;
            return true;
        }
        if self.names.len() >= self.most {
            self.names.retain(|_, listed| now.saturating_duration_since(*listed) < HOLD);
        }
        let room = self.names.len() < self.most;
        if room {
            self.names.insert(name, now);
        }
        room
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_taken_until_they_were_not_listed_for_long() {
        let (mut flows, start) = (Flows::new(2), Instant::now());
        let main = Arc::from("main");
        let mut admit = |flow, at| flows.admit(&main, "top", flow, start + at);
        let late = HOLD + Duration::from_secs(1);
        assert!(admit("a", Duration::ZERO));
        assert!(admit("b", Duration::ZERO));
        assert!(!admit("c", HOLD / 2));
        assert!(admit("a", HOLD / 2));
        assert!(admit("c", late), "b was not listed for long");
        assert!(!admit("b", late));
        assert!(admit("a", late));
    }
}
