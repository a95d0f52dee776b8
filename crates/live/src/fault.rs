//! The errors of interfaces.

use std::io;

use flowgauge_engine::source::SourceError;
use libc::{EACCES, EPERM};
use thiserror::Error;

/// The error of an interface that yields no packets, or no more packets.
#[derive(Debug, Error)]
#[error("{interface}: {fault}")]
pub struct LiveError {
    /// Its name, with control characters escaped.
    pub interface: String,
    /// The problem.
    pub fault: InterfaceFault,
}

impl From<LiveError> for SourceError {
    fn from(error: LiveError) -> Self {
        Self::Failed(error.into())
    }
}

/// The problem of an interface. The text gives the remedy.
#[derive(Debug, Error)]
pub enum InterfaceFault {
    /// No interface has this name; holds the names of all interfaces.
    #[error("no such interface; available: {}", .0.join(", "))]
    Missing(Vec<String>),
    /// A privilege is missing; holds the needed capabilities.
    #[error(
        "capturing needs privileges; run as root, or grant them to the program once with \
             'setcap {0}'"
    )]
    Privilege(&'static str),
    /// The interface is not up.
    #[error("the interface is down; bring it up with 'ip link set up'")]
    Down,
    /// The interface went down or was removed, and did not come back before the end.
    #[error(
        "the interface went down or was removed, and did not come back; earlier packets are counted"
    )]
    Gone,
    /// Unsupported link type; holds the hardware type of Linux.
    #[error(
        "frames of hardware type {0} are not supported; supported are Ethernet, loopback, IP \
         tunnels, Cisco HDLC and 802.11 monitors"
    )]
    Hardware(u16),
    /// AF_XDP needs a thread for each queue of the interface; holds the number of queues.
    #[error(
        "the interface has {0} receive queues, and AF_XDP needs a worker for each; give \
         --workers {0}, or change the queues with 'ethtool -L'"
    )]
    Queues(usize),
    /// The interface accepts no XDP program; holds the reason.
    #[error(
        "the interface accepts no XDP program ({0}); use --engine af-packet, or remove another \
         program with 'ip link set dev INTERFACE xdp off'"
    )]
    Hook(io::Error),
    /// The system does not let the program lock the packet memory of a queue; holds its bytes.
    #[error(
        "the packet memory of a queue ({} KiB) exceeds what the program may lock; grant it \
         cap_ipc_lock, raise the limit ('ulimit -l'), or give a smaller --ring", .0 >> 10
    )]
    Locked(usize),
    /// Another error of the operating system.
    #[error("capturing failed: {0}")]
    System(io::Error),
}

impl From<io::Error> for InterfaceFault {
    fn from(error: io::Error) -> Self {
        match error.raw_os_error() {
            Some(EPERM | EACCES) => Self::Privilege("cap_net_raw+ep"),
            _ => Self::System(error),
        }
    }
}
