//! The bounded queue between a run and the thread of one sink.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::{Ending, Item, SinkError, Takes};
use crate::config::Pace;

/// Bytes of items that wait for one sink: at least two reports with every list full, and thousands
/// of ordinary ones.
pub(crate) const QUEUE_BYTES: usize = 16 << 20;

/// Items on their way to a sink.
pub(super) struct Queue {
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
    closing: Closing,
    /// Whether the sink takes nothing any more, and the reason if that is an error.
    ended: bool,
    error: Option<SinkError>,
}

/// Whether items are still to come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Closing {
    #[default]
    Open,
    /// The run has ended.
    Finished,
    /// The run has failed.
    Abandoned,
}

impl Queue {
    pub(super) fn new(pace: Pace, takes: Takes) -> Self {
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
    pub(super) fn push(&self, item: &Item) -> bool {
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
    pub(super) fn next(&self) -> Option<Item> {
        let mut state = self.lock();
        while state.items.is_empty() && state.closing == Closing::Open {
            state = self.wait(state);
        }
        let item = state.items.pop_front();
        state.busy = item.is_some();
        item
    }

    /// Whether the sink has taken every item, or takes none any more.
    pub(super) fn is_idle(&self) -> bool {
        self.lock().left() == 0
    }

    /// Frees the room of an item that was delivered.
    pub(super) fn delivered(&self, item: &Item) {
        let mut state = self.lock();
        state.bytes -= item.memory_bytes();
        state.busy = false;
        self.changed.notify_all();
    }

    /// Counts an item that the sink never takes, and frees its room.
    pub(super) fn refused(&self, item: &Item) {
        let mut state = self.lock();
        state.undelivered += 1;
        state.undelivered_in_all += 1;
        drop(state);
        self.delivered(item);
    }

    /// Whether the run waits for no sink.
    pub(super) fn is_live(&self) -> bool {
        self.pace == Pace::Live
    }

    /// Waits before an item is tried again, at most until the run ends. Returns whether it should be:
    /// not in replay, and once only behind the end.
    pub(super) fn pause(&self, delay: Duration) -> bool {
        let state = self.lock();
        if self.pace == Pace::Replay || state.closing != Closing::Open {
            return false;
        }
        let open = |state: &mut State| state.closing == Closing::Open;
        drop(self.changed.wait_timeout_while(state, delay, open));
        true
    }

    /// Tells the sink that no more items come.
    pub(super) fn close(&self, closing: Closing) {
        self.lock().closing = closing;
        self.changed.notify_all();
    }

    /// How the queue was closed.
    pub(super) fn closing(&self) -> Closing {
        self.lock().closing
    }

    /// Notes that the sink takes nothing any more; only the first reason counts.
    pub(super) fn end(&self, result: Result<(), SinkError>) {
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
    pub(super) fn ended(&self, deadline: Option<Instant>) -> (bool, Ending) {
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
