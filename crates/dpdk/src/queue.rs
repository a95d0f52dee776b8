//! One queue of a port as a source of packets.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use flowgauge_core::packet::LinkType;
use flowgauge_engine::sink::visible;
use flowgauge_engine::source::{Ahead, Burst, Counter, CounterKind, Skipped, Source, SourceError};

use crate::clock::Clock;
use crate::fault::{DpdkError, PortFault};
use crate::shim::{Counters, Known, PICKED, Picked, Port, Received};

/// Nanoseconds after which a port is asked again what it lost, which may take microseconds.
const ASK_NS: u64 = 100_000_000;

/// Bursts that are received after the flag to stop was set: what a queue of a port holds.
const LAST_BURSTS: u32 = 32;

/// Most bursts that are passed over at once, so that the flag and the counters are looked at.
const SKIPPED_BURSTS: usize = 64;

/// Places of the counters.
const RECEIVED: usize = 0;
const MISSED: usize = 1;
const ERRORS: usize = 2;
const NO_BUFFERS: usize = 3;
const UNFORWARDED: usize = 4;

/// Where packets go after they were measured.
pub(crate) struct Forward {
    pub(crate) port: Arc<Port>,
    pub(crate) queue: u16,
}

/// What comes in on a queue of a port of DPDK. The host does not get it.
///
/// A poll receives up to 32 packets and never waits. They are lent out in the buffers that the port
/// wrote them to, have the time at which they were received, and are given back or passed on at the next
/// poll. Of a packet in several buffers, the captured bytes are those of the first. What the port lost
/// is counted by its first queue.
pub struct DpdkQueue {
    /// Packets of the last burst; those in front of `next` were lent out, passed over or picked.
    received: Received,
    next: usize,
    /// Packets that are wanted, of the last burst and those before it.
    picked: Picked,
    /// Whether the next poll lends them out; they are given back behind it.
    lends_picked: bool,
    /// Whether the next one is wanted, and those behind it may not be.
    stopped: bool,
    /// The thread that polls.
    known: Option<Known>,
    port: Arc<Port>,
    queue: u16,
    forward: Option<Forward>,
    stop: Arc<AtomicBool>,
    /// Bursts to receive after the flag to stop was set.
    last_bursts: u32,
    is_gone: bool,
    clock: Clock,
    /// When packets were received last, and when the port was asked what it lost.
    now_ns: i64,
    asked_ns: i64,
    name: [String; 1],
    counters: [Counter; 5],
}

impl DpdkQueue {
    pub(crate) fn new(
        name: &str,
        port: Arc<Port>,
        queue: u16,
        forward: Option<Forward>,
        stop: Arc<AtomicBool>,
    ) -> Self {
        Self {
            received: Received::new(),
            next: 0,
            picked: Picked::new(),
            lends_picked: false,
            stopped: false,
            known: None,
            port,
            queue,
            forward,
            stop,
            last_bursts: LAST_BURSTS,
            is_gone: false,
            clock: Clock::new(),
            now_ns: 0,
            asked_ns: 0,
            name: [name.to_owned()],
            counters: [
                Counter::new("received", CounterKind::Other),
                Counter::new("missed", CounterKind::Lost),
                Counter::new("errors", CounterKind::Lost),
                Counter::new("no_buffers", CounterKind::Lost),
                Counter::new("not_forwarded", CounterKind::Other),
            ],
        }
    }

    /// Receives the next burst, if all packets of the last were lent out or passed over.
    fn refill(&mut self) {
        if self.next < self.received.len() {
            return;
        }
        self.known.get_or_insert_with(Known::new);
        self.release();
        self.received.receive(&self.port, self.queue);
        self.counters[RECEIVED].count += self.received.len() as u64;
        self.now_ns = self.clock.time_ns(self.received.cycles());
    }

    /// Passes the packets of the last burst on, or gives their buffers back.
    fn release(&mut self) {
        match &self.forward {
            Some(Forward { port, queue }) => {
                self.counters[UNFORWARDED].count += self.received.forward(port, *queue) as u64;
            }
            None => self.received.free(),
        }
        self.next = 0;
    }

    /// Asks the port what it lost, and whether it is there.
    fn ask(&mut self) -> Result<(), DpdkError> {
        self.asked_ns = self.now_ns;
        if self.queue == 0 {
            let Counters { missed, errors, no_buffers } = self.port.counters();
            self.counters[MISSED].count = missed;
            self.counters[ERRORS].count = errors;
            self.counters[NO_BUFFERS].count = no_buffers;
        }
        self.is_gone = self.port.is_gone();
        if self.is_gone {
            let port = visible(&self.name[0]).into_owned();
            return Err(DpdkError::Port { port, fault: PortFault::Gone });
        }
        Ok(())
    }

    /// Whether the next poll does more than receive.
    fn is_due(&self) -> bool {
        let asks = self.now_ns.abs_diff(self.asked_ns) >= ASK_NS;
        asks || self.is_gone || self.stop.load(Ordering::Relaxed)
    }

    /// Whether all is received that the port held when the flag to stop was set.
    fn is_ending(&mut self) -> bool {
        if self.stop.load(Ordering::Relaxed) {
            self.last_bursts = self.last_bursts.saturating_sub(1);
        }
        self.last_bursts == 0
    }
}

impl Drop for DpdkQueue {
    fn drop(&mut self) {
        // The packets of the last burst were measured, and are passed on as all others are.
        self.release();
    }
}

impl Source for DpdkQueue {
    fn poll<'a>(&'a mut self, burst: &mut Burst<'a>) -> Result<bool, SourceError> {
        if std::mem::take(&mut self.lends_picked) {
            burst.extend(self.picked.frames());
            return Ok(true);
        }
        if self.is_gone {
            return Ok(false);
        }
        let ending = self.is_ending();
        if ending || self.now_ns.abs_diff(self.asked_ns) >= ASK_NS {
            self.ask()?;
        }
        if ending && self.next == self.received.len() {
            return Ok(false);
        }
        self.refill();
        let (first, mut end) = (self.next, self.received.len());
        if std::mem::take(&mut self.stopped) {
            end = end.min(first + 1);
        }
        self.next = end;
        let (received, time_ns) = (&self.received, self.now_ns);
        let wires = &received.wires()[first..end];
        burst.arrive(received.bytes(first..end), wires, LinkType::ETHERNET, time_ns);
        Ok(true)
    }

    fn skip(&mut self, ahead: &Ahead) -> Skipped {
        self.pick(ahead, &[])
    }

    fn pick(&mut self, ahead: &Ahead, gaps: &[u64]) -> Skipped {
        let mut skipped = Skipped::none(ahead);
        if self.is_due() {
            return skipped;
        }
        self.picked.free();
        // Packets that are sent on keep their order.
        let most = if self.forward.is_some() { 0 } else { gaps.len().min(PICKED) };
        let mut left = ahead.packets;
        for _ in 0..SKIPPED_BURSTS {
            self.refill();
            let (first, end) = (self.next, self.received.len());
            if first == end || self.now_ns < skipped.last_ns || self.now_ns > ahead.until_ns {
                break;
            }
            while left < (end - self.next) as u64 && skipped.picked < most {
                self.next += left as usize;
                self.received.pick(self.next, self.now_ns, &mut self.picked);
                self.next += 1;
                skipped.picked += 1;
                left = gaps.get(skipped.picked).copied().unwrap_or(0);
            }
            let passed = left.min((end - self.next) as u64);
            left -= passed;
            self.next += passed as usize;
            skipped.bytes += self.received.wire_bytes(first..self.next);
            skipped.packets += (self.next - first) as u64;
            skipped.last_ns = self.now_ns;
            if self.next < end {
                break;
            }
        }
        skipped.packets -= skipped.picked as u64;
        self.lends_picked = skipped.picked > 0;
        // Nothing is known of the packets behind those that were picked.
        self.stopped = self.next < self.received.len() && !self.lends_picked;
        skipped
    }

    fn inputs(&self) -> &[String] {
        &self.name
    }

    fn counters(&self) -> &[Counter] {
        &self.counters
    }

    fn clock_ns(&self) -> Option<i64> {
        // Packets tell the time, where there are some.
        (self.received.len() == 0).then_some(self.now_ns)
    }
}
