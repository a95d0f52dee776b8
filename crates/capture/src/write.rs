//! Writes packets as pcapng (draft-ietf-opsawg-pcapng, sections 4.1 to 4.3): one interface per link
//! type, times in nanoseconds, little-endian.

use std::io::{self, Write};

use flowgauge_core::packet::{Frame, LinkType};

/// A writer of pcapng files with packets of any link type.
///
/// Cost: one copy of a packet's captured bytes. Memory: 4 bytes per link type.
///
/// ```
/// use flowgauge_capture::{Captures, Writer};
/// use flowgauge_core::packet::{Frame, LinkType};
/// use flowgauge_engine::source::{Burst, Columns, Source};
///
/// let mut file = Vec::new();
/// let frame = Frame { bytes: &[7; 60], wire: 1500, link: LinkType(1), time_ns: 12 };
/// Writer::new(&mut file)?.write(&frame)?;
///
/// let (mut captures, mut columns) = (Captures::from_bytes("memory", file), Columns::default());
/// let mut burst = Burst::new(&mut columns);
/// captures.poll(&mut burst)?;
/// let read: Vec<_> = burst.frames().iter().map(|frame| (frame.wire, frame.time_ns)).collect();
/// assert_eq!(read, [(1500, 12)]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Writer<W> {
    to: W,
    /// The link types of the interfaces so far.
    links: Vec<LinkType>,
}

impl<W: Write> Writer<W> {
    /// Begins a section.
    ///
    /// # Errors
    /// When writing fails.
    pub fn new(mut to: W) -> io::Result<Self> {
        let mut body = Vec::new();
        body.extend(0x1a2b_3c4d_u32.to_le_bytes());
        body.extend([1, 0, 0, 0]);
        // The length of the section is unknown.
        body.extend(u64::MAX.to_le_bytes());
        block(&mut to, 0x0a0d_0d0a, &[&body])?;
        Ok(Self { to, links: Vec::new() })
    }

    /// Adds a packet. A time before 1970 is written as 1970.
    ///
    /// # Errors
    /// When writing fails.
    pub fn write(&mut self, frame: &Frame<'_>) -> io::Result<()> {
        let interface = match self.links.iter().position(|link| *link == frame.link) {
            Some(interface) => interface,
            None => self.begin(frame.link)?,
        };
        let time_ns = u64::try_from(frame.time_ns).unwrap_or(0);
        let (high, low) = ((time_ns >> 32) as u32, time_ns as u32);
        let numbers = [interface as u32, high, low, frame.bytes.len() as u32, frame.wire];
        let mut head = [0; 20];
        for (to, number) in head.chunks_exact_mut(4).zip(numbers) {
            to.copy_from_slice(&number.to_le_bytes());
        }
        block(&mut self.to, 6, &[&head, frame.bytes])
    }

    /// Describes the interface of a new link type.
    fn begin(&mut self, link: LinkType) -> io::Result<usize> {
        let mut body = Vec::new();
        body.extend(link.0.to_le_bytes());
        body.extend([0; 2]);
        // No snapshot length.
        body.extend([0; 4]);
        // if_tsresol: 10⁻⁹ seconds.
        body.extend([9, 0, 1, 0, 9, 0, 0, 0]);
        body.extend([0; 4]);
        block(&mut self.to, 1, &[&body])?;
        self.links.push(link);
        Ok(self.links.len() - 1)
    }

    /// Flushes the underlying writer.
    ///
    /// # Errors
    /// When writing fails.
    pub fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

/// Writes a block, padded to a multiple of 4 bytes.
fn block(to: &mut impl Write, kind: u32, parts: &[&[u8]]) -> io::Result<()> {
    let bytes: usize = parts.iter().map(|part| part.len()).sum();
    let padding = bytes.next_multiple_of(4) - bytes;
    let length = (bytes + padding + 12) as u32;
    to.write_all(&kind.to_le_bytes())?;
    to.write_all(&length.to_le_bytes())?;
    for part in parts {
        to.write_all(part)?;
    }
    to.write_all(&[0; 3][..padding])?;
    to.write_all(&length.to_le_bytes())
}
