//! The packets that candidates are tried on.

use flowgauge_capture::{CaptureError, Captures, FileCounts, Frame, Frames, Progress, Source};
use flowgauge_core::batch::BATCH_PACKETS;
use flowgauge_synthetic::{Config, ConfigError, Profile, Traffic, to_pcap_bytes};

use super::fresh::Fresh;
use crate::run::Packets;

/// Packets that a sample has at most.
const PACKETS: usize = 1 << 18;

/// Bytes that are kept of each: more than headers take.
const KEPT: usize = 256;

/// Some packets in memory, and how many of their kind there will be.
pub struct Sample {
    bytes: Vec<u8>,
    frames: Vec<Frame>,
    /// Packets of the whole input, where that can be told.
    packets: Option<u64>,
    /// Packets that belong to other flows each time around.
    fresh: Vec<Fresh>,
}

impl Sample {
    /// The first packets of `source`, up to 262,144. What is wrong with it is left for
    /// the run to find.
    pub fn of(source: &mut Packets<'_>) -> Self {
        let (bytes, frames, fresh) = (Vec::new(), Vec::new(), Vec::new());
        let mut sample = Self { bytes, frames, packets: None, fresh };
        let mut ended = false;
        while sample.frames.len() < PACKETS {
            let Ok(Some(frames)) = source.poll() else {
                ended = true;
                break;
            };
            sample.extend(&frames);
        }
        let (progress, taken) = (source.progress(), sample.frames.len() as u64);
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
        let pcap = to_pcap_bytes(traffic);
        Ok(Self { packets: None, ..Self::of(&mut Captures::from_bytes("backbone", pcap)) })
    }

    fn extend(&mut self, frames: &Frames<'_>) {
        for frame in frames.frames {
            let offset = self.bytes.len();
            let captured = frames.captured(frame);
            let captured = &captured[..captured.len().min(KEPT)];
            self.bytes.extend_from_slice(captured);
            self.frames.push(Frame { offset, captured: captured.len() as u32, ..*frame });
        }
    }

    /// Packets in the sample.
    pub fn len(&self) -> usize {
        self.frames.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Packets of the whole input, where that can be told.
    pub(super) fn expected(&self) -> Option<u64> {
        self.packets
    }

    /// Nanoseconds from the first packet to the last.
    pub(super) fn span_ns(&self) -> i64 {
        match &self.frames[..] {
            [first, .., last] => last.time_ns.saturating_sub(first.time_ns).max(1),
            _ => 1,
        }
    }

    /// Its packets with their bytes.
    pub(super) fn packets(&self) -> Frames<'_> {
        Frames { bytes: &self.bytes, frames: &self.frames }
    }

    /// Lets these packets belong to other flows each time around; they are in their order.
    pub(super) fn renew(&mut self, fresh: Vec<Fresh>) {
        self.fresh = fresh;
    }

    /// The first `packets` of the packets, over and over, until they are `all` packets.
    pub(super) fn replay(&mut self, packets: usize, all: u64) -> Replay<'_> {
        let frames = &self.frames[..packets.min(self.frames.len())];
        let all = if frames.is_empty() { 0 } else { all };
        let (bytes, fresh) = (&mut self.bytes, &self.fresh);
        Replay { bytes, frames, fresh, at: 0, next: 0, around: false, read: 0, all }
    }
}

/// A sample as a source.
pub(super) struct Replay<'a> {
    bytes: &'a mut [u8],
    frames: &'a [Frame],
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
    type Error = CaptureError;

    fn poll(&mut self) -> Result<Option<Frames<'_>>, CaptureError> {
        if self.read == self.all {
            return Ok(None);
        }
        if self.at == self.frames.len() {
            (self.at, self.next, self.around) = (0, 0, true);
        }
        let batch = (self.all - self.read).min(BATCH_PACKETS as u64) as usize;
        let end = self.frames.len().min(self.at + batch);
        while let Some(fresh) = self.fresh.get(self.next).filter(|fresh| fresh.packet < end) {
            if self.around {
                fresh.renew(self.bytes);
            }
            self.next += 1;
        }
        let frames = &self.frames[self.at..end];
        self.at = end;
        self.read += frames.len() as u64;
        Ok(Some(Frames { bytes: self.bytes, frames }))
    }

    fn progress(&self) -> Progress {
        Progress { read: self.read, total: Some(self.all) }
    }

    fn files(&self) -> &[FileCounts] {
        &[]
    }
}
