//! What a source hands on: some frames at a time, without copying their bytes.

use flowgauge_core::packet::LinkType;

/// Where one frame lies in [`Frames::bytes`], and what its record says of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Offset of the first captured byte.
    pub offset: usize,
    /// Captured bytes.
    pub captured: u32,
    /// Bytes on the wire.
    pub wire: u32,
    /// Nanoseconds since the UNIX epoch.
    pub time_ns: i64,
    /// What the first bytes are.
    pub link: LinkType,
}

/// Some frames in the order of the capture, and the bytes that they lie in.
#[derive(Clone, Copy, Debug)]
pub struct Frames<'a> {
    /// The bytes.
    pub bytes: &'a [u8],
    /// The frames; every one lies within `bytes`.
    pub frames: &'a [Frame],
}

impl<'a> Frames<'a> {
    /// The captured bytes of `frame`.
    #[inline(always)]
    pub fn captured(&self, frame: &Frame) -> &'a [u8] {
        &self.bytes[frame.offset..frame.offset + frame.captured as usize]
    }
}

/// Something that packets come from.
pub trait Source {
    /// Why the source could not go on.
    type Error;

    /// The next frames, at most as many as a batch has packets; `None` at the end.
    ///
    /// # Errors
    /// When the input is damaged or cannot be read. All frames before that place were handed out
    /// already, and the next call goes on behind it where there is something more to read.
    fn poll(&mut self) -> Result<Option<Frames<'_>>, Self::Error>;

    /// How far reading is, over all files; one that is left early counts whole. Costs next to
    /// nothing.
    fn progress(&self) -> Progress;

    /// The files begun so far, in their order; the last one may not be at its end.
    fn files(&self) -> &[FileCounts];

    /// Time, in nanoseconds since the UNIX epoch, before which no packet comes any more, by the
    /// wall clock of a source that waits for packets; `None` where only packets tell the time, as
    /// in a file. Costs at most reading a clock.
    fn clock_ns(&self) -> Option<i64> {
        None
    }

    /// Packets so far that were lost on their way to this source, as a kernel drops them that
    /// finds no room; none of a file.
    fn lost(&self) -> u64 {
        0
    }
}

/// What was read of one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileCounts {
    /// The file's name as it was given, control characters and all.
    pub file: String,
    /// Frames handed out.
    pub frames: u64,
    /// Records that contradict themselves and were accepted: more captured bytes than the packet
    /// had or than the file says are captured at most, two different lengths around a pcapng
    /// block, options of an interface that cannot be read.
    pub irregular: u64,
}

/// How much of the input was read, compressed as it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Bytes read.
    pub read: u64,
    /// Bytes of all files together; `None` where one is a pipe or the like.
    pub total: Option<u64>,
}
