//! The sample of packets on which candidates are tried.

use std::collections::HashSet;

use flowgauge_core::key::{CanonicalKey, Extract, FlowKey, Key8, Key16, Key37, KeySpec};
use flowgauge_core::packet::{Extras, Frame, Headers, Ip, LinkType, Tunnels};
use flowgauge_synthetic::{self as synthetic, Config, ConfigError, Profile, Traffic};

use crate::source::{Burst, Columns, Progress, Source, SourceError};

/// Most packets of a sample.
const PACKETS: usize = 1 << 18;

/// Bytes kept of each packet: more than headers take.
const KEPT: usize = 256;

/// A packet of the sample: the place of its bytes, and the other fields of a [`Frame`].
#[derive(Clone, Copy)]
struct Record {
    bytes: (usize, usize),
    wire: u32,
    link: LinkType,
    time_ns: i64,
}

impl Record {
    fn frame(self, bytes: &[u8]) -> Frame<'_> {
        let Self { bytes: (begin, end), wire, link, time_ns } = self;
        Frame { bytes: &bytes[begin..end], wire, link, time_ns }
    }
}

/// A sample: the first packets of an input in memory, and the expected number of packets.
///
/// ```
/// use flowgauge_capture::Captures;
/// use flowgauge_engine::auto::Sample;
/// use flowgauge_synthetic::{Traffic, to_pcap_bytes};
///
/// let traffic = flowgauge_synthetic::Config { packets: 1_000, ..Default::default() };
/// let capture = to_pcap_bytes(Traffic::new(traffic)?);
/// let mut source = Captures::from_bytes("synthetic.pcap", capture);
/// let sample = Sample::of(&mut source);
/// assert_eq!(sample.len(), 1_000);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Default)]
pub struct Sample {
    bytes: Vec<u8>,
    records: Vec<Record>,
    /// Packets of the whole input, if known.
    packets: Option<u64>,
    /// Packets that move to new flows each time around.
    fresh: Vec<Fresh>,
}

impl Sample {
    /// The first packets of `source`, up to 262,144. Errors of the source end the sample; the run
    /// will report them.
    pub fn of(source: &mut dyn Source) -> Self {
        let mut sample = Self::default();
        let (mut ended, mut columns) = (false, Columns::default());
        while sample.records.len() < PACKETS {
            let mut burst = Burst::new(&mut columns);
            let Ok(true) = source.poll(&mut burst) else {
                ended = true;
                break;
            };
            burst.frames().iter().for_each(|frame| sample.add(&frame));
        }
        let (progress, taken) = (source.progress(), sample.records.len() as u64);
        sample.packets = match progress.total {
            _ if ended => Some(taken),
            Some(total) if progress.read > 0 => {
                Some((taken as f64 * total as f64 / progress.read as f64) as u64)
            }
            _ => None,
        };
        sample
    }

    /// Generated packets like those of a backbone link, for use without an input.
    ///
    /// # Errors
    /// Never: the traffic's configuration is sound.
    pub fn backbone() -> Result<Self, ConfigError> {
        let profile = Profile::Backbone { flows: None };
        let traffic =
            Traffic::new(Config { profile, packets: PACKETS as u64, ..Config::default() })?;
        Ok(Self::generated(traffic))
    }

    pub(super) fn generated(traffic: Traffic) -> Self {
        let mut sample = Self::default();
        let mut buffer = vec![0; synthetic::Packet::MAX_WIRE];
        for packet in traffic {
            let (length, wire, time_ns) = (packet.frame(&mut buffer), packet.wire, packet.time_ns);
            let bytes = &buffer[..length];
            sample.add(&Frame { bytes, wire, link: LinkType::ETHERNET, time_ns });
        }
        sample
    }

    fn add(&mut self, frame: &Frame<'_>) {
        let begin = self.bytes.len();
        self.bytes.extend_from_slice(&frame.bytes[..frame.bytes.len().min(KEPT)]);
        let Frame { wire, link, time_ns, .. } = *frame;
        self.records.push(Record { bytes: (begin, self.bytes.len()), wire, link, time_ns });
    }

    /// Number of packets in the sample.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Packets of the whole input, if known.
    pub(super) fn expected(&self) -> Option<u64> {
        self.packets
    }

    /// Nanoseconds from the first packet to the last.
    pub(super) fn span_ns(&self) -> i64 {
        match &self.records[..] {
            [first, .., last] => last.time_ns.saturating_sub(first.time_ns).max(1),
            _ => 1,
        }
    }

    /// Its packets, each with the place of its first byte.
    pub(super) fn packets(&self) -> impl Iterator<Item = (usize, Frame<'_>)> {
        self.records.iter().map(|record| (record.bytes.0, record.frame(&self.bytes)))
    }

    /// Moves these packets, which are in order, to new flows each time around.
    pub(super) fn renew(&mut self, fresh: Vec<Fresh>) {
        self.fresh = fresh;
    }

    /// A source of the first `packets` packets, repeated up to `all` packets.
    pub(super) fn replay(&mut self, packets: usize, all: u64) -> Replay<'_> {
        let records = &self.records[..packets.min(self.records.len())];
        let all = if records.is_empty() { 0 } else { all };
        let (bytes, fresh) = (&mut self.bytes, &self.fresh);
        Replay { bytes, records, fresh, at: 0, next: 0, around: false, read: 0, all }
    }
}

/// A sample as a source.
pub(super) struct Replay<'a> {
    bytes: &'a mut [u8],
    records: &'a [Record],
    fresh: &'a [Fresh],
    /// The next packet, and the next fresh one.
    at: usize,
    next: usize,
    /// Whether this is not the first time around.
    around: bool,
    /// Packets so far, and in all.
    read: u64,
    all: u64,
}

impl Source for Replay<'_> {
    fn poll<'b>(&'b mut self, burst: &mut Burst<'b>) -> Result<bool, SourceError> {
        if self.read == self.all {
            return Ok(false);
        }
        if self.at == self.records.len() {
            (self.at, self.next, self.around) = (0, 0, true);
        }
        let packets = (self.all - self.read).min(burst.room() as u64) as usize;
        let end = self.records.len().min(self.at + packets);
        while let Some(fresh) = self.fresh.get(self.next).filter(|fresh| fresh.packet < end) {
            if self.around {
                fresh.renew(self.bytes);
            }
            self.next += 1;
        }
        let records = &self.records[self.at..end];
        self.at = end;
        self.read += records.len() as u64;
        burst.extend(records.iter().map(|record| record.frame(self.bytes)));
        Ok(true)
    }

    fn progress(&self) -> Progress {
        Progress { read: self.read, total: Some(self.all) }
    }
}

/// A packet of a flow that occurs once in the sample, with the place of its addresses.
///
/// A replay of the sample meets the same flows again, but a run meets new ones, for which tables
/// grow and caches are too small. By Good and Turing, the next packet belongs to a new flow with a
/// probability equal to the share of packets whose flow occurs once. So a replay moves these
/// packets to new flows each time around.
pub(super) struct Fresh {
    /// The packet's number.
    pub(super) packet: usize,
    /// Where the addresses begin, and the bytes of one address.
    at: usize,
    bytes: usize,
}

impl Fresh {
    /// Gives the packet new addresses; they repeat after 65,536 times. Only the last two bytes
    /// change, so filters and prefixes mostly see the same.
    pub(super) fn renew(&self, bytes: &mut [u8]) {
        const ODD: u16 = 0x9e37;
        for end in [self.at + self.bytes, self.at + 2 * self.bytes] {
            let low = u16::from_be_bytes([bytes[end - 2], bytes[end - 1]]).wrapping_add(ODD);
            bytes[end - 2..end].copy_from_slice(&low.to_be_bytes());
        }
    }
}

/// The packets whose keys are in `once`.
pub(super) fn fresh<'a>(
    packets: impl Iterator<Item = (usize, Frame<'a>)>,
    key: KeySpec,
    tunnels: Tunnels,
    once: &HashSet<CanonicalKey>,
) -> Vec<Fresh> {
    let one = |(packet, (begin, frame)): (usize, (usize, Frame<'_>))| {
        let (captured, extras) = (frame.bytes, Extras::read(&frame, tunnels));
        let (flow, at, bytes) = match &tunnels.read(&frame).0 {
            Headers::V4(ip) => (v4(key, ip, &extras)?, place(captured, &ip.addresses)?, 4),
            Headers::V6(ip) => (v6(key, ip, &extras)?, place(captured, &ip.addresses)?, 16),
            Headers::NoKey(_) | Headers::Unread(_) | Headers::Malformed(_) => return None,
        };
        once.contains(&flow).then_some(Fresh { packet, at: begin + at, bytes })
    };
    packets.enumerate().filter_map(one).collect()
}

/// The place of both addresses in a packet.
fn place(captured: &[u8], addresses: &[u8]) -> Option<usize> {
    captured.windows(addresses.len()).position(|bytes| bytes == addresses)
}

fn v4(key: KeySpec, ip: &Ip<8>, extras: &Extras) -> Option<CanonicalKey> {
    match key.lanes() {
        [4 | 8, _] => of::<Key8, 8>(key, ip, extras),
        [_, _] => of::<Key16, 8>(key, ip, extras),
        // Keys without addresses stay the same.
        _ => None,
    }
}

fn v6(key: KeySpec, ip: &Ip<32>, extras: &Extras) -> Option<CanonicalKey> {
    match key.lanes() {
        [_, 16] => of::<Key16, 32>(key, ip, extras),
        [_, _] => of::<Key37, 32>(key, ip, extras),
        _ => None,
    }
}

fn of<K: FlowKey + Extract<N>, const N: usize>(
    key: KeySpec,
    ip: &Ip<N>,
    extras: &Extras,
) -> Option<CanonicalKey> {
    let key_bytes = key.lanes()[usize::from(N == 32)];
    let flow = K::extract_bits(key.kind(), ip, extras, key.mask(key_bytes)).ok()?;
    Some(CanonicalKey::new(flow.canonical(key_bytes)))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]
mod tests {
    use std::collections::HashMap;

    use flowgauge_core::key::KeyKind;
    use flowgauge_synthetic::{Config, Profile, Traffic};

    use super::super::Sample;
    use super::*;
    use crate::source::{Burst, Columns, Source};

    fn keys<'a>(key: KeySpec, frames: impl Iterator<Item = Frame<'a>>) -> Vec<CanonicalKey> {
        let parsed = frames.map(|frame| flowgauge_core::packet::parse(frame.link, frame.bytes));
        let key = |headers| match headers {
            Headers::V4(ip) => v4(key, &ip, &Extras::default()),
            Headers::V6(ip) => v6(key, &ip, &Extras::default()),
            _ => None,
        };
        parsed.map(|headers| key(headers).unwrap()).collect()
    }

    #[test]
    fn flows_that_occur_once_are_others_each_time_around() {
        let profile = Profile::Backbone { flows: Some(2000) };
        for kind in [KeyKind::SOURCE, KeyKind::PAIR, KeyKind::FIVE_TUPLE] {
            let key = KeySpec::from(kind);
            let config = Config { profile, packets: 3000, ..Config::default() };
            let mut sample = Sample::generated(Traffic::new(config).unwrap());
            let first = keys(key, sample.packets().map(|(_, frame)| frame));
            let mut sizes = HashMap::new();
            for flow in &first {
                *sizes.entry(*flow).or_insert(0) += 1;
            }
            let once =
                sizes.iter().filter(|(_, size)| **size == 1).map(|(flow, _)| *flow).collect();
            sample.renew(fresh(sample.packets(), key, Tunnels::Outer, &once));
            let mut replay = sample.replay(3000, 9000);
            let (mut seen, mut columns) = (Vec::new(), Columns::default());
            loop {
                let mut burst = Burst::new(&mut columns);
                if !replay.poll(&mut burst).unwrap() {
                    break;
                }
                seen.extend(keys(key, burst.frames().iter()));
            }
            assert_eq!(seen.len(), 9000);
            assert!(once.len() > 100 && once.len() < 2900, "{kind:?} {}", once.len());
            let mut new = HashSet::new();
            for around in seen.chunks(3000) {
                for (now, first) in around.iter().zip(&first) {
                    if once.contains(first) {
                        new.insert(*now);
                    } else {
                        assert_eq!(now, first);
                    }
                }
            }
            // Few new flows coincide by chance.
            assert!(new.len() > 3 * once.len() * 99 / 100, "{kind:?} {}", new.len());
        }
    }
}
