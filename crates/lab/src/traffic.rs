//! Packets in memory, with planted flows.

use flowgauge_core::key::{Element, Extract};
use flowgauge_core::packet::{Ip, Ports};
use flowgauge_core::terms::SpreadOf;
use flowgauge_kernel::Digester;
use flowgauge_synthetic::{
    self as synthetic, Config, ConfigError, Plant, PlantKind, Profile, Size, Traffic, Volume,
};

use crate::keys::Keys;

/// What is planted in the traffic, for tasks that would find little otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scene {
    /// Nothing.
    Plain,
    /// Sources and destinations with 64 to about 940 peers.
    Spread,
    /// Two epochs, with flows that appear or vanish with half to eight times the threshold.
    Changes,
}

/// Number of planted flows of each kind: every volume is 2^¼ or 2^⅛ times the one before.
const CHANGES: u32 = 16;
const SPREADERS: u32 = 32;

/// An IPv4 packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packet {
    pub(crate) ip: Ip<8>,
    pub(crate) wire: u32,
    pub(crate) time_ns: i64,
}

impl From<synthetic::Packet> for Packet {
    /// Converts an IPv4 packet.
    fn from(packet: synthetic::Packet) -> Self {
        let key = packet.key.as_bytes();
        let mut addresses = [0; 8];
        addresses.copy_from_slice(&key[..8]);
        let ports = u32::from_be_bytes([key[8], key[9], key[10], key[11]]);
        let ip = Ip { addresses, protocol: key[12], ports: Ports::Found(ports) };
        Self { ip, wire: packet.wire, time_ns: packet.time_ns }
    }
}

/// A packet in the form that a summary receives.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Keyed<K> {
    pub(crate) key: K,
    pub(crate) element: u64,
    pub(crate) wire: u32,
    pub(crate) time_ns: i64,
}

impl Scene {
    /// All scenes.
    pub(crate) const ALL: [Self; 3] = [Self::Plain, Self::Spread, Self::Changes];

    /// Number of epochs; the last one is judged.
    fn epochs(self) -> u64 {
        match self {
            Self::Plain | Self::Spread => 1,
            Self::Changes => 2,
        }
    }

    fn plants(self, packets: u64, threshold: f64) -> Vec<Plant> {
        let plant = |kind, flows: f64, packets: f64, start, end| Plant {
            flows: flows as u64,
            volume: Volume::Packets(packets as u64),
            start,
            end,
            ..Plant::new(kind)
        };
        match self {
            Self::Plain => Vec::new(),
            Self::Spread => (0..SPREADERS)
                .map(|i| 64.0 * (f64::from(i) / 8.0).exp2())
                .flat_map(|peers| {
                    [PlantKind::Scan, PlantKind::Flood]
                        .map(|kind| plant(kind, peers, peers, 0.0, 1.0))
                })
                .collect(),
            Self::Changes => (0..CHANGES)
                .map(|i| 0.5 * threshold * packets as f64 * (f64::from(i) / 4.0).exp2())
                .flat_map(|size| {
                    [
                        plant(PlantKind::Burst, 1.0, size, 0.5, 1.0),
                        plant(PlantKind::Vanish, 1.0, size, 0.0, 0.5),
                    ]
                })
                .collect(),
        }
    }

    /// Draws the epochs, each of `packets` packets.
    ///
    /// # Errors
    /// When the planted flows do not fit into so few packets.
    pub(crate) fn draw(
        self,
        profile: Profile,
        packets: u64,
        threshold: f64,
        seed: u64,
    ) -> Result<Vec<Vec<Packet>>, ConfigError> {
        let mut traffic = Traffic::new(Config {
            profile,
            packets: self.epochs() * packets,
            size: Size::Imix,
            rate: 547_000,
            seed,
            plants: self.plants(packets, threshold),
            ..Config::default()
        })?;
        let mut epoch = || traffic.by_ref().take(packets as usize).map(Packet::from).collect();
        Ok((0..self.epochs()).map(|_| epoch()).collect())
    }
}

/// The packets with keys of this kind, and endpoints as elements.
pub(crate) fn keyed<K: Keys>(packets: &[Packet], digester: &Digester) -> Vec<Keyed<K::Key>> {
    let keyed = |packet: &Packet| {
        let element = packet.ip.element(K::KIND, SpreadOf::Endpoint, digester).ok()?;
        let key = K::Key::extract(K::KIND, &packet.ip).ok()?;
        Some(Keyed { key, element, wire: packet.wire, time_ns: packet.time_ns })
    };
    packets.iter().filter_map(keyed).collect()
}
