//! Several sinks, each with a queue and its own thread.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use super::{Item, Sink, SinkError, Takes};
use crate::config::Pace;

/// The first and the longest delay before a live sink that failed is tried again. The delay doubles
/// each time.
const DELAYS: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(30)];

/// How long the sinks of a failed live run may take to write their queues.
const PATIENCE: Duration = Duration::from_secs(1);

/// Passes items to several sinks, each with a queue of at most 16 MiB and its own thread.
///
/// In a replay, the run waits for every sink, and ends if one fails. A live run waits for none: a
/// sink that is slow or fails loses only its own items. They are counted, and its next report shows
/// the count. A failed delivery is retried with growing delays, unless the sink refused the item;
/// [`health`](Self::health) says which sinks fail.
/// The run continues while at least one sink has not been closed by its reader.
///
/// Dropping it writes the queues but does not call [`Sink::finish`], as after a failed run.
///
/// ```
/// use std::sync::Arc;
/// use std::time::Duration;
///
/// use flowgauge_engine::Pace;
/// use flowgauge_engine::report::TotalReport;
/// use flowgauge_engine::sink::{Item, Json, Line, Outlets, Sink, Written};
///
/// let sinks: Vec<Box<dyn Sink>> = vec![
///     Box::new(Written::new(Json, Vec::new())),
///     Box::new(Written::new(Line, Vec::new())),
/// ];
/// let mut outlets = Outlets::new(Pace::Replay, sinks)?;
/// outlets.deliver(&Item::Total(Arc::new(TotalReport::new("main".into()))))?;
/// let endings = outlets.finish(Duration::from_secs(1));
/// assert!(endings.iter().all(|ending| ending.error.is_none() && ending.undelivered == 0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Outlets {
    pace: Pace,
    outlets: Vec<Outlet>,
}

struct Outlet {
    queue: Arc<Queue>,
    /// Taken when the queue is closed.
    thread: Option<JoinHandle<()>>,
}

/// The health of a sink of [`Outlets`], to watch while the run goes on.
#[derive(Clone)]
pub struct SinkHealth(Arc<Queue>);

impl SinkHealth {
    /// Why the sink takes nothing, if its last attempt failed or it has ended with an error.
    pub fn problem(&self) -> Option<String> {
        self.0.lock().problem.clone()
    }

    /// Whether the sink takes no more items. Otherwise, one that fails is tried again.
    pub fn has_ended(&self) -> bool {
        self.0.lock().ended
    }

    /// Items lost so far. Items that wait in the queue are not.
    pub fn lost(&self) -> u64 {
        self.0.lock().undelivered_in_all
    }
}

/// The end of a sink.
#[derive(Debug)]
pub struct Ending {
    /// Items that the sink did not take, as far as known.
    pub undelivered: u64,
    /// Why it ended early. Also `None` if it was still busy at the deadline.
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

    /// The health of each sink, in order.
    pub fn health(&self) -> Vec<SinkHealth> {
        self.outlets.iter().map(|outlet| SinkHealth(Arc::clone(&outlet.queue))).collect()
    }

    /// Whether all sinks have taken all items.
    pub fn is_idle(&self) -> bool {
        self.outlets.iter().all(|outlet| outlet.queue.is_idle())
    }

    /// Lets the sinks write their queues and finish; in a live run, within this time. Returns the
    /// end of each sink, in order. The thread of a sink that is still busy is abandoned.
    pub fn finish(mut self, within: Duration) -> Vec<Ending> {
        self.close(Stage::Finished, within)
    }

    fn close(&mut self, closing: Stage, within: Duration) -> Vec<Ending> {
        let deadline = (self.pace == Pace::Live).then(|| Instant::now() + within);
        self.outlets.iter().for_each(|outlet| outlet.queue.close(closing));
        let end = |mut outlet: Outlet| {
            let (ended, ending) = outlet.queue.ended(deadline);
            if let Some(thread) = outlet.thread.take().filter(|_| ended) {
                // A panic has been noted as the sink's error.
                drop(thread.join());
            }
            ending
        };
        self.outlets.drain(..).map(end).collect()
    }
}

impl Drop for Outlets {
    fn drop(&mut self) {
        self.close(Stage::Abandoned, PATIENCE);
    }
}

impl Sink for Outlets {
    fn deliver(&mut self, item: &Item) -> Result<(), SinkError> {
        let open = self.outlets.iter().filter(|outlet| outlet.queue.push(item)).count();
        let failed = |outlet: &Outlet| outlet.queue.lock().failed;
        let failed = self.pace == Pace::Replay && self.outlets.iter().any(failed);
        if !failed && (open > 0 || self.outlets.is_empty()) {
            return Ok(());
        }
        let ended = |outlet: &Outlet| outlet.queue.ended(Some(Instant::now())).1.error;
        let errors = self.outlets.iter().filter_map(ended);
        Err(errors.min_by_key(SinkError::is_closed).unwrap_or(SinkError::Panicked))
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
        Stage::Finished => sink.finish(),
        Stage::Open | Stage::Abandoned => Ok(()),
    };
    queue.tried(finished.as_ref().err(), sink.lost());
    drop(sink);
    queue.end(finished);
}

/// Delivers an item; in a live run, retries until it succeeds.
fn deliver(sink: &mut dyn Sink, item: &Item, queue: &Queue) -> Result<(), SinkError> {
    let [mut delay, longest] = DELAYS;
    loop {
        let result = sink.deliver(item);
        queue.tried(result.as_ref().err(), sink.lost());
        match result {
            Err(SinkError::Write { .. }) if queue.pause(delay) => delay = longest.min(2 * delay),
            result => return result,
        }
    }
}

/// Ends the queue if the sink panics, so that the run does not wait for it.
struct Guard<'a>(&'a Queue);

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        self.0.end(Err(SinkError::Panicked));
    }
}

/// Most bytes of reports in the queue of a sink, and of snapshots there: at least two reports with
/// every list full, and thousands of ordinary ones. A snapshot may be larger; it then waits alone.
pub const QUEUE_BYTES: usize = 16 << 20;

/// The bounded queue between a run and the thread of one sink.
struct Queue {
    pace: Pace,
    takes: Takes,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    items: VecDeque<Item>,
    /// Whether the sink is taking an item.
    busy: bool,
    /// Bytes of the reports among all these items, and of the snapshots.
    bytes: [usize; 2],
    /// Items lost, most of them without room in the queue: since the last queued report, and in all.
    undelivered: u64,
    undelivered_in_all: u64,
    closing: Stage,
    /// Why the last attempt failed, if it did.
    problem: Option<String>,
    /// Whether the sink takes no more items, and its error if it failed.
    ended: bool,
    error: Option<SinkError>,
    /// Whether it ended with an error although its reader has not closed it.
    failed: bool,
}

/// Whether more items will come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    Open,
    /// The run has ended.
    Finished,
    /// The run has failed.
    Abandoned,
}

impl Queue {
    fn new(pace: Pace, takes: Takes) -> Self {
        Self { pace, takes, state: Mutex::default(), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues an item if the sink wants it. A replay waits for room; in a live run an item without
    /// room is counted. Returns whether the sink still takes items.
    fn push(&self, item: &Item) -> bool {
        if !self.takes.takes(item) {
            return !self.lock().ended;
        }
        // The total is small and comes once: it always finds room.
        let last = matches!(item, Item::Total(_));
        let mut state = self.lock();
        while self.pace == Pace::Replay && !state.has_room(item) && !state.ended {
            state = self.wait(state);
        }
        let open = !state.ended;
        if open && (last || state.has_room(item)) {
            *state.bytes_of(item) += item.memory_bytes();
            let item = state.marked(item);
            state.items.push_back(item);
            self.changed.notify_all();
        } else {
            state.lose(1);
        }
        open
    }

    /// Waits for the next item; `None` after the last.
    fn next(&self) -> Option<Item> {
        let mut state = self.lock();
        while state.items.is_empty() && state.closing == Stage::Open {
            state = self.wait(state);
        }
        let item = state.items.pop_front();
        state.busy = item.is_some();
        item
    }

    /// Whether the sink has taken every item, or takes no more.
    fn is_idle(&self) -> bool {
        self.lock().left() == 0
    }

    /// Notes how an attempt to deliver ended, and how many earlier items the sink lost in it.
    fn tried(&self, error: Option<&SinkError>, lost: u64) {
        let mut state = self.lock();
        // After a refusal, it takes other items.
        let error = error.filter(|error| !matches!(error, SinkError::Refused { .. }));
        state.problem = error.map(ToString::to_string);
        state.lose(lost);
    }

    /// Frees the room of an item that was delivered.
    fn delivered(&self, item: &Item) {
        let mut state = self.lock();
        *state.bytes_of(item) -= item.memory_bytes();
        state.busy = false;
        self.changed.notify_all();
    }

    /// Counts an item that the sink never takes, and frees its room.
    fn refused(&self, item: &Item) {
        self.lock().lose(1);
        self.delivered(item);
    }

    /// Whether the run waits for no sink.
    fn is_live(&self) -> bool {
        self.pace == Pace::Live
    }

    /// Waits before an item is retried, at most until the run ends. Returns whether to retry: never
    /// in a replay, and only once after the end.
    fn pause(&self, delay: Duration) -> bool {
        let state = self.lock();
        if self.pace == Pace::Replay || state.closing != Stage::Open {
            return false;
        }
        let open = |state: &mut State| state.closing == Stage::Open;
        drop(self.changed.wait_timeout_while(state, delay, open));
        true
    }

    /// Tells the sink that no more items come.
    fn close(&self, closing: Stage) {
        self.lock().closing = closing;
        self.changed.notify_all();
    }

    /// How the queue was closed.
    fn closing(&self) -> Stage {
        self.lock().closing
    }

    /// Notes that the sink takes no more items. Only the first result counts.
    fn end(&self, result: Result<(), SinkError>) {
        let mut state = self.lock();
        if !state.ended {
            state.undelivered_in_all += state.left();
            state.items.clear();
            state.busy = false;
            state.bytes = [0; 2];
            state.problem = result.as_ref().err().map(ToString::to_string);
            state.failed = result.as_ref().is_err_and(|error| !error.is_closed());
            state.error = result.err();
            state.ended = true;
        }
        self.changed.notify_all();
    }

    /// Waits for the sink's end, at most until `deadline`. Returns whether it ended, and how.
    fn ended(&self, deadline: Option<Instant>) -> (bool, Ending) {
        let mut state = self.lock();
        while !state.ended {
            let Some(deadline) = deadline else {
                state = self.wait(state);
                continue;
            };
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let woken = self.changed.wait_timeout(state, left);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
        let undelivered = state.undelivered_in_all + state.left();
        (state.ended, Ending { undelivered, error: state.error.take() })
    }
}

impl State {
    /// Counts items that the sink never takes, or lost.
    fn lose(&mut self, items: u64) {
        self.undelivered += items;
        self.undelivered_in_all += items;
    }

    /// Items that are not known to be delivered.
    fn left(&self) -> u64 {
        self.items.len() as u64 + u64::from(self.busy)
    }

    /// Whether an item fits. Any one fits if no other of its kind waits. A large snapshot takes no
    /// room from reports.
    fn has_room(&mut self, item: &Item) -> bool {
        let waiting = *self.bytes_of(item);
        waiting == 0 || waiting + item.memory_bytes() <= QUEUE_BYTES
    }

    /// Bytes of all items of this kind.
    fn bytes_of(&mut self, item: &Item) -> &mut usize {
        &mut self.bytes[usize::from(matches!(item, Item::Snapshot(_)))]
    }

    /// The item for this sink. A report carries the number of items that the sink missed before.
    fn marked(&mut self, item: &Item) -> Item {
        let mut item = item.clone();
        match &mut item {
            Item::Epoch(report) if self.undelivered > 0 => {
                Arc::make_mut(report).undelivered = std::mem::take(&mut self.undelivered);
            }
            Item::Total(report) if self.undelivered_in_all > 0 => {
                Arc::make_mut(report).undelivered = self.undelivered_in_all;
            }
            Item::Epoch(_) | Item::Gap(_) | Item::Snapshot(_) | Item::Total(_) => {}
        }
        item
    }
}
