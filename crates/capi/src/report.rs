//! Delivery of reports and snapshots: to a function on a thread of the library, or to a polling
//! thread.

use std::ffi::{CString, c_void};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use flowgauge_engine::sink::{Format, Item, Json, Sink, SinkError};

use crate::error::{Problem, c_text};
use crate::{FG_EBUSY, FG_END, FG_JSON, FG_OK, FG_SNAPSHOT, fg_report};

thread_local! {
    /// Whether this thread is inside the function that takes a report.
    static TAKING: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// Rejects calls that would wait for themselves inside the function that takes a report.
pub(crate) fn check_outside() -> Result<(), Problem> {
    if TAKING.get() {
        let text = c"the function that takes a report can neither poll nor close, nor push where that may wait";
        return Err(Problem::fixed(FG_EBUSY, text));
    }
    Ok(())
}

/// A function of the program, and its argument.
#[derive(Clone, Copy)]
pub(crate) struct Taker {
    pub(crate) take: unsafe extern "C" fn(*mut c_void, *const fg_report),
    pub(crate) user: *mut c_void,
}

// SAFETY: the header says that the function is called on a thread of the library.
unsafe impl Send for Taker {}

impl Taker {
    /// Passes an item to the function.
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

/// A sink that calls a function on its own thread.
pub(crate) struct Calls {
    pub(crate) taker: Taker,
    pub(crate) bytes: Vec<u8>,
}

impl Sink for Calls {
    fn deliver(&mut self, item: &Item) -> Result<(), SinkError> {
        self.taker.take(item, &mut self.bytes)
    }
}

/// Passes items one at a time from the sink's thread to a polling thread.
#[derive(Default)]
pub(crate) struct Mailbox {
    state: Mutex<Mail>,
    changed: Condvar,
    /// Buffer of the polling thread, locked while it polls.
    bytes: Mutex<Vec<u8>>,
}

#[derive(Default)]
struct Mail {
    item: Option<Item>,
    /// Whether no more items will come, and whether none is wanted any more.
    ended: bool,
    closed: bool,
}

impl Mailbox {
    fn lock(&self) -> MutexGuard<'_, Mail> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Discards waiting and future items.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }

    /// Marks that no more items will come.
    pub(crate) fn end(&self) {
        self.lock().ended = true;
        self.changed.notify_all();
    }

    /// Delivers all waiting items; waits up to `wait` for the first one.
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

/// A sink that puts reports into the mailbox.
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
