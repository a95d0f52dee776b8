//! Live packets of Linux network interfaces, through packet sockets (AF_PACKET) or ahead of the
//! kernel's stack (AF_XDP).
//!
//! [`open`] returns one [`Queue`] for each measuring thread. Each queue is a separate source with
//! its own ring; the kernel divides the packets among them. [`open_xdp`] returns one [`XdpQueue`]
//! for each queue of the interface, and takes the packets from the host. Only `ring`, `socket`,
//! `xdp/hook` and `xdp/rings` have `unsafe` code.

#![deny(unsafe_code)]

mod block;
mod fault;
mod port;
mod program;
mod queue;
#[expect(unsafe_code, reason = "memory that the kernel shares")]
mod ring;
#[expect(unsafe_code, reason = "calls of the operating system")]
mod socket;
mod xdp;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use flowgauge_engine::sink::visible;

pub use fault::{InterfaceFault, LiveError};
use port::Interface;
pub use port::{Fanout, Options, Sockets};
pub use queue::Queue;
pub use socket::interfaces;
pub use xdp::{XdpOptions, XdpQueue, open_xdp};

/// Opens the queues of an interface; `any` means all interfaces. They end when `stop` is set.
///
/// ```
/// use flowgauge_live::{InterfaceFault, Options, open};
///
/// // A missing interface is an error that names those available, or the missing privilege.
/// let error = open("no-such-if0", &Options::default(), &Default::default()).err();
/// let fault = error.map(|error| error.fault);
/// assert!(matches!(fault, Some(InterfaceFault::Missing(_) | InterfaceFault::Privilege(_))));
/// ```
///
/// # Errors
/// When there is no such interface, a privilege is missing, the interface is down or of an
/// unsupported type, or the system refuses the memory of a ring.
pub fn open(
    interface: &str,
    options: &Options,
    stop: &Arc<AtomicBool>,
) -> Result<Vec<Queue>, LiveError> {
    let shared = Interface::new(interface, options);
    let queues = (0..options.queues).map(|_| Queue::open(Arc::clone(&shared), Arc::clone(stop)));
    let queues: Result<Vec<_>, _> = queues.collect();
    let mut queues =
        queues.map_err(|fault| LiveError { interface: visible(interface).into_owned(), fault })?;
    if let Some(queue) = queues.first_mut() {
        queue.note_joining();
    }
    Ok(queues)
}
