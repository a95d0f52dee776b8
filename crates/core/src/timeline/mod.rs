//! Packets over time, and a sample of them: for questions that sums over an epoch cannot answer.
//!
//! The task [`findings`](crate::task) reads here when a flood began and which TCP flags it has. A
//! [`Series`] counts every packet; a [`Sample`] keeps some packets with their details.

mod sample;
mod series;

pub use sample::{Detail, Sample, SampledPacket};
pub use series::{Bin, Series};

use crate::key::{CanonicalKey, Extract, FlowKey, Key16, Key37, KeyKind, KeySpec};
use crate::packet::{Column, Frames, Headers, Transport, Tunnels, parse_transport};
use crate::terms::Size;

/// The packets of an epoch over time: a [`Series`] of all packets and a [`Sample`] of some.
///
/// Cost: about 0.2 ns a packet at high rates (one addition for each burst), and one parse for each
/// sampled packet. Memory: at most 64 KiB for the series and 2.5 MiB for the sample, whatever the
/// length of the epoch.
///
/// ```
/// use flowgauge_core::key::KeyKind;
/// use flowgauge_core::packet::{Frame, FrameColumns, LinkType, Tunnels};
/// use flowgauge_core::timeline::Timeline;
///
/// let frame = |time_ns| Frame { bytes: &[0x45; 20], wire: 60, link: LinkType::IPV4, time_ns };
/// let frames: FrameColumns<'_> = [frame(0), frame(1_000_000)].into_iter().collect();
/// let mut timeline = Timeline::new(KeyKind::FIVE_TUPLE.into(), Tunnels::Outer, 1);
/// timeline.add(frames.frames());
/// assert_eq!(timeline.series().bins().next().unwrap().size.packets, 2);
/// assert!(timeline.sample().is_whole());
/// assert_eq!(timeline.sample().packets()[1].time_ns, 1_000_000);
/// ```
#[derive(Clone, Debug)]
pub struct Timeline {
    key: KeySpec,
    tunnels: Tunnels,
    series: Series,
    sample: Sample,
}

impl Timeline {
    /// Maximum memory of a timeline in bytes.
    pub const BYTES: usize = Series::BYTES + Sample::BYTES;

    /// An empty timeline for keys of `key`, of outer or inner packets as `tunnels` says. `seed`
    /// determines the sampled packets.
    pub fn new(key: KeySpec, tunnels: Tunnels, seed: u64) -> Self {
        Self { key, tunnels, series: Series::default(), sample: Sample::new(seed) }
    }

    /// The series of all packets.
    pub fn series(&self) -> &Series {
        &self.series
    }

    /// The sample of packets.
    pub fn sample(&self) -> &Sample {
        &self.sample
    }

    /// Forgets all packets; keeps the memory.
    pub fn clear(&mut self) {
        self.series.clear();
        self.sample.clear();
    }

    /// Adds the frames of a burst.
    pub fn add(&mut self, frames: Frames<'_>) {
        let (key, tunnels) = (self.key, self.tunnels);
        if tunnels == Tunnels::InnerBytes {
            for frame in frames.iter() {
                self.series.add_at(frame.time_ns, one(tunnels.read(&frame).1));
            }
        } else {
            match frames.times_ns() {
                Column::Each(times_ns) => self.series.add(times_ns, frames.wires()),
                Column::Same(time_ns) => self.series.add_at(time_ns, frames.size()),
            }
        }
        self.sample.pass(frames.len() as u64, |place| {
            let frame = frames.at(place);
            let (headers, bytes, transport) = parse_transport(&frame, tunnels);
            let detail = match transport {
                Some(Transport::Tcp(flags)) => Detail::Tcp(flags),
                Some(Transport::Icmp(kind)) => Detail::Icmp(kind),
                None => Detail::None,
            };
            packet(key, frame.time_ns, bytes, &headers, detail)
        });
    }

    /// Adds packets with parsed headers; `headers` returns those at an index.
    pub fn add_parsed(
        &mut self,
        times_ns: &[i64],
        wires: &[u32],
        headers: impl Fn(usize) -> Headers,
    ) {
        self.series.add(times_ns, wires);
        let key = self.key;
        self.sample.pass(times_ns.len() as u64, |place| {
            packet(key, times_ns[place], wires[place], &headers(place), Detail::None)
        });
    }

    /// Adds the timeline of another thread in the same epoch, or of a later part of it.
    pub fn merge(&mut self, other: &Self) {
        self.series.merge(&other.series);
        self.sample.merge(&other.sample);
    }
}

/// A packet of the sample; its key is empty where the packet has none.
fn packet(
    spec: KeySpec,
    time_ns: i64,
    wire: u32,
    headers: &Headers,
    detail: Detail,
) -> SampledPacket {
    const KIND: KeyKind = KeyKind::FIVE_TUPLE;
    let key = match headers {
        Headers::V4(ip) => Key16::extract(KIND, ip)
            .map(|key| CanonicalKey::new(key.masked(spec.mask(13)).canonical(13))),
        Headers::V6(ip) => Key37::extract(KIND, ip)
            .map(|key| CanonicalKey::new(key.masked(spec.mask(37)).canonical(37))),
        Headers::NoKey(_) | Headers::Unread(_) | Headers::Malformed(_) => {
            Ok(CanonicalKey::new(&[]))
        }
    };
    let key = key.unwrap_or(CanonicalKey::new(&[]));
    SampledPacket { time_ns, wire, detail, key }
}

/// One packet of `wire` bytes.
fn one(wire: u32) -> Size {
    Size { packets: 1, bytes: u64::from(wire) }
}
