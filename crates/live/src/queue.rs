//! One queue of an interface as a source of packets.

use std::collections::VecDeque;
use std::io;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use flowgauge_engine::sink::visible;
use flowgauge_engine::source::{Burst, Counter, CounterKind, Source, SourceError};

use crate::block::Walk;
use crate::fault::{InterfaceFault, LiveError};
use crate::outage::Outage;
use crate::port::{Interface, Port};
use crate::program;
use crate::ring::RETIRE;
use crate::socket::Event;

/// How long a poll waits for packets.
const WAIT: Duration = Duration::from_millis(50);

/// After this time, whatever the kernel got is in a block that it has handed over: it looks at the
/// open block each [`RETIRE`], and hands it over when it has seen it twice. The rest is for a timer
/// that is late.
pub(crate) const SETTLE: Duration = RETIRE.saturating_mul(10);

/// Where a filter judges packets.
const IN_KERNEL: &str =
    "the kernel applies the filter; packets it rejects are neither read nor counted as filtered";
const HERE: &str = "the kernel cannot apply this filter; all packets are read";

/// Places of the counters.
const RECEIVED: usize = 0;
const DROPPED: usize = 1;
const FULL: usize = 2;
const INTERRUPTIONS: usize = 3;

/// What an interface receives and sends, or the part of it that is this queue's, each packet with the
/// time at which the kernel got it. On a loopback interface, which receives what it sends, only what
/// is received counts.
///
/// Packets lie in a ring that the kernel writes to, and are lent out where they lie. VLAN tags that
/// the kernel took off are put back, so that frames are as they were on the wire. Where offloads join
/// packets, a frame is what the kernel sees: up to 64 KiB.
///
/// [`poll`](Source::poll) waits up to 50 ms and may then lend out no frames;
/// [`clock_ns`](Source::clock_ns) advances in any case. When the flag to stop is set, the queue lends
/// out what came before (in about 100 ms), and ends.
///
/// An interface may go down, or be deleted and created again with the same name: the queue waits for
/// it, counts the interruption, and says in a note from when to when it was down.
pub struct Queue {
    interface: Arc<Interface>,
    port: Port,
    /// How far the block was walked that is held.
    walk: Option<Walk>,
    stop: Arc<AtomicBool>,
    state: State,
    name: [String; 1],
    counters: [Counter; 4],
    notes: VecDeque<String>,
    settled_ns: Option<i64>,
}

enum State {
    Up,
    Down(Outage),
    /// Since the flag to stop was set, or the system failed.
    Ending {
        /// When all that came before is handed over.
        settled: Instant,
        fault: Option<InterfaceFault>,
    },
}

impl Queue {
    pub(crate) fn open(
        interface: Arc<Interface>,
        stop: Arc<AtomicBool>,
    ) -> Result<Self, InterfaceFault> {
        let counter = |name, kind| Counter::new(name, kind);
        let port = Port::open(&interface)?;
        let filtered = interface.options.filter.is_some().then(|| {
            let by = if port.rejects { IN_KERNEL } else { HERE };
            format!("interface {}: {by}", visible(&interface.name))
        });
        Ok(Self {
            port,
            walk: None,
            stop,
            state: State::Up,
            name: [interface.name.clone()],
            counters: [
                counter("received", CounterKind::Other),
                counter("dropped_by_kernel", CounterKind::Lost),
                counter("ring_full", CounterKind::Other),
                counter("interruptions", CounterKind::Other),
            ],
            notes: filtered.into_iter().collect(),
            settled_ns: None,
            interface,
        })
    }

    /// Notes, if it is so, that offloads join packets.
    pub(crate) fn note_joining(&mut self) {
        // A loopback interface says so, and does not.
        if !matches!(self.port.socket.bound(), Ok((_, libc::ARPHRD_LOOPBACK))) {
            self.notes.extend(self.interface.joining(&self.port.socket));
        }
    }

    /// Advances to a block with packets that were not lent out yet; whether there is one.
    fn advance(&mut self) -> io::Result<bool> {
        loop {
            if let Some(walk) = &self.walk {
                if walk.has_next() {
                    return Ok(true);
                }
                self.counters[DROPPED].count += u64::from(walk.unread());
                self.walk = None;
                self.port.ring.release();
            }
            let now_ns = now_ns();
            let ready = self.port.ring.ready();
            let (dropped, full) = self.port.socket.dropped()?;
            self.counters[DROPPED].count += dropped;
            self.counters[FULL].count += full;
            if !ready {
                self.settled_ns = now_ns.map(|now_ns| now_ns - SETTLE.as_nanos() as i64);
                return Ok(false);
            }
            self.walk = Some(Walk::new(self.port.ring.block()));
        }
    }

    /// The same, after waiting for it if need be.
    fn await_packets(&mut self) -> io::Result<bool> {
        if self.advance()? {
            return Ok(true);
        }
        self.recover();
        if matches!(self.port.socket.wait(WAIT)?, Event::Down) && matches!(self.state, State::Up) {
            self.counters[INTERRUPTIONS].count += 1;
            self.state = State::Down(Outage::new(now_ns()));
        }
        self.advance()
    }

    /// Sees whether an interface that was down is there again. All that came before is lent out by
    /// then, so that a new ring can take the place of the old one.
    fn recover(&mut self) {
        let State::Down(outage) = &mut self.state else { return };
        if !outage.is_due() {
            return;
        }
        if !outage.ends(&self.interface, &mut self.port) {
            return;
        }
        let note = outage.note(&self.interface.name, now_ns());
        self.notes.push_back(note);
        self.state = State::Up;
    }

    /// Receives nothing more; what is there will be lent out.
    fn finish(&mut self, fault: Option<InterfaceFault>) {
        let fault = match mem::replace(&mut self.state, State::Up) {
            State::Up => fault,
            State::Down(_) => Some(fault.unwrap_or(InterfaceFault::Gone)),
            ending @ State::Ending { .. } => {
                self.state = ending;
                return;
            }
        };
        // A socket without an interface receives nothing anyway.
        let _ = self.port.socket.attach(program::NOTHING);
        self.state = State::Ending { settled: Instant::now() + SETTLE, fault };
    }
}

impl Source for Queue {
    fn poll<'a>(&'a mut self, burst: &mut Burst<'a>) -> Result<bool, SourceError> {
        if self.stop.load(Ordering::Relaxed) {
            self.finish(None);
        }
        // Asked before looking for packets, so that none is overlooked.
        let settled =
            matches!(&self.state, State::Ending { settled, .. } if Instant::now() >= *settled);
        let found = if settled { self.advance() } else { self.await_packets() };
        let more = found.unwrap_or_else(|broken| {
            self.finish(Some(broken.into()));
            false
        });
        if !more && settled {
            let State::Ending { fault, .. } = &mut self.state else { return Ok(false) };
            let fault = fault.take();
            return fault.map_or(Ok(false), |fault| {
                let interface = visible(&self.interface.name).into_owned();
                Err(LiveError { interface, fault }.into())
            });
        }
        if let Some(walk) = &mut self.walk {
            walk.frames(self.port.ring.block_mut(), self.port.link, burst);
            self.counters[RECEIVED].count += burst.len() as u64;
        }
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

/// Nanoseconds since the UNIX epoch, as the kernel stamps packets.
pub(crate) fn now_ns() -> Option<i64> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).ok()?;
    i64::try_from(now.as_nanos()).ok()
}
