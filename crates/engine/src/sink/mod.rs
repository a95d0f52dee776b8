//! Sinks: where reports leave a run.
//!
//! A [`Sink`] takes [`Item`]s in order of time. [`Outlets`] gives each of several sinks a thread
//! and a bounded queue. A [`Format`] turns items into text: for people ([`Text`]), for reading and
//! `grep` ([`Line`]), for programs ([`Json`]), or for a browser ([`Html`]). [`tables`] turns them
//! into columns ([`csv`]). Strings from outside (file names, notes) reach a reader only through
//! `escape`.

pub mod csv;
mod escape;
mod findings;
mod html;
mod json;
pub mod layout;
mod line;
pub(crate) mod names;
mod outlets;
pub mod tables;
mod text;
pub mod units;

use std::io::{self, ErrorKind, Write};
use std::sync::Arc;

use flowgauge_core::key::KeyKind;
use flowgauge_core::summary::{Seen, SizeEstimate};
use flowgauge_core::terms::Size;

use crate::report::{EpochReport, Gap, TotalReport};
use crate::snapshot::Saved;

pub use escape::{visible, visible_json};
pub use html::Html;
pub use json::{Json, parameters};
pub use line::Line;
pub use outlets::{Ending, Outlets, QUEUE_BYTES, SinkHealth};
pub use text::Text;
pub use units::{parse_rfc3339, rfc3339};

/// An item that leaves a run. Copies share the report.
#[derive(Clone, Debug)]
pub enum Item {
    /// The report of a closed epoch, or an update.
    Epoch(Arc<EpochReport>),
    /// A run of empty epochs.
    Gap(Gap),
    /// A stored epoch, before its report. Only if the measurement is saved.
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
    /// Snapshots alone: a run into such a sink answers no tasks.
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

/// A receiver of items in order of time.
///
/// ```
/// use std::sync::Arc;
/// use flowgauge_engine::report::TotalReport;
/// use flowgauge_engine::sink::{Item, Sink, SinkError};
///
/// /// Counts the runs that have ended.
/// struct Runs(u32);
/// impl Sink for Runs {
///     fn deliver(&mut self, item: &Item) -> Result<(), SinkError> {
///         self.0 += u32::from(matches!(item, Item::Total(_)));
///         Ok(())
///     }
/// }
/// let mut runs = Runs(0);
/// runs.deliver(&Item::Total(Arc::new(TotalReport::new("main".into()))))?;
/// assert_eq!(runs.0, 1);
/// # Ok::<(), SinkError>(())
/// ```
pub trait Sink: Send {
    /// The items that it wants. Other items are not counted as undelivered.
    fn takes(&self) -> Takes {
        Takes::All
    }

    /// Takes an item completely, or fails and leaves nothing that a reader could mistake for the
    /// item. After an error the same item may be delivered again.
    ///
    /// # Errors
    /// When the item cannot be written.
    fn deliver(&mut self, item: &Item) -> Result<(), SinkError>;

    /// Items taken earlier that the last call of [`deliver`](Self::deliver) or
    /// [`finish`](Self::finish) lost, such as those in a file that broke off. They count as
    /// undelivered.
    fn lost(&mut self) -> u64 {
        0
    }

    /// Makes everything delivered permanent. Called once, after the last item; never if the run
    /// failed.
    ///
    /// # Errors
    /// When that fails.
    fn finish(&mut self) -> Result<(), SinkError> {
        Ok(())
    }
}

/// A way to write reports as bytes.
///
/// ```
/// use flowgauge_engine::report::TotalReport;
/// use flowgauge_engine::sink::{Format, Line};
///
/// let mut out = Vec::new();
/// Line.header(&mut out)?;
/// Line.total(&TotalReport::new("main".into()), &mut out)?;
/// assert_eq!(String::from_utf8(out)?.lines().count(), 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Format: Send {
    /// Writes the beginning of a file: for most formats nothing.
    ///
    /// # Errors
    /// When `out` cannot be written.
    fn header(&self, _out: &mut dyn Write) -> io::Result<()> {
        Ok(())
    }

    /// Writes a closed epoch, or an update.
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

/// A sink that calls a function with the report of each epoch and of each update.
///
/// The function is not called for empty epochs, whose numbers [`EpochReport::epoch`] skips, nor for
/// the total, which is in the run's [`Outcome`](crate::Outcome).
///
/// ```
/// use std::sync::Arc;
///
/// use flowgauge_engine::report::{EpochReport, TotalReport};
/// use flowgauge_engine::sink::{Each, Item, Sink};
///
/// let mut epochs = 0;
/// let mut sink = Each(|_: &EpochReport| Ok(epochs += 1));
/// sink.deliver(&Item::Total(Arc::new(TotalReport::new("main".into()))))?;
/// assert_eq!(epochs, 0, "the total is no epoch");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Each<F>(pub F);

impl<F: FnMut(&EpochReport) -> io::Result<()> + Send> Sink for Each<F> {
    fn takes(&self) -> Takes {
        Takes::Reports
    }

    fn deliver(&mut self, item: &Item) -> Result<(), SinkError> {
        match item {
            Item::Epoch(report) => Ok(self.0(report)?),
            Item::Gap(_) | Item::Snapshot(_) | Item::Total(_) => Ok(()),
        }
    }
}

/// A sink that writes items to a writer in a format, and flushes after each item.
///
/// ```
/// use std::sync::Arc;
///
/// use flowgauge_engine::report::TotalReport;
/// use flowgauge_engine::sink::{Item, Json, Sink, Written};
///
/// let mut out = Vec::new();
/// let total = Item::Total(Arc::new(TotalReport::new("main".into())));
/// Written::new(Json, &mut out).deliver(&total)?;
/// assert!(String::from_utf8(out)?.starts_with(r#"{"type":"total""#));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Written<F, W> {
    format: F,
    out: W,
    headed: bool,
}

impl<F: Format, W: Write + Send> Written<F, W> {
    /// Writes the format's header and then the items to `out`.
    pub fn new(format: F, out: W) -> Self {
        Self { format, out, headed: false }
    }
}

impl<F: Format, W: Write + Send> Sink for Written<F, W> {
    fn takes(&self) -> Takes {
        Takes::Reports
    }

    fn deliver(&mut self, item: &Item) -> Result<(), SinkError> {
        if !self.headed {
            self.format.header(&mut self.out)?;
            self.headed = true;
        }
        self.format.item(item, &mut self.out)?;
        Ok(self.out.flush()?)
    }
}

/// Why a sink did not take a report.
#[derive(Debug, thiserror::Error)]
pub enum SinkError {
    /// Its reader has closed it for good, as in `| head`.
    #[error("cannot write to {output}: its reader closed it")]
    Closed {
        /// The output.
        output: String,
    },
    /// A later attempt may succeed.
    #[error("cannot write to {output}: {error}")]
    Write {
        /// The output.
        output: String,
        /// The operating system's reason.
        error: io::Error,
    },
    /// It takes other items but will never take this one, for example because it is too large.
    #[error("{output} refuses an item: {error}")]
    Refused {
        /// The output.
        output: String,
        /// The output's reason.
        error: io::Error,
    },
    /// Its thread panicked. This is a bug.
    #[error("the thread of a sink failed; please report this bug")]
    Panicked,
}

impl SinkError {
    /// The error of writing to `output`. A broken pipe counts as closed.
    pub fn new(output: &str, error: io::Error) -> Self {
        let output = output.to_owned();
        match error.kind() {
            ErrorKind::BrokenPipe => Self::Closed { output },
            _ => Self::Write { output, error },
        }
    }

    /// Whether the reader of the output has closed it.
    pub fn is_closed(&self) -> bool {
        matches!(self, Self::Closed { .. })
    }
}

impl From<io::Error> for SinkError {
    fn from(error: io::Error) -> Self {
        Self::new("the report", error)
    }
}

/// The traffic of a flow in each direction: from the first endpoint of a conversation or from a
/// host, and back.
struct Directions {
    pub(super) forward: Size,
    pub(super) back: Size,
}

impl Directions {
    /// The directions of a flow of this size; `None` if its key has only one.
    fn of(seen: &Seen, size: &SizeEstimate, kind: KeyKind) -> Option<Self> {
        let (packets, bytes) = (size.packets?.value as u64, size.bytes?.value as u64);
        let back = seen.back;
        let forward = Size {
            packets: packets.saturating_sub(back.packets),
            bytes: bytes.saturating_sub(back.bytes),
        };
        Self::has(kind).then_some(Self { forward, back })
    }

    /// Whether keys of this kind include both directions.
    fn has(kind: KeyKind) -> bool {
        kind.is_in_order() || kind.is_either()
    }

    /// The mean size of a flow's packets in bytes.
    pub(super) fn mean(size: &SizeEstimate) -> Option<f64> {
        let packets = size.packets?.value;
        (packets > 0.0).then_some(size.bytes?.value / packets)
    }
}
