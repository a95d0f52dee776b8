//! The bytes of an input that are in memory at a time.

use std::io::{self, ErrorKind, Read};

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
}

impl Window {
    /// A window on an input that begins at byte `before` of a file.
    pub(crate) fn new(input: Box<dyn Read + Send>, before: u64) -> Self {
        Self { input, buffer: vec![0; BYTES], at: 0, end: 0, before }
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
        self.before += self.at as u64;
        self.end -= self.at;
        self.at = 0;
        while self.end < bytes {
            if self.end == self.buffer.len() {
                self.buffer.resize(bytes.min(2 * self.end), 0);
            }
            match self.input.read(&mut self.buffer[self.end..]) {
                Ok(0) => return Ok(false),
                Ok(read) => self.end += read,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }
}
