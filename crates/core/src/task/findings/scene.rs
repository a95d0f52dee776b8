//! The data of the rules: the flows, the sample, and lookups of sampled packets in the flows.

use std::collections::{HashMap, HashSet};

use super::super::{EpochContext, Lane, Unsupported};
use super::super::{Side, exact};
use super::ENTRY;
use crate::summary::Flows;
use crate::terms::Size;
use crate::timeline::{Detail, SampledPacket, Timeline};

pub(super) const TCP: u8 = 6;
pub(super) const UDP: u8 = 17;
pub(super) const ACK: u8 = 0x10;

/// Maximum packets of a tiny flow, which carries hardly any data.
pub(super) const TINY: u64 = 3;
/// Maximum mean bytes of TCP packets without data.
pub(super) const EMPTY_BYTES: f64 = 100.0;
/// Minimum packets of an epoch for rules that judge packets.
pub(super) const LEAST_PACKETS: u64 = 1000;
/// Minimum share of answered flows in a capture that shows both directions.
const TWO_WAY: f64 = 0.2;
/// Maximum number of flows that are checked for an answer.
const LOOKUPS: usize = 1024;

/// The data of an epoch for the rules.
pub(super) struct Scene<'a> {
    pub(super) epoch: &'a EpochContext<'a>,
    pub(super) lanes: Vec<SceneLane<'a>>,
    pub(super) timeline: &'a Timeline,
    /// The sampled packets with a key.
    pub(super) sample: Vec<&'a SampledPacket>,
    /// Whether the capture shows both directions, so that a missing answer means something.
    pub(super) is_two_way: bool,
}

/// A lane, its flows, and the length of their addresses.
pub(super) struct SceneLane<'a> {
    lane: Lane<'a>,
    pub(super) flows: &'a dyn Flows,
    pub(super) address_bytes: usize,
}

/// The fields of a five-tuple.
#[derive(Clone, Copy)]
pub(super) struct Tuple<'a> {
    pub(super) source: &'a [u8],
    pub(super) destination: &'a [u8],
    pub(super) source_port: u16,
    pub(super) destination_port: u16,
    pub(super) protocol: u8,
}

impl<'a> Tuple<'a> {
    pub(super) fn of(key: &'a [u8]) -> Self {
        let size = (key.len() - 5) / 2;
        let port = |at: usize| u16::from_be_bytes([key[at], key[at + 1]]);
        Self {
            source: &key[..size],
            destination: &key[size..2 * size],
            source_port: port(2 * size),
            destination_port: port(2 * size + 2),
            protocol: key[2 * size + 4],
        }
    }

    pub(super) fn address(&self, side: Side) -> &'a [u8] {
        match side {
            Side::Source => self.source,
            Side::Destination => self.destination,
        }
    }
}

impl<'a> Scene<'a> {
    pub(super) fn new(
        epoch: &'a EpochContext<'a>,
        lanes: &[Lane<'a>],
        timeline: &'a Timeline,
    ) -> Result<Self, Unsupported> {
        let lanes = lanes.iter().map(|lane| {
            let flows = exact(ENTRY.name, "a table", lane)?;
            let address_bytes = lane.key.address_bytes(lane.key_bytes);
            Ok(SceneLane { lane: *lane, flows, address_bytes })
        });
        let lanes = lanes.collect::<Result<Vec<_>, Unsupported>>()?;
        let sample = timeline.sample().packets().iter();
        let sample: Vec<_> = sample.filter(|packet| packet.key().is_some()).collect();
        let mut scene = Self { epoch, lanes, timeline, sample, is_two_way: false };
        // In order of the packets, so that results are reproducible.
        let mut seen = HashSet::new();
        let keys = scene.sample.iter().filter_map(|packet| packet.key());
        scene.is_two_way = scene.answered(keys.filter(|key| seen.insert(*key))) >= TWO_WAY;
        Ok(scene)
    }

    /// The number of flows of all lanes.
    pub(super) fn flows(&self) -> u64 {
        self.lanes.iter().map(|lane| lane.flows.len() as u64).sum()
    }

    /// The size that the tables had no room for.
    pub(super) fn untracked(&self) -> Size {
        self.lanes.iter().map(|lane| lane.lane.answers.untracked()).sum()
    }

    /// The packets of a flow in its table; 0 if the table lacks it.
    pub(super) fn packets(&self, key: &[u8]) -> u64 {
        let lane = self.lanes.iter().find(|lane| lane.lane.key_bytes == key.len());
        let size = lane.and_then(|lane| Some(lane.lane.answers.size()?.estimate(key)));
        size.and_then(|size| size.packets).map_or(0, |packets| packets.low as u64)
    }

    /// The share of these flows whose reverse direction is in the table too. Checks at most
    /// [`LOOKUPS`] flows.
    pub(super) fn answered<'k>(&self, keys: impl Iterator<Item = &'k [u8]>) -> f64 {
        let (mut looked, mut answered) = (0_usize, 0_usize);
        for key in keys.take(LOOKUPS) {
            looked += 1;
            answered += usize::from(self.packets(&reverse(key)) > 0);
        }
        answered as f64 / looked.max(1) as f64
    }

    /// A number of sampled packets as a share of the sample.
    pub(super) fn share(&self, sampled: usize) -> f64 {
        sampled as f64 / self.sample.len().max(1) as f64
    }
}

/// The key of the reverse direction.
pub(super) fn reverse(key: &[u8]) -> Vec<u8> {
    let size = (key.len() - 5) / 2;
    let (source, rest) = key.split_at(size);
    let (destination, rest) = rest.split_at(size);
    let (ports, protocol) = rest.split_at(4);
    [destination, source, &ports[2..], &ports[..2], protocol].concat()
}

/// Statistics of a set of sampled packets.
#[derive(Default)]
pub(super) struct Common<'a> {
    pub(super) packets: usize,
    bytes: u64,
    with_ack: usize,
    pub(super) tcp: usize,
    flags: HashMap<u8, usize>,
    /// Packets by ICMP type.
    pub(super) icmp: HashMap<u8, usize>,
    pub(super) sources: HashSet<&'a [u8]>,
    /// Flows in order of their first packets, each with its number of packets.
    pub(super) flows: Vec<(&'a [u8], usize)>,
    /// The index of each flow in `flows`.
    places: HashMap<&'a [u8], usize>,
    /// Packets by protocol and destination port, and by protocol and source port.
    to: HashMap<(u8, u16), usize>,
    from: HashMap<(u8, u16), usize>,
    /// Packets by protocol and the lower of both ports.
    lower: HashMap<(u8, u16), usize>,
    span_ns: Option<(i64, i64)>,
}

impl<'a> Common<'a> {
    pub(super) fn of(packets: impl Iterator<Item = &'a SampledPacket>) -> Self {
        let mut common = Self::default();
        packets.for_each(|packet| common.add(packet));
        common
    }

    fn add(&mut self, packet: &'a SampledPacket) {
        let Some(key) = packet.key() else { return };
        let tuple = Tuple::of(key);
        self.packets += 1;
        self.bytes += u64::from(packet.wire);
        match packet.detail {
            Detail::Tcp(flags) => {
                self.tcp += 1;
                self.with_ack += usize::from(flags & ACK != 0);
                *self.flags.entry(flags).or_default() += 1;
            }
            Detail::Icmp(kind) => *self.icmp.entry(kind).or_default() += 1,
            Detail::None => {}
        }
        self.sources.insert(tuple.source);
        let place = *self.places.entry(key).or_insert(self.flows.len());
        if place == self.flows.len() {
            self.flows.push((key, 0));
        }
        self.flows[place].1 += 1;
        *self.to.entry((tuple.protocol, tuple.destination_port)).or_default() += 1;
        *self.from.entry((tuple.protocol, tuple.source_port)).or_default() += 1;
        let lower = tuple.source_port.min(tuple.destination_port);
        *self.lower.entry((tuple.protocol, lower)).or_default() += 1;
        let (first, last) = self.span_ns.unwrap_or((packet.time_ns, packet.time_ns));
        self.span_ns = Some((first.min(packet.time_ns), last.max(packet.time_ns)));
    }

    pub(super) fn span_ns(&self) -> Option<(i64, i64)> {
        self.span_ns
    }

    /// Mean bytes a packet.
    pub(super) fn mean_bytes(&self) -> f64 {
        self.bytes as f64 / self.packets.max(1) as f64
    }

    /// Whether most TCP packets have no ACK flag, as those that open connections.
    pub(super) fn opens(&self) -> bool {
        2 * self.with_ack < self.tcp
    }

    /// The most common TCP flags.
    pub(super) fn flags(&self) -> Option<u8> {
        most(&self.flags).map(|(flags, _)| flags)
    }

    /// The most common protocol and destination port, and its share.
    pub(super) fn service(&self) -> Option<((u8, u16), f64)> {
        self.most(&self.to)
    }

    /// The most common protocol and source port, and its share.
    pub(super) fn origin(&self) -> Option<((u8, u16), f64)> {
        self.most(&self.from)
    }

    /// The most common protocol and lower port, and its share.
    pub(super) fn lower_port(&self) -> Option<((u8, u16), f64)> {
        self.most(&self.lower)
    }

    fn most(&self, counts: &HashMap<(u8, u16), usize>) -> Option<((u8, u16), f64)> {
        most(counts).map(|(service, count)| (service, count as f64 / self.packets as f64))
    }
}

/// The item with the highest count; among equal counts, the lowest item.
pub(super) fn most<T: Copy + Ord>(counts: &HashMap<T, usize>) -> Option<(T, usize)> {
    let by_count = |(item, count): (&T, &usize)| (*item, *count);
    let order = |(one, a): &(T, usize), (other, b): &(T, usize)| a.cmp(b).then(other.cmp(one));
    counts.iter().map(by_count).max_by(order)
}
