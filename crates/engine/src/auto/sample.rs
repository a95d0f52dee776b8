//! The packets that candidates are tried on.

use flowgauge_capture::synthetic::{Config, ConfigError, Profile, Traffic, to_pcap_bytes};
use flowgauge_capture::{CaptureError, Captures, FileCounts, Frame, Frames, Progress, Source};
use flowgauge_core::batch::BATCH_PACKETS;

use crate::engine::Packets;

/// Packets that a sample has at most.
const PACKETS: usize = 1 << 17;

/// Bytes that it has at most.
const BYTES: usize = 64 << 20;

/// Some packets in memory, and how many of their kind there will be.
pub struct Sample {
    bytes: Vec<u8>,
    frames: Vec<Frame>,
    /// Packets of the whole input, where that can be told.
    packets: Option<u64>,
}

impl Sample {
    /// The first packets of `source`, up to 131,072 of 64 MiB. What is wrong with it is left for
    /// the run to find.
    pub fn of(source: &mut Packets<'_>) -> Self {
        let mut sample = Self { bytes: Vec::new(), frames: Vec::new(), packets: None };
        let mut ended = false;
        while sample.frames.len() < PACKETS && sample.bytes.len() < BYTES {
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
            self.bytes.extend_from_slice(frames.captured(frame));
            self.frames.push(Frame { offset, ..*frame });
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

    /// The first `packets` of the packets, again and again, `passes` times.
    pub(super) fn replay(&self, packets: usize, passes: usize) -> Replay<'_> {
        let frames = &self.frames[..packets.min(self.frames.len())];
        Replay { bytes: &self.bytes, frames, at: 0, passes }
    }
}

/// A sample as a source.
pub(super) struct Replay<'a> {
    bytes: &'a [u8],
    frames: &'a [Frame],
    at: usize,
    passes: usize,
}

impl Source for Replay<'_> {
    type Error = CaptureError;

    fn poll(&mut self) -> Result<Option<Frames<'_>>, CaptureError> {
        if self.at == self.frames.len() {
            self.passes = self.passes.saturating_sub(1);
            self.at = 0;
        }
        if self.passes == 0 || self.frames.is_empty() {
            return Ok(None);
        }
        let end = self.frames.len().min(self.at + BATCH_PACKETS);
        let frames = &self.frames[self.at..end];
        self.at = end;
        Ok(Some(Frames { bytes: self.bytes, frames }))
    }

    fn progress(&self) -> Progress {
        Progress { read: 0, total: None }
    }

    fn files(&self) -> &[FileCounts] {
        &[]
    }
}
