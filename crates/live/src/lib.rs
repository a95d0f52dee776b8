//! Packets of Linux network interfaces as they come, through packet sockets (AF_PACKET) or ahead of the
//! kernel's stack (AF_XDP).
//!
//! [`open`] gives one [`Queue`] for each thread that measures. Each is a source of its own with a ring
//! of its own, between which the kernel divides the packets. [`open_xdp`] gives one [`XdpQueue`] for each
//! queue of the interface, and takes the packets from the host. `unsafe` code is in `ring`, `socket`,
//! `xdp/hook` and `xdp/rings` only.

#![deny(unsafe_code)]

mod block;
mod fault;
mod group;
mod link;
mod outage;
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
pub use group::Fanout;
use port::Interface;
pub use port::{Options, Sockets};
pub use queue::Queue;
pub use socket::interfaces;
pub use xdp::{XdpOptions, XdpQueue, open_xdp};

/// Opens the queues of an interface; `any` stands for all interfaces. They end when `stop` is set.
///
/// # Errors
/// No such interface, no privilege, the interface is down or of a kind that is not understood, or the
/// system refuses the memory of a ring.
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
