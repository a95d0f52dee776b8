//! The time of day for a thread that asks for it a million times a second.

use std::time::SystemTime;

use crate::shim::cycles_per_second;

/// The processor's counter, set by the system's clock each millisecond.
#[derive(Debug)]
pub(crate) struct Clock {
    /// Nanoseconds of a cycle, times 2³².
    scale: u64,
    /// Cycles of a millisecond.
    most_cycles: u64,
    set_cycles: u64,
    set_ns: i64,
    last_ns: i64,
}

/// A step back by less is the counter's.
const JITTER_NS: i64 = 1_000_000;

impl Clock {
    pub(crate) fn new() -> Self {
        // A counter that counts no microseconds would overflow below.
        let rate = cycles_per_second().max(1_000_000);
        Self {
            scale: (1_000_000_000 << 32) / rate,
            most_cycles: rate / 1000,
            set_cycles: 0,
            set_ns: 0,
            last_ns: 0,
        }
    }

    /// Nanoseconds since the UNIX epoch when the counter stood here.
    pub(crate) fn time_ns(&mut self, cycles: u64) -> i64 {
        let mut since = cycles.wrapping_sub(self.set_cycles);
        if since >= self.most_cycles {
            (self.set_cycles, self.set_ns, since) = (cycles, system_ns(), 0);
        }
        let time_ns = self.set_ns + ((since * self.scale) >> 32).cast_signed();
        if !(self.last_ns - JITTER_NS..self.last_ns).contains(&time_ns) {
            self.last_ns = time_ns;
        }
        self.last_ns
    }
}

fn system_ns() -> i64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    now.as_nanos().try_into().unwrap_or(i64::MAX)
}
