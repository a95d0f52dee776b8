//! Packets that the kernel hands over before its own stack sees them (AF_XDP).
//!
//! A program of six instructions in the driver redirects each packet to the socket of the queue that it
//! came in on (`hook`). The packets lie in memory that the kernel and the socket share (`rings`).

#[expect(unsafe_code, reason = "calls of the operating system")]
mod hook;
mod interface;
mod queue;
#[expect(unsafe_code, reason = "memory that the kernel shares")]
mod rings;

pub use interface::XdpOptions;
pub use queue::XdpQueue;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use flowgauge_engine::sink::visible;

use crate::fault::LiveError;
use interface::XdpInterface;

/// Opens all queues of an interface, which takes the packets that come in on it from the host. They end
/// when `stop` is set; the host then has them again.
///
/// # Errors
/// No such interface, no privilege, the interface is down, has another number of queues or takes no
/// program, or the system refuses the memory.
pub fn open_xdp(
    interface: &str,
    options: &XdpOptions,
    stop: &Arc<AtomicBool>,
) -> Result<Vec<XdpQueue>, LiveError> {
    let shared = XdpInterface::new(interface, options);
    let open = |queue| XdpQueue::open(Arc::clone(&shared), queue as u32, Arc::clone(stop));
    let opened = shared.check_queues().and_then(|()| (0..options.queues).map(open).collect());
    opened.map_err(|fault| LiveError { interface: visible(interface).into_owned(), fault })
}
