//! Frames in memory, for runs through the whole engine.

use std::time::Instant;

use flowgauge_capture::{CaptureError, FileCounts, Frame, Frames, Progress, Source};
use flowgauge_core::batch::BATCH_PACKETS;
use flowgauge_core::packet::LinkType;

use crate::experiment::setting::FRAME_BYTES;
use crate::traffic::Packet;

/// Bytes of a frame up to the end of its ports: Ethernet and IPv4 without options.
const CAPTURED: usize = 38;

/// Packets as frames one behind the other.
pub(super) struct Recording {
    bytes: Vec<u8>,
    frames: Vec<Frame>,
}

impl Recording {
    pub(super) fn of(packets: &[Packet]) -> Self {
        let bytes = packets.iter().flat_map(frame).collect();
        let link = LinkType::ETHERNET;
        let (captured, wire, time_ns) = (CAPTURED as u32, FRAME_BYTES, 0);
        let frame = |i| Frame { offset: i * CAPTURED, captured, wire, time_ns, link };
        Self { bytes, frames: (0..packets.len()).map(frame).collect() }
    }

    /// All packets so many times, with a note of when each one of `every` was handed out.
    pub(super) fn replay(&self, passes: usize, every: usize) -> Replay<'_> {
        Replay { recording: self, at: 0, passes, every, handed: 0, asked: Vec::with_capacity(128) }
    }
}

/// The first bytes of a packet, whose checksums are nobody's concern.
fn frame(packet: &Packet) -> [u8; CAPTURED] {
    let mut frame = [0; CAPTURED];
    frame[12..24].copy_from_slice(&[0x08, 0, 0x45, 0, 0, 50, 0, 0, 0, 0, 64, packet.ip.protocol]);
    frame[26..34].copy_from_slice(&packet.ip.addresses);
    frame
}

/// A recording as a source.
pub(super) struct Replay<'a> {
    recording: &'a Recording,
    at: usize,
    passes: usize,
    every: usize,
    handed: usize,
    /// When the packets were handed out before which an update is due.
    pub(super) asked: Vec<Instant>,
}

impl Source for Replay<'_> {
    type Error = CaptureError;

    fn poll(&mut self) -> Result<Option<Frames<'_>>, CaptureError> {
        let Recording { bytes, frames } = self.recording;
        if self.at == frames.len() {
            (self.at, self.passes) = (0, self.passes.saturating_sub(1));
        }
        if self.passes == 0 || frames.is_empty() {
            return Ok(None);
        }
        let end = frames.len().min(self.at + BATCH_PACKETS);
        let frames = &frames[self.at..end];
        self.at = end;
        // An update is made before the packet behind those of it.
        let before = self.handed.saturating_sub(1) / self.every;
        self.handed += frames.len();
        if (self.handed - 1) / self.every > before {
            self.asked.push(Instant::now());
        }
        Ok(Some(Frames { bytes, frames }))
    }

    fn progress(&self) -> Progress {
        Progress { read: 0, total: None }
    }

    fn files(&self) -> &[FileCounts] {
        &[]
    }
}
