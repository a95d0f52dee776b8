//! Reports and snapshots on their way out: to a function on a thread of the library, or to one that polls.

use std::ffi::{CString, c_void};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use flowgauge_engine::sink::{Format, Item, Json, Sink, SinkError};

use crate::error::{Problem, c_text};
use crate::{FG_EBUSY, FG_END, FG_JSON, FG_OK, FG_SNAPSHOT, fg_report};

thread_local! {
    /// Whether a report is being taken on this thread.
    static TAKING: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// Refuses what would wait for itself in the function that takes a report.
pub(crate) fn check_outside() -> Result<(), Problem> {
    if TAKING.get() {
        let text = c"the function that takes a report can neither poll nor close";
        return Err(Problem::fixed(FG_EBUSY, text));
    }
    Ok(())
}

/// A function of the program, and what it wants to be called with.
#[derive(Clone, Copy)]
pub(crate) struct Taker {
    pub(crate) take: unsafe extern "C" fn(*mut c_void, *const fg_report),
    pub(crate) user: *mut c_void,
}

// SAFETY: the header says that the function is called on a thread of the library.
unsafe impl Send for Taker {}

impl Taker {
    /// Hands an item out.
    fn take(self, item: &Item, bytes: &mut Vec<u8>) -> Result<(), SinkError> {
        bytes.clear();
        let (measurement, epoch) = match item {
            Item::Epoch(report) => (report.measurement.to_string(), report.epoch),
            Item::Gap(gap) => (gap.measurement.to_string(), gap.epoch),
            Item::Snapshot(saved) => (saved.measurement.clone(), saved.epoch),
            Item::Total(report) => (report.measurement.to_string(), report.epochs),
        };
        let (kind, secret) = match item {
            Item::Snapshot(saved) => {
                bytes.extend_from_slice(&saved.bytes);
                (FG_SNAPSHOT, saved.is_secret)
            }
            Item::Epoch(_) | Item::Gap(_) | Item::Total(_) => {
                Json.item(item, bytes)?;
                (FG_JSON, false)
            }
        };
        let length = bytes.len();
        bytes.push(0);
        let measurement: CString = c_text(measurement);
        let report = fg_report {
            kind,
            secret: secret.into(),
            measurement: measurement.as_ptr(),
            epoch,
            bytes: bytes.as_ptr().cast(),
            length,
        };
        TAKING.set(true);
        // SAFETY: the program gave a function of this type, and the report lives until it returns.
        unsafe { (self.take)(self.user, &raw const report) };
        TAKING.set(false);
        Ok(())
    }
}

/// Hands reports to a function on the thread of the sink.
pub(crate) struct Calls {
    pub(crate) taker: Taker,
    pub(crate) bytes: Vec<u8>,
}

impl Sink for Calls {
    fn deliver(&mut self, item: &Item) -> Result<(), SinkError> {
        self.taker.take(item, &mut self.bytes)
    }
}

/// Where the sink's thread leaves one item at a time for a thread that polls.
#[derive(Default)]
pub(crate) struct Mailbox {
    state: Mutex<Mail>,
    changed: Condvar,
    /// What the polling thread works in; held while it polls.
    bytes: Mutex<Vec<u8>>,
}

#[derive(Default)]
struct Mail {
    item: Option<Item>,
    /// Whether no more items come, and whether none is wanted.
    ended: bool,
    closed: bool,
}

impl Mailbox {
    fn lock(&self) -> MutexGuard<'_, Mail> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Discards what is left, and what comes.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }

    /// No more items come.
    pub(crate) fn end(&self) {
        self.lock().ended = true;
        self.changed.notify_all();
    }

    /// Hands out all items there are; waits for the first one as long as this.
    pub(crate) fn poll(&self, taker: Taker, wait: Duration) -> Result<i32, Problem> {
        let mut bytes = match self.bytes.try_lock() {
            Ok(bytes) => bytes,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                return Err(Problem::fixed(FG_EBUSY, c"another thread polls the group"));
            }
        };
        let until = Instant::now() + wait;
        let mut state = self.lock();
        let mut taken = false;
        loop {
            if let Some(item) = state.item.take() {
                self.changed.notify_all();
                drop(state);
                let _ = taker.take(&item, &mut bytes);
                taken = true;
                state = self.lock();
            } else if state.ended || state.closed {
                return Ok(if taken { FG_OK } else { FG_END });
            } else {
                let left = until.saturating_duration_since(Instant::now());
                if taken || left.is_zero() {
                    return Ok(FG_OK);
                }
                let woken = self.changed.wait_timeout(state, left);
                state = woken.unwrap_or_else(PoisonError::into_inner).0;
            }
        }
    }
}

/// Leaves reports in the mailbox.
pub(crate) struct Posts(pub(crate) Arc<Mailbox>);

impl Sink for Posts {
    fn deliver(&mut self, item: &Item) -> Result<(), SinkError> {
        let mut state = self.0.lock();
        while state.item.is_some() && !state.closed {
            state = self.0.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if !state.closed {
            state.item = Some(item.clone());
            self.0.changed.notify_all();
        }
        Ok(())
    }
}
