//! What the queues of an interface have in common.

use std::ffi::CString;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use flowgauge_core::packet::LinkType;
use libc::c_int;

use super::hook::Hook;
use super::rings::Rings;
use crate::fault::InterfaceFault;
use crate::link::link;
use crate::socket::{self, Socket};

/// How the packets of an interface are taken.
#[derive(Clone, Debug)]
pub struct XdpOptions {
    /// Queues that it has: all of them are opened.
    pub queues: usize,
    /// Bytes of the memory that packets lie in, of each queue: frames of 4 KiB, their number rounded to
    /// a power of two.
    pub ring_bytes: usize,
    /// Whether to ask for packets to other hosts, too.
    pub promiscuous: bool,
    /// Whether to run the driver instead of waiting for packets. The thread is then always busy.
    pub busy_poll: bool,
}

/// An interface by name, and the program at it.
#[derive(Debug)]
pub(super) struct XdpInterface {
    pub(super) name: String,
    pub(super) options: XdpOptions,
    /// The number of the interface that has it: one that is created again has another.
    hook: Mutex<Option<(c_int, Hook)>>,
}

/// A queue as the operating system has it.
pub(super) struct XdpPort {
    pub(super) rings: Rings,
    pub(super) link: LinkType,
    pub(super) interface: c_int,
    /// How packets come, for a note.
    pub(super) mode: &'static str,
    /// Asks for packets to other hosts for as long as it is there.
    pub(super) control: Socket,
}

impl XdpInterface {
    pub(super) fn new(name: &str, options: &XdpOptions) -> Arc<Self> {
        let (name, options) = (name.to_owned(), options.clone());
        Arc::new(Self { name, options, hook: Mutex::new(None) })
    }

    pub(super) fn number(&self) -> Option<c_int> {
        socket::interface(&CString::new(&*self.name).ok()?)
    }

    /// Its number after an outage: that of its name, or the one that it had, where it has another name now.
    pub(super) fn number_after(&self, outage_of: c_int) -> Option<c_int> {
        self.number().or_else(|| socket::name(outage_of).map(|_| outage_of))
    }

    /// Compares the queues of the interface with those that are asked for.
    ///
    /// # Errors
    /// When packets would come in on others.
    pub(super) fn check_queues(&self) -> Result<(), InterfaceFault> {
        let queues = Path::new("/sys/class/net").join(&self.name).join("queues");
        // A system without them has one queue, or says so when the socket is bound.
        let Ok(queues) = queues.read_dir() else { return Ok(()) };
        let names = queues.flatten().map(|entry| entry.file_name());
        match names.filter(|name| name.as_encoded_bytes().starts_with(b"rx-")).count() {
            0 => Ok(()),
            found if found == self.options.queues => Ok(()),
            found => Err(InterfaceFault::Queues(found)),
        }
    }

    /// Opens a queue, with the program at the interface if need be.
    pub(super) fn open(&self, queue: u32) -> Result<XdpPort, InterfaceFault> {
        let interface =
            self.number().ok_or_else(|| InterfaceFault::Missing(socket::interfaces()))?;
        let control = Socket::new().map_err(privilege)?;
        control.bind(interface, 0)?;
        if !control.is_up(interface) {
            return Err(InterfaceFault::Down);
        }
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
    pub(super) fn release(&self) {
        *self.hook.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

/// Names the privilege that AF_XDP needs.
fn privilege(error: io::Error) -> InterfaceFault {
    match InterfaceFault::from(error) {
        InterfaceFault::Privilege(_) => {
            InterfaceFault::Privilege("cap_net_raw,cap_net_admin,cap_bpf+ep")
        }
        fault => fault,
    }
}

/// Why the interface takes no program.
fn refused(error: io::Error) -> InterfaceFault {
    match privilege(error) {
        InterfaceFault::System(error) => InterfaceFault::Hook(error),
        fault => fault,
    }
}
