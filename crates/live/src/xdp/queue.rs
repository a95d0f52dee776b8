//! One queue of an interface as a source of packets.

use std::collections::VecDeque;
use std::io;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use flowgauge_core::packet::Frame;
use flowgauge_engine::sink::visible;
use flowgauge_engine::source::{Burst, Counter, CounterKind, Source, SourceError};

use super::interface::{XdpInterface, XdpPort};
use crate::fault::{InterfaceFault, LiveError};
use crate::outage::Outage;
use crate::queue::now_ns;
use crate::socket::Event;

/// How long a poll waits for packets, and how often an idle queue looks at its interface.
const WAIT: Duration = Duration::from_millis(50);

/// Places of the counters.
const RECEIVED: usize = 0;
const DROPPED: usize = 1;
const FULL: usize = 2;
const INTERRUPTIONS: usize = 3;

/// What comes in on a queue of an interface; the host does not get it. Packets that the host sends are
/// not in it.
///
/// Packets are lent out where the kernel or the interface wrote them, and have the time at which they
/// were lent out. A VLAN tag that the interface took off does not come back. Packets longer than 3.5 KiB
/// are dropped, and counted.
///
/// [`poll`](Source::poll) waits up to 50 ms, or runs the driver, and may then lend out no frames. When
/// the flag to stop is set, the host has its packets again, and the queue lends out what came before.
///
/// An interface may go down, or be deleted and created again with the same name: the queue waits for
/// it, counts the interruption, and says in a note from when to when it was down.
pub struct XdpQueue {
    interface: Arc<XdpInterface>,
    number: u32,
    port: XdpPort,
    /// Packets that are lent out.
    lent: u32,
    stop: Arc<AtomicBool>,
    state: State,
    /// When the interface was looked at last.
    looked: Instant,
    name: [String; 1],
    counters: [Counter; 4],
    /// What the kernel counted in the port's time so far.
    known: (u64, u64),
    notes: VecDeque<String>,
    settled_ns: Option<i64>,
}

enum State {
    Up,
    Down(Outage),
    /// Since the flag to stop was set, or the system failed.
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

    /// Packets that are there, after waiting for them if need be.
    fn await_packets(&mut self) -> io::Result<u32> {
        let now_ns = now_ns();
        let mut ready = self.port.rings.ready();
        if ready == 0 {
            self.count_dropped()?;
            // Packets have the time at which they are found.
            self.settled_ns = now_ns;
            let event = match self.state {
                State::Ending(_) => return Ok(0),
                _ => self.port.rings.wait(WAIT)?,
            };
            ready = self.port.rings.ready();
            if ready == 0 {
                self.look(&event);
            }
        }
        Ok(ready)
    }

    /// Counts what the kernel dropped since this was asked last.
    fn count_dropped(&mut self) -> io::Result<()> {
        let (dropped, full) = self.port.rings.dropped()?;
        self.counters[DROPPED].count += dropped - self.known.0;
        self.counters[FULL].count += full - self.known.1;
        self.known = (dropped, full);
        Ok(())
    }

    /// Sees whether the interface went down or came back, from time to time.
    fn look(&mut self, event: &Event) {
        match &mut self.state {
            State::Up => {
                let gone = matches!(event, Event::Down);
                if !gone && self.looked.elapsed() < WAIT {
                    return;
                }
                self.looked = Instant::now();
                if gone || !self.port.control.is_up(self.port.interface) {
                    self.counters[INTERRUPTIONS].count += 1;
                    self.state = State::Down(Outage::new(now_ns()));
                }
            }
            State::Down(outage) => {
                if !outage.is_due() {
                    // A socket without an interface does not wait.
                    return std::thread::sleep(Duration::from_millis(1));
                }
                let Some(number) = self.interface.number_after(self.port.interface) else { return };
                if number != self.port.interface {
                    let Ok(port) = self.interface.open(self.number) else { return };
                    (self.port, self.known) = (port, (0, 0));
                } else if !self.port.control.is_up(number) {
                    return;
                }
                let note = outage.note(&self.interface.name, now_ns());
                self.notes.push_back(note);
                self.state = State::Up;
            }
            State::Ending(_) => {}
        }
    }

    /// Receives nothing more; what is there will be lent out.
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
        let ready = self.await_packets().unwrap_or_else(|broken| {
            self.finish(Some(broken.into()));
            0
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

    fn note(&mut self) -> Option<String> {
        self.notes.pop_front()
    }
}
