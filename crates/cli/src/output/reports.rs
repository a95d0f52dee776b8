//! The sink of a command: writes reports in a format to a place.

use std::fs::File;
use std::io::{self, ErrorKind, Seek, SeekFrom, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use flowgauge_engine::Pace;
use flowgauge_engine::report::TotalReport;
use flowgauge_engine::sink::{Format, Item, Sink, SinkError, Takes};

use super::place::Place;
use crate::failure::complain;

/// Bytes of a report that `analyze` buffers: enough for most reports.
pub(super) const KEPT: usize = 1 << 20;

/// The note in the total of an interrupted run.
pub(crate) const INTERRUPTED: &str = "interrupted: the report covers the packets read so far";

/// What signals request of an output.
#[derive(Default)]
pub(crate) struct Flags {
    /// Open the file again, as after it was renamed.
    pub(crate) reopen: Arc<AtomicBool>,
    /// Note in the total that the run was interrupted.
    pub(crate) interrupted: Arc<AtomicBool>,
}

impl Flags {
    /// Whether to open files again. Each request is returned once.
    pub(super) fn reopen(&self) -> bool {
        self.reopen.swap(false, Ordering::Relaxed)
    }

    /// The item; an interrupted run's total with its note.
    pub(super) fn noted(&self, item: &Item) -> Item {
        match item {
            Item::Total(total) if self.interrupted.load(Ordering::Relaxed) => {
                let mut total = TotalReport::clone(total);
                total.notes.push(INTERRUPTED.to_owned());
                Item::Total(total.into())
            }
            item => item.clone(),
        }
    }
}

/// Writes reports, each complete or not at all.
pub(crate) struct Reports {
    format: Box<dyn Format>,
    place: Place,
    pace: Pace,
    /// The open file. A place where opening may wait is opened at the first write, and again after
    /// a failure.
    out: Option<Whole>,
    /// Whether the file has the format's header.
    headed: bool,
    flags: Flags,
}

impl Reports {
    /// Opens the place.
    pub(crate) fn new(
        format: Box<dyn Format>,
        place: Place,
        pace: Pace,
        flags: Flags,
    ) -> Result<Self, SinkError> {
        let mut reports = Self { format, place, pace, out: None, headed: false, flags };
        if !reports.place.waits() {
            let opened = reports.open();
            opened.map_err(|error| reports.error(error))?;
        }
        Ok(reports)
    }

    /// Opens the place, unless it is open.
    fn open(&mut self) -> io::Result<()> {
        if self.flags.reopen() {
            self.out = None;
        }
        if self.out.is_none() {
            let kept = match self.pace {
                Pace::Replay => KEPT,
                Pace::Live => usize::MAX,
            };
            let file = self.place.open()?;
            let metadata = file.metadata()?;
            // Standard output already has the header, and so has a file that is appended to.
            self.headed = match self.place {
                Place::Standard => self.headed,
                _ => metadata.is_file() && metadata.len() > 0,
            };
            self.out = Some(Whole::new(file, kept)?);
        }
        Ok(())
    }

    fn write(&mut self, item: &Item) -> io::Result<()> {
        self.open()?;
        let Some(out) = &mut self.out else { return Ok(()) };
        let header = if self.headed { Ok(()) } else { self.format.header(out) };
        let formatted = header.and_then(|()| self.format.item(&self.flags.noted(item), out));
        out.end(formatted)?;
        self.headed = true;
        Ok(())
    }

    /// The error of this output. In a live run a named pipe may get another reader.
    fn error(&self, error: io::Error) -> SinkError {
        let output = self.place.name();
        let named = self.pace == Pace::Live && matches!(self.place, Place::Special(_));
        if named && error.kind() == ErrorKind::BrokenPipe {
            return SinkError::Write { output, error };
        }
        SinkError::new(&output, error)
    }
}

impl Sink for Reports {
    fn takes(&self) -> Takes {
        Takes::Reports
    }

    fn deliver(&mut self, item: &Item) -> Result<(), SinkError> {
        let written = self.write(item).map_err(|error| self.error(error));
        // A live run opens it again.
        if written.is_err() && self.pace == Pace::Live && !matches!(self.place, Place::Standard) {
            self.out = None;
        }
        written
    }

    fn finish(&mut self) -> Result<(), SinkError> {
        let Some(out) = &self.out else { return Ok(()) };
        self.place.complete(out.file()).map_err(|error| self.error(error))
    }
}

/// A file that receives complete reports. The written part of a failed report is removed if the
/// file is a regular one; a pipe cannot take anything back.
pub(crate) struct Whole {
    file: File,
    regular: bool,
    /// Bytes of a report that are buffered until it is complete. A longer report is written
    /// earlier.
    kept: usize,
    buffer: Vec<u8>,
    /// Bytes of this report in the file so far.
    written: u64,
}

impl Whole {
    pub(crate) fn new(file: File, kept: usize) -> io::Result<Self> {
        let regular = file.metadata()?.is_file();
        Ok(Self { file, regular, kept, buffer: Vec::new(), written: 0 })
    }

    /// Ends a report; `result` says whether it could be formatted.
    pub(crate) fn end(&mut self, result: io::Result<()>) -> io::Result<()> {
        let result = result.and_then(|()| self.pour());
        if result.is_err() && self.regular && self.written > 0 {
            self.take_back()?;
        }
        self.buffer.clear();
        // A long report is rare; release its memory.
        self.buffer.shrink_to(64 << 10);
        self.written = 0;
        result
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    fn pour(&mut self) -> io::Result<()> {
        let mut rest = &self.buffer[..];
        while !rest.is_empty() {
            match self.file.write(rest) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => {
                    self.written += count as u64;
                    rest = &rest[count..];
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.buffer.clear();
        Ok(())
    }

    /// Truncates the file to where the report began, unless something was written after it.
    fn take_back(&mut self) -> io::Result<()> {
        let end = self.file.stream_position()?;
        if self.file.metadata()?.len() == end {
            let start = end - self.written;
            self.file.set_len(start)?;
            self.file.seek(SeekFrom::Start(start))?;
        }
        Ok(())
    }
}

impl Write for Whole {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.buffer.len() + bytes.len() > self.kept {
            self.pour()?;
        }
        self.buffer.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A sink of a live run that reports on standard error when it fails and when it works again.
pub(crate) struct Retried {
    sink: Box<dyn Sink>,
    /// The failure that has been reported.
    failed: Option<String>,
}

impl Retried {
    pub(crate) fn new(sink: Box<dyn Sink>) -> Self {
        Self { sink, failed: None }
    }
}

impl Sink for Retried {
    fn takes(&self) -> Takes {
        self.sink.takes()
    }

    fn deliver(&mut self, item: &Item) -> Result<(), SinkError> {
        let delivered = self.sink.deliver(item);
        match &delivered {
            Ok(()) => {
                if let Some(output) = self.failed.take() {
                    complain(&format!("{output} can be written again"));
                }
            }
            Err(error @ SinkError::Write { output, .. }) if self.failed.is_none() => {
                complain(&format!("{error}; retrying"));
                self.failed = Some(output.clone());
            }
            Err(_) => {}
        }
        delivered
    }

    fn finish(&mut self) -> Result<(), SinkError> {
        self.sink.finish()
    }
}
