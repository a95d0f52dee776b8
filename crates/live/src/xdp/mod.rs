//! Packets that the kernel hands over before its own stack sees them (AF_XDP).
//!
//! A program of six instructions in the driver redirects each packet to the socket of its queue
//! (`hook`). The packets lie in memory that the kernel and the socket share (`rings`).

#[expect(unsafe_code, reason = "calls of the operating system")]
mod hook;
mod queue;
#[expect(unsafe_code, reason = "memory that the kernel shares")]
mod rings;

pub use queue::XdpQueue;

use std::ffi::{CString, OsStr};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};

use flowgauge_core::packet::LinkType;
use flowgauge_engine::sink::visible;
use libc::c_int;

use crate::fault::{InterfaceFault, LiveError};
use crate::port::link;
use crate::socket::{self, Socket};
use hook::Hook;
use rings::Rings;

/// Opens all queues of an interface, and so takes its incoming packets from the host. The queues
/// end when `stop` is set; the host then receives the packets again.
///
/// # Errors
/// When there is no such interface, a privilege is missing, the interface is down, has another
/// number of queues or accepts no program, or the system refuses the memory.
pub fn open_xdp(
    interface: &str,
    options: &XdpOptions,
    stop: &Arc<AtomicBool>,
) -> Result<Vec<XdpQueue>, LiveError> {
    let shared = XdpInterface::new(interface, options);
    let open = |queue| XdpQueue::open(Arc::clone(&shared), queue as u32, Arc::clone(stop));
    let opened = (0..options.queues).map(open).collect::<Result<_, _>>();
    opened.map_err(|fault| LiveError { interface: visible(interface).into_owned(), fault })
}

/// The options of [`open_xdp`].
///
/// ```
/// use flowgauge_live::{InterfaceFault, XdpOptions, open_xdp};
///
/// let options =
///     XdpOptions { queues: 1, ring_bytes: 16 << 20, promiscuous: true, busy_poll: false };
/// let error = open_xdp("no-such-if0", &options, &Default::default()).err();
/// let fault = error.map(|error| error.fault);
/// assert!(matches!(fault, Some(InterfaceFault::Missing(_))));
/// ```
#[derive(Clone, Debug)]
pub struct XdpOptions {
    /// Number of queues of the interface. All of them are opened.
    pub queues: usize,
    /// Packet memory of each queue in bytes: frames of 4 KiB, their number rounded down to a power
    /// of two.
    pub ring_bytes: usize,
    /// Whether to receive packets for other hosts, too.
    pub promiscuous: bool,
    /// Whether to run the driver instead of waiting for packets. The thread is then always busy.
    pub busy_poll: bool,
}

/// An interface and its program.
#[derive(Debug)]
struct XdpInterface {
    name: String,
    options: XdpOptions,
    /// The program, and the number of its interface. An interface that is created again has a new
    /// number.
    hook: Mutex<Option<(c_int, Hook)>>,
}

/// The operating system's part of a queue.
struct XdpPort {
    rings: Rings,
    link: LinkType,
    interface: c_int,
    /// How packets are received, for a note.
    mode: &'static str,
    /// Queries the interface, and keeps it in promiscuous mode.
    control: Socket,
}

impl XdpInterface {
    fn new(name: &str, options: &XdpOptions) -> Arc<Self> {
        let (name, options) = (name.to_owned(), options.clone());
        Arc::new(Self { name, options, hook: Mutex::new(None) })
    }

    fn number(&self) -> Option<c_int> {
        socket::interface(&CString::new(&*self.name).ok()?)
    }

    /// The number after an outage: the number of its name, or the old number if it was renamed.
    fn number_after(&self, outage_of: c_int) -> Option<c_int> {
        self.number().or_else(|| socket::name(outage_of).map(|_| outage_of))
    }

    /// Compares the number of queues of the interface with that of the options.
    ///
    /// # Errors
    /// When they differ, because packets would arrive on other queues.
    fn check_queues(&self, interface: c_int) -> Result<(), InterfaceFault> {
        // The interface may have been renamed.
        let Some(name) = socket::name(interface) else { return Ok(()) };
        let name = OsStr::from_bytes(name.to_bytes());
        let queues = Path::new("/sys/class/net").join(name).join("queues");
        // Without these files there is one queue, or binding the socket fails.
        let Ok(queues) = queues.read_dir() else { return Ok(()) };
        let names = queues.flatten().map(|entry| entry.file_name());
        match names.filter(|name| name.as_encoded_bytes().starts_with(b"rx-")).count() {
            0 => Ok(()),
            found if found == self.options.queues => Ok(()),
            found => Err(InterfaceFault::Queues(found)),
        }
    }

    /// Opens a queue. Attaches the program if the interface does not have it yet.
    fn open(&self, queue: u32) -> Result<XdpPort, InterfaceFault> {
        let interface =
            self.number().ok_or_else(|| InterfaceFault::Missing(socket::interfaces()))?;
        let control = Socket::new().map_err(privilege)?;
        control.bind(interface, 0)?;
        if !control.is_up(interface) {
            return Err(InterfaceFault::Down);
        }
        self.check_queues(interface)?;
        let (_, hardware) = control.bound()?;
        let link = link(hardware).ok_or(InterfaceFault::Hardware(hardware))?;
        if self.options.promiscuous {
            control.ask_for_all(interface)?;
        }
        let mut hook = self.hook.lock().unwrap_or_else(PoisonError::into_inner);
        let known = hook.take().filter(|(number, _)| *number == interface);
        let (_, attached) = hook.insert(if let Some(known) = known {
            known
        } else {
            let queues = self.options.queues as u32;
            (interface, Hook::attach(interface, queues).map_err(refused)?)
        });
        let rings = Rings::open(interface, queue, &self.options, attached.is_native)?;
        attached.redirect(queue, rings.socket()).map_err(refused)?;
        let mode = match (attached.is_native, rings.is_zero_copy) {
            (true, true) => "in the driver, without a copy",
            (true, false) => "in the driver, with a copy",
            (false, _) => "after the driver, with a copy",
        };
        Ok(XdpPort { rings, link, interface, mode, control })
    }

    /// Gives the packets of all queues back to the host.
    fn release(&self) {
        *self.hook.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

/// Names the privilege that AF_XDP needs.
fn privilege(error: io::Error) -> InterfaceFault {
    match InterfaceFault::from(error) {
        InterfaceFault::Privilege(_) => {
            InterfaceFault::Privilege("cap_net_raw,cap_net_admin,cap_bpf,cap_ipc_lock+ep")
        }
        fault => fault,
    }
}

/// The reason why the interface accepts no program.
fn refused(error: io::Error) -> InterfaceFault {
    match privilege(error) {
        InterfaceFault::System(error) => InterfaceFault::Hook(error),
        fault => fault,
    }
}
