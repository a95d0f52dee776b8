//! A meter that measures what it reads, and hands its summaries to the closer at the end of an epoch.

use std::time::Instant;

use flowgauge_core::any::BatchMut;
use flowgauge_core::lanes::Take;
use flowgauge_kernel::{Gone, User};

use crate::intake::{Crew, Ended};
use crate::summaries::Set;
use crate::swaps::Record;

/// Empty epochs after which any forecast is forgotten: it halves in each of them, and is gone below ½.
const FORGOTTEN: u64 = 66;

/// The summaries of a meter's own thread.
pub(crate) struct Own {
    sets: User<Set>,
    /// Whether one set stays in use from epoch to epoch: the closer gets it on loan.
    lasting: bool,
    swaps: Record,
    broken: bool,
}

impl Own {
    pub(crate) fn new(sets: User<Set>, lasting: bool, swaps: Record) -> Self {
        Self { sets, lasting, swaps, broken: false }
    }

    fn hand_over(&mut self, ended: Ended) -> Result<(), Gone> {
        let lend = self.lasting || ended.update;
        self.sets.current()?.ended = Some(ended);
        if lend {
            return self.sets.lend();
        }
        let begun = Instant::now();
        self.sets.hand_over()?;
        self.swaps.record(begun.elapsed());
        Ok(())
    }
}

impl Take for Own {
    #[inline]
    fn take(&mut self, lane: usize, batch: BatchMut<'_>) {
        match self.sets.current() {
            Ok(set) => set.ingest(lane, batch),
            Err(Gone) => self.broken = true,
        }
    }
}

impl Crew for Own {
    fn end(&mut self, ended: Ended) -> Result<(), Gone> {
        let handed = self.hand_over(ended);
        self.broken |= handed.is_err();
        handed
    }

    fn pass(&mut self, epochs: u64) -> Result<(), Gone> {
        if self.lasting {
            let set = self.sets.current()?;
            for _ in 0..epochs.min(FORGOTTEN) {
                set.summaries.next_epoch();
            }
        }
        Ok(())
    }

    fn is_broken(&self) -> bool {
        self.broken || self.sets.is_gone()
    }
}
