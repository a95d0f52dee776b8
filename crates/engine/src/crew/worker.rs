//! What each worker does.

use std::time::Instant;

use flowgauge_core::batch::Batch;
use flowgauge_core::key::FlowKey;
use flowgauge_core::summary::Size;
use flowgauge_kernel::{Consumer, Gone, User};

use crate::lanes::{Take, size};
use crate::summaries::Summaries;
use crate::swaps::Swaps;

/// Parcels in a worker's ring: 4096 packets, which the second-level cache holds.
pub(super) const PARCELS: usize = 16;

/// What goes through a worker's ring: a batch mostly, and at the end of an epoch or an update what is
/// left of both lanes. What the worker emptied comes back.
pub(super) struct Parcel<A, B> {
    pub(super) first: Batch<A>,
    pub(super) second: Batch<B>,
    /// Whether what was measured is handed over behind these batches.
    pub(super) ends: bool,
}

impl<A: FlowKey, B: FlowKey> Parcel<A, B> {
    pub(super) fn new() -> Self {
        Self { first: Batch::new(), second: Batch::new(), ends: false }
    }
}

/// A worker's summaries of an epoch, or of what came since an update, and the size of what they took.
pub(super) struct Set<A, B> {
    pub(super) summaries: Summaries<A, B>,
    pub(super) ingested: Size,
}

impl<A, B> Set<A, B> {
    pub(super) fn new(summaries: Summaries<A, B>) -> Self {
        Self { summaries, ingested: Size::default() }
    }
}

/// One who measures.
pub(super) struct Worker<A, B> {
    sets: User<Set<A, B>>,
    swaps: Swaps,
}

impl<A: FlowKey, B: FlowKey> Worker<A, B> {
    pub(super) fn new(sets: User<Set<A, B>>) -> Self {
        Self { sets, swaps: Swaps::default() }
    }

    /// Takes what comes until nothing comes any more, or the closer is gone.
    pub(super) fn run(mut self, mut work: Consumer<Parcel<A, B>>) -> Swaps {
        while let Ok(Ok(())) = work.pop(|parcel| self.take(parcel)) {}
        self.swaps
    }

    fn take(&mut self, parcel: &mut Parcel<A, B>) -> Result<(), Gone> {
        self.first(&mut parcel.first)?;
        self.second(&mut parcel.second)?;
        if std::mem::take(&mut parcel.ends) { self.end() } else { Ok(()) }
    }

    /// Measures a batch of the first lane, and clears it.
    fn first(&mut self, batch: &mut Batch<A>) -> Result<(), Gone> {
        self.measure(batch, Summaries::first)
    }

    /// Measures a batch of the second lane, and clears it.
    fn second(&mut self, batch: &mut Batch<B>) -> Result<(), Gone> {
        self.measure(batch, Summaries::second)
    }

    #[inline]
    fn measure<K: FlowKey>(
        &mut self,
        batch: &mut Batch<K>,
        measure: impl FnOnce(&mut Summaries<A, B>, &mut Batch<K>),
    ) -> Result<(), Gone> {
        if !batch.is_empty() {
            self.wait()?;
            let set = self.sets.current()?;
            set.ingested += size(batch);
            measure(&mut set.summaries, batch);
            batch.clear();
        }
        Ok(())
    }

    /// Hands what was measured over to the closer.
    fn end(&mut self) -> Result<(), Gone> {
        self.wait()?;
        let begun = Instant::now();
        self.sets.hand_over()?;
        self.swaps.record(begun.elapsed());
        Ok(())
    }

    /// Waits for summaries where the closer still has all of them.
    #[inline(always)]
    fn wait(&mut self) -> Result<(), Gone> {
        if self.sets.is_ready() {
            return Ok(());
        }
        let begun = Instant::now();
        self.sets.current()?;
        self.swaps.record_wait(begun.elapsed());
        Ok(())
    }
}
