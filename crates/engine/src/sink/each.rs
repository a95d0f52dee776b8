//! Reports to a function of the program itself.

use std::io;

use super::Sink;
use crate::report::{EpochReport, Gap, TotalReport};

/// Calls a function with the report of each epoch, and of each update of one that goes on.
///
/// It is told neither of empty epochs, of which [`EpochReport::epoch`] skips the numbers, nor of the
/// end, whose total is in the run's [`Outcome`](crate::Outcome).
pub struct Each<F>(pub F);

impl<F: FnMut(&EpochReport) -> io::Result<()> + Send> Sink for Each<F> {
    fn epoch(&mut self, report: &EpochReport) -> io::Result<()> {
        self.0(report)
    }

    fn gap(&mut self, _: &Gap) -> io::Result<()> {
        Ok(())
    }

    fn total(&mut self, _: &TotalReport) -> io::Result<()> {
        Ok(())
    }
}
