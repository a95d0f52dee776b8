//! One AF_XDP queue of an interface as a source of packets.

use std::collections::VecDeque;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use flowgauge_core::packet::Frame;
use flowgauge_engine::sink::visible;
use flowgauge_engine::source::{Burst, Counter, CounterKind, Source, SourceError};

use super::{XdpInterface, XdpPort};
use crate::fault::{InterfaceFault, LiveError};
use crate::queue::{Outage, now_ns};
use crate::socket::Event;

/// Maximum time that a poll waits for packets, and interval at which a queue checks its interface
/// and its counts.
const WAIT: Duration = Duration::from_millis(50);

/// Interval at which a queue checks the number of queues of its interface.
const RECOUNT: Duration = Duration::from_secs(1);

/// Indices of the counters.
const RECEIVED: usize = 0;
const DROPPED: usize = 1;
const FULL: usize = 2;
const INTERRUPTIONS: usize = 3;

/// The incoming packets of a queue of an interface, which the host does not receive. Packets that
/// the host sends are not included.
///
/// Packets are lent out in place, and have the time at which they were lent out. A VLAN tag that
/// the interface removed is lost. Packets longer than 3.5 KiB are dropped and counted.
///
/// [`poll`](Source::poll) waits up to 50 ms, or runs the driver, and may then lend out no frames.
/// When the stop flag is set, the host receives its packets again, and the queue lends out those
/// received before.
///
/// An interface may go down, or be deleted and created again with the same name. The queue waits
/// for it, counts the interruption, and gives the time of the outage in a note. It fails if the
/// interface then has another number of queues, whose packets nothing would count.
pub struct XdpQueue {
    interface: Arc<XdpInterface>,
    number: u32,
    port: XdpPort,
    /// Number of packets lent out.
    lent: u32,
    stop: Arc<AtomicBool>,
    state: State,
    /// Time of the last check of the interface.
    looked: Instant,
    /// Time of the last check of the number of its queues.
    recounted: Instant,
    name: [String; 1],
    counters: [Counter; 4],
    /// The kernel's counts of dropped packets that are counted already.
    known: (u64, u64),
    notes: VecDeque<String>,
    settled_ns: Option<i64>,
}

enum State {
    Up,
    Down(Outage),
    /// The stop flag is set, or the system failed.
    Ending(Option<InterfaceFault>),
}

impl XdpQueue {
    pub(super) fn open(
        interface: Arc<XdpInterface>,
        number: u32,
        stop: Arc<AtomicBool>,
    ) -> Result<Self, InterfaceFault> {
        let counter = |name, kind| Counter::new(name, kind);
        let port = interface.open(number)?;
        let name = visible(&interface.name);
        let note = format!(
            "interface {name}, queue {number}: packets are taken from the host {}",
            port.mode
        );
        Ok(Self {
            number,
            port,
            lent: 0,
            stop,
            state: State::Up,
            looked: Instant::now(),
            recounted: Instant::now(),
            name: [interface.name.clone()],
            counters: [
                counter("received", CounterKind::Other),
                counter("dropped_by_kernel", CounterKind::Lost),
                counter("ring_full", CounterKind::Other),
                counter("interruptions", CounterKind::Other),
            ],
            known: (0, 0),
            notes: VecDeque::from([note]),
            settled_ns: None,
            interface,
        })
    }

    /// The number of packets in the ring. Waits if there are none.
    fn await_packets(&mut self) -> Result<u32, InterfaceFault> {
        let now_ns = now_ns();
        let mut ready = self.port.rings.ready();
        let mut gone = false;
        if ready == 0 {
            self.count_dropped()?;
            // Later packets will have a later time.
            self.settled_ns = now_ns;
            if matches!(self.state, State::Ending(_)) {
                return Ok(0);
            }
            gone = matches!(self.port.rings.wait(WAIT)?, Event::Down);
            ready = self.port.rings.ready();
        }
        // Also while packets are waiting: under overload the ring is never empty.
        if gone || self.looked.elapsed() >= WAIT {
            self.looked = Instant::now();
            self.count_dropped()?;
            self.look(gone, ready == 0)?;
        }
        if ready == 0 && matches!(self.state, State::Down(_)) {
            // `wait` returns at once for a socket without an interface.
            thread::sleep(Duration::from_millis(1));
        }
        Ok(ready)
    }

    /// Counts the packets that the kernel dropped since the last call.
    fn count_dropped(&mut self) -> Result<(), InterfaceFault> {
        let (dropped, full) = self.port.rings.dropped()?;
        self.counters[DROPPED].count += dropped - self.known.0;
        self.counters[FULL].count += full - self.known.1;
        self.known = (dropped, full);
        Ok(())
    }

    /// Checks whether the interface went down, came back, or has another number of queues. `gone`
    /// says that it went down. Only an empty ring can be replaced, since nothing lends out the
    /// packets of the old one.
    fn look(&mut self, gone: bool, is_empty: bool) -> Result<(), InterfaceFault> {
        match &mut self.state {
            State::Up => {
                if gone || !self.port.control.is_up(self.port.interface) {
                    self.counters[INTERRUPTIONS].count += 1;
                    self.state = State::Down(Outage::new(&self.interface.name, now_ns()));
                } else if self.recounted.elapsed() >= RECOUNT {
                    self.recounted = Instant::now();
                    self.interface.check_queues(self.port.interface)?;
                }
            }
            State::Down(outage) => {
                if !outage.is_due() {
                    return Ok(());
                }
                let Some(number) = self.interface.number_after(self.port.interface) else {
                    return Ok(());
                };
                if number == self.port.interface {
                    if !self.port.control.is_up(number) {
                        return Ok(());
                    }
                } else if is_empty {
                    match self.interface.open(self.number) {
                        Ok(port) => (self.port, self.known) = (port, (0, 0)),
                        Err(fault @ InterfaceFault::Queues(_)) => return Err(fault),
                        Err(_) => return Ok(()),
                    }
                } else {
                    return Ok(());
                }
                self.notes.push_back(outage.end(&self.interface.name, now_ns()));
                self.state = State::Up;
            }
            State::Ending(_) => {}
        }
        Ok(())
    }

    /// Stops receiving. The packets in the ring will still be lent out.
    fn finish(&mut self, fault: Option<InterfaceFault>) {
        let fault = match mem::replace(&mut self.state, State::Up) {
            State::Up => fault,
            State::Down(_) => Some(fault.unwrap_or(InterfaceFault::Gone)),
            State::Ending(earlier) => earlier,
        };
        self.interface.release();
        self.state = State::Ending(fault);
    }
}

impl Source for XdpQueue {
    fn poll<'a>(&'a mut self, burst: &mut Burst<'a>) -> Result<bool, SourceError> {
        self.port.rings.release(mem::take(&mut self.lent));
        if self.stop.load(Ordering::Relaxed) && !matches!(self.state, State::Ending(_)) {
            self.finish(None);
        }
        let ready = self.await_packets().unwrap_or_else(|fault| {
            self.finish(Some(fault));
            self.port.rings.ready()
        });
        if let (0, State::Ending(fault)) = (ready, &mut self.state) {
            let Some(fault) = fault.take() else { return Ok(false) };
            let interface = visible(&self.interface.name).into_owned();
            return Err(LiveError { interface, fault }.into());
        }
        self.lent = ready.min(burst.room() as u32);
        self.counters[RECEIVED].count += u64::from(self.lent);
        let (rings, link, time_ns) = (&self.port.rings, self.port.link, now_ns().unwrap_or(0));
        burst.extend((0..self.lent).map(|place| {
            let bytes = rings.packet(place);
            Frame { bytes, wire: bytes.len() as u32, link, time_ns }
        }));
        Ok(true)
    }

    fn inputs(&self) -> &[String] {
        &self.name
    }

    fn counters(&self) -> &[Counter] {
        &self.counters
    }

    fn clock_ns(&self) -> Option<i64> {
        self.settled_ns
    }

    fn outage(&self) -> Option<&str> {
        match &self.state {
            State::Down(outage) => Some(outage.note()),
            State::Up | State::Ending(_) => None,
        }
    }

    fn note(&mut self) -> Option<String> {
        self.notes.pop_front()
    }
}
