//! Packets of an interface as they come, through a packet socket of Linux.
//!
//! `unsafe` code is in `ring` and `socket` only.

#![deny(unsafe_code)]

mod block;
mod fault;
#[expect(unsafe_code, reason = "memory that the kernel shares")]
mod ring;
#[expect(unsafe_code, reason = "calls of the operating system")]
mod socket;

use std::ffi::CString;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use flowgauge_core::packet::LinkType;
use flowgauge_engine::sink::visible;
use flowgauge_engine::source::{Burst, Counter, CounterKind, Source, SourceError};
use libc::c_int;
use thiserror::Error;

use block::Walk;
pub use fault::InterfaceFault;
use ring::{RETIRE, Ring};
use socket::{Event, Socket};

/// How long a poll waits for packets.
const WAIT: Duration = Duration::from_millis(50);

/// After this time, whatever the kernel got is in a block that it has handed over: it looks at the
/// open block each [`RETIRE`], and hands it over when it has seen it twice. The rest is for a timer
/// that is late.
const SETTLE: Duration = RETIRE.saturating_mul(10);

/// Places of the counters.
const RECEIVED: usize = 0;
const DROPPED: usize = 1;

/// Raw IP of mobile networks, which has no name among the constants.
const ARPHRD_RAWIP: u16 = 519;

/// All packets that an interface receives and sends, each with the time at which the kernel got
/// it. On a loopback interface, where each packet is sent and received, only what is received
/// counts.
///
/// Packets lie in a ring of 32 MiB that the kernel writes to, and are handed out in it. VLAN tags
/// that the kernel took off are put back, so that frames are as they were on the wire. Where
/// offloads join packets, a frame is what the kernel sees: up to 64 KiB.
///
/// [`poll`](Source::poll) waits up to 50 ms and may then hand out no frames;
/// [`clock_ns`](Source::clock_ns) goes on in any case. Once the flag to stop is set, or the
/// interface is gone, it hands out what came before (in about 100 ms), and ends.
pub struct AfPacket {
    socket: Socket,
    ring: Ring,
    link: LinkType,
    /// How far the block was walked that is held.
    walk: Option<Walk>,
    stop: Arc<AtomicBool>,
    name: [String; 1],
    counters: [Counter; 2],
    settled_ns: Option<i64>,
    /// When all that came before the end is handed over, and what ended it.
    end: Option<(Instant, Option<InterfaceFault>)>,
}

impl AfPacket {
    /// Opens `interface`, in promiscuous mode if asked: then packets to other hosts are there, too.
    /// Ends when `stop` is set.
    ///
    /// # Errors
    /// No such interface, no privilege, the interface is down or of a kind that is not understood,
    /// or the system refuses the memory of the ring.
    pub fn open(
        interface: &str,
        promiscuous: bool,
        stop: Arc<AtomicBool>,
    ) -> Result<Self, LiveError> {
        Self::opened(interface, promiscuous, stop).map_err(|fault| error(interface, fault))
    }

    fn opened(
        interface: &str,
        promiscuous: bool,
        stop: Arc<AtomicBool>,
    ) -> Result<Self, InterfaceFault> {
        let name = CString::new(interface).ok();
        let index = name.and_then(|name| socket::interface(&name));
        let index = index.ok_or_else(|| InterfaceFault::Missing(socket::interfaces()))?;
        let socket = Socket::new()?;
        let ring = Ring::new(&socket)?;
        // Bound to no protocol it knows its interface, and receives nothing yet.
        socket.bind(index, 0)?;
        let hardware = socket.hardware()?;
        let link = link(hardware).ok_or(InterfaceFault::Hardware(hardware))?;
        if hardware == libc::ARPHRD_LOOPBACK {
            let ignore: c_int = 1;
            socket.set(libc::PACKET_IGNORE_OUTGOING, &ignore)?;
        }
        if promiscuous {
            let request = libc::packet_mreq {
                mr_ifindex: index,
                mr_type: libc::PACKET_MR_PROMISC as u16,
                mr_alen: 0,
                mr_address: [0; 8],
            };
            socket.set(libc::PACKET_ADD_MEMBERSHIP, &request)?;
        }
        socket.bind(index, libc::ETH_P_ALL)?;
        if matches!(socket.event()?, Event::Down) {
            return Err(InterfaceFault::Down);
        }
        Ok(Self {
            socket,
            ring,
            link,
            walk: None,
            stop,
            name: [interface.to_owned()],
            counters: [
                Counter::new("received", CounterKind::Other),
                Counter::new("dropped_by_kernel", CounterKind::Lost),
            ],
            settled_ns: None,
            end: None,
        })
    }

    /// Goes on to a block with packets that were not lent out yet; whether there is one.
    fn advance(&mut self) -> io::Result<bool> {
        loop {
            if let Some(walk) = &self.walk {
                if walk.has_next() {
                    return Ok(true);
                }
                self.counters[DROPPED].count += u64::from(walk.unread());
                self.walk = None;
                self.ring.release();
            }
            let now_ns = now_ns();
            let ready = self.ring.ready();
            self.counters[DROPPED].count += self.socket.dropped()?;
            if !ready {
                self.settled_ns = now_ns.map(|now_ns| now_ns - SETTLE.as_nanos() as i64);
                return Ok(false);
            }
            self.walk = Some(Walk::new(self.ring.block()));
        }
    }

    /// The same, after waiting for it if need be.
    fn await_packets(&mut self) -> io::Result<bool> {
        if self.advance()? {
            return Ok(true);
        }
        if matches!(self.socket.wait(WAIT)?, Event::Down) {
            self.finish(Some(InterfaceFault::Gone));
        }
        self.advance()
    }

    /// Receives nothing more; what is there will be handed out.
    fn finish(&mut self, fault: Option<InterfaceFault>) {
        if self.end.is_none() {
            // Of an interface that is gone the socket has let go already.
            let _ = self.socket.deafen();
            self.end = Some((Instant::now() + SETTLE, fault));
        }
    }
}

impl Source for AfPacket {
    fn poll<'a>(&'a mut self, burst: &mut Burst<'a>) -> Result<bool, SourceError> {
        if self.stop.load(Ordering::Relaxed) {
            self.finish(None);
        }
        // Asked before looking for packets, so that none is overlooked.
        let settled = self.end.as_ref().is_some_and(|(settled, _)| Instant::now() >= *settled);
        let found = if settled { self.advance() } else { self.await_packets() };
        let more = found.unwrap_or_else(|broken| {
            self.finish(Some(broken.into()));
            false
        });
        if !more && settled {
            let fault = self.end.as_mut().and_then(|(_, fault)| fault.take());
            return fault.map_or(Ok(false), |fault| Err(error(&self.name[0], fault).into()));
        }
        if let Some(walk) = &mut self.walk {
            walk.frames(self.ring.block_mut(), self.link, burst);
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
}

/// Why an interface gives no packets, or no more.
#[derive(Debug, Error)]
#[error("{interface}: {fault}")]
pub struct LiveError {
    /// Its name, with control characters escaped.
    pub interface: String,
    /// What is wrong with it.
    pub fault: InterfaceFault,
}

impl From<LiveError> for SourceError {
    fn from(error: LiveError) -> Self {
        Self::Failed(error.into())
    }
}

fn error(interface: &str, fault: InterfaceFault) -> LiveError {
    LiveError { interface: visible(interface).to_string(), fault }
}

/// What the first bytes of frames are, by the hardware type of their interface.
fn link(hardware: u16) -> Option<LinkType> {
    match hardware {
        libc::ARPHRD_ETHER | libc::ARPHRD_LOOPBACK => Some(LinkType::ETHERNET),
        libc::ARPHRD_NONE
        | libc::ARPHRD_TUNNEL
        | libc::ARPHRD_TUNNEL6
        | libc::ARPHRD_SIT
        | ARPHRD_RAWIP => Some(LinkType::RAW),
        _ => None,
    }
}

/// Nanoseconds since the UNIX epoch, as the kernel stamps packets.
fn now_ns() -> Option<i64> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).ok()?;
    i64::try_from(now.as_nanos()).ok()
}
