//! The errors of DPDK and its ports.

use flowgauge_engine::source::SourceError;
use thiserror::Error;

/// The error of DPDK or of a port. The text gives the remedy.
#[derive(Debug, Error)]
pub enum DpdkError {
    /// DPDK did not start; holds its message.
    #[error("DPDK does not start: {0}")]
    Start(String),
    /// DPDK found no memory in huge pages; holds its message.
    #[error(
        "DPDK does not start: {0}; reserve huge pages by 'sysctl vm.nr_hugepages=1024' (each has 2 MiB), or \
         add '--no-huge -m 512' to --dpdk-args"
    )]
    HugePages(String),
    /// DPDK was started in this process before.
    #[error("DPDK was started in this process before, and starts only once")]
    Started,
    /// A port yields no packets.
    #[error("{port}: {fault}")]
    Port {
        /// Its name, with control characters escaped.
        port: String,
        /// The problem.
        fault: PortFault,
    },
}

impl From<DpdkError> for SourceError {
    fn from(error: DpdkError) -> Self {
        Self::Failed(error.into())
    }
}

/// The problem of a port.
#[derive(Debug, Error)]
pub enum PortFault {
    /// No port has this name.
    #[error("no such port; {}", known(ports, complaint.as_deref()))]
    Missing {
        /// The names of all ports.
        ports: Vec<String>,
        /// DPDK's message about a device that it could not open.
        complaint: Option<String>,
    },
    /// Too few receive queues; holds their number.
    #[error(
        "receive queues of the port: {0} at most; each worker reads one, so give --workers {0}"
    )]
    Receiving(usize),
    /// Too few send queues for forwarding; holds their number.
    #[error(
        "send queues of the port: {0} at most; each worker of each port that forwards to it needs one"
    )]
    Sending(usize),
    /// No memory for the buffers of a queue; holds their bytes.
    #[error(
        "no memory for {} MiB of buffers; give DPDK more (-m), or each queue less (--ring)", .0 >> 20
    )]
    Memory(usize),
    /// The device is gone.
    #[error("the device went away; packets before that are counted")]
    Gone,
    /// Another error of DPDK.
    #[error("the port cannot be opened: {0}")]
    Refused(String),
}

/// The names of ports, or the remedy if there are none.
fn known(ports: &[String], complaint: Option<&str>) -> String {
    match (ports, complaint) {
        (_, Some(complaint)) => format!("DPDK says: {complaint}"),
        ([], None) => {
            "DPDK knows none: bind a network card to vfio-pci (dpdk-devbind.py), or give a \
                       device by --dpdk-args '--vdev=…'"
                .to_owned()
        }
        (ports, None) => format!("DPDK knows {}", ports.join(", ")),
    }
}
