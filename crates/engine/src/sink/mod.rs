//! Reports to readers: text for people, JSON and CSV for programs.
//!
//! Strings from outside (file names, notes) reach a reader only through `escape`.

mod csv;
mod each;
mod escape;
mod json;
pub mod layout;
mod names;
mod text;
mod time;
pub mod units;

use std::io;

use crate::report::{EpochReport, Gap, TotalReport};

pub use csv::CsvSink;
pub use each::Each;
pub use escape::visible;
pub use json::{JsonSink, parameters};
pub use text::TextSink;
use time::rfc3339;

/// Something that takes reports in the order of time; where several threads measure, one of its own
/// writes them.
pub trait Sink: Send {
    /// A closed epoch, or an update of one that goes on.
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
