//! The ground truth of a stream.

use flowgauge_core::key::{CanonicalKey, FlowKey};
use flowgauge_core::packet::Ports;

use crate::exact::{Exact, number};
use crate::traffic::{Keyed, Packet, Scene};

/// Number of flows below the threshold queried with `flow-size`, to test their bounds.
const SMALL_FLOWS: usize = 1000;

/// Number of absent flows queried.
const ABSENT_FLOWS: u8 = 100;

/// The ground truth of a stream, for one kind of key.
pub(crate) struct Truth<'a> {
    /// Flows of the last epoch.
    pub(super) flows: Exact,
    /// Flows of the previous epoch, in a scene of two.
    pub(super) before: Exact,
    /// Peers of each source, in the scene with superspreaders.
    pub(super) of_sources: Exact,
    /// Peers of each destination, likewise.
    pub(super) of_destinations: Exact,
    /// The packets of the last epoch.
    pub(super) packets: &'a [Packet],
    /// A heavy flow exceeds this.
    pub(super) threshold: f64,
    key_bytes: usize,
}

impl<'a> Truth<'a> {
    /// Counts the flows of these epochs; `threshold` is a share of the last epoch.
    pub(crate) fn count<K: FlowKey>(
        scene: Scene,
        epochs: &'a [Vec<Packet>],
        keyed: &[Vec<Keyed<K>>],
        threshold: f64,
    ) -> Self {
        let packets = epochs.last().map_or(&[][..], Vec::as_slice);
        let flows = |back: usize| {
            let epoch = keyed.len().checked_sub(back).map_or(&[][..], |at| &keyed[at]);
            Exact::count(
                epoch.iter().map(|packet| number(packet.key.canonical(K::SHORTEST))).collect(),
            )
        };
        let peers = |source| match scene {
            Scene::Spread => peers(packets, source),
            Scene::Plain | Scene::Changes => Exact::default(),
        };
        Self {
            flows: flows(1),
            before: flows(2),
            of_sources: peers(true),
            of_destinations: peers(false),
            packets,
            threshold: threshold * packets.len() as f64,
            key_bytes: K::SHORTEST,
        }
    }

    /// Number of flows.
    pub(crate) fn flows(&self) -> u64 {
        self.flows.len() as u64
    }

    /// Whether a flow of this weight is heavy.
    pub(super) fn is_heavy(&self, weight: u64) -> bool {
        weight as f64 > self.threshold
    }

    /// The flows to query: all heavy ones, some others from the whole key space, and some absent
    /// ones.
    pub(crate) fn asked(&self) -> Vec<CanonicalKey> {
        let canonical = |key: &[u8]| CanonicalKey::new(&key[..self.key_bytes]);
        let step = self.flows.len().div_ceil(SMALL_FLOWS).max(1);
        let asked = self.flows.iter().enumerate();
        let asked = asked.filter(|(i, (_, weight))| self.is_heavy(*weight) || i % step == 0);
        let asked = asked.map(|(_, (key, _))| canonical(&key.to_be_bytes()));
        // Addresses that begin with 240 are never generated.
        let absent = (0..ABSENT_FLOWS).map(|i| canonical(&[240, 0, i, i].repeat(4)));
        asked.chain(absent).collect()
    }
}

/// The number of distinct endpoints each source sends to, or each destination receives from.
fn peers(packets: &[Packet], source: bool) -> Exact {
    let peer = |packet: &Packet| {
        let (from, to) = packet.ip.addresses.split_at(4);
        let Ports::Found(ports) = packet.ip.ports else { return 0 };
        let [high, low, next_high, next_low] = ports.to_be_bytes();
        let (address, peer, port) =
            if source { (from, to, [next_high, next_low]) } else { (to, from, [high, low]) };
        number(&[address, peer, &port].concat())
    };
    let mut pairs: Vec<u128> = packets.iter().map(peer).collect();
    pairs.sort_unstable();
    pairs.dedup();
    // Keep only the address.
    Exact::count(pairs.into_iter().map(|pair| pair >> 96 << 96).collect())
}
