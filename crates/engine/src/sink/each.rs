//! Reports to a function of the program itself.

use std::io;

use super::{Item, Sink, SinkError, Takes};
use crate::report::EpochReport;

/// Calls a function with the report of each epoch, and of each update of one that goes on.
///
/// It is told neither of empty epochs, of which [`EpochReport::epoch`] skips the numbers, nor of the
/// end, whose total is in the run's [`Outcome`](crate::Outcome).
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
