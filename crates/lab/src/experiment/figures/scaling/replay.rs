//! Frames in memory, for runs of the whole engine.

use std::time::Instant;

use flowgauge_core::packet::{Frame, LinkType};
use flowgauge_engine::source::{Burst, Source, SourceError};

use crate::experiment::setting::FRAME_BYTES;
use crate::traffic::Packet;

/// Bytes of a frame up to the end of its ports: Ethernet and IPv4 without options.
const CAPTURED: usize = 38;

/// Packets as consecutive frames.
pub(super) struct Recording {
    bytes: Vec<u8>,
}

impl Recording {
    pub(super) fn of(packets: &[Packet]) -> Self {
        Self { bytes: packets.iter().flat_map(frame).collect() }
    }

    /// Replays all packets `passes` times, and notes the time after every `every` packets.
    pub(super) fn replay(&self, passes: usize, every: usize) -> Replay<'_> {
        Replay { recording: self, at: 0, passes, every, handed: 0, asked: Vec::with_capacity(128) }
    }
}

/// The first bytes of a packet. Nothing checks its checksums.
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
    /// Times at which the packets that trigger updates were handed out.
    pub(super) asked: Vec<Instant>,
}

impl Source for Replay<'_> {
    fn poll<'b>(&'b mut self, burst: &mut Burst<'b>) -> Result<bool, SourceError> {
        let bytes = &self.recording.bytes;
        if self.at == bytes.len() {
            (self.at, self.passes) = (0, self.passes.saturating_sub(1));
        }
        if self.passes == 0 || bytes.is_empty() {
            return Ok(false);
        }
        let end = bytes.len().min(self.at + burst.room() * CAPTURED);
        burst.extend(bytes[self.at..end].chunks_exact(CAPTURED).map(|bytes| Frame {
            bytes,
            wire: FRAME_BYTES,
            link: LinkType::ETHERNET,
            time_ns: 0,
        }));
        self.at = end;
        // An update is made when the first packet after it arrives.
        let before = self.handed.saturating_sub(1) / self.every;
        self.handed += burst.len();
        if (self.handed - 1) / self.every > before {
            self.asked.push(Instant::now());
        }
        Ok(true)
    }
}
