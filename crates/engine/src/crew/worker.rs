//! A thread that measures what the dispatcher deals to it.

use std::time::Instant;

use flowgauge_core::any::{AnyBatch, BatchMut};
use flowgauge_kernel::{Consumer, Gone, User};

use crate::intake::Ended;
use crate::summaries::Set;
use crate::swaps::Record;

/// Parcels in a worker's ring: 4096 packets, which the second-level cache holds.
pub(super) const PARCELS: usize = 16;

/// What goes through a worker's ring: a batch of one lane, and at the end of an epoch or an update the
/// rest of all lanes. The emptied batches come back.
pub(super) struct Parcel {
    pub(super) lanes: Vec<AnyBatch>,
    /// Whether the summaries are handed over behind these batches.
    pub(super) ends: bool,
    /// The end of the epoch, in the parcel of the first worker.
    pub(super) ended: Option<Ended>,
}

impl Parcel {
    pub(super) fn new(lanes: &[usize]) -> Self {
        let lanes = lanes.iter().map(|key_bytes| AnyBatch::new(*key_bytes)).collect();
        Self { lanes, ends: false, ended: None }
    }
}

/// A thread's side of the sets that it fills one after another.
pub(super) struct Worker {
    sets: User<Set>,
    swaps: Record,
}

impl Worker {
    pub(super) fn new(sets: User<Set>, swaps: Record) -> Self {
        Self { sets, swaps }
    }

    /// Measures parcels until the dispatcher is gone and the ring is empty, or the closer is gone.
    pub(super) fn run(mut self, mut work: Consumer<Parcel>) {
        while let Ok(Ok(())) = work.pop(|parcel| self.take(parcel)) {}
    }

    fn take(&mut self, parcel: &mut Parcel) -> Result<(), Gone> {
        for (lane, batch) in parcel.lanes.iter_mut().enumerate() {
            self.measure(lane, batch.as_mut())?;
        }
        if std::mem::take(&mut parcel.ends) { self.end(parcel.ended.take()) } else { Ok(()) }
    }

    /// Measures a batch, and clears it.
    #[inline]
    fn measure(&mut self, lane: usize, mut batch: BatchMut<'_>) -> Result<(), Gone> {
        if !batch.is_empty() {
            self.set()?.ingest(lane, batch.reborrow());
            batch.clear();
        }
        Ok(())
    }

    /// The set in use; waits for it where the closer still has all of them.
    #[inline]
    fn set(&mut self) -> Result<&mut Set, Gone> {
        if !self.sets.is_ready() {
            let begun = Instant::now();
            self.sets.current()?;
            self.swaps.record_wait(begun.elapsed());
        }
        self.sets.current()
    }

    /// Hands the summaries over to the closer.
    fn end(&mut self, ended: Option<Ended>) -> Result<(), Gone> {
        self.set()?.ended = ended;
        let begun = Instant::now();
        self.sets.hand_over()?;
        self.swaps.record(begun.elapsed());
        Ok(())
    }
}
