//! Where the batches of a meter go: into summaries of its own thread, or dealt to other threads.
//!
//! The end of an epoch goes to the workers behind its last batch, so that a worker without a packet
//! comes to it as well. There each hands its summaries over to the closer and goes on with a spare set.
//! An update of an epoch that goes on is the same to a worker: the closer merges what it gets.

mod dispatch;
mod own;
mod peer;
mod pin;
mod sharing;
mod worker;

use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use flowgauge_kernel::{Keeper, exchange, ring};

use crate::config::Config;
use crate::error::EngineError;
use crate::gathering::{self, Open};
use crate::intake::Crew;
use crate::summaries::{Set, Summaries, hand_out};
use crate::swaps::{Record, Swaps};
use dispatch::Dispatcher;
pub(crate) use dispatch::Way;
use own::Own;
pub(crate) use peer::{Deal, MOST_PEERS, Peer};
pub use pin::Cores;
pub(crate) use sharing::{Sharing, keeps_apart};
use worker::{PARCELS, Parcel, Worker};

/// A thread that a meter started.
pub(crate) type Started = (String, JoinHandle<Result<(), EngineError>>);

/// A meter's crew, and the sides of its sets that the closer keeps.
pub(crate) type Staffed = (Box<dyn Crew + Send>, Vec<Keeper<Set>>);

/// The crews of several queues, each of which fills summaries of its own, and their closing sides.
pub(crate) fn queues(
    config: &Config,
    sets: Vec<Vec<Summaries>>,
    swaps: &Arc<Mutex<Swaps>>,
) -> Vec<(Box<dyn Crew + Send>, gathering::Queue)> {
    let queue = |sets: Vec<Summaries>| {
        let (user, keeper) = exchange(sets.into_iter().map(Set::new).collect());
        let open = Arc::<Open>::default();
        let crew = Own::of_queue(user, config.pace, Arc::clone(&open), Record::new(swaps));
        (Box::new(crew) as Box<dyn Crew + Send>, gathering::Queue::new(keeper, open))
    };
    sets.into_iter().map(queue).collect()
}

/// Lets the meter's own thread fill the summaries, or starts as many threads for them as there are
/// workers beside the one that reads.
pub(crate) fn staff(
    config: &Config,
    sharing: &Sharing,
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
        let own = Own::new(user, config.pace, lasting, Record::new(swaps));
        return Ok((Box::new(own), vec![keeper]));
    }
    // The thread that reads has no use for a set.
    sets.truncate(workers);
    hand_out(&mut sets, workers, |sets| sets.iter().map(Summaries::another).collect());
    let lanes = &config.key.lanes()[..sets[0][0].lanes.len()];
    let (mut rings, mut keepers) = (Vec::new(), Vec::new());
    for (number, sets) in (1..).zip(sets) {
        let (user, keeper) = exchange(sets);
        let (parcels, work) = ring(PARCELS, || Parcel::new(lanes));
        let (worker, cores) = (Worker::new(user, Record::new(swaps)), sharing.cores.clone());
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
    let dispatcher = Dispatcher::new(config, sharing.way, lanes, rings);
    Ok((Box::new(dispatcher), keepers))
}
