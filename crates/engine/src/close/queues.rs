//! The closing side of a measurement with several queues: collects each epoch from all of them.
//!
//! The number of an epoch is its start in multiples of its length, so the sets of all queues can be
//! matched. An epoch closes when every queue has moved on to a later one. A queue that saw no
//! packet of the epoch hands nothing over, and does not delay its close. A queue that saw packets
//! but is silent is waited for briefly, then reported as missing. The set that it hands over later
//! joins the epoch that is open then. A replay waits for every queue as long as it takes. If all queues
//! step back to earlier epochs, the closer follows, under further numbers.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use flowgauge_core::summary::Incompatible;
use flowgauge_core::terms::Size;
use flowgauge_kernel::{Gone, Keeper};

use crate::close::{Closer, WHOLE};
use crate::config::{Config, EpochLength, Pace};
use crate::error::EngineError;
use crate::intake::Ended;
use crate::report::{Gap, TotalReport};
use crate::sink::Sink;
use crate::summaries::Set;

/// How long an epoch waits, after the first queue has moved on, for a queue that touched it.
const GRACE: Duration = Duration::from_millis(100);

/// The number of a queue's open epoch, and whether the queue has seen a packet of it.
pub(crate) struct Open(AtomicI64);

impl Default for Open {
    fn default() -> Self {
        Self(AtomicI64::new(i64::MIN))
    }
}

impl Open {
    /// Publishes the open epoch.
    pub(crate) fn publish(&self, number: i64, touched: bool) {
        self.0.store(number << 1 | i64::from(touched), Ordering::Release);
    }

    /// The open epoch, and whether it was touched; `None` before the first one.
    fn read(&self) -> Option<(i64, bool)> {
        let open = self.0.load(Ordering::Acquire);
        (open != i64::MIN).then_some((open >> 1, open & 1 == 1))
    }
}

/// The closer's side of a queue.
pub(crate) struct Queue {
    keeper: Keeper<Set>,
    open: Arc<Open>,
    /// The next set that was handed over, if it belongs to a later epoch.
    head: Option<Set>,
    gone: bool,
}

impl Queue {
    pub(crate) fn new(keeper: Keeper<Set>, open: Arc<Open>) -> Self {
        Self { keeper, open, head: None, gone: false }
    }
}

/// The closing side of one measurement with several queues.
pub(crate) struct QueueCloser {
    closer: Closer,
    queues: Vec<Queue>,
    /// The sum of the sets collected for the next epoch to close.
    sum: Set,
    gathered: Ended,
    /// Length of a time epoch; `None` if there is a single epoch.
    length_ns: Option<i64>,
    /// The next epoch: its number in multiples of the length, and how many epochs came before it.
    next: Option<(i64, u64)>,
    /// When the first queue moved past the next epoch to close.
    moved: Option<Instant>,
    reported: u64,
    pace: Pace,
}

/// The state of a queue with respect to the next epoch to close.
enum Standing {
    /// It has moved on to the epoch with this number, or is gone.
    On(i64),
    /// It has seen no packet of the next epoch yet.
    Untouched,
    /// It has seen packets of the next epoch that are not handed over yet.
    Touched,
}

impl QueueCloser {
    pub(crate) fn new(closer: Closer, queues: Vec<Queue>, sum: Set, config: &Config) -> Self {
        let length_ns = match config.epoch {
            EpochLength::Time(length_ns) => Some(length_ns),
            EpochLength::Whole | EpochLength::Packets(_) => None,
        };
        let (gathered, next, moved, reported) = (Ended::default(), None, None, 0);
        let pace = config.pace;
        Self { closer, queues, sum, gathered, length_ns, next, moved, reported, pace }
    }

    /// The total of the epochs closed.
    pub(crate) fn total(self) -> TotalReport {
        self.closer.total
    }

    /// Closes an epoch if one can be closed; `false` otherwise.
    ///
    /// # Errors
    /// When all queues have finished and the last epoch is closed.
    pub(crate) fn poll(&mut self, sink: &mut dyn Sink) -> Result<Result<bool, EngineError>, Gone> {
        // Read the published epochs before the sets: the sets of earlier epochs are then in the
        // rings.
        let open: Vec<_> = self.queues.iter().map(|queue| queue.open.read()).collect();
        self.queues.iter_mut().for_each(Queue::look);
        let heads = self.queues.iter().filter_map(|queue| queue.head.as_ref());
        let numbers = open.iter().flatten().map(|(number, _)| *number);
        let first = numbers.chain(heads.map(|head| number(head, self.length_ns))).min();
        let Some((next, epoch)) = self.next.or(first.map(|first| (first, 0))) else {
            let gone = self.queues.iter().all(|queue| queue.gone);
            return if gone { Err(Gone) } else { Ok(Ok(false)) };
        };
        self.next = Some((next, epoch));
        if let Err(error) = self.take_all(next) {
            return Ok(Err(error));
        }
        if let Some(earlier) = self.earlier_than(next) {
            return Ok(self.step_back(earlier, (next, epoch), sink).map(|()| true));
        }
        let standings: Vec<_> = self
            .queues
            .iter()
            .zip(&open)
            .map(|(queue, open)| queue.standing(*open, next, self.length_ns))
            .collect();
        let on = standings.iter().filter_map(|standing| match standing {
            Standing::On(number) => Some(*number),
            Standing::Untouched | Standing::Touched => None,
        });
        let Some(on) = on.min() else { return Ok(Ok(false)) };
        let touched = |standing: &Standing| matches!(standing, Standing::Touched);
        let settled = standings.iter().all(|standing| matches!(standing, Standing::On(_)));
        if !settled && (self.pace == Pace::Replay || on == i64::MAX) {
            // A replay waits for every queue. Finished queues end no epoch of the others.
            return Ok(Ok(false));
        }
        if standings.iter().any(touched) {
            let moved = *self.moved.get_or_insert_with(Instant::now);
            if moved.elapsed() < GRACE {
                return Ok(Ok(false));
            }
        }
        let missing: Vec<_> = standings
            .iter()
            .enumerate()
            .filter(|(_, standing)| touched(standing))
            .map(|(number, _)| number)
            .collect();
        let finished = on == i64::MAX;
        let account = &self.gathered.account;
        if finished && self.reported > 0 && account.read == 0 && account.lost == 0 {
            return Err(Gone);
        }
        let closed = (self.close((next, epoch), &missing, sink))
            .and_then(|()| self.pass((next, epoch), on, sink));
        if finished && closed.is_ok() {
            return Err(Gone);
        }
        Ok(closed.map(|()| true))
    }

    /// Takes and merges the sets of epochs up to `next`, and those of later epochs whose queue has
    /// stepped back since.
    fn take_all(&mut self, next: i64) -> Result<(), EngineError> {
        for at in 0..self.queues.len() {
            loop {
                let queue = &mut self.queues[at];
                queue.look();
                let Queue { head, open, .. } = queue;
                let is_due = |head: &mut Set| {
                    let number = number(head, self.length_ns);
                    number <= next || open.read().is_some_and(|(open, _)| open < number)
                };
                let Some(head) = head.take_if(is_due) else { break };
                self.merge(at, head)?;
            }
        }
        Ok(())
    }

    /// If all queues are at epochs before `next`, the earliest of those that have packets. The clock was
    /// set back then, or one packet had a time far ahead of all others.
    fn earlier_than(&self, next: i64) -> Option<i64> {
        self.length_ns?;
        let mut earliest: Option<i64> = None;
        for queue in self.queues.iter().filter(|queue| !queue.gone) {
            match queue.open.read() {
                Some((number, _)) if number >= next || queue.head.is_some() => return None,
                Some((number, true)) => {
                    earliest = Some(earliest.map_or(number, |earliest| earliest.min(number)));
                }
                Some((_, false)) | None => {}
            }
        }
        earliest
    }

    /// Continues with an earlier epoch. Closes the next one, if any packets were collected for it.
    fn step_back(
        &mut self,
        earlier: i64,
        (next, epoch): (i64, u64),
        sink: &mut dyn Sink,
    ) -> Result<(), EngineError> {
        let account = &self.gathered.account;
        let collected = account.read > 0 || account.lost > 0;
        self.next = Some((earlier, epoch.saturating_add(collected.into())));
        self.moved = None;
        if collected { self.close((next, epoch), &[], sink) } else { Ok(()) }
    }

    /// Merges a set into the sum, and returns it to its queue.
    fn merge(&mut self, queue: usize, mut set: Set) -> Result<(), EngineError> {
        let incompatible = |reason: Incompatible| EngineError::Workers(reason.to_string());
        set.summaries.settle();
        self.sum.summaries.merge(&set.summaries).map_err(incompatible)?;
        if let Some(ended) = set.ended.take() {
            let gathered = std::mem::take(&mut self.gathered);
            let late_epochs = gathered.late_epochs + ended.late_epochs;
            self.gathered = Ended { late_epochs, ..gathered.and(ended) };
        }
        set.summaries.clear();
        set.ingested = Size::default();
        self.queues[queue].keeper.give_back(set);
        Ok(())
    }

    /// Reports an epoch, and names the queues that are missing in it.
    fn close(
        &mut self,
        (next, epoch): (i64, u64),
        missing: &[usize],
        sink: &mut dyn Sink,
    ) -> Result<(), EngineError> {
        let gathered = std::mem::take(&mut self.gathered);
        if let Some(traffic) = gathered.traffic {
            self.sum.summaries.passed_over(gathered.account.skipped.packets, traffic.one_in());
        }
        self.sum.summaries.settle();
        let ended = Ended {
            epoch,
            bounds_ns: self.bounds_ns(next).or(gathered.times_ns),
            missing: missing.to_vec(),
            ..gathered
        };
        let is_whole = ended.coverage() >= WHOLE;
        self.closer.close(ended, &[&self.sum.summaries], sink)?;
        self.sum.summaries.next_epoch(is_whole);
        self.reported += 1;
        self.moved = None;
        Ok(())
    }

    /// Reports the empty epochs between the closed one and the earliest open one of all queues.
    fn pass(
        &mut self,
        (closed, epoch): (i64, u64),
        on: i64,
        sink: &mut dyn Sink,
    ) -> Result<(), EngineError> {
        let next = if on == i64::MAX { closed + 1 } else { on.max(closed + 1) };
        let (epoch, epochs) = (epoch.saturating_add(1), next.abs_diff(closed + 1));
        self.next = Some((next, epoch.saturating_add(epochs)));
        if next > closed + 1
            && let (Some((start_ns, _)), Some((end_ns, _))) =
                (self.bounds_ns(closed + 1), self.bounds_ns(next))
        {
            let (measurement, run) = self.closer.of();
            self.sum.summaries.pass(epochs);
            self.closer.gap(&Gap { measurement, run, epoch, epochs, start_ns, end_ns }, sink)?;
        }
        Ok(())
    }

    /// The bounds of a time epoch.
    fn bounds_ns(&self, number: i64) -> Option<(i64, i64)> {
        let length_ns = self.length_ns?;
        let start_ns = number.saturating_mul(length_ns);
        Some((start_ns, start_ns.saturating_add(length_ns)))
    }
}

impl Queue {
    /// Takes the next set that was handed over, unless the previous one is still held.
    fn look(&mut self) {
        if self.head.is_none() && !self.gone {
            match self.keeper.try_take() {
                Ok(head) => self.head = head,
                Err(Gone) => self.gone = true,
            }
        }
    }

    /// The state of the queue, given the epoch that it had open before its sets were taken.
    fn standing(&self, open: Option<(i64, bool)>, next: i64, length_ns: Option<i64>) -> Standing {
        match (&self.head, open) {
            (Some(head), _) => Standing::On(number(head, length_ns)),
            (None, _) if self.gone => Standing::On(i64::MAX),
            (None, Some((number, _))) if number > next => Standing::On(number),
            (None, Some((_, true))) => Standing::Touched,
            (None, _) => Standing::Untouched,
        }
    }
}

/// The number of a set's epoch, in multiples of its length.
fn number(set: &Set, length_ns: Option<i64>) -> i64 {
    let bounds_ns = set.ended.as_ref().and_then(|ended| ended.bounds_ns);
    match (length_ns, bounds_ns) {
        (Some(length_ns), Some((start_ns, _))) => start_ns.div_euclid(length_ns),
        _ => 0,
    }
}
