//! Several sinks, each behind a queue on a thread of its own.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use super::{Item, Sink, SinkError, Takes};
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
        self.close(Stage::Finished, within)
    }

    fn close(&mut self, closing: Stage, within: Duration) -> Vec<Ending> {
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
        self.close(Stage::Abandoned, PATIENCE);
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
        Stage::Finished => sink.finish(),
        Stage::Open | Stage::Abandoned => Ok(()),
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

/// Bytes of items that wait for one sink: at least two reports with every list full, and thousands
/// of ordinary ones.
pub(crate) const QUEUE_BYTES: usize = 16 << 20;

/// Items on their way to a sink.
struct Queue {
    pace: Pace,
    takes: Takes,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    items: VecDeque<Item>,
    /// Whether the sink has an item in hand.
    busy: bool,
    /// Bytes of all of these.
    bytes: usize,
    /// Items that found no room: since the last report that did, and in all.
    undelivered: u64,
    undelivered_in_all: u64,
    closing: Stage,
    /// Whether the sink takes nothing any more, and the reason if that is an error.
    ended: bool,
    error: Option<SinkError>,
}

/// Whether items are still to come.
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

    /// Queues an item, if the sink wants it. In replay it waits for room; live, an item without room is
    /// counted. Returns whether the sink still takes items.
    fn push(&self, item: &Item) -> bool {
        if !self.takes.takes(item) {
            return !self.lock().ended;
        }
        let bytes = item.memory_bytes();
        // The total is small and comes once: it always finds room.
        let last = matches!(item, Item::Total(_));
        let mut state = self.lock();
        while self.pace == Pace::Replay && !state.has_room(bytes) && !state.ended {
            state = self.wait(state);
        }
        let open = !state.ended;
        if open && (last || state.has_room(bytes)) {
            let item = state.marked(item);
            state.items.push_back(item);
            state.bytes += bytes;
            self.changed.notify_all();
        } else {
            state.undelivered += 1;
            state.undelivered_in_all += 1;
        }
        open
    }

    /// The next item, once there is one; `None` behind the last.
    fn next(&self) -> Option<Item> {
        let mut state = self.lock();
        while state.items.is_empty() && state.closing == Stage::Open {
            state = self.wait(state);
        }
        let item = state.items.pop_front();
        state.busy = item.is_some();
        item
    }

    /// Whether the sink has taken every item, or takes none any more.
    fn is_idle(&self) -> bool {
        self.lock().left() == 0
    }

    /// Frees the room of an item that was delivered.
    fn delivered(&self, item: &Item) {
        let mut state = self.lock();
        state.bytes -= item.memory_bytes();
        state.busy = false;
        self.changed.notify_all();
    }

    /// Counts an item that the sink never takes, and frees its room.
    fn refused(&self, item: &Item) {
        let mut state = self.lock();
        state.undelivered += 1;
        state.undelivered_in_all += 1;
        drop(state);
        self.delivered(item);
    }

    /// Whether the run waits for no sink.
    fn is_live(&self) -> bool {
        self.pace == Pace::Live
    }

    /// Waits before an item is tried again, at most until the run ends. Returns whether it should be:
    /// not in replay, and once only behind the end.
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

    /// Notes that the sink takes nothing any more; only the first reason counts.
    fn end(&self, result: Result<(), SinkError>) {
        let mut state = self.lock();
        if !state.ended {
            state.undelivered_in_all += state.left();
            state.items.clear();
            state.busy = false;
            state.bytes = 0;
            state.error = result.err();
            state.ended = true;
        }
        self.changed.notify_all();
    }

    /// Waits for the sink's end, at most until `deadline`. Returns whether it ended, and what became
    /// of it.
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
    /// Items that are not known to have arrived.
    fn left(&self) -> u64 {
        self.items.len() as u64 + u64::from(self.busy)
    }

    /// Whether an item of so many bytes finds room: any does in an empty queue.
    fn has_room(&self, bytes: usize) -> bool {
        self.bytes == 0 || self.bytes + bytes <= QUEUE_BYTES
    }

    /// The item, as this sink gets it: a report says how many items did not reach the sink before.
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
