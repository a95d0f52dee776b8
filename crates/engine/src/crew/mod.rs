//! Crews: ingest the batches of a meter on its own thread, or deal them to other threads.
//!
//! The end of an epoch follows its last batch to every worker, also to those without a packet. Each
//! worker then hands its summaries over to the closer and continues with a spare set. A worker
//! treats an update like the end of an epoch; the closer merges the parts.

mod dispatch;
mod division;
mod peer;

use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use flowgauge_core::any::BatchMut;
use flowgauge_core::batcher::Take;
use flowgauge_kernel::{Gone, Keeper, User, exchange, ring};

use crate::close::queues::{self, Open};
use crate::config::{Config, Pace};
use crate::error::EngineError;
use crate::intake::{Crew, Ended};
use crate::summaries::{Set, Summaries, hand_out};
use crate::swaps::{Record, Swaps};
use dispatch::{Dispatcher, PARCELS, Parcel, Worker};

pub(crate) use dispatch::Routing;
pub(crate) use division::{Division, keeps_apart};
pub use linux::Cores;
pub(crate) use peer::{Deal, MOST_PEERS, Peer};

/// A thread that a meter started.
pub(crate) type Started = (String, JoinHandle<Result<(), EngineError>>);

/// A meter's crew, and the closer's side of its sets.
pub(crate) type Staffed = (Box<dyn Crew + Send>, Vec<Keeper<Set>>);

/// The crews of several queues, which each fill their own summaries, with their closing sides.
pub(crate) fn queues(
    config: &Config,
    sets: Vec<Vec<Summaries>>,
    swaps: &Arc<Mutex<Swaps>>,
) -> Vec<(Box<dyn Crew + Send>, queues::Queue)> {
    let queue = |sets: Vec<Summaries>| {
        let (user, keeper) = exchange(sets.into_iter().map(Set::new).collect());
        let open = Arc::<Open>::default();
        let crew = OwnThread::of_queue(user, config.pace, Arc::clone(&open), Record::new(swaps));
        (Box::new(crew) as Box<dyn Crew + Send>, queues::Queue::new(keeper, open))
    };
    sets.into_iter().map(queue).collect()
}

/// Makes the meter's crew: its own thread, or one new thread for each worker but the one that
/// reads.
pub(crate) fn staff(
    config: &Config,
    division: &Division,
    mut sets: Vec<Vec<Summaries>>,
    swaps: &Arc<Mutex<Swaps>>,
    started: &mut Vec<Started>,
) -> Result<Staffed, EngineError> {
    let workers = config.workers - 1;
    let exchange = |sets: Vec<Summaries>| exchange(sets.into_iter().map(Set::new).collect());
    if workers == 0 {
        let sets = sets.swap_remove(0);
        let lasting = sets[0].is_lasting();
        let (user, keeper) = exchange(sets);
        let own = OwnThread::new(user, config.pace, lasting, Record::new(swaps));
        return Ok((Box::new(own), vec![keeper]));
    }
    // The reading thread needs no set.
    sets.truncate(workers);
    hand_out(&mut sets, workers, |sets| sets.iter().map(Summaries::another).collect());
    let lanes = &config.key.lanes()[..sets[0][0].lanes.len()];
    let (mut rings, mut keepers) = (Vec::new(), Vec::new());
    for (number, sets) in (1..).zip(sets) {
        let (user, keeper) = exchange(sets);
        let (parcels, work) = ring(PARCELS, || Parcel::new(lanes));
        let (worker, cores) = (Worker::new(user, Record::new(swaps)), division.cores.clone());
        let name = format!("worker {number}");
        let thread = thread::Builder::new().name(name.clone()).spawn(move || {
            let _pinned = cores.map(|cores| cores.pin(number)).transpose()?;
            worker.run(work);
            Ok(())
        });
        started.push((name, thread.map_err(EngineError::Thread)?));
        rings.push(parcels);
        keepers.push(keeper);
    }
    let dispatcher = Dispatcher::new(config, division.routing, lanes, rings);
    Ok((Box::new(dispatcher), keepers))
}

/// Ingests batches into the summaries of the meter's own thread, and hands the summaries over to
/// the closer at the end of an epoch.
struct OwnThread {
    sets: User<Set>,
    pace: Pace,
    /// Whether the only set stays in use from epoch to epoch, and is lent to the closer.
    lasting: bool,
    /// Where one of several queues publishes its open epoch, and the number of that epoch.
    open: Option<(Arc<Open>, i64)>,
    /// Epochs that ended while no spare set was free; they continue in the same summaries.
    held: Option<Ended>,
    /// Notes of epochs that were not handed over, kept for the next one.
    notes: Vec<String>,
    swaps: Record,
    broken: bool,
}

impl OwnThread {
    /// The summaries of the only meter.
    fn new(sets: User<Set>, pace: Pace, lasting: bool, swaps: Record) -> Self {
        let (open, held, notes) = (None, None, Vec::new());
        Self { sets, pace, lasting, open, held, notes, swaps, broken: false }
    }

    /// The summaries of one of several queues, which publishes its open epoch to the closer.
    fn of_queue(sets: User<Set>, pace: Pace, open: Arc<Open>, swaps: Record) -> Self {
        Self { open: Some((open, 0)), ..Self::new(sets, pace, false, swaps) }
    }

    fn publish(&self, touched: bool) {
        if let Some((open, number)) = &self.open {
            open.publish(*number, touched);
        }
    }

    fn hand_over(&mut self, ended: Ended) -> Result<(), Gone> {
        let lend = self.lasting || ended.update;
        // An update keeps the held epochs, since the open epoch continues.
        let held = if ended.update { self.held.clone() } else { self.held.take() };
        let mut ended = match held {
            Some(held) => held.and(ended),
            None => ended,
        };
        let is_empty = ended.account.read == 0 && ended.account.lost == 0 && !ended.unseen;
        if self.open.is_some() && is_empty {
            // An epoch without a packet of this queue is not handed over.
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

impl Take for OwnThread {
    #[inline]
    fn take(&mut self, lane: usize, batch: BatchMut<'_>) {
        match self.sets.current() {
            Ok(set) => set.ingest(lane, batch),
            Err(Gone) => self.broken = true,
        }
    }
}

impl Crew for OwnThread {
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
            // The set in use can be handed over without waiting.
            self.broken |= self.sets.hand_over().is_err();
        }
    }

    fn is_broken(&self) -> bool {
        self.broken || self.sets.is_gone()
    }
}

#[cfg(target_os = "linux")]
mod linux {
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

    use super::{EngineError, refused};

    /// The cores that this process may use, in order. Each worker gets one.
    #[derive(Clone, Debug)]
    pub struct Cores {
        allowed: CpuSet,
        numbers: Vec<usize>,
    }

    /// Keeps the calling thread on its core until dropped.
    #[derive(Debug)]
    pub struct Pinned {
        before: CpuSet,
    }

    impl Cores {
        /// Cores for this many workers.
        ///
        /// # Errors
        /// When there are fewer cores.
        pub fn new(workers: usize) -> Result<Self, EngineError> {
            let allowed = sched_getaffinity(None).map_err(thread)?;
            let numbers: Vec<_> =
                (0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core)).collect();
            if numbers.len() < workers {
                return Err(refused(numbers.len(), workers));
            }
            Ok(Self { allowed, numbers })
        }

        /// Keeps the calling thread on the core of this worker, counted from 0.
        ///
        /// # Errors
        /// When the operating system refuses, or there is no such worker.
        pub fn pin(&self, worker: usize) -> Result<Pinned, EngineError> {
            let mut core = CpuSet::new();
            let number = self.numbers.get(worker);
            core.set(*number.ok_or_else(|| refused(self.numbers.len(), worker + 1))?);
            sched_setaffinity(None, &core).map_err(thread)?;
            Ok(Pinned { before: self.allowed })
        }
    }

    impl Drop for Pinned {
        fn drop(&mut self) {
            // A thread that cannot be moved back stays on its core.
            let _ = sched_setaffinity(None, &self.before);
        }
    }

    fn thread(error: rustix::io::Errno) -> EngineError {
        EngineError::Thread(error.into())
    }
}

#[cfg(not(target_os = "linux"))]
mod linux {
    use super::{EngineError, refused};

    /// No cores: workers are pinned on Linux only.
    #[derive(Clone, Debug)]
    pub enum Cores {}

    impl Cores {
        /// Refuses.
        ///
        /// # Errors
        /// Always.
        pub fn new(workers: usize) -> Result<Self, EngineError> {
            Err(refused(0, workers))
        }

        /// Never called.
        ///
        /// # Errors
        /// Never.
        pub fn pin(&self, _: usize) -> Result<(), EngineError> {
            match *self {}
        }
    }
}

fn refused(cores: usize, workers: usize) -> EngineError {
    EngineError::Workers(format!(
        "--pin needs a core for each of {workers} workers, but only {cores} are available; lower \
         --workers"
    ))
}
