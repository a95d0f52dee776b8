//! Sinks: where reports leave a run.
//!
//! A [`Sink`] takes [`Item`]s in the order of time. [`Outlets`] gives each of several sinks a
//! thread and a bounded queue. A [`Format`] turns items into text: for people ([`Text`]), for
//! eyes and `grep` ([`Line`]), for programs ([`Json`]), or for a browser ([`Html`]). [`tables`]
//! turns them into columns ([`csv`]). Strings from outside (file names, notes) reach a reader only
//! through `escape`.

pub mod csv;
mod each;
mod error;
mod escape;
mod findings;
mod html;
mod json;
pub mod layout;
mod line;
pub(crate) mod names;
mod outlets;
mod queue;
pub mod tables;
mod text;
mod time;
pub mod units;
mod ways;
mod written;

use std::io::{self, Write};
use std::sync::Arc;

use crate::report::{EpochReport, Gap, TotalReport};
use crate::snapshot::Saved;

pub use each::Each;
pub use error::SinkError;
pub use escape::{visible, visible_json};
pub use html::Html;
pub use json::{Json, parameters};
pub use line::Line;
pub use outlets::{Ending, Outlets};
pub(crate) use queue::QUEUE_BYTES;
pub use text::Text;
pub use time::{parse_rfc3339, rfc3339};
pub use written::Written;

/// What leaves a run. Copies share the report.
#[derive(Clone, Debug)]
pub enum Item {
    /// A closed epoch, or an update of one that goes on.
    Epoch(Arc<EpochReport>),
    /// A run of empty epochs.
    Gap(Gap),
    /// A closed epoch as it is stored, before its report; only where the measurement is saved.
    Snapshot(Arc<Saved>),
    /// The end of the run.
    Total(Arc<TotalReport>),
}

impl Item {
    /// Bytes of memory that the item takes.
    fn memory_bytes(&self) -> usize {
        size_of::<Self>()
            + match self {
                Self::Epoch(report) => report.memory_bytes(),
                Self::Gap(_) => 0,
                Self::Snapshot(saved) => saved.bytes.len(),
                Self::Total(report) => report.memory_bytes(),
            }
    }
}

/// The items that a sink wants; others never reach its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takes {
    /// Reports, but no snapshots.
    Reports,
    /// Snapshots alone.
    Snapshots,
    /// Every item.
    All,
}

impl Takes {
    fn takes(self, item: &Item) -> bool {
        match self {
            Self::Reports => !matches!(item, Item::Snapshot(_)),
            Self::Snapshots => matches!(item, Item::Snapshot(_)),
            Self::All => true,
        }
    }
}

/// Something that takes items in the order of time.
pub trait Sink: Send {
    /// The items that it wants. What it does not want is not counted as undelivered.
    fn takes(&self) -> Takes {
        Takes::All
    }

    /// Takes an item: all of it, or after an error nothing that a reader could mistake for it. The
    /// same item may then be delivered again.
    ///
    /// # Errors
    /// When the item cannot be written.
    fn deliver(&mut self, item: &Item) -> Result<(), SinkError>;

    /// Makes what was delivered last. Called once, after the last item; never when the run failed.
    ///
    /// # Errors
    /// When it cannot.
    fn finish(&mut self) -> Result<(), SinkError> {
        Ok(())
    }
}

/// A way to write reports as bytes.
pub trait Format: Send {
    /// Writes what a file begins with: for most formats nothing.
    ///
    /// # Errors
    /// When `out` cannot be written.
    fn header(&self, _out: &mut dyn Write) -> io::Result<()> {
        Ok(())
    }

    /// Writes a closed epoch, or an update of one that goes on.
    ///
    /// # Errors
    /// When `out` cannot be written.
    fn epoch(&self, report: &EpochReport, out: &mut dyn Write) -> io::Result<()>;

    /// Writes a run of empty epochs.
    ///
    /// # Errors
    /// When `out` cannot be written.
    fn gap(&self, gap: &Gap, out: &mut dyn Write) -> io::Result<()>;

    /// Writes the end of the run.
    ///
    /// # Errors
    /// When `out` cannot be written.
    fn total(&self, report: &TotalReport, out: &mut dyn Write) -> io::Result<()>;

    /// Writes an item.
    ///
    /// # Errors
    /// When `out` cannot be written.
    fn item(&self, item: &Item, out: &mut dyn Write) -> io::Result<()> {
        match item {
            Item::Epoch(report) => self.epoch(report, out),
            Item::Gap(gap) => self.gap(gap, out),
            Item::Snapshot(_) => Ok(()),
            Item::Total(report) => self.total(report, out),
        }
    }
}
