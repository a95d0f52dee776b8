//! One capture, from its first byte as far as it goes.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use flowgauge_engine::source::{Ahead, Burst, Chunk, Columns, Skipped};

use crate::{
    damage::{CaptureError, Damage, Refusal},
    format::{Begin, Format, Need, Stop},
    input::Input,
    window::Window,
};

/// Reads a capture of either format.
pub(crate) struct Reader {
    file: String,
    compressed: bool,
    window: Window,
    meter: Arc<AtomicU64>,
    format: Option<Format>,
    /// Where this reader's part of the file ends, if another one begins there, and what its reader takes
    /// for granted.
    seam: Option<(u64, Format)>,
}

impl Reader {
    pub(crate) fn new(input: Input) -> Self {
        let Input { file, compressed, bytes, meter, part } = input;
        let begin = part.as_ref().map_or(0, |part| part.bytes.start);
        let window = Window::new(bytes, begin);
        let seam = part.as_ref().and_then(|part| Some((part.bytes.end, part.next.clone()?)));
        let format = part.map(|part| part.format);
        Self { file, compressed, window, meter, format, seam }
    }

    /// Reads as far as the next packet; `false` at the end.
    ///
    /// # Errors
    /// Where the capture cannot be read on; that is its end.
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

    /// Adds packets to `burst` as far as it has room and they are in the window: at least one
    /// after [`Reader::seek`] found it. Returns the irregular records so far.
    pub(crate) fn walk<'a>(&'a mut self, burst: &mut Burst<'a>) -> u64 {
        let (bytes, at) = self.window.unread();
        self.format.as_mut().map_or(0, |format| {
            format.walk(bytes, at, burst);
            format.irregular()
        })
    }

    /// Fills an empty `chunk`, with as many packets as a window holds; `false` at the end.
    ///
    /// # Errors
    /// As [`Reader::seek`].
    pub(crate) fn read(&mut self, chunk: &mut Chunk) -> Result<bool, CaptureError> {
        // The bytes of a file go right into the chunk, which has the window's buffer meanwhile.
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

    /// Passes over packets in the window, as far as `ahead` goes. What ends the window, or is wrong
    /// there, is left to [`Reader::seek`].
    pub(crate) fn skip(&mut self, ahead: &Ahead) -> Skipped {
        let (bytes, at) = self.window.unread();
        match &mut self.format {
            Some(format) => format.skip(bytes, at, ahead),
            None => Skipped::none(ahead),
        }
    }

    /// Bytes taken from the input so far, compressed as they stand.
    pub(crate) fn bytes_read(&self) -> u64 {
        self.meter.load(Ordering::Relaxed)
    }

    /// Records so far that contradict themselves without being damaged.
    pub(crate) fn irregular(&self) -> u64 {
        self.format.as_ref().map_or(0, Format::irregular)
    }

    /// The input ended while a record, or the first byte of the next one, was awaited.
    fn end(&self, need: Need) -> Result<bool, CaptureError> {
        let present = need.passed + self.window.left() as u64;
        // A first section header is a file header too, though the walk meets it.
        let in_file_header = self.format.is_none() || self.window.offset() == 0;
        let reached = |(seam, _): &&(u64, Format)| *seam == self.window.offset() + present;
        let seam = self.seam.as_ref().filter(reached);
        match present {
            0 if in_file_header => Err(self.unreadable(Refusal::Empty)),
            // A file that shrank since it was cut lacks what its other part held for certain.
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

    /// Whether the reader of the next part begins as this one ends.
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
