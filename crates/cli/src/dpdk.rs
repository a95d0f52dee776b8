//! Ports of DPDK, if the command was built with it.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::args::Live;
use crate::failure::Failure;
use crate::live::Sources;

/// Opens the queues of all ports.
#[cfg(feature = "dpdk")]
pub(crate) fn sources(
    live: &Live,
    queues: usize,
    stop: &Arc<AtomicBool>,
) -> Result<Sources, Failure> {
    use flowgauge_dpdk::{Dpdk, PortOptions, open};

    let ports: Vec<_> = live.interface.iter().map(|text| port(text)).collect::<Result<_, _>>()?;
    let arguments = live.dpdk_args.iter().flat_map(|text| text.split_whitespace());
    let arguments: Vec<_> = arguments.map(str::to_owned).collect();
    let (ring_bytes, promiscuous) = (live.ring, !live.no_promiscuous_mode);
    let options = PortOptions { queues, ring_bytes, promiscuous };
    let opened = Dpdk::start(&arguments).and_then(|dpdk| open(&dpdk, &ports, &options, stop));
    let queues = opened.map_err(|error| Failure::Failed(error.to_string()))?;
    Ok(queues.into_iter().map(|queue| Box::new(queue) as _).collect())
}

/// A port, and the port to which its packets are forwarded: `PORT` or `PORT,forward=PORT`.
#[cfg(feature = "dpdk")]
fn port(text: &str) -> Result<(String, Option<String>), Failure> {
    let Some((name, option)) = text.split_once(',') else { return Ok((text.to_owned(), None)) };
    match option.strip_prefix("forward=") {
        Some(forward) if !forward.is_empty() && !forward.contains(',') => {
            Ok((name.to_owned(), Some(forward.to_owned())))
        }
        _ => Err(Failure::Usage(format!(
            "invalid port '{}'; write -i PORT or -i PORT,forward=PORT",
            flowgauge_engine::sink::visible(text)
        ))),
    }
}

/// Refuses: the command was built without DPDK.
#[cfg(not(feature = "dpdk"))]
pub(crate) fn sources(_: &Live, _: usize, _: &Arc<AtomicBool>) -> Result<Sources, Failure> {
    let message = "this flowgauge was built without DPDK; build it with 'make dpdk'";
    Err(Failure::Usage(message.to_owned()))
}
