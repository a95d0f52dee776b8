//! How the sinks of a run fare: for the log, the metrics and the console.

use std::fmt;
use std::sync::{Arc, OnceLock};

use flowgauge_engine::sink::{Outlets, SinkHealth, units};
use serde::Serialize;

use crate::log::{say, warn};

/// The state of a sink.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Delivery {
    /// The sink's name.
    pub sink: &'static str,
    /// Why its last delivery failed, if it did.
    pub problem: Option<String>,
    /// Items that it did not take since the start of the run, or lost.
    pub undelivered: u64,
}

/// The states of all sinks of a run. There are none until the run starts. Clones share them.
#[derive(Clone, Default)]
pub struct Deliveries(Arc<OnceLock<Vec<(&'static str, SinkHealth)>>>);

impl Deliveries {
    /// Takes up the sinks of a run by these names, in their order. Returns their log.
    pub(crate) fn watch(&self, names: Vec<&'static str>, outlets: &Outlets) -> DeliveryLog {
        let failed_at = vec![None; names.len()];
        // A run has one set of sinks.
        let _ = self.0.set(names.into_iter().zip(outlets.health()).collect());
        DeliveryLog { deliveries: self.clone(), failed_at }
    }

    fn sinks(&self) -> &[(&'static str, SinkHealth)] {
        self.0.get().map_or(&[], Vec::as_slice)
    }

    /// The current state of each sink.
    pub fn get(&self) -> Vec<Delivery> {
        let state = |(sink, health): &(&'static str, SinkHealth)| Delivery {
            sink,
            problem: health.problem(),
            undelivered: health.lost(),
        };
        self.sinks().iter().map(state).collect()
    }
}

impl fmt::Debug for Deliveries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.get()).finish()
    }
}

/// Logs when a sink starts to fail, and when it works again.
pub(crate) struct DeliveryLog {
    deliveries: Deliveries,
    /// For each sink that fails, the number of undelivered items before.
    failed_at: Vec<Option<u64>>,
}

impl DeliveryLog {
    /// Logs the changes since the last call.
    pub(crate) fn look(&mut self) {
        for ((name, health), failed_at) in self.deliveries.sinks().iter().zip(&mut self.failed_at) {
            match (health.problem(), *failed_at) {
                (Some(problem), None) => {
                    *failed_at = Some(health.lost());
                    let ending = if health.has_ended() { "" } else { "; trying again" };
                    warn(&format!("{problem}{ending}"));
                }
                (None, Some(before)) => {
                    *failed_at = None;
                    let undelivered = units::plural(health.lost() - before, "item");
                    say(&format!("sink '{name}' works again; {undelivered} undelivered"));
                }
                _ => {}
            }
        }
    }
}
