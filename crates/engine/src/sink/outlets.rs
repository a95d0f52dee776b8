//! Several sinks, each behind a queue on a thread of its own.

use std::io;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use super::queue::{Closing, Queue};
use super::{Item, Sink, SinkError};
use crate::config::Pace;

/// How soon a live sink that failed is tried again: twice as late each time, up to the second.
const DELAYS: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(30)];

/// How long the sinks of a failed live run may take to write what they have.
const PATIENCE: Duration = Duration::from_secs(1);

/// Passes items to several sinks, each behind a queue of at most 16 MiB on a thread of its own.
///
/// In replay the run waits for every sink, and the failure of one ends the run. Live it waits for
/// none: a sink that is slow or fails loses only its own items, which are counted and shown in the
/// next report that it gets. It is tried again, later each time, but for an item that it refuses, and
/// the run goes on as long as one sink has not been closed by its reader.
///
/// Dropping it writes what is queued and leaves out [`Sink::finish`], as after a run that failed.
pub struct Outlets {
    pace: Pace,
    outlets: Vec<Outlet>,
}

struct Outlet {
    queue: Arc<Queue>,
    /// Taken at the end.
    thread: Option<JoinHandle<()>>,
}

/// What became of a sink.
#[derive(Debug)]
pub struct Ending {
    /// Items that the sink did not take, as far as is known.
    pub undelivered: u64,
    /// Why it ended early. `None` also where it was still busy at the deadline.
    pub error: Option<SinkError>,
}

impl Outlets {
    /// Starts a thread for each sink.
    ///
    /// # Errors
    /// When the operating system refuses a thread.
    pub fn new(pace: Pace, sinks: Vec<Box<dyn Sink>>) -> io::Result<Self> {
        let start = |(number, sink): (usize, Box<dyn Sink>)| {
            let queue = Arc::new(Queue::new(pace, sink.takes()));
            let own = Arc::clone(&queue);
            let thread = Builder::new().name(format!("sink {number}"));
            Ok(Outlet { queue, thread: Some(thread.spawn(move || serve(sink, &own))?) })
        };
        let outlets = (1..).zip(sinks).map(start).collect::<io::Result<_>>()?;
        Ok(Self { pace, outlets })
    }

    /// Whether no sink has an item left to take.
    pub fn is_idle(&self) -> bool {
        self.outlets.iter().all(|outlet| outlet.queue.is_idle())
    }

    /// Lets the sinks write what is queued and finish: live, within this time. Returns what became
    /// of each, in their order. The thread of a sink that is still busy is left behind.
    pub fn finish(mut self, within: Duration) -> Vec<Ending> {
        self.close(Closing::Finished, within)
    }

    fn close(&mut self, closing: Closing, within: Duration) -> Vec<Ending> {
        let deadline = (self.pace == Pace::Live).then(|| Instant::now() + within);
        self.outlets.iter().for_each(|outlet| outlet.queue.close(closing));
        let end = |mut outlet: Outlet| {
            let (ended, ending) = outlet.queue.ended(deadline);
            if let Some(thread) = outlet.thread.take().filter(|_| ended) {
                // A panic has been noted as the reason.
                drop(thread.join());
            }
            ending
        };
        self.outlets.drain(..).map(end).collect()
    }
}

impl Drop for Outlets {
    fn drop(&mut self) {
        self.close(Closing::Abandoned, PATIENCE);
    }
}

impl Sink for Outlets {
    fn deliver(&mut self, item: &Item) -> Result<(), SinkError> {
        let open = self.outlets.iter().filter(|outlet| outlet.queue.push(item)).count();
        let enough = match self.pace {
            Pace::Replay => self.outlets.len(),
            Pace::Live => 1,
        };
        if open >= enough.min(self.outlets.len()) {
            return Ok(());
        }
        let ended = |outlet: &Outlet| outlet.queue.ended(Some(Instant::now())).1.error;
        Err(self.outlets.iter().find_map(ended).unwrap_or(SinkError::Panicked))
    }
}

/// Passes items from the queue to the sink until either ends.
fn serve(mut sink: Box<dyn Sink>, queue: &Queue) {
    let _guard = Guard(queue);
    while let Some(item) = queue.next() {
        match deliver(&mut *sink, &item, queue) {
            Ok(()) => queue.delivered(&item),
            Err(SinkError::Refused { .. }) if queue.is_live() => queue.refused(&item),
            Err(error) => return queue.end(Err(error)),
        }
    }
    let finished = match queue.closing() {
        Closing::Finished => sink.finish(),
        Closing::Open | Closing::Abandoned => Ok(()),
    };
    drop(sink);
    queue.end(finished);
}

/// Delivers an item; live, as often as it takes.
fn deliver(sink: &mut dyn Sink, item: &Item, queue: &Queue) -> Result<(), SinkError> {
    let [mut delay, longest] = DELAYS;
    loop {
        match sink.deliver(item) {
            Err(SinkError::Write { .. }) if queue.pause(delay) => delay = longest.min(2 * delay),
            result => return result,
        }
    }
}

/// Ends the queue of a sink that panics, so that the run does not wait for it.
struct Guard<'a>(&'a Queue);

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        self.0.end(Err(SinkError::Panicked));
    }
}
