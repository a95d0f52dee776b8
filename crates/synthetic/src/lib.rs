//! Synthetic traffic with known exact counts, for captures, tests and benchmarks.
//!
//! [`Traffic`] is an iterator of [`Packet`]s. A packet has a five-tuple, a time and a length;
//! [`Packet::frame`] and [`PcapWriter`] make its bytes. [`Truth`] counts the same packets exactly.
//! Only the table of `Truth` allocates memory per packet.
//!
//! ```
//! use flowgauge_synthetic::{Config, PcapWriter, Profile, Traffic, Truth};
//!
//! let profile = Profile::Zipf { flows: 1_000, skew: 1.1 };
//! let plants = vec!["scan:destinations=200".parse()?];
//! let traffic = Traffic::new(Config { profile, packets: 10_000, plants, ..Config::default() })?;
//! let mut truth = Truth::new(&traffic);
//! let mut file = PcapWriter::new(Vec::new());
//! for packet in traffic {
//!     truth.record(&packet);
//!     file.write(&packet)?;
//! }
//! assert_eq!(file.finish()?.len(), 24 + 10_000 * (16 + 64));
//! assert_eq!(truth.planted()[0].count.packets, 200);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

mod backbone;
mod config;
mod flows;
mod packet;
mod pcap;
mod plant;
mod random;
mod schedule;
mod truth;
mod zipf;

use flowgauge_core::key::CanonicalKey;

use self::backbone::Backbone;
use self::flows::Flows;
use self::random::{Random, Stream};
use self::schedule::{Clock, Schedule};
use self::zipf::Zipf;

pub use self::config::{Config, ConfigError, Profile};
pub use self::packet::{Packet, Size, SizeError};
pub use self::pcap::{PcapWriter, to_pcap_bytes};
pub use self::plant::{Plant, PlantError, PlantKind, Volume};
pub use self::truth::{Planted, Truth};

/// The packets of a [`Config`], in order of time.
///
/// To fill a buffer repeatedly without allocating, use `buffer.extend(traffic.by_ref().take(n))`.
/// Memory: 136 KiB, and for the profile backbone 8 bytes per active flow.
///
/// ```
/// use flowgauge_synthetic::{Config, Traffic};
///
/// let traffic = Traffic::new(Config { packets: 3, rate: 1_000, ..Config::default() })?;
/// let times: Vec<i64> = traffic.map(|packet| packet.time_ns - Config::START_NS).collect();
/// assert_eq!(times, [0, 1_000_000, 2_000_000]);
/// # Ok::<(), flowgauge_synthetic::ConfigError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Traffic {
    config: Config,
    /// Packets returned so far.
    sent: u64,
    clock: Clock,
    order: Order,
    order_random: Random,
    size_random: Random,
    flows: Flows,
    schedule: Schedule,
}

#[derive(Clone, Debug)]
enum Order {
    Zipf(Zipf),
    Backbone(Backbone),
}

impl Traffic {
    /// Prepares traffic.
    ///
    /// # Errors
    /// When a value is out of range, or the planted events do not fit in the run.
    pub fn new(config: Config) -> Result<Self, ConfigError> {
        let plan = config.plan()?;
        let (order, flows) = match config.profile {
            Profile::Zipf { flows, skew } => (Order::Zipf(Zipf::new(flows, skew)), flows),
            Profile::Backbone { flows } => {
                let (active, births) = plan.backbone;
                // A fixed number of hosts, so that a short run equals the start of a longer one.
                (Order::Backbone(Backbone::new(active, births)), flows.unwrap_or(1 << 20))
            }
        };
        Ok(Self {
            sent: 0,
            clock: Clock::new(config.start_ns, config.rate),
            order,
            order_random: Random::new(config.seed, Stream::Order),
            size_random: Random::new(config.seed, Stream::Sizes),
            flows: Flows::new(flows, config.ipv6, config.seed),
            schedule: plan.schedule,
            config,
        })
    }

    /// The configuration of this traffic.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The five-tuple of a background flow. For the profile zipf, `number` is the rank, from 0; for
    /// backbone, it is the order in which flows began. Every number has a different pair of
    /// addresses.
    pub fn flow(&self, number: u64) -> CanonicalKey {
        self.flows.five_tuple(number)
    }

    /// The five-tuple of flow `member` of a planted event, both counted from 0: a destination of a
    /// scan, a source of a flood.
    ///
    /// # Panics
    /// When `event` is out of range.
    pub fn planted_flow(&self, event: u16, member: u64) -> CanonicalKey {
        let plant = &self.config.plants[usize::from(event)];
        plant.kind.five_tuple(event, member, self.config.ipv6 > 0.5)
    }
}

impl Iterator for Traffic {
    type Item = Packet;

    #[inline]
    fn next(&mut self) -> Option<Packet> {
        if self.sent == self.config.packets {
            return None;
        }
        self.sent += 1;
        let time_ns = self.clock.next();
        let drawn = self.config.size.draw(&mut self.size_random);
        let planted = self.schedule.next();
        let (event, key, wire, tcp_flags) = if let Some((event, index)) = planted {
            let Plant { kind, flows, .. } = self.config.plants[usize::from(event)];
            let key = self.planted_flow(event, index % flows);
            (Some(event), key, kind.wire().unwrap_or(drawn), kind.tcp_flags())
        } else {
            let flow = match &mut self.order {
                Order::Zipf(zipf) => zipf.draw(&mut self.order_random),
                Order::Backbone(backbone) => backbone.draw(&mut self.order_random),
            };
            (None, self.flows.five_tuple(flow), drawn, packet::ACK)
        };
        let wire = wire.max(Packet::headers(&key));
        Some(Packet { time_ns, wire, event, tcp_flags, key })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = (self.config.packets - self.sent) as usize;
        (left, Some(left))
    }
}

impl ExactSizeIterator for Traffic {}
