//! A position in a frame. No other code of the parser touches the frame's bytes.

use super::{Fault, Layer, MAX_NESTED, Malformed};

/// The start of the next header, and the end of the packet.
#[derive(Clone)]
pub(super) struct Cursor<'a> {
    /// The captured bytes, all of them.
    frame: &'a [u8],
    /// Where the next header starts.
    pub(super) at: usize,
    /// The end of the packet by the length fields read so far; often beyond the captured bytes.
    end: usize,
    /// Number of nested headers so far.
    nested: u8,
    /// Whether the cursor is in a non-first fragment, in which no header starts.
    pub(super) fragment: bool,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(frame: &'a [u8]) -> Self {
        Self { frame, at: 0, end: usize::MAX, nested: 0, fragment: false }
    }

    /// Returns the next `N` bytes, which belong to a header of `layer`.
    #[inline]
    pub(super) fn peek<const N: usize>(&self, layer: Layer) -> Result<&'a [u8; N], Malformed> {
        match self.frame.get(self.at..).and_then(<[u8]>::first_chunk) {
            Some(bytes) if self.at + N <= self.end => Ok(bytes),
            _ => Err(self.short(N, layer)),
        }
    }

    /// Moves over the next `N` bytes.
    #[inline]
    pub(super) fn take<const N: usize>(&mut self, layer: Layer) -> Result<&'a [u8; N], Malformed> {
        let bytes = self.peek(layer)?;
        self.at += N;
        Ok(bytes)
    }

    /// Moves over a header of `length` bytes, all of which must be there.
    pub(super) fn skip(&mut self, length: usize, layer: Layer) -> Result<(), Malformed> {
        if self.at + length > self.end.min(self.frame.len()) {
            return Err(self.short(length, layer));
        }
        self.at += length;
        Ok(())
    }

    /// Notes that a length field ends the packet `length` bytes from here.
    pub(super) fn bound(&mut self, length: usize) {
        self.end = self.end.min(self.at + length);
    }

    /// Counts a nested header that starts here.
    pub(super) fn nest(&mut self, layer: Layer) -> Result<(), Malformed> {
        if self.nested == MAX_NESTED {
            return Err(self.contradiction(layer));
        }
        self.nested += 1;
        Ok(())
    }

    /// The error for a header that starts here and contradicts itself.
    pub(super) fn contradiction(&self, layer: Layer) -> Malformed {
        Malformed { layer, offset: self.at as u32, fault: Fault::Contradiction }
    }

    /// Why `length` bytes cannot be read: a length field ends the packet before, or they were not
    /// captured.
    #[cold]
    fn short(&self, length: usize, layer: Layer) -> Malformed {
        let contradicts = self.at + length > self.end;
        let fault = if contradicts { Fault::Contradiction } else { Fault::Cut };
        Malformed { layer, offset: self.at as u32, fault }
    }
}
