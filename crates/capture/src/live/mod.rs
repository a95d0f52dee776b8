//! Packets of an interface as they come, by a packet socket of Linux.

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

use flowgauge_core::batch::BATCH_PACKETS;
use flowgauge_core::packet::LinkType;
use libc::c_int;

use crate::damage::{CaptureError, shown};
use crate::frames::{FileCounts, Frame, Frames, NO_FRAME, Progress, Source};
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
    frames: Box<[Frame; BATCH_PACKETS]>,
    stop: Arc<AtomicBool>,
    /// The name, and the frames so far.
    files: [FileCounts; 1],
    captured_bytes: u64,
    lost: u64,
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
    ) -> Result<Self, CaptureError> {
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
            frames: Box::new([NO_FRAME; BATCH_PACKETS]),
            stop,
            files: [FileCounts { file: interface.to_owned(), frames: 0, irregular: 0 }],
            captured_bytes: 0,
            lost: 0,
            settled_ns: None,
            end: None,
        })
    }

    /// Reads some frames of the block that is held, or of the next one; how many.
    fn advance(&mut self) -> io::Result<usize> {
        loop {
            if let Some(walk) = &mut self.walk {
                let read = walk.frames(self.ring.block_mut(), self.link, &mut self.frames[..]);
                if read > 0 {
                    return Ok(read);
                }
                self.lost += u64::from(walk.unread());
                self.walk = None;
                self.ring.release();
            }
            let now_ns = now_ns();
            let ready = self.ring.ready();
            self.lost += self.socket.dropped()?;
            if !ready {
                self.settled_ns = now_ns.map(|now_ns| now_ns - SETTLE.as_nanos() as i64);
                return Ok(0);
            }
            self.walk = Some(Walk::new(self.ring.block()));
        }
    }

    /// The same, after waiting for it if need be.
    fn await_frames(&mut self) -> io::Result<usize> {
        let read = self.advance()?;
        if read > 0 {
            return Ok(read);
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
    type Error = CaptureError;

    fn poll(&mut self) -> Result<Option<Frames<'_>>, CaptureError> {
        if self.stop.load(Ordering::Relaxed) {
            self.finish(None);
        }
        // Asked before looking for packets, so that none is overlooked.
        let settled = self.end.as_ref().is_some_and(|(settled, _)| Instant::now() >= *settled);
        let read = match if settled { self.advance() } else { self.await_frames() } {
            Ok(read) => read,
            Err(broken) => {
                self.finish(Some(broken.into()));
                0
            }
        };
        if read == 0 && settled {
            let fault = self.end.as_mut().and_then(|(_, fault)| fault.take());
            return fault.map_or(Ok(None), |fault| Err(error(&self.files[0].file, fault)));
        }
        let frames = &self.frames[..read];
        self.files[0].frames += read as u64;
        self.captured_bytes += frames.iter().map(|frame| u64::from(frame.captured)).sum::<u64>();
        Ok(Some(Frames { bytes: self.ring.block(), frames }))
    }

    fn progress(&self) -> Progress {
        Progress { read: self.captured_bytes, total: None }
    }

    fn files(&self) -> &[FileCounts] {
        &self.files
    }

    fn clock_ns(&self) -> Option<i64> {
        self.settled_ns
    }

    fn lost(&self) -> u64 {
        self.lost
    }
}

fn error(interface: &str, fault: InterfaceFault) -> CaptureError {
    CaptureError::Interface { interface: shown(interface), fault }
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
