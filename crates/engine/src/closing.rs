//! The closing side of a measurement: sets that were handed over are merged, reported and given back.

use flowgauge_core::summary::Incompatible;
use flowgauge_core::terms::Size;
use flowgauge_kernel::{Gone, Keeper};

use crate::close::Closer;
use crate::error::EngineError;
use crate::intake::Ended;
use crate::report::{Gap, TotalReport};
use crate::sink::Sink;
use crate::summaries::{Set, hand_out};

/// The closing side of one measurement.
pub(crate) struct Closing {
    closer: Closer,
    /// What each worker hands over, the first one with the end of the epoch.
    keepers: Vec<Keeper<Set>>,
    /// Whether the workers' tables are read side by side, since no flow is in two of them.
    joined: bool,
    /// The sets that were handed over last.
    sets: Vec<Set>,
    /// Where updates are asked for: all that was handed over in this epoch.
    sums: Vec<Set>,
    /// Packets and bytes that were measured in it.
    ingested: Size,
    /// Number of the next epoch, and where the one before it ended.
    next: u64,
    closed_ns: Option<i64>,
}

impl Closing {
    pub(crate) fn new(
        closer: Closer,
        keepers: Vec<Keeper<Set>>,
        sums: Vec<Set>,
        joined: bool,
    ) -> Self {
        let sets = Vec::with_capacity(keepers.len());
        let (ingested, next, closed_ns) = (Size::default(), 0, None);
        Self { closer, keepers, joined, sets, sums, ingested, next, closed_ns }
    }

    /// The total of the epochs closed.
    pub(crate) fn total(self) -> TotalReport {
        self.closer.total
    }

    /// Closes an epoch that was handed over; `false` where none was.
    ///
    /// # Errors
    /// When the meter has finished and its last epoch is closed, or a worker is gone.
    pub(crate) fn poll(&mut self, sink: &mut dyn Sink) -> Result<Result<bool, EngineError>, Gone> {
        let (first, others) = self.keepers.split_first_mut().ok_or(Gone)?;
        let Some(mut first) = first.try_take()? else { return Ok(Ok(false)) };
        let ended = first.ended.take().unwrap_or_default();
        self.sets.push(first);
        for keeper in others {
            let set = keeper.take()?;
            if self.sets[0].summaries.is_concurrent() {
                // All workers have filled the same: one handle is left.
                self.sets[0].ingested += set.ingested;
            } else {
                self.sets.push(set);
            }
        }
        let goes_on = ended.update;
        let closed = self.close(ended, sink);
        self.give_back(goes_on);
        Ok(closed.map(|()| true))
    }

    fn close(&mut self, ended: Ended, sink: &mut dyn Sink) -> Result<(), EngineError> {
        self.gap(&ended, sink)?;
        self.ingested += self.sets.iter().map(|set| set.ingested).sum();
        let all = self.ingested + ended.unmeasured + ended.account.dropped;
        debug_assert_eq!(
            (all.packets, all.bytes),
            (
                ended.account.keyed + ended.twice.packets,
                ended.account.keyed_bytes + ended.twice.bytes
            ),
            "every packet with a key was measured, or counted as not measured"
        );
        let incompatible = |reason: Incompatible| EngineError::Workers(reason.to_string());
        for set in &mut self.sets {
            set.summaries.collect().map_err(incompatible)?;
            set.summaries.settle();
        }
        let (answering, parts) = match (&mut self.sums[..], &mut self.sets[..]) {
            // Tables are read side by side; the others are merged into the first of them.
            ([], sets) => sets.split_at_mut(if self.joined { sets.len() } else { 1 }),
            (sums, sets) => (sums, sets),
        };
        for (at, part) in parts.iter().enumerate() {
            let merged = answering[at % answering.len()].summaries.merge(&part.summaries);
            merged.map_err(incompatible)?;
        }
        if let (Some(traffic), Some(first)) = (ended.traffic, answering.first_mut()) {
            first.summaries.passed_over(ended.account.skipped.packets, traffic.one_in());
        }
        for set in &mut *answering {
            set.summaries.settle();
        }
        let goes_on = ended.update;
        let answering: Vec<_> = answering.iter().map(|set| &set.summaries).collect();
        self.closer.close(ended, &answering, sink)?;
        // With sums an epoch that goes on is handed over part by part; without, the whole set comes back.
        if !goes_on {
            for sum in &mut self.sums {
                sum.summaries.next_epoch();
            }
        }
        if !goes_on || self.sums.is_empty() {
            self.ingested = Size::default();
        }
        Ok(())
    }

    /// Reports the empty epochs before this one.
    fn gap(&mut self, ended: &Ended, sink: &mut dyn Sink) -> Result<(), EngineError> {
        let (start_ns, end_ns) = ended.bounds_ns.unzip();
        if let (Some(from_ns), Some(to_ns)) = (self.closed_ns, start_ns)
            && ended.epoch > self.next
        {
            let epochs = ended.epoch - self.next;
            let (measurement, run) = self.closer.of();
            let (epoch, start_ns, end_ns) = (self.next, from_ns, to_ns);
            let gap = Gap { measurement, run, epoch, epochs, start_ns, end_ns };
            self.closer.gap(&gap, sink)?;
        }
        if !ended.update {
            self.closed_ns = end_ns;
        }
        self.next = ended.through + u64::from(!ended.update);
        Ok(())
    }

    /// Clears the sets, and gives them back; an epoch that goes on keeps its set, or fills another part.
    fn give_back(&mut self, goes_on: bool) {
        let another = |set: &Set| set.summaries.another().map(Set::new);
        hand_out(&mut self.sets, self.keepers.len(), another);
        for (keeper, mut set) in self.keepers.iter_mut().zip(self.sets.drain(..)) {
            if !goes_on {
                set.summaries.next_epoch();
                set.ingested = Size::default();
            } else if !self.sums.is_empty() {
                set.summaries.next_part();
                set.ingested = Size::default();
            }
            keeper.give_back(set);
        }
    }
}
