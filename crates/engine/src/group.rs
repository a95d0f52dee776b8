//! The meters' other side: the closer of every measurement, and the threads that meters started.

use std::any::Any;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use flowgauge_kernel::Gone;

use crate::closing::Closing;
use crate::crew::Started;
use crate::error::EngineError;
use crate::gathering::Gathering;
use crate::report::TotalReport;
use crate::sink::Sink;
use crate::swaps::Swaps;

/// The longest time between two looks at what was handed over.
const LONGEST_PAUSE: Duration = Duration::from_millis(1);

/// Looks without a pause after something was handed over.
const LOOKS: u64 = 64;

/// The closing side of a measurement.
pub(crate) enum Side {
    /// There is one meter.
    One(Box<Closing>),
    /// Each queue has a meter.
    Several(Box<Gathering>),
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

/// Closes the epochs of the meters that were built with it.
pub struct Group {
    pub(crate) closings: Vec<Side>,
    pub(crate) workers: Vec<Started>,
    pub(crate) swaps: Arc<Mutex<Swaps>>,
    pub(crate) alive: Alive,
}

/// Tells meters whether their group still closes epochs: until this is dropped.
#[derive(Default)]
pub(crate) struct Alive(Arc<AtomicBool>);

impl Alive {
    /// A flag that is set when the group is gone.
    pub(crate) fn gone(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.0)
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// What remains of a group when its meters have finished.
#[derive(Debug)]
pub struct Closed {
    /// The total of each measurement, in their order.
    pub totals: Vec<TotalReport>,
    /// How long meters and workers were stopped at the end of epochs and by updates.
    pub swaps: Swaps,
}

impl Group {
    /// Closes epochs and reports them to `sink` until the meters have finished. It polls what they hand
    /// over, so that no meter ever wakes a thread; give it a thread of its own.
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
        // The closer fails first where both do: workers end when it is gone.
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

/// The last words of a thread that panicked.
pub(crate) fn failed<T>(thread: String, panic: &(dyn Any + Send)) -> Result<T, EngineError> {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    Err(EngineError::Panicked { thread, message: text.unwrap_or("no reason given").to_owned() })
}
