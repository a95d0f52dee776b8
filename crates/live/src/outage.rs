//! The time in which an interface is down or does not exist.

use std::time::{Duration, Instant};

use flowgauge_engine::sink::{rfc3339, visible};

use crate::port::{Interface, Port};
use crate::queue::SETTLE;

/// The first wait before looking for an interface, which doubles up to the last.
const FIRST: Duration = Duration::from_millis(50);
const LAST: Duration = Duration::from_secs(1);

/// An interface that is being waited for.
pub(crate) struct Outage {
    since: Instant,
    since_ns: Option<i64>,
    /// When to look for it, and how long to wait after that.
    next: Instant,
    delay: Duration,
}

impl Outage {
    pub(crate) fn new(now_ns: Option<i64>) -> Self {
        let since = Instant::now();
        Self { since, since_ns: now_ns, next: since + FIRST, delay: FIRST }
    }

    /// Whether it is time to look for the interface.
    pub(crate) fn is_due(&mut self) -> bool {
        let due = Instant::now() >= self.next;
        if due {
            self.delay = (2 * self.delay).min(LAST);
            self.next = Instant::now() + self.delay;
        }
        due
    }

    /// Whether the interface is up again. One that was created again gets another port.
    pub(crate) fn ends(&self, interface: &Interface, port: &mut Port) -> bool {
        let Ok((bound, _)) = port.socket.bound() else { return false };
        let Some(number) = interface.number_after(bound) else { return false };
        if number == bound {
            // The kernel goes on handing packets to a socket whose interface comes back.
            return port.socket.is_up(number);
        }
        // Its last packets may not be handed over yet.
        if self.since.elapsed() < SETTLE {
            return false;
        }
        Port::open(interface).map(|opened| *port = opened).is_ok()
    }

    /// What to say of it.
    pub(crate) fn note(&self, name: &str, now_ns: Option<i64>) -> String {
        let time = |time_ns: Option<i64>| time_ns.map_or_else(|| "?".to_owned(), rfc3339);
        format!(
            "interface {} was down from {} to {}: packets of that time are not counted",
            visible(name),
            time(self.since_ns),
            time(now_ns)
        )
    }
}
