//! The group: closes the epochs of every measurement, and joins the threads that meters started.

use std::any::Any;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use flowgauge_core::summary::Incompatible;
use flowgauge_core::terms::Size;
use flowgauge_kernel::{Gone, Keeper};

use crate::close::queues::QueueCloser;
use crate::close::{Closer, WHOLE};
use crate::crew::Started;
use crate::error::EngineError;
use crate::intake::Ended;
use crate::report::{Gap, TotalReport};
use crate::sink::Sink;
use crate::summaries::{Set, hand_out};
use crate::swaps::Swaps;

/// The longest pause between two polls.
const LONGEST_PAUSE: Duration = Duration::from_millis(1);

/// Polls without a pause after an epoch was closed.
const LOOKS: u64 = 64;

/// The closing side of a measurement.
pub(crate) enum Side {
    /// One meter.
    One(Box<MeterCloser>),
    /// One meter per queue.
    Several(Box<QueueCloser>),
}

impl Side {
    fn poll(&mut self, sink: &mut dyn Sink) -> Result<Result<bool, EngineError>, Gone> {
        match self {
            Self::One(closing) => closing.poll(sink),
            Self::Several(gathering) => gathering.poll(sink),
        }
    }

    fn total(self) -> TotalReport {
        match self {
            Self::One(closing) => closing.total(),
            Self::Several(gathering) => gathering.total(),
        }
    }
}

/// Closes the epochs of the meters that were built together with it.
///
/// ```
/// use flowgauge_engine::sink::{Line, Written};
/// use flowgauge_engine::{Config, Plan};
///
/// let named = |name: &str| Config { name: name.into(), memory_bytes: 1 << 20, ..Config::default() };
/// let (meters, group) = Plan::several(vec![named("a"), named("b")])?.build()?;
/// // Both measurements share the only meter, which gets no packet here.
/// meters.into_iter().for_each(|meter| meter.finish());
/// let closed = group.close(&mut Written::new(Line, Vec::new()))?;
/// assert_eq!(closed.totals.len(), 2);
/// assert_eq!(closed.totals[0].epochs, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Group {
    pub(crate) closings: Vec<Side>,
    pub(crate) workers: Vec<Started>,
    pub(crate) swaps: Arc<Mutex<Swaps>>,
    pub(crate) alive: Alive,
}

/// Tells meters that their group is gone when it is dropped.
#[derive(Default)]
pub(crate) struct Alive(Arc<AtomicBool>);

impl Alive {
    /// The flag that is set when the group is gone.
    pub(crate) fn gone(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.0)
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// The result of a group after its meters have finished.
#[derive(Debug)]
pub struct Closed {
    /// The total of each measurement, in order.
    pub totals: Vec<TotalReport>,
    /// How long the ends of epochs and updates stopped meters and workers.
    pub swaps: Swaps,
}

impl Group {
    /// Closes epochs and reports them to `sink` until the meters have finished. It polls, so that
    /// no meter ever wakes a thread; give it its own thread.
    ///
    /// # Errors
    /// When a report cannot be written, or a thread failed. The meters are then done.
    pub fn close(self, sink: &mut dyn Sink) -> Result<Closed, EngineError> {
        let Self { closings, workers, swaps, alive } = self;
        let closed = poll(closings, sink);
        drop(alive);
        let mut joined = Ok(());
        for (name, worker) in workers {
            let worker = worker.join().unwrap_or_else(|panic| failed(name, &*panic));
            joined = joined.and(worker);
        }
        // If both fail, report the closer's error: workers end when the closer is gone.
        let totals = closed?;
        joined?;
        let swaps = swaps.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Ok(Closed { totals, swaps })
    }
}

fn poll(closings: Vec<Side>, sink: &mut dyn Sink) -> Result<Vec<TotalReport>, EngineError> {
    let mut totals: Vec<_> = closings.iter().map(|_| None).collect();
    let mut open: Vec<_> = closings.into_iter().enumerate().collect();
    let mut idle = 0;
    while !open.is_empty() {
        let (mut closed, mut at) = (false, 0);
        while let Some((_, closing)) = open.get_mut(at) {
            if let Ok(one) = closing.poll(sink) {
                closed |= one?;
                at += 1;
            } else {
                let (number, closing) = open.remove(at);
                totals[number] = Some(closing.total());
            }
        }
        idle = if closed { 0 } else { idle + 1 };
        if idle > LOOKS {
            thread::sleep(Duration::from_micros(10 * (idle - LOOKS)).min(LONGEST_PAUSE));
        } else if idle > 0 {
            thread::yield_now();
        }
    }
    Ok(totals.into_iter().flatten().collect())
}

/// The error of a thread that panicked.
pub(crate) fn failed<T>(thread: String, panic: &(dyn Any + Send)) -> Result<T, EngineError> {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    Err(EngineError::Panicked { thread, message: text.unwrap_or("no reason given").to_owned() })
}

/// The closing side of a measurement with one meter: merges the sets that were handed over, has
/// them reported, and returns them.
pub(crate) struct MeterCloser {
    closer: Closer,
    /// One keeper per worker. The set of the first worker carries the end of the epoch.
    keepers: Vec<Keeper<Set>>,
    /// Whether the workers' tables are read side by side, because no flow is in two of them.
    joined: bool,
    /// The sets that were handed over most recently.
    sets: Vec<Set>,
    /// If updates are made: the sums of all sets handed over in this epoch.
    sums: Vec<Set>,
    /// Packets and bytes measured in this epoch.
    ingested: Size,
    /// Number of the next epoch, and the end of the previous one.
    next: u64,
    closed_ns: Option<i64>,
}

impl MeterCloser {
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

    /// Closes an epoch that was handed over; `false` if there is none.
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
                // All workers have filled the same summaries: keep one handle.
                self.sets[0].ingested += set.ingested;
            } else {
                self.sets.push(set);
            }
        }
        let (goes_on, is_whole) = (ended.update, ended.coverage() >= WHOLE);
        let closed = self.close(ended, sink);
        self.give_back(goes_on, is_whole);
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
            // Tables are read side by side; other summaries are merged into the first set.
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
        let (goes_on, is_whole) = (ended.update, ended.coverage() >= WHOLE);
        let answering: Vec<_> = answering.iter().map(|set| &set.summaries).collect();
        self.closer.close(ended, &answering, sink)?;
        // With sums, an open epoch is handed over part by part; without them, the whole set comes
        // back.
        if !goes_on {
            for sum in &mut self.sums {
                sum.summaries.next_epoch(is_whole);
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
        self.next = ended.through.saturating_add(u64::from(!ended.update));
        Ok(())
    }

    /// Clears the sets and returns them. An epoch that continues keeps its set, or begins another
    /// part.
    fn give_back(&mut self, goes_on: bool, is_whole: bool) {
        let another = |set: &Set| set.summaries.another().map(Set::new);
        hand_out(&mut self.sets, self.keepers.len(), another);
        for (keeper, mut set) in self.keepers.iter_mut().zip(self.sets.drain(..)) {
            if !goes_on {
                set.summaries.next_epoch(is_whole);
                set.ingested = Size::default();
            } else if !self.sums.is_empty() {
                set.summaries.next_part();
                set.ingested = Size::default();
            }
            keeper.give_back(set);
        }
    }
}
