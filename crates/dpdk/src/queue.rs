//! One queue of a port as a source of packets.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use flowgauge_engine::sink::visible;
use flowgauge_engine::source::{Ahead, Burst, Counter, CounterKind, Skipped, Source, SourceError};

use crate::fault::{DpdkError, PortFault};
use crate::shim::{Counters, Known, PICKED, Picked, Port, Received, cycles_per_second};

/// Interval between reads of the port's counters in nanoseconds. A read may take microseconds.
const ASK_NS: u64 = 100_000_000;

/// Number of bursts received after the stop flag is set: a queue of a port holds at most this many.
const LAST_BURSTS: u32 = 32;

/// Maximum number of bursts skipped at once, so that the flag and the counters are checked in time.
const SKIPPED_BURSTS: usize = 64;

/// Indices of the counters.
const RECEIVED: usize = 0;
const MISSED: usize = 1;
const ERRORS: usize = 2;
const NO_BUFFERS: usize = 3;
const UNFORWARDED: usize = 4;

/// The queue to which measured packets are forwarded.
pub(crate) struct Forward {
    pub(crate) port: Arc<Port>,
    pub(crate) queue: u16,
}

/// The incoming packets of a queue of a DPDK port, which the host does not receive.
///
/// A poll receives up to 32 packets and never waits. They are lent out in the port's buffers, have
/// the time at which they were received, and are given back or forwarded at the next poll. If a
/// packet has several buffers, its captured bytes are those in the first one. The first queue
/// counts the packets that the port lost. `no_buffers` counts failed allocations, which lose a packet
/// only at ports of net_pcap and net_tap.
pub struct DpdkQueue {
    /// The last burst. Packets before `next` were lent out, skipped or picked.
    received: Received,
    next: usize,
    /// Picked packets of the last burst and of earlier ones.
    picked: Picked,
    /// Whether the next poll lends out the picked packets.
    lends_picked: bool,
    /// Whether the next packet is wanted, and it is unknown whether later ones are.
    stopped: bool,
    /// The registration of the polling thread.
    known: Option<Known>,
    port: Arc<Port>,
    queue: u16,
    forward: Option<Forward>,
    stop: Arc<AtomicBool>,
    /// Number of bursts still to receive after the stop flag is set.
    last_bursts: u32,
    is_gone: bool,
    clock: Clock,
    /// Time of the last burst.
    now_ns: i64,
    /// Time of the last read of the port's counters.
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
        let no_buffers = if port.needs_buffers() { CounterKind::Lost } else { CounterKind::Other };
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
                Counter::new("no_buffers", no_buffers),
                Counter::new("not_forwarded", CounterKind::Other),
            ],
        }
    }

    /// Receives the next burst if all packets of the last one were lent out or skipped.
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

    /// Forwards the packets of the last burst, or gives their buffers back.
    fn release(&mut self) {
        match &self.forward {
            Some(Forward { port, queue }) => {
                self.counters[UNFORWARDED].count += self.received.forward(port, *queue) as u64;
            }
            None => self.received.free(),
        }
        self.next = 0;
    }

    /// Reads the port's counters of lost packets, and checks whether the device is gone.
    fn ask(&mut self) -> Result<(), DpdkError> {
        self.asked_ns = self.now_ns;
        if self.queue == 0
            && let Some(counters) = self.port.counters()
        {
            let Counters { missed, errors, no_buffers } = counters;
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

    /// Whether the next poll does more than receiving.
    fn is_due(&self) -> bool {
        let asks = self.now_ns.abs_diff(self.asked_ns) >= ASK_NS;
        asks || self.is_gone || self.stop.load(Ordering::Relaxed)
    }

    /// Whether all packets that the port held when the stop flag was set are received.
    fn is_ending(&mut self) -> bool {
        if self.stop.load(Ordering::Relaxed) {
            self.last_bursts = self.last_bursts.saturating_sub(1);
        }
        self.last_bursts == 0
    }
}

impl Drop for DpdkQueue {
    fn drop(&mut self) {
        // The packets of the last burst were measured, so they are forwarded like all others.
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
        self.received.lend(first..end, self.now_ns, burst);
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
        // Picking would change the order of forwarded packets.
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
        // It is unknown whether packets after the picked ones are wanted.
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
        // If there are packets, their times advance the clock.
        (self.received.len() == 0).then_some(self.now_ns)
    }
}

/// The time of day for a thread that reads it a million times per second: the processor's counter,
/// set by the system's clock each millisecond.
#[derive(Debug)]
struct Clock {
    /// Nanoseconds per cycle, times 2³².
    scale: u64,
    /// Cycles per millisecond.
    most_cycles: u64,
    set_cycles: u64,
    set_ns: i64,
    last_ns: i64,
}

/// A smaller step back is an error of the counter and is ignored.
const JITTER_NS: i64 = 1_000_000;

impl Clock {
    fn new() -> Self {
        // A slower counter would overflow below.
        let rate = cycles_per_second().max(1_000_000);
        Self {
            scale: (1_000_000_000 << 32) / rate,
            most_cycles: rate / 1000,
            set_cycles: 0,
            set_ns: 0,
            last_ns: 0,
        }
    }

    /// The time in nanoseconds since the UNIX epoch at this count of cycles.
    fn time_ns(&mut self, cycles: u64) -> i64 {
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
