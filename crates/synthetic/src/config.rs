//! The configuration of traffic.

use super::backbone::{ACTIVE, BIRTHS, MOST_BIRTHS};
use super::packet::Size;
use super::plant::{Plant, PlantError, Volume};
use super::schedule::Schedule;

/// The order in which flows send their packets.
///
/// ```
/// use flowgauge_synthetic::{Config, Profile, Traffic, Truth};
///
/// let profile = Profile::Zipf { flows: 10, skew: 1.0 };
/// let traffic = Traffic::new(Config { profile, packets: 1_000, ..Config::default() })?;
/// let mut truth = Truth::new(&traffic);
/// traffic.for_each(|packet| truth.record(&packet));
/// assert_eq!(truth.flows().len(), 10);
/// # Ok::<(), flowgauge_synthetic::ConfigError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Profile {
    /// Every packet belongs to the flow of rank r = 1, 2, … with probability ∝ r⁻ˢ, independently.
    Zipf {
        /// Number of flows, 1 to 2³². A short run does not contain all of them.
        flows: u64,
        /// The exponent s, 0 (equal flows) to 2.
        skew: f64,
    },
    /// The order of a backbone link: heavy tails, locality in time, flows that come and go.
    Backbone {
        /// Approximate number of flows in the run. The default is that of a link: 20,500, and one
        /// more every 32 packets. As on a link, the rarest flows come and go without a packet: up
        /// to a seventh of the first 20,500.
        flows: Option<u64>,
    },
}

/// The configuration of [`Traffic`](crate::Traffic). Equal values give equal packets on every
/// machine.
///
/// ```
/// use flowgauge_synthetic::{Config, ConfigError, Profile, Traffic};
///
/// let profile = Profile::Backbone { flows: None };
/// let config = Config { profile, packets: 5_000, ipv6: 0.2, ..Config::default() };
/// let packets: Vec<_> = Traffic::new(config.clone())?.collect();
/// assert!(packets.iter().eq(&Traffic::new(config)?.collect::<Vec<_>>()));
///
/// let wrong = Config { rate: 0, ..Config::default() };
/// assert_eq!(Traffic::new(wrong).err(), Some(ConfigError::Rate));
/// # Ok::<(), ConfigError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The order of flows in the background.
    pub profile: Profile,
    /// Number of packets, including planted ones.
    pub packets: u64,
    /// Lengths of frames.
    pub size: Size,
    /// The share of IPv6 among background flows, 0 to 1. Planted events use IPv6 if it exceeds one
    /// half.
    pub ipv6: f64,
    /// Packets per second, evenly spaced: packet i has the time `start_ns` + ⌊i × 10⁹ ÷ `rate`⌋, so
    /// the packets of a time epoch are known.
    pub rate: u64,
    /// Time of the first packet, in nanoseconds since the UNIX epoch.
    pub start_ns: i64,
    /// The seed of all random choices.
    pub seed: u64,
    /// Planted events. Their packets replace packets of the background.
    pub plants: Vec<Plant>,
}

impl Config {
    /// Maximum number of flows.
    pub const MOST_FLOWS: u64 = 1 << 32;
    /// The default start: 2026-01-01 00:00:00 UTC.
    pub const START_NS: i64 = 1_767_225_600_000_000_000;
}

impl Default for Config {
    /// A million IPv4 packets of 64 bytes at a million per second, of 100,000 flows with skew 1.
    fn default() -> Self {
        Self {
            profile: Profile::Zipf { flows: 100_000, skew: 1.0 },
            packets: 1_000_000,
            size: Size::Fixed(64),
            ipv6: 0.0,
            rate: 1_000_000,
            start_ns: Self::START_NS,
            seed: 1,
            plants: Vec::new(),
        }
    }
}

/// The error of a configuration that cannot be generated.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ConfigError {
    /// No flows, or too many.
    #[error("cannot generate {0} flows; choose 1 to 4294967296")]
    Flows(u64),
    /// More flows than the backbone profile can begin in this number of packets.
    #[error(
        "{packets} packets of the backbone profile have at most {most} flows (got {flows}); \
         choose fewer flows, more packets or --profile zipf"
    )]
    BackboneFlows {
        /// Number of flows requested.
        flows: u64,
        /// Packets of the background.
        packets: u64,
        /// Maximum number of flows in these packets.
        most: u64,
    },
    /// The skew is not from 0 to 2.
    #[error("skew {0} is out of range; choose 0 to 2")]
    Skew(f64),
    /// The frame size is out of range.
    #[error("cannot generate frames of {0} bytes; choose 42 to 65535")]
    Size(u32),
    /// The share of IPv6 is not from 0 to 1.
    #[error("IPv6 share {0} is out of range; choose 0 to 1")]
    Ipv6(f64),
    /// A rate of 0 packets per second.
    #[error("the rate must be at least 1 packet per second (got 0)")]
    Rate,
    /// A capture cannot hold the time of the first or the last packet.
    #[error(
        "{packets} packets at {rate} per second exceed the years 1970 to 2106, which a capture \
         can hold; raise the rate"
    )]
    Time {
        /// Number of packets.
        packets: u64,
        /// Packets per second.
        rate: u64,
    },
    /// Too many events.
    #[error("too many events ({0}); plant at most 65536")]
    Plants(usize),
    /// An event contradicts itself.
    #[error("event {number} ({kind}): {error}")]
    Plant {
        /// Its number, from 1.
        number: usize,
        /// Its kind.
        kind: &'static str,
        /// The problem.
        error: PlantError,
    },
    /// An event has more packets than its window has left.
    #[error(
        "event {number} ({kind}) has {packets} packets, but its window has room for only {room}; \
         plant fewer, widen the window or raise --packets"
    )]
    Room {
        /// Its number, from 1.
        number: usize,
        /// Its kind.
        kind: &'static str,
        /// Its packets.
        packets: u64,
        /// Free places in its window.
        room: u64,
    },
}

/// The plan that follows from a valid configuration.
pub(super) struct Plan {
    /// The places of planted packets.
    pub(super) schedule: Schedule,
    /// Active flows and births per packet of the backbone profile.
    pub(super) backbone: (u64, f64),
}

impl Config {
    /// Checks the configuration.
    pub(super) fn plan(&self) -> Result<Plan, ConfigError> {
        match self.size {
            Size::Fixed(bytes) if !Size::RANGE.contains(&bytes) => {
                return Err(ConfigError::Size(bytes));
            }
            _ => {}
        }
        if !(0.0..=1.0).contains(&self.ipv6) {
            return Err(ConfigError::Ipv6(self.ipv6));
        }
        if self.rate == 0 {
            return Err(ConfigError::Rate);
        }
        let seconds = 0..=i128::from(u32::MAX);
        let last = i128::from(self.start_ns)
            + i128::from(self.packets) * 1_000_000_000 / i128::from(self.rate);
        if !seconds.contains(&i128::from(self.start_ns).div_euclid(1_000_000_000))
            || !seconds.contains(&last.div_euclid(1_000_000_000))
        {
            return Err(ConfigError::Time { packets: self.packets, rate: self.rate });
        }
        let (schedule, planted) = self.schedule()?;
        let backbone = match self.profile {
            Profile::Zipf { flows, skew } => {
                if !(1..=Self::MOST_FLOWS).contains(&flows) {
                    return Err(ConfigError::Flows(flows));
                }
                if !(0.0..=2.0).contains(&skew) {
                    return Err(ConfigError::Skew(skew));
                }
                (1, 0.0)
            }
            Profile::Backbone { flows } => Self::births(flows, self.packets - planted)?,
        };
        Ok(Plan { schedule, backbone })
    }

    /// Initial flows and births per packet, so that `packets` contain about `flows` flows.
    fn births(flows: Option<u64>, packets: u64) -> Result<(u64, f64), ConfigError> {
        let Some(flows) = flows else {
            let expected = ACTIVE + (BIRTHS * packets as f64) as u64;
            if expected > Self::MOST_FLOWS {
                return Err(ConfigError::Flows(expected));
            }
            return Ok((ACTIVE, BIRTHS));
        };
        if !(1..=Self::MOST_FLOWS).contains(&flows) {
            return Err(ConfigError::Flows(flows));
        }
        let active = flows.min(ACTIVE);
        let most = active + (MOST_BIRTHS * packets as f64) as u64;
        if flows > most {
            return Err(ConfigError::BackboneFlows { flows, packets, most });
        }
        Ok((active, (flows - active) as f64 / packets.max(1) as f64))
    }

    /// Places the events. Returns the schedule and the number of planted packets.
    fn schedule(&self) -> Result<(Schedule, u64), ConfigError> {
        if self.plants.len() > 1 << 16 {
            return Err(ConfigError::Plants(self.plants.len()));
        }
        let mut schedule = Schedule::default();
        let mut planted = 0;
        for (index, plant) in self.plants.iter().enumerate() {
            let (number, kind) = (index + 1, plant.kind.name());
            let wrong = |error| ConfigError::Plant { number, kind, error };
            plant.check().map_err(wrong)?;
            let place = |fraction: f64| (fraction * self.packets as f64).round() as u64;
            let (start, end) = (place(plant.start), place(plant.end));
            let packets = match plant.volume {
                Volume::Packets(packets) => packets,
                Volume::Share(share) => (share * (end - start) as f64).round() as u64,
            };
            if packets < plant.flows {
                return Err(wrong(PlantError::Packets { packets, flows: plant.flows }));
            }
            schedule.plant(packets, start, end, self.seed).map_err(|room| ConfigError::Room {
                number,
                kind,
                packets,
                room,
            })?;
            planted += packets;
        }
        Ok((schedule, planted))
    }
}
