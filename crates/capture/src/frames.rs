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
}
