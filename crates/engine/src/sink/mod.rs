//! Reports to readers: text for people, JSON and CSV for programs.

use std::io;

use crate::report::{EpochReport, Gap, TotalReport};

/// Something that takes reports in the order of time.
pub trait Sink {
    /// A closed epoch.
    ///
    /// # Errors
    /// When the output cannot be written.
    fn epoch(&mut self, report: &EpochReport) -> io::Result<()>;
    /// A run of empty epochs.
    ///
    /// # Errors
    /// When the output cannot be written.
    fn gap(&mut self, gap: &Gap) -> io::Result<()>;
    /// The end of the run.
    ///
    /// # Errors
    /// When the output cannot be written.
    fn total(&mut self, report: &TotalReport) -> io::Result<()>;
}
