//! The sink of a command: reports in a format, to a place.

use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use flowgauge_engine::Pace;
use flowgauge_engine::report::TotalReport;
use flowgauge_engine::sink::{Format, Item, Sink, SinkError, Takes};

use super::place::Place;
use super::whole::Whole;

/// Bytes of a report that `analyze` keeps until they are written: those of most reports.
pub(super) const KEPT: usize = 1 << 20;

/// What the total of an interrupted run says.
pub(crate) const INTERRUPTED: &str = "interrupted: the report covers the packets read so far";

/// What signals ask of an output.
#[derive(Default)]
pub(crate) struct Flags {
    /// Open the file again, as after it was renamed.
    pub(crate) reopen: Arc<AtomicBool>,
    /// Note in the total that the run was interrupted.
    pub(crate) interrupted: Arc<AtomicBool>,
}

impl Flags {
    /// Whether files are to be opened again; asked once for each request.
    pub(super) fn reopen(&self) -> bool {
        self.reopen.swap(false, Ordering::Relaxed)
    }

    /// The item, with what a total must note.
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

/// Writes reports, each as a whole.
pub(crate) struct Reports {
    format: Box<dyn Format>,
    place: Place,
    pace: Pace,
    /// Opened when there is something to write where that may wait, and opened again after a failure.
    out: Option<Whole>,
    /// Whether the file has begun, with the format's header.
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
            // A reader of standard output has seen the header, and so has a file that is added to.
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

    /// The error of this output: live, a pipe by name may get another reader.
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
        // Live, it is opened again.
        if written.is_err() && self.pace == Pace::Live && !matches!(self.place, Place::Standard) {
            self.out = None;
        }
        written
    }

    fn finish(&mut self) -> Result<(), SinkError> {
        let Place::Replaced(replacement) = &self.place else { return Ok(()) };
        let synced = self.out.as_ref().map_or(Ok(()), Whole::sync);
        synced.and_then(|()| replacement.complete()).map_err(|error| self.error(error))
    }
}
