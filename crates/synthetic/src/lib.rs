//! Synthetic traffic whose exact counts are known, for captures, tests and benchmarks.
//!
//! [`Traffic`] is an iterator of [`Packet`]s. A packet knows its five-tuple, time and length;
//! its bytes are made only where they are asked for, by [`Packet::frame`] or a [`PcapWriter`].
//! [`Truth`] counts the same packets exactly. Nothing is allocated for a packet, apart from the
//! table of `Truth`.
//!
//! ```
//! use flowgauge_synthetic::{Config, PcapWriter, Profile, Traffic, Truth};
//!
//! let config = Config {
//!     profile: Profile::Zipf { flows: 1_000, skew: 1.1 },
//!     packets: 10_000,
//!     plants: vec!["scan:destinations=200".parse()?],
//!     ..Config::default()
//! };
//! let traffic = Traffic::new(config)?;
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
mod clock;
mod config;
mod flows;
mod packet;
mod pcap;
mod plant;
mod power;
mod random;
mod schedule;
mod size;
mod truth;
mod zipf;

use flowgauge_core::key::CanonicalKey;

use self::backbone::Backbone;
use self::clock::Clock;
use self::flows::Flows;
use self::random::{Random, Stream};
use self::schedule::Schedule;
use self::zipf::Zipf;

pub use self::config::{Config, ConfigError, Profile};
pub use self::packet::Packet;
pub use self::pcap::{PcapWriter, to_pcap_bytes};
pub use self::plant::{Plant, PlantError, PlantKind, Volume};
pub use self::size::{Size, SizeError};
pub use self::truth::{Planted, Truth};

/// The packets of a [`Config`], in order of time.
///
/// To fill a buffer again and again without allocating, `buffer.extend(traffic.by_ref().take(n))`.
/// Memory: nothing for each flow of the profile zipf, 8 bytes for each active flow of backbone, and
/// 136 KiB.
#[derive(Clone, Debug)]
pub struct Traffic {
    config: Config,
    /// Packets given out so far.
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
    /// Prepares traffic; the first packet costs nothing more.
    ///
    /// # Errors
    /// When a value is out of range, or the planted events do not fit in the run.
    pub fn new(config: Config) -> Result<Self, ConfigError> {
        let plan = config.plan()?;
        let (order, flows) = match config.profile {
            Profile::Zipf { flows, skew } => (Order::Zipf(Zipf::new(flows, skew)), flows),
            Profile::Backbone { flows } => {
                let (active, births) = plan.backbone;
                // The hosts of a long run, so that a shorter one is the beginning of it.
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

    /// What the traffic was made from.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The five-tuple of a background flow: for the profile zipf, of the flow of rank `number` + 1;
    /// for backbone, of flow `number` in the order in which flows began. Every number has its own
    /// five-tuple, and its own pair of addresses.
    pub fn flow(&self, number: u64) -> CanonicalKey {
        self.flows.five_tuple(number)
    }

    /// The five-tuple of a flow of a planted event, both counted from 0: destination `member` of
    /// a scan, source `member` of a flood.
    ///
    /// # Panics
    /// When there is no such event.
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
