//! Planted events: their kinds, parameters and text form.

use std::str::FromStr;

use flowgauge_core::key::CanonicalKey;
use flowgauge_core::unknown::Unknown;

use super::flows::{TCP, UDP, five_tuple};
use super::packet::{ACK, SYN};

/// The kind of a planted event.
///
/// ```
/// use flowgauge_synthetic::{Plant, PlantKind, Volume};
///
/// let plant: Plant = "flood:sources=50,packets=500".parse()?;
/// assert_eq!((plant.kind, plant.flows), (PlantKind::Flood, 50));
/// assert_eq!(plant.volume, Volume::Packets(500));
/// # Ok::<(), flowgauge_synthetic::PlantError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlantKind {
    /// One source sends to many distinct destinations (address and port).
    Scan,
    /// One source tries many ports of one host.
    Ports,
    /// Many distinct sources (address and port) send to one destination.
    Flood,
    /// Many name servers send large answers that one destination did not request.
    Reflection,
    /// One flow sends many packets within a short window.
    Burst,
    /// One heavy flow sends from the first packet on and stops before the end.
    Vanish,
}

impl PlantKind {
    /// Every kind, with its name and parameters.
    pub const ALL: [(&'static str, Self, &'static [&'static str]); 6] = [
        ("scan", Self::Scan, &["destinations", "packets", "start", "end"]),
        ("ports", Self::Ports, &["ports", "packets", "start", "end"]),
        ("flood", Self::Flood, &["sources", "packets", "start", "end"]),
        ("reflection", Self::Reflection, &["sources", "packets", "start", "end"]),
        ("burst", Self::Burst, &["packets", "start", "end"]),
        ("vanish", Self::Vanish, &["share", "at"]),
    ];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, kind, _)| *kind == self).map_or("", |(name, ..)| name)
    }

    /// Flags of its TCP packets: scans and floods open connections, the others acknowledge.
    pub(super) fn tcp_flags(self) -> u8 {
        match self {
            Self::Scan | Self::Ports | Self::Flood => SYN,
            Self::Reflection | Self::Burst | Self::Vanish => ACK,
        }
    }

    /// Length of its packets on the wire; `None` if the sizes of the run apply.
    pub(super) fn wire(self) -> Option<u32> {
        match self {
            Self::Scan | Self::Ports | Self::Flood => Some(64),
            Self::Reflection => Some(1_200),
            Self::Burst | Self::Vanish => None,
        }
    }

    /// The five-tuple of flow `member` of event number `event`.
    ///
    /// Planted hosts use the address blocks reserved for benchmarks, which the background does not
    /// use: 198.18.0.0/16 and `2001:2:0:18::/64` for the single host of each event, 198.19.0.0/16
    /// and `2001:2:0:19::/64` for its many peers.
    pub(super) fn five_tuple(self, event: u16, member: u64, ipv6: bool) -> CanonicalKey {
        let (one_port, first_port, protocol) = match self {
            Self::Scan => (45_678, 445, TCP),
            Self::Ports => (45_679, 1, TCP),
            Self::Flood => (80, 1_024, TCP),
            Self::Reflection => (4_444, 53, UDP),
            Self::Burst => (40_000, 5_001, UDP),
            Self::Vanish => (443, 50_000, TCP),
        };
        // All addresses occur with one port before any occurs with the next port. A single host has
        // each port once.
        let (member, turn) = match self {
            Self::Ports => (0, member),
            _ => (member, member >> 16),
        };
        let many_port = (first_port + turn) as u16;
        let outgoing = matches!(self, Self::Scan | Self::Ports | Self::Burst);
        let (ports, protocol) = if outgoing {
            ((one_port, many_port), protocol)
        } else {
            ((many_port, one_port), protocol)
        };
        let (one, many) = (event.to_be_bytes(), (member as u16).to_be_bytes());
        if ipv6 {
            let address = |side: u8, [high, low]: [u8; 2]| {
                [0x20, 0x01, 0, 2, 0, 0, 0, side, 0, 0, 0, 0, 0, 0, high, low]
            };
            let (one, many) = (address(0x18, one), address(0x19, many));
            let (from, to) = if outgoing { (one, many) } else { (many, one) };
            five_tuple(from, to, ports.0, ports.1, protocol)
        } else {
            let address = |side: u8, [high, low]: [u8; 2]| [198, side, high, low];
            let (one, many) = (address(18, one), address(19, many));
            let (from, to) = if outgoing { (one, many) } else { (many, one) };
            five_tuple(from, to, ports.0, ports.1, protocol)
        }
    }
}

/// Number of ports from 1 up to those that senders choose.
const PORTS: u64 = 32_767;

/// The number of packets of an event.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Volume {
    /// A number of packets.
    Packets(u64),
    /// A share of all packets in its window, rounded.
    Share(f64),
}

/// A planted event. Its flows take turns, so their numbers of packets differ by at most one. Its
/// packets are spread evenly over the window, each at a random place of its stretch.
///
/// As text: `scan`, `flood:sources=500,packets=2000,start=0.2,end=0.4`, `vanish:share=0.1,at=0.7`.
/// By default, a scan, flood or reflection has 1,000 destinations, ports or sources with one packet
/// each, over the whole run; a burst has a tenth of the packets from 0.5 to 0.6 of the run; a
/// vanishing flow has a share of 0.05 until 0.5 of the run.
///
/// ```
/// use flowgauge_synthetic::{Plant, PlantKind, Volume};
/// let plant: Plant = "flood:sources=500,packets=2000,end=0.4".parse().unwrap();
/// assert_eq!((plant.kind, plant.flows, plant.volume), (PlantKind::Flood, 500, Volume::Packets(2000)));
/// assert_eq!(
///     "scan:ports=3".parse::<Plant>().unwrap_err().to_string(),
///     "unknown parameter 'ports' of scan; available: destinations, packets, start, end"
/// );
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Plant {
    /// Its kind.
    pub kind: PlantKind,
    /// Number of distinct flows: destinations or ports of a scan, sources of a flood; otherwise 1.
    pub flows: u64,
    /// Its packets, at least one per flow.
    pub volume: Volume,
    /// Its start, as a fraction of the run.
    pub start: f64,
    /// Its end, as a fraction of the run.
    pub end: f64,
}

/// The error of a text that is not a [`Plant`], or of a plant that contradicts itself.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlantError {
    /// An unknown kind, or an unknown parameter of the kind.
    #[error(transparent)]
    Unknown(#[from] Unknown),
    /// A parameter without `=`.
    #[error("'{0}' is not NAME=VALUE")]
    Form(String),
    /// A parameter given twice.
    #[error("'{0}' is given twice; give it once")]
    Twice(String),
    /// Not a number, or out of range.
    #[error("'{name}={value}' is out of range; give {range}")]
    Value {
        /// The parameter.
        name: String,
        /// The given value.
        value: String,
        /// The valid values.
        range: &'static str,
    },
    /// An empty window.
    #[error("start={start} must come before end={end}; give both from 0 to 1")]
    Window {
        /// The start.
        start: String,
        /// The end.
        end: String,
    },
    /// Fewer packets than flows.
    #[error("{packets} packets cannot make {flows} flows; give each at least one packet")]
    Packets {
        /// Number of packets.
        packets: u64,
        /// Number of flows.
        flows: u64,
    },
}

const COUNT: &str = "a whole number from 1 to 4294967296";
const SHARE: &str = "a number above 0, at most 1";

impl Plant {
    /// An event of this kind with the default parameters.
    pub fn new(kind: PlantKind) -> Self {
        let (flows, volume, start, end) = match kind {
            PlantKind::Scan | PlantKind::Ports | PlantKind::Flood | PlantKind::Reflection => {
                (1_000, Volume::Packets(1_000), 0.0, 1.0)
            }
            PlantKind::Burst => (1, Volume::Share(0.1), 0.5, 0.6),
            PlantKind::Vanish => (1, Volume::Share(0.05), 0.0, 0.5),
        };
        Self { kind, flows, volume, start, end }
    }

    /// Checks that the numbers are in range and do not contradict each other.
    pub(super) fn check(&self) -> Result<(), PlantError> {
        let value = |name: &str, value: String, range| {
            Err(PlantError::Value { name: name.to_owned(), value, range })
        };
        if !(1..=1 << 32).contains(&self.flows) {
            return value("flows", self.flows.to_string(), COUNT);
        }
        if self.kind == PlantKind::Ports && self.flows > PORTS {
            return value("ports", self.flows.to_string(), "a whole number from 1 to 32767");
        }
        if !(0.0 <= self.start && self.start < self.end && self.end <= 1.0) {
            return Err(PlantError::Window {
                start: self.start.to_string(),
                end: self.end.to_string(),
            });
        }
        match self.volume {
            Volume::Packets(packets) if packets < self.flows => {
                Err(PlantError::Packets { packets, flows: self.flows })
            }
            Volume::Share(share) if !(share > 0.0 && share <= 1.0) => {
                value("share", share.to_string(), SHARE)
            }
            _ => Ok(()),
        }
    }
}

impl FromStr for Plant {
    type Err = PlantError;

    fn from_str(text: &str) -> Result<Self, PlantError> {
        let (kind, parameters) = match text.split_once(':') {
            Some((kind, parameters)) => (kind, Some(parameters)),
            None => (text, None),
        };
        let Some((kind, plant_kind, known)) =
            PlantKind::ALL.into_iter().find(|(name, ..)| *name == kind)
        else {
            let known = PlantKind::ALL.map(|(name, ..)| name);
            return Err(Unknown::new("event", kind, known).into());
        };
        let mut plant = Self::new(plant_kind);
        let mut packets = None;
        let mut given = Vec::new();
        for part in parameters.into_iter().flat_map(|parameters| parameters.split(',')) {
            let Some((name, value)) = part.split_once('=') else {
                return Err(PlantError::Form(part.to_owned()));
            };
            if !known.contains(&name) {
                let unknown = Unknown::new("parameter", name, known.iter().copied());
                return Err(Unknown { of: Some(kind), ..unknown }.into());
            }
            if given.contains(&name) {
                return Err(PlantError::Twice(name.to_owned()));
            }
            given.push(name);
            let bad =
                |range| PlantError::Value { name: name.to_owned(), value: value.to_owned(), range };
            let count = || match value.parse() {
                Ok(count) if (1..=1 << 32).contains(&count) => Ok(count),
                _ => Err(bad(COUNT)),
            };
            let fraction = |range| match value.parse() {
                Ok(fraction) if (0.0..=1.0).contains(&fraction) => Ok(fraction),
                _ => Err(bad(range)),
            };
            match name {
                "destinations" | "ports" | "sources" => plant.flows = count()?,
                "packets" => packets = Some(count()?),
                "share" => plant.volume = Volume::Share(fraction(SHARE)?),
                "start" => plant.start = fraction("a fraction of the run, 0 to 1")?,
                // 'end', or 'at' of a vanishing flow, which is its end.
                _ => plant.end = fraction("a fraction of the run, 0 to 1")?,
            }
        }
        match (packets, plant_kind) {
            (Some(packets), _) => plant.volume = Volume::Packets(packets),
            (None, PlantKind::Burst | PlantKind::Vanish) => {}
            (None, _) => plant.volume = Volume::Packets(plant.flows),
        }
        plant.check()?;
        Ok(plant)
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may fail")]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn error(text: &str) -> String {
        text.parse::<Plant>().unwrap_err().to_string()
    }

    #[test]
    fn text_sets_its_parameters() {
        let plant: Plant = "scan:destinations=70000,start=0.25,end=0.5".parse().unwrap();
        assert_eq!(plant.flows, 70_000);
        assert_eq!(plant.volume, Volume::Packets(70_000));
        assert!((plant.start - 0.25).abs() + (plant.end - 0.5).abs() < 1e-12);
        assert_eq!("burst".parse::<Plant>().unwrap(), Plant::new(PlantKind::Burst));
        let burst: Plant = "burst:packets=9".parse().unwrap();
        assert_eq!(burst.volume, Volume::Packets(9));
        let vanish: Plant = "vanish:share=0.5,at=0.75".parse().unwrap();
        assert_eq!(vanish.volume, Volume::Share(0.5));
        assert!((vanish.end - 0.75).abs() < 1e-12);
    }

    #[test]
    fn errors_list_the_choices() {
        assert_eq!(
            error("ddos"),
            "unknown event 'ddos'; available: scan, ports, flood, reflection, burst, vanish"
        );
        assert_eq!(error("floods"), "unknown event 'floods'; did you mean 'flood'?");
        assert_eq!(
            error("vanish:end=0.5"),
            "unknown parameter 'end' of vanish; available: share, at"
        );
        assert_eq!(error("scan:"), "'' is not NAME=VALUE");
        assert_eq!(error("scan:packets"), "'packets' is not NAME=VALUE");
        assert_eq!(error("burst:start=0.1,start=0.2"), "'start' is given twice; give it once");
        assert_eq!(
            error("flood:sources=0"),
            "'sources=0' is out of range; give a whole number from 1 to 4294967296"
        );
        assert_eq!(
            error("vanish:share=0"),
            "'share=0' is out of range; give a number above 0, at most 1"
        );
        assert!(error("vanish:share=NaN").contains("'share=NaN' is out of range"));
        assert!(error("burst:end=1.5").contains("a fraction of the run"));
        assert_eq!(
            error("burst:start=0.7"),
            "start=0.7 must come before end=0.6; give both from 0 to 1"
        );
        assert_eq!(
            error("ports:ports=40000"),
            "'ports=40000' is out of range; give a whole number from 1 to 32767"
        );
        assert_eq!(
            error("scan:packets=999"),
            "999 packets cannot make 1000 flows; give each at least one packet"
        );
    }

    #[test]
    fn events_have_distinct_flows() {
        for ipv6 in [false, true] {
            let mut seen = HashSet::new();
            let mut planted = 0;
            for (event, (_, kind, _)) in PlantKind::ALL.into_iter().enumerate() {
                // Each address occurs twice, with different ports.
                let members = if kind == PlantKind::Ports { PORTS } else { 131_072 };
                for member in 0..members {
                    seen.insert(kind.five_tuple(event as u16, member, ipv6));
                    planted += 1;
                }
            }
            assert_eq!(seen.len(), planted);
        }
    }
}
