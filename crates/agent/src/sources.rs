//! Opens the sources of a configuration.

use std::fs::File;
use std::num::NonZeroU64;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use flowgauge_engine::source::Source;
use flowgauge_live::{Fanout, LiveError, Options, Sockets, XdpOptions};
use flowgauge_records::{Accounts, KeptPorts, Records};

use crate::Failure;
use crate::config::{Engine, InterfaceOptions, RecordsOptions, SourceOptions};
use crate::log::say;
use crate::replay::Replay;
use crate::sandbox::Helper;

/// The queues of all sources, and the accounts of flow-record exporters.
#[derive(Default)]
pub(crate) struct Opened {
    pub(crate) queues: Vec<Box<dyn Source + Send>>,
    pub(crate) exporters: Vec<Accounts>,
}

/// Opens the queues of all sources. In a sandbox, the helper opens their packet sockets. Those of flow
/// records take their ports from `kept`, where the run before left them.
pub(crate) fn open(
    sources: &[SourceOptions],
    dpdk_args: &str,
    stop: &Arc<AtomicBool>,
    helper: Option<&Helper>,
    kept: &KeptPorts,
) -> Result<Opened, Failure> {
    let sockets = helper.cloned().map_or_else(Sockets::default, |helper| {
        Sockets::from_other(move || helper.packet_socket())
    });
    let records = |source: &SourceOptions| match source {
        SourceOptions::Records(RecordsOptions { records, .. }) => Some(records.0),
        SourceOptions::Interface(_) | SourceOptions::Replay(_) => None,
    };
    kept.keep(&sources.iter().filter_map(records).collect::<Vec<_>>());
    let Opened { mut queues, mut exporters } = Opened::default();
    let mut ports = Ports::new(dpdk_args);
    for source in sources {
        match source {
            SourceOptions::Interface(interface) => {
                queues.extend(open_interface(interface, &sockets, &mut ports, stop)?);
            }
            SourceOptions::Replay(replay) => {
                let path: &Path = &replay.replay;
                File::open(path).map_err(|error| {
                    Failure::Source(format!("cannot read {}: {error}", path.display()))
                })?;
                queues.push(Box::new(Replay::new(path, replay.times, stop)));
            }
            SourceOptions::Records(RecordsOptions { records, sampling }) => {
                let sampling = sampling.map(NonZeroU64::get);
                let records = Records::bind(records.0, sampling, say, stop, kept);
                let records = records.map_err(|error| Failure::Source(error.to_string()))?;
                exporters.push(records.accounts());
                queues.push(Box::new(records));
            }
        }
    }
    Ok(Opened { queues, exporters })
}

/// Opens the queues of an interface.
fn open_interface(
    options: &InterfaceOptions,
    sockets: &Sockets,
    ports: &mut Ports<'_>,
    stop: &Arc<AtomicBool>,
) -> Result<Vec<Box<dyn Source + Send>>, Failure> {
    let InterfaceOptions { interface, engine, queues, ring, promiscuous } = options;
    let (queues, promiscuous) = (queues.number(), *promiscuous);
    let ring_bytes = usize::try_from(ring.0).unwrap_or(usize::MAX);
    let failed = |error: LiveError| Failure::Source(error.to_string());
    match engine {
        Engine::AfPacket => {
            let (fanout, filter, sockets) = (Fanout::Hash, None, sockets.clone());
            let options = Options { queues, fanout, ring_bytes, promiscuous, filter, sockets };
            let opened = flowgauge_live::open(interface, &options, stop).map_err(failed)?;
            Ok(opened.into_iter().map(|queue| Box::new(queue) as _).collect())
        }
        Engine::AfXdp => {
            let options = XdpOptions { queues, ring_bytes, promiscuous, busy_poll: false };
            let opened = flowgauge_live::open_xdp(interface, &options, stop).map_err(failed)?;
            Ok(opened.into_iter().map(|queue| Box::new(queue) as _).collect())
        }
        Engine::Dpdk => ports.open(options, stop),
    }
}

/// Opens ports. DPDK is initialized with the first port, once per process.
struct Ports<'a> {
    /// Arguments for DPDK.
    #[cfg_attr(not(feature = "dpdk"), expect(dead_code, reason = "there is no DPDK"))]
    arguments: &'a str,
    #[cfg(feature = "dpdk")]
    dpdk: Option<Arc<flowgauge_dpdk::Dpdk>>,
}

impl<'a> Ports<'a> {
    fn new(arguments: &'a str) -> Self {
        Self {
            arguments,
            #[cfg(feature = "dpdk")]
            dpdk: None,
        }
    }

    /// Opens the queues of a port.
    #[cfg(feature = "dpdk")]
    fn open(
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
    fn open(
        &mut self,
        interface: &InterfaceOptions,
        _: &Arc<AtomicBool>,
    ) -> Result<Vec<Box<dyn Source + Send>>, Failure> {
        let name = &interface.interface;
        Err(Failure::Source(format!("{name}: this flowgauge was built without DPDK")))
    }
}
