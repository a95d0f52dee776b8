//! One thread that reads and dispatches, others that measure, and one that closes the epochs.
//!
//! The reader's batches go to the workers through rings, and so does the end of an epoch, behind its
//! last batch: a worker without a packet comes to it as well. There it hands its summaries over to
//! the closer and goes on with a spare set, so that nobody waits for what is done at the close.
//! An update of an epoch that goes on is the same to a worker: the closer adds up what it gets.

mod closing;
mod dispatch;
mod pin;
mod sharing;
mod worker;

use std::any::Any;
use std::thread::{self, Scope, ScopedJoinHandle};

use flowgauge_core::key::FlowKey;
use flowgauge_kernel::{exchange, ring};

use crate::close::Closer;
use crate::config::Config;
use crate::error::EngineError;
use crate::sink::Sink;
use crate::summaries::Sets;
use crate::swaps::Swaps;
use closing::{Closing, EVENTS};
pub(crate) use dispatch::{Dispatcher, Way};
pub use pin::Cores;
pub(crate) use sharing::{Sharing, keeps_apart};
use worker::{PARCELS, Parcel, Set, Worker};

/// Lets `read` pass batches to as many workers as have sets of summaries. Returns what it
/// returns, and how the workers were stopped by the ends of epochs and by updates.
pub(crate) fn run<A: FlowKey, B: FlowKey, T>(
    config: &Config,
    sharing: &Sharing,
    sets: Sets<A, B>,
    closer: &mut Closer,
    sink: &mut dyn Sink,
    read: impl FnOnce(&mut Dispatcher<A, B>) -> Result<T, EngineError>,
) -> Result<(T, Swaps), EngineError> {
    let (events, ends) = ring(EVENTS, || None);
    let (workers, keepers): (Vec<_>, Vec<_>) = sets
        .workers
        .into_iter()
        .map(|sets| exchange(sets.into_iter().map(Set::new).collect()))
        .map(|(user, keeper)| (Worker::new(user), keeper))
        .unzip();
    thread::scope(|scope| {
        let sums = sets.sums.into_iter().map(Set::new).collect();
        let closing = Closing::new(closer, sink, keepers, sums, ends, sharing.joined);
        let closing = spawn(scope, "closer".to_owned(), || closing.run())?;
        let mut rings = Vec::new();
        let mut others = Vec::new();
        for (number, worker) in (1..).zip(workers) {
            let (parcels, work) = ring(PARCELS, Parcel::new);
            let cores = sharing.cores.clone();
            others.push(spawn(scope, format!("worker {number}"), move || {
                let _pinned = cores.map(|cores| cores.pin(number)).transpose()?;
                Ok(worker.run(work))
            })?);
            rings.push(parcels);
        }
        let mut dispatcher = Dispatcher::new(config, sharing.way, rings, events);
        let pinned = sharing.cores.as_ref().map(|cores| cores.pin(0)).transpose();
        let result = pinned.and_then(|_pinned| read(&mut dispatcher));
        drop(dispatcher);
        let mut swaps = Swaps::default();
        // Whoever failed first made the others end: the closer by a report that nobody takes, then a
        // worker.
        let closed = closing.join().unwrap_or_else(|panic| failed("closer".to_owned(), &*panic));
        let mut ended = closed;
        for (number, worker) in (1..).zip(others) {
            let joined = worker.join();
            let joined = joined.unwrap_or_else(|panic| failed(format!("worker {number}"), &*panic));
            ended = ended.and(joined.map(|other| swaps.add(&other)));
        }
        ended?;
        Ok((result?, swaps))
    })
}

/// Begins a thread of this name.
pub(crate) fn spawn<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    name: String,
    work: impl FnOnce() -> Result<T, EngineError> + Send + 'scope,
) -> Result<ScopedJoinHandle<'scope, Result<T, EngineError>>, EngineError> {
    thread::Builder::new().name(name).spawn_scoped(scope, work).map_err(EngineError::Thread)
}

/// What a thread that panicked said last.
pub(crate) fn failed<T>(thread: String, panic: &(dyn Any + Send)) -> Result<T, EngineError> {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    Err(EngineError::Panicked { thread, message: text.unwrap_or("no reason given").to_owned() })
}
