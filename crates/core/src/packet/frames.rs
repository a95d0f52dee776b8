//! Frames in columns, as sources pass them on.

use std::ops::Range;

use super::LinkType;

/// A captured frame with its length on the wire, link type and time.
///
/// ```
/// use flowgauge_core::packet::{Frame, Headers, LinkType, parse};
///
/// let frame = Frame { bytes: &[0x45; 20], wire: 60, link: LinkType::IPV4, time_ns: 0 };
/// assert!(matches!(parse(frame.link, frame.bytes), Headers::V4(_)));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// The captured bytes; nothing reads beyond them.
    pub bytes: &'a [u8],
    /// Bytes on the wire.
    pub wire: u32,
    /// The link type.
    pub link: LinkType,
    /// Nanoseconds since the UNIX epoch.
    pub time_ns: i64,
}

/// Frames in the order of their arrival, in columns of equal length, so that lengths and times are
/// copied in whole vectors.
///
/// ```
/// use flowgauge_core::packet::{Frames, LinkType};
///
/// let bytes: [&[u8]; 2] = [&[0x45; 20], &[0x45; 40]];
/// let frames = Frames::new(&bytes, &[60, 80], &[LinkType::IPV4; 2], &[0, 1]);
/// assert_eq!((frames.len(), frames.at(1).wire), (2, 80));
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Frames<'a> {
    bytes: &'a [&'a [u8]],
    wires: &'a [u32],
    links: &'a [LinkType],
    times_ns: &'a [i64],
}

impl<'a> Frames<'a> {
    /// Frames from columns of captured bytes, lengths on the wire, link types and times.
    ///
    /// # Panics
    /// When the columns differ in length.
    #[inline]
    pub fn new(
        bytes: &'a [&'a [u8]],
        wires: &'a [u32],
        links: &'a [LinkType],
        times_ns: &'a [i64],
    ) -> Self {
        let len = bytes.len();
        let equal = wires.len() == len && links.len() == len && times_ns.len() == len;
        assert!(equal, "columns of frames are of equal length");
        Self { bytes, wires, links, times_ns }
    }

    /// The number of frames.
    #[inline(always)]
    pub fn len(self) -> usize {
        self.bytes.len()
    }

    /// Whether there is no frame.
    #[inline(always)]
    pub fn is_empty(self) -> bool {
        self.bytes.is_empty()
    }

    /// The frame at an index.
    ///
    /// # Panics
    /// When there is no such frame.
    #[inline(always)]
    pub fn at(self, index: usize) -> Frame<'a> {
        Frame {
            bytes: self.bytes[index],
            wire: self.wires[index],
            link: self.links[index],
            time_ns: self.times_ns[index],
        }
    }

    /// The frames in a range.
    ///
    /// # Panics
    /// When the range exceeds the frames.
    #[inline(always)]
    #[must_use]
    pub fn part(self, range: Range<usize>) -> Self {
        Self {
            bytes: &self.bytes[range.clone()],
            wires: &self.wires[range.clone()],
            links: &self.links[range.clone()],
            times_ns: &self.times_ns[range],
        }
    }

    /// Iterates over the frames.
    pub fn iter(self) -> impl Iterator<Item = Frame<'a>> {
        (0..self.len()).map(move |index| self.at(index))
    }

    /// Iterates over chunks of `most` frames; the last chunk may be shorter.
    ///
    /// # Panics
    /// When `most` is 0.
    pub fn chunks(self, most: usize) -> impl Iterator<Item = Self> {
        let all = self.len();
        (0..all).step_by(most).map(move |first| self.part(first..all.min(first + most)))
    }

    /// The captured bytes of each frame.
    #[inline(always)]
    pub fn bytes(self) -> &'a [&'a [u8]] {
        self.bytes
    }

    /// The length of each frame on the wire, in bytes.
    #[inline(always)]
    pub fn wires(self) -> &'a [u32] {
        self.wires
    }

    /// The time of each frame, in nanoseconds since the UNIX epoch.
    #[inline(always)]
    pub fn times_ns(self) -> &'a [i64] {
        self.times_ns
    }

    /// The number of leading Ethernet frames.
    #[inline(always)]
    #[cfg_attr(test, expect(dead_code, reason = "lanes, which unit tests leave out, use it"))]
    pub(crate) fn ethernet(self) -> usize {
        let other = |link: &LinkType| link.0 ^ LinkType::ETHERNET.0;
        // Usually all are Ethernet; this check is vectorized.
        match self.links.iter().fold(0, |all, link| all | other(link)) {
            0 => self.len(),
            _ => self.links.iter().take_while(|link| other(link) == 0).count(),
        }
    }
}

/// Frames in owned columns, for callers that collect them.
///
/// ```
/// use flowgauge_core::packet::{Frame, FrameColumns, LinkType};
///
/// let captured = [vec![0; 60], vec![0; 96]];
/// let frame = |bytes| Frame { bytes, wire: 1500, link: LinkType::ETHERNET, time_ns: 0 };
/// let columns: FrameColumns<'_> = captured.iter().map(|bytes| frame(&bytes[..])).collect();
/// assert_eq!(columns.frames().len(), 2);
/// assert_eq!(columns.frames().at(1).bytes.len(), 96);
/// assert_eq!(columns.frames().wires(), [1500, 1500]);
/// ```
#[derive(Clone, Debug, Default)]
pub struct FrameColumns<'a> {
    bytes: Vec<&'a [u8]>,
    wires: Vec<u32>,
    links: Vec<LinkType>,
    times_ns: Vec<i64>,
}

impl FrameColumns<'_> {
    /// The frames.
    pub fn frames(&self) -> Frames<'_> {
        Frames::new(&self.bytes, &self.wires, &self.links, &self.times_ns)
    }
}

impl<'a> FromIterator<Frame<'a>> for FrameColumns<'a> {
    fn from_iter<T: IntoIterator<Item = Frame<'a>>>(frames: T) -> Self {
        let mut columns = Self::default();
        for Frame { bytes, wire, link, time_ns } in frames {
            columns.bytes.push(bytes);
            columns.wires.push(wire);
            columns.links.push(link);
            columns.times_ns.push(time_ns);
        }
        columns
    }
}
