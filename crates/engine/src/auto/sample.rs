//! The packets that candidates are tried on.

use flowgauge_core::packet::{Frame, LinkType};
use flowgauge_synthetic::{self as synthetic, Config, ConfigError, Profile, Traffic};

use super::fresh::Fresh;
use crate::source::{Burst, Columns, Progress, Source, SourceError};

/// Packets that a sample has at most.
const PACKETS: usize = 1 << 18;

/// Bytes that are kept of each: more than headers take.
const KEPT: usize = 256;

/// A packet of the sample: where its bytes begin and end, and what a [`Frame`] has besides.
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

/// Some packets in memory, and how many of their kind there will be.
#[derive(Default)]
pub struct Sample {
    bytes: Vec<u8>,
    records: Vec<Record>,
    /// Packets of the whole input, where that can be told.
    packets: Option<u64>,
    /// Packets that belong to other flows each time around.
    fresh: Vec<Fresh>,
}

impl Sample {
    /// The first packets of `source`, up to 262,144. What is wrong with it is left for
    /// the run to find.
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

    /// Packets as on a backbone link, for when there is no input to look at.
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

    /// Packets in the sample.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Packets of the whole input, where that can be told.
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

    /// Its packets, each with the place where its bytes begin.
    pub(super) fn packets(&self) -> impl Iterator<Item = (usize, Frame<'_>)> {
        self.records.iter().map(|record| (record.bytes.0, record.frame(&self.bytes)))
    }

    /// Lets these packets belong to other flows each time around; they are in their order.
    pub(super) fn renew(&mut self, fresh: Vec<Fresh>) {
        self.fresh = fresh;
    }

    /// The first `packets` of the packets, over and over, until they are `all` packets.
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
    /// The next packet, and the next of those that are fresh.
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
