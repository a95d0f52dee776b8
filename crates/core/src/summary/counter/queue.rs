//! A queue before a server of constant rate, as the packets' times fill and drain it.

use super::super::codec::{DecodeError, Reader, Writer};

const PICOSECONDS: u64 = 1_000_000_000_000;

/// A queue of bounded length; the clock is that of the packets, so that nothing depends on the machine.
pub(super) struct Queue {
    /// What serves one packet takes.
    service_ps: u64,
    bound_ps: u64,
    /// What serves all that wait takes.
    backlog_ps: u64,
    last_ns: i64,
}

impl Queue {
    /// A server of `rate` packets per second, at most 10⁹, and room for `length` packets, at most
    /// 2²⁰.
    pub(super) fn new(rate: u64, length: u64) -> Self {
        let service_ps = PICOSECONDS / rate;
        Self { service_ps, bound_ps: service_ps * length, backlog_ps: 0, last_ns: i64::MIN }
    }

    /// Whether there is room for so many packets of this time, which are then in the queue. A packet
    /// that is older than one before it comes at that one's time.
    #[inline(always)]
    pub(super) fn takes(&mut self, time_ns: i64, packets: u64) -> bool {
        if time_ns > self.last_ns {
            let idle_ps = time_ns.abs_diff(self.last_ns).saturating_mul(1000);
            self.backlog_ps = self.backlog_ps.saturating_sub(idle_ps);
            self.last_ns = time_ns;
        }
        let backlog = self.backlog_ps.saturating_add(self.service_ps.saturating_mul(packets));
        let room = backlog <= self.bound_ps;
        self.backlog_ps = if room { backlog } else { self.backlog_ps };
        room
    }

    pub(super) fn clear(&mut self) {
        (self.backlog_ps, self.last_ns) = (0, i64::MIN);
    }

    pub(super) fn save(&self, out: &mut Writer) {
        out.number(self.backlog_ps);
        out.number(self.last_ns);
    }

    pub(super) fn load(&mut self, from: &mut Reader<'_>) -> Result<(), DecodeError> {
        self.backlog_ps = from.number("backlog")?;
        if self.backlog_ps > self.bound_ps {
            return Err(from.invalid("backlog", size_of::<u64>(), "the queue is shorter"));
        }
        self.last_ns = from.number("time of the last packet")?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_takes_its_length_at_once_and_its_rate_from_then_on() {
        // Five packets at once; then one each 100 ns, the time that one takes.
        let mut queue = Queue::new(10_000_000, 5);
        let taken = |queue: &mut Queue, time, offered| {
            (0..offered).filter(|_| queue.takes(time, 1)).count()
        };
        assert_eq!(taken(&mut queue, 0, 20), 5);
        assert_eq!(taken(&mut queue, 100, 20), 1);
        assert_eq!(taken(&mut queue, 350, 20), 2);
        assert_eq!(taken(&mut queue, 50, 20), 0);
        assert_eq!(taken(&mut queue, 1_000_000, 20), 5);
        queue.clear();
        assert_eq!(taken(&mut queue, i64::MIN, 20), 5);
        assert!(queue.takes(i64::MAX, 5) && !queue.takes(i64::MAX, 1));
    }
}
