//! The last reports of a live run, printed on a signal and at the end of a run on a terminal.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use flowgauge_engine::report::{EpochReport, Gap, TotalReport};
use flowgauge_engine::sink::{Format, Item, Line, Sink, SinkError, Takes, Text};
use signal_hook::consts::SIGUSR1;
use signal_hook::iterator::Signals;

use crate::failure::Failure;

/// The last report of each measurement.
#[derive(Clone, Default)]
pub(crate) struct Last(Arc<Mutex<BTreeMap<Arc<str>, Arc<EpochReport>>>>);

impl Last {
    fn keep(&self, report: &Arc<EpochReport>) {
        let mut reports = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        reports.insert(Arc::clone(&report.measurement), Arc::clone(report));
    }

    fn of(&self, measurement: &str) -> Option<Arc<EpochReport>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(measurement).cloned()
    }

    fn all(&self) -> Vec<Arc<EpochReport>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// Prints the last reports on standard error for each USR1, on its own thread.
    pub(crate) fn print_on_request(&self, text: Text) -> Result<(), Failure> {
        let failure = |error: io::Error| Failure::Failed(format!("signals: {error}"));
        let mut signals = Signals::new([SIGUSR1]).map_err(failure)?;
        let last = self.clone();
        let print = move || {
            for _ in signals.forever() {
                let mut page = Vec::new();
                let written =
                    last.all().iter().try_for_each(|report| text.epoch(report, &mut page));
                if page.is_empty() {
                    page.extend(b"no epoch has ended yet\n");
                }
                // If standard error is closed, the run continues.
                let _ = written.and_then(|()| io::stderr().write_all(&page));
            }
        };
        let thread = thread::Builder::new().name("usr1".to_owned()).spawn(print);
        thread.map(drop).map_err(failure)
    }
}

impl Sink for Last {
    fn takes(&self) -> Takes {
        Takes::Reports
    }

    fn deliver(&mut self, item: &Item) -> Result<(), SinkError> {
        if let Item::Epoch(report) = item {
            self.keep(report);
        }
        Ok(())
    }
}

/// A sink that keeps the last report and passes items on.
pub(crate) struct Kept {
    pub(crate) last: Last,
    pub(crate) sink: Box<dyn Sink>,
}

impl Sink for Kept {
    fn takes(&self) -> Takes {
        self.sink.takes()
    }

    fn deliver(&mut self, item: &Item) -> Result<(), SinkError> {
        self.last.deliver(item)?;
        self.sink.deliver(item)
    }

    fn finish(&mut self) -> Result<(), SinkError> {
        self.sink.finish()
    }
}

/// A line for each epoch, and at the end the last report as text.
pub(crate) struct Brief {
    pub(crate) last: Last,
    pub(crate) text: Text,
}

impl Format for Brief {
    fn header(&self, out: &mut dyn Write) -> io::Result<()> {
        Line.header(out)
    }

    fn epoch(&self, report: &EpochReport, out: &mut dyn Write) -> io::Result<()> {
        Line.epoch(report, out)
    }

    fn gap(&self, gap: &Gap, out: &mut dyn Write) -> io::Result<()> {
        Line.gap(gap, out)
    }

    fn total(&self, report: &TotalReport, out: &mut dyn Write) -> io::Result<()> {
        if let Some(last) = self.last.of(&report.measurement) {
            writeln!(out)?;
            self.text.epoch(&last, out)?;
        }
        self.text.total(report, out)
    }
}
