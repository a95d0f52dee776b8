//! A meter that measures what it reads, and hands its summaries to the closer at the end of an epoch.

use std::sync::Arc;
use std::time::Instant;

use flowgauge_core::any::BatchMut;
use flowgauge_core::batcher::Take;
use flowgauge_kernel::{Gone, User};

use crate::config::Pace;
use crate::gathering::Open;
use crate::intake::{Crew, Ended};
use crate::summaries::Set;
use crate::swaps::Record;

/// The summaries of a meter's own thread.
pub(crate) struct Own {
    sets: User<Set>,
    pace: Pace,
    /// Whether the only set stays in use from epoch to epoch: the closer gets it on loan.
    lasting: bool,
    /// Where the meter of one of several queues publishes its open epoch, and that epoch.
    open: Option<(Arc<Open>, i64)>,
    /// Epochs that ended while no spare was back: they go on in the same summaries.
    held: Option<Ended>,
    /// Notes of epochs that were not handed over, for the next one that is.
    notes: Vec<String>,
    swaps: Record,
    broken: bool,
}

impl Own {
    /// The summaries of the only meter.
    pub(crate) fn new(sets: User<Set>, pace: Pace, lasting: bool, swaps: Record) -> Self {
        let (open, held, notes) = (None, None, Vec::new());
        Self { sets, pace, lasting, open, held, notes, swaps, broken: false }
    }

    /// The summaries of one of several queues, which publishes its open epoch to the closer.
    pub(crate) fn of_queue(sets: User<Set>, pace: Pace, open: Arc<Open>, swaps: Record) -> Self {
        Self { open: Some((open, 0)), ..Self::new(sets, pace, false, swaps) }
    }

    fn publish(&self, touched: bool) {
        if let Some((open, number)) = &self.open {
            open.publish(*number, touched);
        }
    }

    fn hand_over(&mut self, ended: Ended) -> Result<(), Gone> {
        let lend = self.lasting || ended.update;
        // An update leaves the epochs that are held where they are: it goes on behind them.
        let held = if ended.update { self.held.clone() } else { self.held.take() };
        let mut ended = match held {
            Some(held) => held.and(ended),
            None => ended,
        };
        if self.open.is_some() && ended.account.read == 0 && ended.account.lost == 0 {
            // An epoch that a queue did not touch counts as empty.
            self.notes.append(&mut ended.notes);
            self.publish(false);
            return Ok(());
        }
        ended.notes.splice(..0, self.notes.drain(..));
        self.sets.current()?.ended = Some(ended);
        if lend {
            return self.sets.lend();
        }
        let begun = Instant::now();
        let handed = match self.pace {
            Pace::Replay => self.sets.hand_over().map(|()| true)?,
            Pace::Live => self.sets.try_hand_over()?,
        };
        if handed {
            self.swaps.record(begun.elapsed());
        } else {
            self.held = self.sets.in_use().and_then(|set| set.ended.take());
        }
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
            self.sets.current()?.summaries.pass(epochs);
        }
        Ok(())
    }

    fn open(&mut self, number: i64) {
        if let Some((_, open)) = &mut self.open {
            *open = number;
            self.publish(self.held.is_some());
        }
    }

    fn touch(&mut self) {
        self.publish(true);
    }

    fn finish(&mut self) {
        if let Some(held) = self.held.take()
            && let Ok(set) = self.sets.current()
        {
            set.ended = Some(held);
            // A set that is in use is handed over at once.
            self.broken |= self.sets.hand_over().is_err();
        }
    }

    fn is_broken(&self) -> bool {
        self.broken || self.sets.is_gone()
    }
}
