//! Writes generated packets to a capture file.

use std::io::{self, Write};

use super::Packet;

/// Size of the write buffer.
const BUFFER_BYTES: usize = 256 * 1024;
/// Length of a record header: time, captured length and length on the wire.
const RECORD_BYTES: usize = 16;

/// Writes a pcap file: nanoseconds, little-endian, link type Ethernet.
///
/// Writes 256 KiB at a time, and does not allocate per packet.
///
/// ```
/// use flowgauge_synthetic::{Config, PcapWriter, Traffic};
///
/// let mut file = PcapWriter::new(Vec::new());
/// for packet in Traffic::new(Config { packets: 10, ..Config::default() })? {
///     file.write(&packet)?;
/// }
/// assert_eq!(file.finish()?.len(), 24 + 10 * (16 + 64));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct PcapWriter<W> {
    out: W,
    buffer: Vec<u8>,
    filled: usize,
}

impl<W: Write> PcapWriter<W> {
    /// Begins a file. `out` needs no buffer.
    pub fn new(out: W) -> Self {
        let mut buffer = vec![0; BUFFER_BYTES];
        let words = [0xa1b2_3c4d, 0x0004_0002, 0, 0, 262_144, 1_u32];
        for (at, word) in buffer.chunks_exact_mut(4).zip(words) {
            at.copy_from_slice(&word.to_le_bytes());
        }
        Self { out, buffer, filled: 24 }
    }

    /// Adds a packet.
    ///
    /// # Errors
    /// When writing to `out` fails.
    #[inline]
    pub fn write(&mut self, packet: &Packet) -> io::Result<()> {
        let bytes = RECORD_BYTES + packet.wire as usize;
        if self.buffer.len() - self.filled < bytes {
            self.flush()?;
        }
        let record = &mut self.buffer[self.filled..self.filled + bytes];
        let (head, frame) = record.split_at_mut(RECORD_BYTES);
        let time = packet.time_ns as u64;
        head[..4].copy_from_slice(&((time / 1_000_000_000) as u32).to_le_bytes());
        head[4..8].copy_from_slice(&((time % 1_000_000_000) as u32).to_le_bytes());
        head[8..12].copy_from_slice(&packet.wire.to_le_bytes());
        head[12..].copy_from_slice(&packet.wire.to_le_bytes());
        packet.frame(frame);
        self.filled += bytes;
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.write_all(&self.buffer[..self.filled])?;
        self.filled = 0;
        Ok(())
    }

    /// Writes the rest and returns `out`. Dropping a writer without this call loses the rest.
    ///
    /// # Errors
    /// When writing to `out` fails.
    pub fn finish(mut self) -> io::Result<W> {
        self.flush()?;
        self.out.flush()?;
        Ok(self.out)
    }
}

/// A whole capture file in memory, for tests.
pub fn to_pcap_bytes(packets: impl IntoIterator<Item = Packet>) -> Vec<u8> {
    let mut writer = PcapWriter::new(Vec::new());
    for packet in packets {
        // Writing to a vector cannot fail.
        let _ = writer.write(&packet);
    }
    writer.finish().unwrap_or_default()
}
