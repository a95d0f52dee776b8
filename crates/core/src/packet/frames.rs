//! Frames in columns, as sources pass them on.

use std::ops::Range;

use flowgauge_kernel::Captured;

use super::LinkType;
use crate::terms::Size;

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

/// A value of each frame. The frames that a driver hands over at once have one time.
///
/// ```
/// use flowgauge_core::packet::Column;
///
/// let mut times_ns = [0; 2];
/// Column::Each(&[5, 6, 7]).part(1..3).copy_to(&mut times_ns);
/// assert_eq!((times_ns, Column::Same(5).at(1)), ([6, 7], 5));
/// ```
#[derive(Clone, Copy, Debug)]
pub enum Column<'a, T> {
    /// The same for all frames.
    Same(T),
    /// One for each frame.
    Each(&'a [T]),
}

impl<T> Default for Column<'_, T> {
    fn default() -> Self {
        Self::Each(&[])
    }
}

impl<T: Copy> Column<'_, T> {
    /// The value of the frame at an index.
    ///
    /// # Panics
    /// When there is no such value.
    #[inline(always)]
    pub fn at(self, index: usize) -> T {
        match self {
            Self::Same(value) => value,
            Self::Each(values) => values[index],
        }
    }

    /// The values of the frames in a range.
    ///
    /// # Panics
    /// When the range exceeds the values.
    #[inline(always)]
    #[must_use]
    pub fn part(self, range: Range<usize>) -> Self {
        match self {
            Self::Same(_) => self,
            Self::Each(values) => Self::Each(&values[range]),
        }
    }

    /// Writes the values.
    ///
    /// # Panics
    /// When `to` has another number of places than there are values.
    // Once per burst; inlined, it would be compiled into the loop of every key.
    #[inline(never)]
    pub fn copy_to(self, to: &mut [T]) {
        match self {
            Self::Same(value) => to.fill(value),
            Self::Each(values) => to.copy_from_slice(values),
        }
    }

    /// Whether there can be a value for each of `len` frames.
    fn fits(self, len: usize) -> bool {
        match self {
            Self::Same(_) => true,
            Self::Each(values) => values.len() == len,
        }
    }
}

/// Frames in the order of their arrival, in columns of equal length, so that lengths and times are
/// copied in whole vectors.
///
/// ```
/// use flowgauge_core::packet::{Captured, Column, Frames, LinkType};
///
/// let bytes = [Captured::from(&[0x45; 20][..]), Captured::from(&[0x45; 40][..])];
/// let link = Column::Same(LinkType::IPV4);
/// let frames = Frames::new(&bytes, &[60, 80], link, Column::Each(&[0, 1]));
/// assert_eq!((frames.len(), frames.at(1).wire), (2, 80));
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Frames<'a> {
    bytes: &'a [Captured<'a>],
    wires: &'a [u32],
    links: Column<'a, LinkType>,
    times_ns: Column<'a, i64>,
}

impl<'a> Frames<'a> {
    /// Frames from columns of captured bytes, lengths on the wire, link types and times.
    ///
    /// # Panics
    /// When the columns differ in length.
    #[inline]
    pub fn new(
        bytes: &'a [Captured<'a>],
        wires: &'a [u32],
        links: Column<'a, LinkType>,
        times_ns: Column<'a, i64>,
    ) -> Self {
        let len = bytes.len();
        let equal = wires.len() == len && links.fits(len) && times_ns.fits(len);
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
            bytes: self.bytes[index].bytes(),
            wire: self.wires[index],
            link: self.links.at(index),
            time_ns: self.times_ns.at(index),
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
            links: self.links.part(range.clone()),
            times_ns: self.times_ns.part(range),
        }
    }

    /// The first `most` frames, or all if there are fewer.
    #[inline(always)]
    #[must_use]
    pub fn first(self, most: usize) -> Self {
        if self.len() <= most { self } else { self.part(0..most) }
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

    /// The frames and their bytes on the wire.
    pub fn size(self) -> Size {
        let bytes = self.wires.iter().map(|wire| u64::from(*wire)).sum();
        Size { packets: self.len() as u64, bytes }
    }

    /// The captured bytes of each frame.
    #[inline(always)]
    pub fn bytes(self) -> &'a [Captured<'a>] {
        self.bytes
    }

    /// The length of each frame on the wire, in bytes.
    #[inline(always)]
    pub fn wires(self) -> &'a [u32] {
        self.wires
    }

    /// The time of each frame, in nanoseconds since the UNIX epoch.
    #[inline(always)]
    pub fn times_ns(self) -> Column<'a, i64> {
        self.times_ns
    }

    /// The number of leading Ethernet frames.
    #[inline]
    #[cfg_attr(test, expect(dead_code, reason = "lanes, which unit tests leave out, use it"))]
    pub(crate) fn ethernet(self) -> usize {
        match self.links {
            Column::Same(LinkType::ETHERNET) => self.len(),
            Column::Same(_) => 0,
            Column::Each(links) => leading_ethernet(links),
        }
    }
}

/// The number of leading link types that are Ethernet.
#[inline(never)]
fn leading_ethernet(links: &[LinkType]) -> usize {
    let is_other = |link: &LinkType| *link != LinkType::ETHERNET;
    // Usually all are Ethernet; this check is vectorized.
    if !links.iter().fold(false, |any, link| any | is_other(link)) {
        return links.len();
    }
    links.iter().take_while(|link| !is_other(link)).count()
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
    bytes: Vec<Captured<'a>>,
    wires: Vec<u32>,
    links: Vec<LinkType>,
    times_ns: Vec<i64>,
}

impl FrameColumns<'_> {
    /// The frames.
    pub fn frames(&self) -> Frames<'_> {
        let (links, times_ns) = (Column::Each(&self.links[..]), Column::Each(&self.times_ns[..]));
        Frames::new(&self.bytes, &self.wires, links, times_ns)
    }
}

impl<'a> FromIterator<Frame<'a>> for FrameColumns<'a> {
    fn from_iter<T: IntoIterator<Item = Frame<'a>>>(frames: T) -> Self {
        let mut columns = Self::default();
        for Frame { bytes, wire, link, time_ns } in frames {
            columns.bytes.push(bytes.into());
            columns.wires.push(wire);
            columns.links.push(link);
            columns.times_ns.push(time_ns);
        }
        columns
    }
}
