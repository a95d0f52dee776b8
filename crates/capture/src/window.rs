//! The bytes of an input that are in memory at a time.

use std::io::{self, ErrorKind, Read};
use std::mem;

/// Bytes read ahead.
///
/// Reading beats mapping: over a 1.6 GB capture in the page cache, walking all records and touching
/// each packet's headers runs at 14.1 GB/s (records of 80 bytes) and 21.2 GB/s (of 655) through
/// this buffer, which stays in the L2 cache, and at 9.6 and 5.2 GB/s over a map, whose page faults
/// and cache misses cost more than the copy; `MADV_SEQUENTIAL` changes nothing, and
/// `MADV_POPULATE_READ` of 4 to 64 MiB ahead is slower (8.4 and 4.4 GB/s). Buffers of 128 KiB to
/// 4 MiB are within 10 % of each other. Nor can a file that shrinks kill a process that reads it.
const BYTES: usize = 256 << 10;

/// A buffer that slides over an input.
pub(crate) struct Window {
    input: Box<dyn Read + Send>,
    buffer: Vec<u8>,
    /// Where the unread bytes in `buffer` begin and end.
    at: usize,
    end: usize,
    /// Bytes of the file before `buffer`.
    before: u64,
    /// What the input said when it was read ahead.
    failed: Option<io::Error>,
}

impl Window {
    /// A window on an input that begins at byte `before` of a file.
    pub(crate) fn new(input: Box<dyn Read + Send>, before: u64) -> Self {
        Self { input, buffer: vec![0; BYTES], at: 0, end: 0, before, failed: None }
    }

    /// What has been read, and where in it the unread bytes begin, to be moved on.
    pub(crate) fn unread(&mut self) -> (&[u8], &mut usize) {
        (&self.buffer[..self.end], &mut self.at)
    }

    /// Bytes that are there and unread.
    pub(crate) fn left(&self) -> usize {
        self.end - self.at
    }

    /// Where the unread bytes begin, counted from the begin of the file.
    pub(crate) fn offset(&self) -> u64 {
        self.before + self.at as u64
    }

    /// Reads until `bytes` unread bytes are there; `false` where the input ends before. Memory
    /// beyond [`BYTES`] is taken as bytes come, never for a mere promise of them.
    ///
    /// # Errors
    /// What the input says. What it gave before is kept.
    pub(crate) fn fill(&mut self, bytes: usize) -> io::Result<bool> {
        self.buffer.copy_within(self.at..self.end, 0);
        self.passed();
        while self.end < bytes {
            if self.end == self.buffer.len() {
                self.buffer.resize(bytes.min(2 * self.end), 0);
            }
            if !self.read()? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Reads as much as the buffer has room for. What the input says is kept for [`Window::fill`].
    pub(crate) fn fill_up(&mut self) {
        while self.end < self.buffer.len() && self.failed.is_none() {
            match self.read() {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => self.failed = Some(error),
            }
        }
    }

    /// Goes on in another buffer, to which the unread bytes move; `buffer` has the one before, as it was.
    pub(crate) fn exchange(&mut self, buffer: &mut Vec<u8>) {
        let left = self.left();
        buffer.resize(left.max(BYTES), 0);
        buffer[..left].copy_from_slice(&self.buffer[self.at..self.end]);
        mem::swap(&mut self.buffer, buffer);
        self.passed();
    }

    /// The unread bytes are at the begin of the buffer.
    fn passed(&mut self) {
        self.before += self.at as u64;
        self.end -= self.at;
        self.at = 0;
    }

    /// Reads some bytes into what is free of the buffer; `false` at the end.
    fn read(&mut self) -> io::Result<bool> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        loop {
            match self.input.read(&mut self.buffer[self.end..]) {
                Ok(read) => {
                    self.end += read;
                    return Ok(read > 0);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}
