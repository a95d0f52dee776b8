//! Reads one capture, from its first byte to its end or to damage.

use std::{
    io::{self, ErrorKind, Read},
    mem,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use flowgauge_engine::source::{Ahead, Burst, Chunk, Columns, Skipped};

use crate::{
    damage::{CaptureError, Damage, Refusal},
    format::Format,
    input::Input,
    record::{Begin, Need, Stop},
};

/// Reads a capture of either format.
pub(crate) struct CaptureReader {
    file: String,
    compressed: bool,
    window: Window,
    meter: Arc<AtomicU64>,
    format: Option<Format>,
    /// Where the next part of the file begins, and the state of the format that its reader assumes.
    /// `None` for the last part and for a whole file.
    seam: Option<(u64, Format)>,
}

impl CaptureReader {
    pub(crate) fn new(input: Input) -> Self {
        let Input { file, compressed, bytes, meter, part } = input;
        let begin = part.as_ref().map_or(0, |part| part.bytes.start);
        let window = Window::new(bytes, begin);
        let seam = part.as_ref().and_then(|part| Some((part.bytes.end, part.next.clone()?)));
        let format = part.map(|part| part.format);
        Self { file, compressed, window, meter, format, seam }
    }

    /// Reads up to the next packet; `false` at the end.
    ///
    /// # Errors
    /// When the capture cannot be read further; nothing can be read after that.
    pub(crate) fn seek(&mut self) -> Result<bool, CaptureError> {
        loop {
            let (bytes, at) = self.window.unread();
            let need = match &mut self.format {
                None => match Format::begin(&bytes[*at..]) {
                    Ok(Begin::Found(format, header)) => {
                        *at += header;
                        self.format = Some(format);
                        continue;
                    }
                    Ok(Begin::Need(bytes)) => Need::whole(bytes, "file header"),
                    Err(refusal) => return Err(self.unreadable(refusal)),
                },
                Some(format) => match format.seek(bytes, at) {
                    Ok(()) => return Ok(true),
                    Err(Stop::Need(need)) => need,
                    Err(Stop::Damaged(damage)) => return Err(self.damaged(0, damage)),
                },
            };
            match self.window.fill(need.bytes) {
                Ok(true) => {}
                Ok(false) => return self.end(need),
                Err(error) if self.compressed => {
                    return Err(self.damaged(need.passed, Damage::Compressed(error)));
                }
                Err(error) => return Err(self.damaged(need.passed, Damage::Read(error))),
            }
        }
    }

    /// Adds the packets in the window to `burst` while it has room; at least one if
    /// [`CaptureReader::seek`] found one. Returns the number of irregular records so far.
    pub(crate) fn walk<'a>(&'a mut self, burst: &mut Burst<'a>) -> u64 {
        let (bytes, at) = self.window.unread();
        self.format.as_mut().map_or(0, |format| {
            format.walk(bytes, at, burst);
            format.irregular()
        })
    }

    /// Fills an empty `chunk` with the packets of a window; `false` at the end.
    ///
    /// # Errors
    /// As [`CaptureReader::seek`].
    pub(crate) fn read(&mut self, chunk: &mut Chunk) -> Result<bool, CaptureError> {
        // The window reads right into the memory of the chunk, which holds the window's buffer
        // meanwhile.
        self.window.exchange(chunk.memory());
        self.window.fill_up();
        let more = self.seek();
        if let (Ok(true), Some(format)) = (&more, &mut self.format) {
            let ((bytes, at), mut columns) = (self.window.unread(), Columns::default());
            loop {
                let mut burst = Burst::new(&mut columns);
                format.walk(bytes, at, &mut burst);
                chunk.extend(bytes, burst.frames());
                if burst.room() > 0 {
                    break;
                }
            }
        }
        self.window.exchange(chunk.memory());
        more
    }

    /// Skips packets in the window, as far as `ahead` allows. [`CaptureReader::seek`] handles the
    /// end of the window and damage.
    pub(crate) fn skip(&mut self, ahead: &Ahead) -> Skipped {
        let (bytes, at) = self.window.unread();
        match &mut self.format {
            Some(format) => format.skip(bytes, at, ahead),
            None => Skipped::none(ahead),
        }
    }

    /// Bytes read from the input so far, before decompression.
    pub(crate) fn bytes_read(&self) -> u64 {
        self.meter.load(Ordering::Relaxed)
    }

    /// Number of records so far that contradict themselves without being damaged.
    pub(crate) fn irregular(&self) -> u64 {
        self.format.as_ref().map_or(0, Format::irregular)
    }

    /// Decides what the end of the input means: a proper end, or a record cut short.
    fn end(&self, need: Need) -> Result<bool, CaptureError> {
        let present = need.passed + self.window.left() as u64;
        // The first section header of a pcapng is its file header, although the walk reads it.
        let in_file_header = self.format.is_none() || self.window.offset() == 0;
        let reached = |(seam, _): &&(u64, Format)| *seam == self.window.offset() + present;
        let seam = self.seam.as_ref().filter(reached);
        match present {
            0 if in_file_header => Err(self.unreadable(Refusal::Empty)),
            // A part with a next part must not end early: the file would have shrunk since it was
            // cut.
            0 if self.seam.is_none() => Ok(false),
            0 if seam.is_some() => self.prove(seam),
            _ if in_file_header => Err(self.unreadable(Refusal::HeaderCut(present))),
            _ => {
                let Need { field, passed, before, whole, .. } = need;
                let (present, needed) = (present - before, whole - before);
                let cut = Damage::Cut { field, present, needed };
                Err(self.damaged(passed, seam.map_or(cut, |(at, _)| Damage::Seam(*at))))
            }
        }
    }

    /// Returns `false` (the end) if the next reader's format equals this one's at the seam.
    ///
    /// # Errors
    /// When they differ, because then the next part was read wrongly.
    fn prove(&self, seam: Option<&(u64, Format)>) -> Result<bool, CaptureError> {
        match (seam, &self.format) {
            (Some((at, next)), Some(format)) if !format.is_as(next) => {
                Err(self.damaged(0, Damage::Redescribed(*at)))
            }
            _ => Ok(false),
        }
    }

    fn damaged(&self, passed: u64, damage: Damage) -> CaptureError {
        let offset = self.window.offset() - passed;
        CaptureError::Damaged {
            file: self.file.clone(),
            offset,
            decompressed: self.compressed,
            damage,
        }
    }

    fn unreadable(&self, refusal: Refusal) -> CaptureError {
        CaptureError::Unreadable { file: self.file.clone(), refusal }
    }
}

/// Size of the read buffer.
///
/// Reading is faster than mapping. Over a 1.6 GB capture in the page cache, walking all records and
/// touching each packet's headers runs at 14.1 GB/s (records of 80 bytes) and 21.2 GB/s (655 bytes)
/// through this buffer, which stays in the L2 cache. A mapping gives 9.6 and 5.2 GB/s: its page
/// faults and cache misses cost more than the copy. `MADV_SEQUENTIAL` changes nothing;
/// `MADV_POPULATE_READ` of 4 to 64 MiB ahead is slower (8.4 and 4.4 GB/s). Buffers of 128 KiB to 4
/// MiB are within 10 % of each other. Besides, a file that shrinks cannot kill a process that reads
/// it.
const BYTES: usize = 256 << 10;

/// The bytes of an input that are in memory: a buffer that slides over it.
struct Window {
    input: Box<dyn Read + Send>,
    buffer: Vec<u8>,
    /// Begin and end of the unread bytes in `buffer`.
    at: usize,
    end: usize,
    /// Offset of `buffer` in the file.
    before: u64,
    /// An error of reading ahead, to be reported later.
    failed: Option<io::Error>,
}

impl Window {
    /// A window on an input that begins at byte `before` of the file.
    fn new(input: Box<dyn Read + Send>, before: u64) -> Self {
        Self { input, buffer: vec![0; BYTES], at: 0, end: 0, before, failed: None }
    }

    /// The bytes read, and the index of the first unread one, for the caller to advance.
    fn unread(&mut self) -> (&[u8], &mut usize) {
        (&self.buffer[..self.end], &mut self.at)
    }

    /// Number of unread bytes in memory.
    fn left(&self) -> usize {
        self.end - self.at
    }

    /// Offset of the first unread byte in the file.
    fn offset(&self) -> u64 {
        self.before + self.at as u64
    }

    /// Reads until `bytes` unread bytes are in memory; `false` if the input ends before. Memory
    /// beyond [`BYTES`] grows with the bytes that arrive, not with a length that the file claims.
    ///
    /// # Errors
    /// When the input cannot be read. The bytes read before are kept.
    fn fill(&mut self, bytes: usize) -> io::Result<bool> {
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

    /// Reads until the buffer is full. Keeps an error for the next [`Window::fill`].
    fn fill_up(&mut self) {
        while self.end < self.buffer.len() && self.failed.is_none() {
            match self.read() {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => self.failed = Some(error),
            }
        }
    }

    /// Continues in `buffer`, to which the unread bytes are copied; `buffer` becomes the old one.
    fn exchange(&mut self, buffer: &mut Vec<u8>) {
        let left = self.left();
        buffer.resize(left.max(BYTES), 0);
        buffer[..left].copy_from_slice(&self.buffer[self.at..self.end]);
        mem::swap(&mut self.buffer, buffer);
        self.passed();
    }

    /// Notes that the unread bytes were moved to the start of the buffer.
    fn passed(&mut self) {
        self.before += self.at as u64;
        self.end -= self.at;
        self.at = 0;
    }

    /// Reads some bytes into the free part of the buffer; `false` at the end.
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
