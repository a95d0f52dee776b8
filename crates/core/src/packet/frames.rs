//! Frames in columns, as they travel from sources to lanes.

use std::ops::Range;

use super::LinkType;

/// A frame as a source hands it out: the captured bytes and what its record says of it.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// The captured bytes; nothing reads behind them.
    pub bytes: &'a [u8],
    /// Bytes on the wire.
    pub wire: u32,
    /// Link type of the first bytes.
    pub link: LinkType,
    /// Nanoseconds since the UNIX epoch.
    pub time_ns: i64,
}

/// Frames in the order of their arrival, in columns of equal length, which whole vectors of lengths and
/// times are copied from.
#[derive(Clone, Copy, Debug, Default)]
pub struct Frames<'a> {
    bytes: &'a [&'a [u8]],
    wires: &'a [u32],
    links: &'a [LinkType],
    times_ns: &'a [i64],
}

impl<'a> Frames<'a> {
    /// Frames of these captured bytes, bytes on the wire, link types and times.
    ///
    /// # Panics
    /// When the columns are not of equal length.
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

    /// How many there are.
    #[inline(always)]
    pub fn len(self) -> usize {
        self.bytes.len()
    }

    /// Whether there are none.
    #[inline(always)]
    pub fn is_empty(self) -> bool {
        self.bytes.is_empty()
    }

    /// The frame at a place.
    ///
    /// # Panics
    /// When there is none.
    #[inline(always)]
    pub fn at(self, place: usize) -> Frame<'a> {
        Frame {
            bytes: self.bytes[place],
            wire: self.wires[place],
            link: self.links[place],
            time_ns: self.times_ns[place],
        }
    }

    /// The frames at these places.
    ///
    /// # Panics
    /// When there are fewer.
    #[inline(always)]
    #[must_use]
    pub fn part(self, places: Range<usize>) -> Self {
        Self {
            bytes: &self.bytes[places.clone()],
            wires: &self.wires[places.clone()],
            links: &self.links[places.clone()],
            times_ns: &self.times_ns[places],
        }
    }

    /// The frames one by one.
    pub fn iter(self) -> impl Iterator<Item = Frame<'a>> {
        (0..self.len()).map(move |place| self.at(place))
    }

    /// The frames, so many at a time; the last ones may be fewer.
    ///
    /// # Panics
    /// When `most` is 0.
    pub fn chunks(self, most: usize) -> impl Iterator<Item = Self> {
        let all = self.len();
        (0..all).step_by(most).map(move |first| self.part(first..all.min(first + most)))
    }

    /// The captured bytes of each.
    #[inline(always)]
    pub fn bytes(self) -> &'a [&'a [u8]] {
        self.bytes
    }

    /// The bytes of each on the wire.
    #[inline(always)]
    pub fn wires(self) -> &'a [u32] {
        self.wires
    }

    /// Their times, in nanoseconds since the UNIX epoch.
    #[inline(always)]
    pub fn times_ns(self) -> &'a [i64] {
        self.times_ns
    }

    /// How many of the first frames are of Ethernet.
    #[inline(always)]
    #[cfg_attr(test, expect(dead_code, reason = "lanes, which unit tests leave out, use it"))]
    pub(crate) fn ethernet(self) -> usize {
        let other = |link: &LinkType| link.0 ^ LinkType::ETHERNET.0;
        // Mostly all of them are, which vectors tell.
        match self.links.iter().fold(0, |all, link| all | other(link)) {
            0 => self.len(),
            _ => self.links.iter().take_while(|link| other(link) == 0).count(),
        }
    }
}

/// Frames in columns, for callers that keep them.
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
