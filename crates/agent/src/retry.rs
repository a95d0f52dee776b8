//! The wait for sources and outputs that a reload could not open.

use std::thread;
use std::time::{Duration, Instant};

use signal_hook::iterator::Signals;

use crate::Failure;
use crate::log::warn;
use crate::supervision::Watchdog;

/// The first and the longest delay before they are opened again. The delay doubles each time.
const DELAYS: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(8)];

/// Interval between checks for signals.
const LOOK: Duration = Duration::from_millis(20);

/// The wait of a process that does nothing else.
pub(crate) struct Retry {
    /// What it does otherwise: measuring, collecting.
    doing: &'static str,
    delay: Duration,
    /// The last reason that was logged.
    told: String,
}

impl Retry {
    pub(crate) fn new(doing: &'static str) -> Self {
        Self { doing, delay: DELAYS[0], told: String::new() }
    }

    /// Waits before the next try. Returns the signal that ended the wait, if one did.
    pub(crate) fn wait(&mut self, error: &Failure, signals: &mut Signals) -> Option<i32> {
        let reason = error.to_string();
        if self.told != reason {
            warn(&format!("{} nothing: {reason}; trying again", self.doing));
            self.told = reason;
        }
        let until = Instant::now() + self.delay;
        self.delay = DELAYS[1].min(2 * self.delay);
        // It has no source that could hang.
        let mut watchdog = Watchdog::new();
        while Instant::now() < until {
            if let Some(signal) = signals.pending().next() {
                return Some(signal);
            }
            watchdog.look();
            thread::sleep(LOOK);
        }
        None
    }
}
