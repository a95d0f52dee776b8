//! One queue of an interface as a source of packets, and its outages.

use std::collections::VecDeque;
use std::io;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use flowgauge_engine::sink::{rfc3339, visible};
use flowgauge_engine::source::{Burst, Counter, CounterKind, Source, SourceError};

use crate::block::Walk;
use crate::fault::{InterfaceFault, LiveError};
use crate::port::{Interface, Port, link};
use crate::program;
use crate::ring::RETIRE;
use crate::socket::Event;

/// Maximum time that a poll waits for packets.
const WAIT: Duration = Duration::from_millis(50);

/// After this time, the kernel has handed over the block of any packet: it looks at the open block
/// each [`RETIRE`], and hands it over at the second look. The rest allows for a late timer.
const SETTLE: Duration = RETIRE.saturating_mul(10);

/// Notes on where the filter is applied.
const IN_KERNEL: &str =
    "the kernel applies the filter; packets it rejects are neither read nor counted as filtered";
const HERE: &str = "the kernel cannot apply this filter; all packets are read";

/// Indices of the counters.
const RECEIVED: usize = 0;
const DROPPED: usize = 1;
const FULL: usize = 2;
const INTERRUPTIONS: usize = 3;

/// A queue of an interface: its share of the packets that the interface receives and sends, each
/// with the time at which the kernel got it. A loopback interface receives what it sends, so only
/// received packets count there.
///
/// The kernel writes packets to a ring; frames are lent out in place. VLAN tags that the kernel
/// removed are put back, so frames are as on the wire. If offloads join packets, a frame is what
/// the kernel sees: up to 64 KiB.
///
/// [`poll`](Source::poll) waits up to 50 ms and may then lend out no frames;
/// [`clock_ns`](Source::clock_ns) advances in any case. When the stop flag is set, the queue lends
/// out the packets received before (in about 100 ms), and ends.
///
/// An interface may go down, or be deleted and created again with the same name. The queue waits
/// for it, and counts the interruption. One note says when the outage began, another when it ended.
pub struct Queue {
    interface: Arc<Interface>,
    port: Port,
    /// The position in the current block, if there is one.
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
    /// The stop flag is set, or the system failed.
    Ending {
        /// When the kernel has handed over all earlier packets.
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

    /// Adds a note if offloads join packets.
    pub(crate) fn note_joining(&mut self) {
        // A loopback interface reports such offloads, but does not join packets.
        if !matches!(self.port.socket.bound(), Ok((_, libc::ARPHRD_LOOPBACK))) {
            self.notes.extend(self.interface.joining(&self.port.socket));
        }
    }

    /// Advances to a block with packets that are not lent out yet. Returns whether there is one.
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

    /// As [`Self::advance`], but waits for packets.
    fn await_packets(&mut self) -> io::Result<bool> {
        let found = self.advance()?;
        self.recover(!found);
        if found {
            return Ok(true);
        }
        if matches!(self.port.socket.wait(WAIT)?, Event::Down) && matches!(self.state, State::Up) {
            self.counters[INTERRUPTIONS].count += 1;
            self.state = State::Down(Outage::new(&self.interface.name, now_ns()));
        }
        self.advance()
    }

    /// Checks whether an interface that was down is up again, also while packets are waiting: under
    /// overload the ring is never empty. Only an empty ring can be replaced, since nothing lends out
    /// the packets of the old one.
    fn recover(&mut self, is_empty: bool) {
        let State::Down(outage) = &mut self.state else { return };
        if !outage.is_due() {
            return;
        }
        if !outage.ends(&self.interface, &mut self.port, is_empty) {
            return;
        }
        self.notes.push_back(outage.end(&self.interface.name, now_ns()));
        self.state = State::Up;
    }

    /// Stops receiving. The packets in the ring will still be lent out.
    fn finish(&mut self, fault: Option<InterfaceFault>) {
        let fault = match mem::replace(&mut self.state, State::Up) {
            State::Up => fault,
            State::Down(_) => Some(fault.unwrap_or(InterfaceFault::Gone)),
            ending @ State::Ending { .. } => {
                self.state = ending;
                return;
            }
        };
        // A socket without an interface receives nothing, so an error does not matter.
        let _ = self.port.socket.attach(program::NOTHING);
        self.state = State::Ending { settled: Instant::now() + SETTLE, fault };
    }
}

impl Source for Queue {
    fn poll<'a>(&'a mut self, burst: &mut Burst<'a>) -> Result<bool, SourceError> {
        if self.stop.load(Ordering::Relaxed) {
            self.finish(None);
        }
        // Checked before looking for packets, so that none is missed.
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

    fn outage(&self) -> Option<&str> {
        match &self.state {
            State::Down(outage) => Some(outage.note()),
            State::Up | State::Ending { .. } => None,
        }
    }

    fn note(&mut self) -> Option<String> {
        self.notes.pop_front()
    }
}

/// The time in nanoseconds since the UNIX epoch, on the clock of packet timestamps.
pub(crate) fn now_ns() -> Option<i64> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).ok()?;
    i64::try_from(now.as_nanos()).ok()
}

/// The first wait before looking for an interface. The wait doubles up to [`LAST`].
const FIRST: Duration = Duration::from_millis(50);
const LAST: Duration = Duration::from_secs(1);

/// An outage: the interface is down or does not exist, and the queue waits for it.
pub(crate) struct Outage {
    since: Instant,
    since_ns: Option<i64>,
    /// What reports say while it lasts.
    note: String,
    /// Time of the next look.
    next: Instant,
    /// Wait after that look.
    delay: Duration,
}

impl Outage {
    pub(crate) fn new(interface: &str, since_ns: Option<i64>) -> Self {
        let since = Instant::now();
        let note = format!(
            "interface {} is down since {}: its packets are not counted until it is up",
            visible(interface),
            time(since_ns)
        );
        Self { since, since_ns, note, next: since + FIRST, delay: FIRST }
    }

    /// What reports say while it lasts.
    pub(crate) fn note(&self) -> &str {
        &self.note
    }

    /// Whether to look for the interface now.
    pub(crate) fn is_due(&mut self) -> bool {
        let due = Instant::now() >= self.next;
        if due {
            self.delay = (2 * self.delay).min(LAST);
            self.next = Instant::now() + self.delay;
        }
        due
    }

    /// Whether the interface is up again. Opens a new port if the interface was created again, or
    /// changed its link type, once the ring of the old one is empty.
    fn ends(&self, interface: &Interface, port: &mut Port, is_empty: bool) -> bool {
        let Ok((bound, hardware)) = port.socket.bound() else { return false };
        let Some(number) = interface.number_after(bound) else { return false };
        if number == bound {
            if port.link.is_none() || port.link == link(hardware) {
                // The socket receives packets again once its interface is up.
                return port.socket.is_up(number);
            }
            // It would receive packets of the new type.
            let _ = port.socket.attach(program::NOTHING);
        }
        // The kernel may not have handed over the last packets yet.
        if !is_empty || self.since.elapsed() < SETTLE {
            return false;
        }
        Port::open(interface).map(|opened| *port = opened).is_ok()
    }

    /// The note when it ends.
    pub(crate) fn end(&self, interface: &str, now_ns: Option<i64>) -> String {
        format!(
            "interface {} was down from {} to {}: packets of that time are not counted",
            visible(interface),
            time(self.since_ns),
            time(now_ns)
        )
    }
}

/// The time to the second, so that all queues of an interface say the same.
fn time(time_ns: Option<i64>) -> String {
    let second = |time_ns| rfc3339(time_ns).split('.').next().map(|second| format!("{second}Z"));
    time_ns.and_then(second).unwrap_or_else(|| "?".to_owned())
}
