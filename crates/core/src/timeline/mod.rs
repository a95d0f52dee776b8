//! When traffic came, and a sample of its packets: what sums over an epoch cannot answer.
//!
//! The task [`findings`](crate::task) asks it since when a host is flooded, and by which TCP flags. A
//! [`Series`] counts every packet; a [`Sample`] keeps some of them whole.

mod sample;
mod series;

pub use sample::{Detail, Sample, SampledPacket};
pub use series::{Bin, Series};

use crate::key::{CanonicalKey, Extract, FlowKey, Key16, Key37, KeyKind, KeySpec};
use crate::packet::{Frames, Headers, Transport, Tunnels, parse_transport};
use crate::terms::Size;

/// The packets of an epoch over time: all of them in a [`Series`], some of them in a [`Sample`].
///
/// Cost: about 0.2 ns a packet where packets come fast (one addition for each burst), and one parse for
/// each sampled packet. Memory: at most 64 KiB for the series and 2.5 MiB for the sample, whatever the
/// length of the epoch.
#[derive(Clone, Debug)]
pub struct Timeline {
    key: KeySpec,
    tunnels: Tunnels,
    series: Series,
    sample: Sample,
}

impl Timeline {
    /// Bytes of memory that a timeline takes at most.
    pub const BYTES: usize = Series::BYTES + Sample::BYTES;

    /// An empty timeline for keys of `key`, of the packets that `tunnels` says. `seed` chooses the
    /// sampled packets.
    pub fn new(key: KeySpec, tunnels: Tunnels, seed: u64) -> Self {
        Self { key, tunnels, series: Series::default(), sample: Sample::new(seed) }
    }

    /// Every packet.
    pub fn series(&self) -> &Series {
        &self.series
    }

    /// Some of the packets.
    pub fn sample(&self) -> &Sample {
        &self.sample
    }

    /// Forgets all packets; the memory stays.
    pub fn clear(&mut self) {
        self.series.clear();
        self.sample.clear();
    }

    /// Adds the frames of a burst.
    pub fn add(&mut self, frames: Frames<'_>) {
        let (key, tunnels) = (self.key, self.tunnels);
        if tunnels == Tunnels::InnerBytes {
            for frame in frames.iter() {
                self.series.add(&[frame.time_ns], &[tunnels.read(&frame).1]);
            }
        } else {
            self.series.add(frames.times_ns(), frames.wires());
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

    /// Adds packets whose headers were read already: `headers` gives those at a place.
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

    /// Adds what another thread saw of the same epoch, or what came behind.
    pub fn merge(&mut self, other: &Self) {
        self.series.merge(&other.series);
        self.sample.merge(&other.sample);
    }
}

/// A packet to remember; one without a key has no bytes of a key.
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
