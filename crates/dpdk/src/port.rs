//! Opens the ports that receive packets, and those to which packets are forwarded.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use flowgauge_engine::sink::visible;

use crate::fault::DpdkError;
use crate::queue::{DpdkQueue, Forward};
use crate::shim::{Dpdk, Port, buffer_bytes};

/// The options of [`open`].
#[derive(Clone, Debug)]
pub struct PortOptions {
    /// Number of queues per port. The port divides packets among them by the hash of the flow.
    pub queues: usize,
    /// Bytes of the buffers of each queue, at least 3 MiB. Each buffer holds a packet of up to 2 KiB.
    pub ring_bytes: usize,
    /// Whether to receive packets for other hosts, too.
    pub promiscuous: bool,
}

/// The numbers of queues used at a port.
#[derive(Default)]
struct Use {
    receiving: usize,
    sending: usize,
}

/// Opens ports by name, such as `0000:03:00.0` or `net_pcap0`, each with the port to which its
/// packets are forwarded, if any. Returns the queues of the first port, then those of the next.
/// They end when `stop` is set.
///
/// # Errors
/// When there is no such port, it has too few queues, memory is missing, or the port refuses.
pub fn open(
    dpdk: &Arc<Dpdk>,
    ports: &[(String, Option<String>)],
    options: &PortOptions,
    stop: &Arc<AtomicBool>,
) -> Result<Vec<DpdkQueue>, DpdkError> {
    let named = |name: &str, fault| {
        let port = visible(name).into_owned();
        DpdkError::Port { port, fault }
    };
    let find = |name: &String| {
        let number = dpdk.find(name).map_err(|fault| named(name, fault));
        number.map(|number| (number, name.clone()))
    };
    let mut uses: BTreeMap<(u16, String), Use> = BTreeMap::new();
    // The first send queue for the packets of each port.
    let mut first = Vec::new();
    for (name, forward) in ports {
        uses.entry(find(name)?).or_default().receiving = options.queues;
        if let Some(forward) = forward {
            let target = uses.entry(find(forward)?).or_default();
            first.push(target.sending);
            target.sending += options.queues;
        } else {
            first.push(0);
        }
    }
    let buffers = options.ring_bytes / buffer_bytes();
    let mut opened: BTreeMap<String, Arc<Port>> = BTreeMap::new();
    for ((number, name), Use { receiving, sending }) in uses {
        let promiscuous = options.promiscuous && receiving > 0;
        let port = Port::open(dpdk, number, receiving, sending, buffers, promiscuous);
        let port = port.map_err(|fault| named(&name, fault))?;
        opened.insert(name, Arc::new(port));
    }
    let mut queues = Vec::new();
    for ((name, forward), first) in ports.iter().zip(first) {
        for queue in 0..options.queues {
            let forward = forward.as_ref().map(|forward| Forward {
                port: Arc::clone(&opened[forward]),
                queue: (first + queue) as u16,
            });
            let port = Arc::clone(&opened[name]);
            queues.push(DpdkQueue::new(name, port, queue as u16, forward, Arc::clone(stop)));
        }
    }
    Ok(queues)
}
