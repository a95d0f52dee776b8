//! DPDK ports, if the agent was built with DPDK.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use flowgauge_engine::source::Source;

use crate::config::InterfaceOptions;
use crate::failure::Failure;

/// Opens ports. DPDK is initialized with the first port, once per process.
pub(crate) struct Ports<'a> {
    /// Arguments for DPDK.
    #[cfg_attr(not(feature = "dpdk"), expect(dead_code, reason = "there is no DPDK"))]
    arguments: &'a str,
    #[cfg(feature = "dpdk")]
    dpdk: Option<Arc<flowgauge_dpdk::Dpdk>>,
}

impl<'a> Ports<'a> {
    pub(crate) fn new(arguments: &'a str) -> Self {
        Self {
            arguments,
            #[cfg(feature = "dpdk")]
            dpdk: None,
        }
    }

    /// Opens the queues of a port.
    #[cfg(feature = "dpdk")]
    pub(crate) fn open(
        &mut self,
        interface: &InterfaceOptions,
        stop: &Arc<AtomicBool>,
    ) -> Result<Vec<Box<dyn Source + Send>>, Failure> {
        use flowgauge_dpdk::{Dpdk, DpdkError, PortOptions, open};

        let InterfaceOptions { interface, queues, ring, promiscuous, .. } = interface;
        let ring_bytes = usize::try_from(ring.0).unwrap_or(usize::MAX);
        let options =
            PortOptions { queues: queues.number(), ring_bytes, promiscuous: *promiscuous };
        let failed = |error: DpdkError| Failure::Source(error.to_string());
        let dpdk = match self.dpdk.take() {
            Some(dpdk) => dpdk,
            None => {
                let arguments = self.arguments.split_whitespace().map(str::to_owned);
                Dpdk::start(&arguments.collect::<Vec<_>>()).map_err(failed)?
            }
        };
        let ports = [(interface.clone(), None)];
        let opened = open(self.dpdk.insert(dpdk), &ports, &options, stop).map_err(failed)?;
        Ok(opened.into_iter().map(|queue| Box::new(queue) as _).collect())
    }

    /// Opens nothing: without DPDK, the configuration was already rejected.
    #[cfg(not(feature = "dpdk"))]
    #[expect(clippy::unused_self, reason = "it is called as that of a build with DPDK")]
    pub(crate) fn open(
        &mut self,
        interface: &InterfaceOptions,
        _: &Arc<AtomicBool>,
    ) -> Result<Vec<Box<dyn Source + Send>>, Failure> {
        let name = &interface.interface;
        Err(Failure::Source(format!("{name}: this flowgauge was built without DPDK")))
    }
}
