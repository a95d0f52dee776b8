//! What can be wrong with an interface.

use std::io;

use flowgauge_engine::source::SourceError;
use libc::{EACCES, EPERM};
use thiserror::Error;

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

/// What is wrong with an interface. The text says what to do.
#[derive(Debug, Error)]
pub enum InterfaceFault {
    /// No interface has this name; the names of all.
    #[error("no such interface; there are {}", .0.join(", "))]
    Missing(Vec<String>),
    /// The user may not see other people's packets; the capabilities that allow it.
    #[error("capturing needs privilege; run as root, or allow the program once by 'setcap {0}'")]
    Privilege(&'static str),
    /// The interface is not up.
    #[error("the interface is down; bring it up by 'ip link set up'")]
    Down,
    /// The interface went down or away, and did not come back before the end.
    #[error(
        "the interface went down or away and did not come back; packets before that are counted"
    )]
    Gone,
    /// The first bytes of its frames are of a kind that is not understood; its number in Linux.
    #[error(
        "frames of hardware type {0} are not understood; those of Ethernet, loopback, IP tunnels, \
         Cisco HDLC and 802.11 monitors are"
    )]
    Hardware(u16),
    /// AF_XDP needs a thread for each queue of the interface; their number.
    #[error(
        "the interface receives on {0} queues, and AF_XDP reads each on a thread; give --workers {0}, \
         or change the queues by 'ethtool -L'"
    )]
    Queues(usize),
    /// The interface takes no program; the reason.
    #[error(
        "the interface takes no XDP program ({0}); use --engine af-packet, or remove another program by \
         'ip link set dev INTERFACE xdp off'"
    )]
    Hook(io::Error),
    /// Whatever else the operating system says.
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
