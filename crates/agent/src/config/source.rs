//! The sources of packets.

use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::path::PathBuf;

use serde::{Deserialize, Deserializer};

use super::value::{Queues, Size};

/// Where packets come from.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "SourceFields")]
pub enum SourceOptions {
    /// A network interface.
    Interface(InterfaceOptions),
    /// A capture that is replayed as if its packets came now.
    Replay(ReplayOptions),
    /// Flow records of routers and switches.
    Records(RecordsOptions),
}

/// How an interface is read.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Engine {
    /// Through packet sockets, beside the host.
    #[default]
    AfPacket,
    /// Ahead of the kernel's stack, in place of the host.
    AfXdp,
    /// By DPDK, which drives the network card itself; the name is that of a port.
    Dpdk,
}

/// A network interface.
#[derive(Clone, Debug)]
pub struct InterfaceOptions {
    /// Name, or `any`.
    pub interface: String,
    /// How it is read.
    pub engine: Engine,
    /// Threads that read it.
    pub queues: Queues,
    /// Memory of each queue's ring.
    pub ring: Size,
    /// Whether packets for other hosts are read.
    pub promiscuous: bool,
}

/// A capture that is replayed as if its packets came now.
#[derive(Clone, Debug)]
pub struct ReplayOptions {
    /// The file, pcap or pcapng.
    pub replay: PathBuf,
    /// How often it is replayed; without end by default.
    pub times: Option<u64>,
}

/// Flow records of routers and switches: NetFlow 5 and 9, IPFIX and sFlow 5.
#[derive(Clone, Copy, Debug)]
pub struct RecordsOptions {
    /// Where they come to.
    pub records: RecordsAddress,
    /// One in how many packets is sampled; as exporters say by default.
    pub sampling: Option<NonZeroU64>,
}

/// Where flow records come to, such as `udp://127.0.0.1:2055`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RecordsAddress(#[cfg_attr(test, schemars(with = "String"))] pub SocketAddr);

impl<'de> Deserialize<'de> for RecordsAddress {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        let address = text.strip_prefix("udp://").and_then(|address| address.parse().ok());
        address.map(Self).ok_or_else(|| {
            serde::de::Error::custom(format!(
                "invalid address '{text}'; write udp://ADDRESS:PORT, such as udp://127.0.0.1:2055 or \
                 udp://[::]:2055"
            ))
        })
    }
}

/// Where packets come from: an interface, a capture that is replayed as if its packets came now, or flow
/// records.
#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct SourceFields {
    /// Name of a network interface, or `any`.
    interface: Option<String>,
    /// Threads that read the interface, 1 to 256; `auto`, the default, is one for each core.
    queues: Option<Queues>,
    /// Memory of each queue's ring, such as `64MiB`, the default.
    ring: Option<Size>,
    /// Whether packets for other hosts are read, as they are by default.
    promiscuous: Option<bool>,
    /// `af-packet`, the default; `af-xdp`, which receives packets ahead of the kernel's stack; or `dpdk`,
    /// which reads a port of DPDK.
    engine: Option<Engine>,
    /// Must be true for `af-xdp`: the host does not get the packets of the interface.
    #[serde(rename = "takes-traffic")]
    takes_traffic: Option<bool>,
    /// A capture to replay, pcap or pcapng.
    replay: Option<PathBuf>,
    /// How often the capture is replayed; without end by default.
    times: Option<u64>,
    /// Address of this host that routers send flow records to (NetFlow 5 and 9, IPFIX, sFlow 5), such as
    /// `udp://127.0.0.1:2055`.
    records: Option<RecordsAddress>,
    /// One in how many packets the records are of, whatever exporters say.
    sampling: Option<u64>,
}

impl TryFrom<SourceFields> for SourceOptions {
    type Error = String;

    fn try_from(fields: SourceFields) -> Result<Self, String> {
        let SourceFields { interface, queues, ring, promiscuous, engine, takes_traffic, .. } =
            fields;
        let SourceFields { replay, times, records, sampling, .. } = fields;
        let own = [
            ("interface", interface.is_some()),
            ("replay", replay.is_some()),
            ("records", records.is_some()),
        ];
        let mut own = own.into_iter().filter(|(_, is_there)| *is_there);
        let (Some((kind, _)), None) = (own.next(), own.next()) else {
            return Err(
                "a source has either 'interface', 'replay' or 'records'; write one of them"
                    .to_owned(),
            );
        };
        let of = [
            ("queues", "interface", queues.is_some()),
            ("ring", "interface", ring.is_some()),
            ("promiscuous", "interface", promiscuous.is_some()),
            ("engine", "interface", engine.is_some()),
            ("takes-traffic", "interface", takes_traffic.is_some()),
            ("times", "replay", times.is_some()),
            ("sampling", "records", sampling.is_some()),
        ];
        let stray = of.into_iter().find(|(_, of, is_there)| *is_there && *of != kind);
        if let Some((field, of, _)) = stray {
            return Err(format!("'{field}' is for a source with '{of}'; leave it out"));
        }
        if let Some(interface) = interface {
            if interface.is_empty() {
                return Err("interface is empty; name one, or write 'any'".to_owned());
            }
            let default = InterfaceOptions::new(&interface);
            let engine = engine.unwrap_or_default();
            match (engine, takes_traffic.unwrap_or(false)) {
                (Engine::AfXdp, false) => {
                    return Err(
                        "engine 'af-xdp' takes the packets of the interface from the host, also \
                                those of its connections; write 'takes-traffic: true' to agree"
                            .to_owned(),
                    );
                }
                (Engine::AfPacket | Engine::Dpdk, true) => {
                    return Err("'takes-traffic' is for engine 'af-xdp'; leave it out".to_owned());
                }
                (Engine::Dpdk, false) if !cfg!(feature = "dpdk") => {
                    return Err("this flowgauge was built without DPDK; build it with \
                                'make agent AGENT=\"--features agent,kafka,dpdk\"'"
                        .to_owned());
                }
                _ => {}
            }
            return Ok(Self::Interface(InterfaceOptions {
                interface,
                engine,
                queues: queues.unwrap_or_default(),
                ring: ring.unwrap_or(default.ring),
                promiscuous: promiscuous.unwrap_or(default.promiscuous),
            }));
        }
        if let Some(records) = records {
            let sampling = sampling.map(|one_in| {
                NonZeroU64::new(one_in).ok_or_else(|| {
                    "invalid sampling '0'; write N where one in N packets is sampled, or leave it out"
                        .to_owned()
                })
            });
            return Ok(Self::Records(RecordsOptions { records, sampling: sampling.transpose()? }));
        }
        if times == Some(0) {
            return Err("invalid times '0'; leave it out to replay without end".to_owned());
        }
        Ok(Self::Replay(ReplayOptions { replay: replay.unwrap_or_default(), times }))
    }
}

#[cfg(test)]
impl schemars::JsonSchema for SourceOptions {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Source".into()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        SourceFields::json_schema(generator)
    }
}

impl InterfaceOptions {
    /// An interface with one queue and the default settings.
    pub fn new(interface: &str) -> Self {
        let (interface, engine) = (interface.to_owned(), Engine::default());
        Self { interface, engine, queues: Queues(1), ring: Size(64 << 20), promiscuous: true }
    }
}

impl SourceOptions {
    /// Whether this is an interface read by the given engine.
    pub(crate) fn is_by(&self, engine: Engine) -> bool {
        matches!(self, Self::Interface(interface) if interface.engine == engine)
    }

    /// Number of queues.
    pub fn queues(&self) -> usize {
        match self {
            Self::Interface(interface) => interface.queues.number(),
            Self::Replay(_) | Self::Records(_) => 1,
        }
    }
}
