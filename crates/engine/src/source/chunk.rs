//! Packets that one thread reads and another one looks at.

use flowgauge_core::packet::{Frame, Frames, LinkType};

use super::{Source, SourceError};

/// Many packets, in memory that goes with them from thread to thread and is used again and again.
#[derive(Debug, Default)]
pub struct Chunk {
    memory: Vec<u8>,
    places: Vec<Place>,
}

/// A packet in the memory of its chunk.
#[derive(Clone, Copy, Debug)]
struct Place {
    begin: u32,
    captured: u32,
    wire: u32,
    link: LinkType,
    time_ns: i64,
}

/// A source whose packets several threads measure: one reads a chunk while another one looks at the
/// packets of the chunk before.
pub trait Chunks: Source {
    /// Replaces what is in `chunk` by the next packets, those of some 256 KiB; `false` at the end, with no
    /// packet. May be called instead of [`Source::poll`] throughout.
    ///
    /// # Errors
    /// As [`Source::poll`]: all packets before that place were in a chunk already.
    fn read(&mut self, chunk: &mut Chunk) -> Result<bool, SourceError>;
}

impl Chunk {
    /// Forgets the packets. Their memory stays.
    pub fn clear(&mut self) {
        self.places.clear();
    }

    /// The memory in which the source puts the bytes of packets.
    pub fn memory(&mut self) -> &mut Vec<u8> {
        &mut self.memory
    }

    /// Adds frames whose bytes are slices of `bytes`, which will be at the begin of the memory.
    ///
    /// # Panics
    /// When a frame lies elsewhere.
    #[inline]
    pub fn extend(&mut self, bytes: &[u8], frames: Frames<'_>) {
        let base = bytes.as_ptr().addr();
        let place = |frame: Frame<'_>| {
            let begin = frame.bytes.as_ptr().addr().wrapping_sub(base);
            assert!(begin <= bytes.len(), "a frame of other bytes");
            let (begin, captured) = (begin as u32, frame.bytes.len() as u32);
            Place { begin, captured, wire: frame.wire, link: frame.link, time_ns: frame.time_ns }
        };
        self.places.extend(frames.iter().map(place));
    }

    /// Keeps at most the first `most` captured bytes of each packet.
    pub fn snap(&mut self, most: usize) {
        let most = u32::try_from(most).unwrap_or(u32::MAX);
        for place in &mut self.places {
            place.captured = place.captured.min(most);
        }
    }

    /// The packets in their order.
    #[inline]
    pub fn frames(&self) -> impl Iterator<Item = Frame<'_>> {
        self.places.iter().map(|place| {
            let &Place { begin, captured, wire, link, time_ns } = place;
            let bytes = &self.memory[begin as usize..][..captured as usize];
            Frame { bytes, wire, link, time_ns }
        })
    }

    /// How many packets there are.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// The time of the last packet.
    pub fn last_ns(&self) -> Option<i64> {
        self.places.last().map(|place| place.time_ns)
    }
}
