//! The sink of a command: reports in a format, to a place.

use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use flowgauge_engine::Pace;
use flowgauge_engine::report::TotalReport;
use flowgauge_engine::sink::{Format, Item, Sink, SinkError, Takes};

use super::place::Place;
use super::whole::Whole;
use crate::failure::complain;

/// Bytes of a report that `analyze` keeps until they are written: those of most reports.
const KEPT: usize = 1 << 20;

/// What the total of an interrupted run says.
pub(crate) const INTERRUPTED: &str = "interrupted: the report covers what was read until then";

/// What signals ask of an output.
#[derive(Default)]
pub(crate) struct Flags {
    /// Open the file again, as after it was renamed.
    pub(crate) reopen: Arc<AtomicBool>,
    /// Note in the total that the run was interrupted.
    pub(crate) interrupted: Arc<AtomicBool>,
}

/// Writes reports, each as a whole.
pub(crate) struct Reports {
    format: Box<dyn Format>,
    place: Place,
    pace: Pace,
    /// Opened when there is something to write where that may wait, and opened again after a failure.
    out: Option<Whole>,
    flags: Flags,
    /// Whether the last attempt failed, which has been said then.
    failed: bool,
}

impl Reports {
    /// Opens the place.
    pub(crate) fn new(
        format: Box<dyn Format>,
        place: Place,
        pace: Pace,
        flags: Flags,
    ) -> Result<Self, SinkError> {
        let mut reports = Self { format, place, pace, out: None, flags, failed: false };
        if !reports.place.waits() {
            let opened = reports.open();
            opened.map_err(|error| reports.error(error))?;
        }
        Ok(reports)
    }

    /// Opens the place, unless it is open.
    fn open(&mut self) -> io::Result<()> {
        if self.flags.reopen.swap(false, Ordering::Relaxed) {
            self.out = None;
        }
        if self.out.is_none() {
            let kept = match self.pace {
                Pace::Replay => KEPT,
                Pace::Live => usize::MAX,
            };
            self.out = Some(Whole::new(self.place.open()?, kept)?);
        }
        Ok(())
    }

    fn write(&mut self, item: &Item) -> io::Result<()> {
        self.open()?;
        let Some(out) = &mut self.out else { return Ok(()) };
        let interrupted = self.flags.interrupted.load(Ordering::Relaxed);
        let formatted = match item {
            Item::Total(total) if interrupted => {
                let mut total = TotalReport::clone(total);
                total.notes.push(INTERRUPTED.to_owned());
                self.format.total(&total, out)
            }
            item => self.format.item(item, out),
        };
        out.end(formatted)
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
        if self.pace == Pace::Live {
            match &written {
                Ok(()) if self.failed => {
                    complain(&format!("{} is written again", self.place.name()));
                }
                Err(error @ SinkError::Write { .. }) if !self.failed => {
                    complain(&format!("{error}; it is tried again"));
                }
                Ok(()) | Err(_) => {}
            }
            if written.is_err() && !matches!(self.place, Place::Standard) {
                self.out = None;
            }
        }
        self.failed = written.is_err();
        written
    }

    fn finish(&mut self) -> Result<(), SinkError> {
        let Place::Replaced(replacement) = &self.place else { return Ok(()) };
        let synced = self.out.as_ref().map_or(Ok(()), Whole::sync);
        synced.and_then(|()| replacement.complete()).map_err(|error| self.error(error))
    }
}
