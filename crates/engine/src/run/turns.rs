//! Workers that read one input by turns: one reads a chunk of packets while another one parses and
//! measures the previous chunk.
//!
//! The input is not cut, so it may be compressed, a pipe, or of any format. Packets before damage
//! in the input count. If tables are read side by side, packets are dealt out after their headers
//! are parsed, so that each flow is in one table. Other summaries are merged at the end.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use flowgauge_core::batch::BATCH_PACKETS;
use flowgauge_core::batcher::BatcherOptions;
use flowgauge_core::sorting::sort_by;
use flowgauge_core::summary::Incompatible;

use crate::close::group::failed;
use crate::config::Config;
use crate::crew::{Deal, Division, MOST_PEERS, Peer};
use crate::error::EngineError;
use crate::intake::{Crew, Ended, Intake};
use crate::run::{Read, pinned, spawn};
use crate::source::{Burst, Chunk, Chunks, Columns, Origin, Source, SourceError};
use crate::summaries::Summaries;

/// Whether workers may read an input by turns.
pub(crate) fn suit(config: &Config, division: &Division) -> bool {
    division.parts && (!division.joined || config.workers <= MOST_PEERS)
}

/// The input that workers read by turns.
struct Turns {
    input: Mutex<Input>,
    passed: Condvar,
    /// Number of workers that take turns in a fixed order; `None` if the next free worker reads.
    fixed: Option<usize>,
}

struct Input {
    source: Box<dyn Chunks + Send>,
    problems: Vec<SourceError>,
    /// Chunks read so far, and the time of the last packet.
    chunks: u64,
    last_ns: Option<i64>,
    ended: bool,
}

/// How often a worker checks for its turn before it sleeps: about a millisecond, the time to
/// inflate a chunk. With 100 checks, two workers are slower than one.
const LOOKS: usize = 1000;

/// How long a worker sleeps before it checks again for batches from other workers.
const NAP: Duration = Duration::from_millis(1);

/// The result of one worker.
struct Done {
    ended: Ended,
    /// The first chunk with a packet that the filter could not judge.
    unfit: u64,
}

/// Lets each worker measure chunks of the input into a set of summaries. Returns the epoch and what
/// the source reported. Leaves one set that holds all packets, or several that share no flow.
pub(crate) fn read(
    config: &Config,
    division: &Division,
    batcher: BatcherOptions,
    sets: &mut Vec<Summaries>,
    source: Box<dyn Chunks + Send>,
    progress: &mut dyn FnMut(&dyn Source),
) -> Result<(Ended, Read), EngineError> {
    let turns = Turns {
        input: Mutex::new(Input {
            source,
            problems: Vec::new(),
            chunks: 0,
            last_ns: None,
            ended: false,
        }),
        passed: Condvar::new(),
        // Some summaries give the same numbers whichever worker gets a packet. The others need a fixed
        // order, so that a run can be repeated.
        fixed: (!division.same).then_some(sets.len()),
    };
    let key_bytes = &config.key.lanes()[..sets[0].lanes.len()];
    let peers = if division.joined { sets.len() } else { 0 };
    let deals = Deal::among(peers, config, division.routing, key_bytes);
    let deals = deals.into_iter().map(Some).chain(std::iter::repeat_with(|| None));
    // If a thread cannot be started, all peers go, and the others wait for none of them.
    let peers: Vec<_> =
        sets.iter_mut().zip(deals).map(|(set, deal)| Peer::new(set, deal)).collect();
    let mut done = thread::scope(|scope| {
        let turns = &turns;
        let mut workers =
            peers.into_iter().enumerate().map(|(worker, peer)| (Turn { turns, worker }, peer));
        let own = workers.next();
        let mut others = Vec::new();
        for (turn, peer) in workers {
            let (cores, worker) = (division.cores.as_ref(), turn.worker);
            others.push(spawn(scope, &format!("worker {worker}"), move || {
                pinned(cores, worker, || Ok(turn.work(config, batcher, peer, &mut |_| {})))
            })?);
        }
        let mut done = Vec::new();
        if let Some((turn, peer)) = own {
            done.push(pinned(division.cores.as_ref(), turn.worker, || {
                Ok(turn.work(config, batcher, peer, progress))
            })?);
        }
        for (number, worker) in (1..).zip(others) {
            let joined = worker.join();
            done.push(joined.unwrap_or_else(|panic| failed(format!("worker {number}"), &*panic))?);
        }
        Ok::<_, EngineError>(done)
    })?;
    if sets.first().is_some_and(Summaries::is_concurrent) {
        sets.truncate(1);
    }
    let incompatible = |reason: Incompatible| EngineError::Workers(reason.to_string());
    sets.iter_mut().try_for_each(Summaries::collect).map_err(incompatible)?;
    if !division.joined {
        let (first, others) = sets.split_at_mut(1);
        others.iter().try_for_each(|other| first[0].merge(other)).map_err(incompatible)?;
        first[0].settle();
        sets.truncate(1);
    }
    sort_by(&mut done, &|one, other| one.unfit.cmp(&other.unfit));
    let all = done.into_iter().map(|done| done.ended).fold(Ended::default(), Ended::beside);
    let input = turns.input.into_inner().unwrap_or_else(PoisonError::into_inner);
    let origin = Origin::of(&*input.source);
    Ok((all, Read { origin, problems: input.problems, notes: Vec::new() }))
}

/// A worker's right to its turns. Dropping it ends the reading, also on a panic.
struct Turn<'a> {
    turns: &'a Turns,
    worker: usize,
}

impl Turn<'_> {
    /// Measures chunks until the input ends.
    fn work(
        self,
        config: &Config,
        batcher: BatcherOptions,
        mut peer: Peer<'_>,
        progress: &mut dyn FnMut(&dyn Source),
    ) -> Done {
        let mut intake = Intake::new(config, batcher);
        let (mut chunk, mut unfit) = (Chunk::default(), u64::MAX);
        let mut columns = Columns::default();
        while !peer.is_broken()
            && let Some((number, before_ns)) = self.read(&mut chunk, &mut peer, progress)
        {
            if let Some(before_ns) = before_ns {
                intake.follow(before_ns);
            }
            let mut frames = chunk.frames();
            loop {
                let mut burst = Burst::new(&mut columns);
                frames.by_ref().take(BATCH_PACKETS).for_each(|frame| burst.push(frame));
                if burst.is_empty() || intake.take(&burst.frames(), &mut peer).is_err() {
                    break;
                }
            }
            if intake.is_unfit() {
                unfit = unfit.min(number);
            }
            peer.receive();
        }
        let _ = intake.close(&mut peer);
        Done { ended: peer.ended, unfit }
    }

    /// Reads the next chunk when it is this worker's turn. Returns its number and the time of the
    /// packet before it; `None` at the end.
    fn read(
        &self,
        chunk: &mut Chunk,
        peer: &mut Peer<'_>,
        progress: &mut dyn FnMut(&dyn Source),
    ) -> Option<(u64, Option<i64>)> {
        let mut input = self.next(peer);
        while !input.ended {
            match input.source.read(chunk) {
                Ok(true) => {
                    progress(&*input.source);
                    let before = (input.chunks, input.last_ns);
                    input.chunks += 1;
                    input.last_ns = chunk.last_ns();
                    if self.turns.fixed.is_some() {
                        self.turns.passed.notify_all();
                    }
                    return Some(before);
                }
                Ok(false) => input.ended = true,
                Err(problem) => input.problems.push(problem),
            }
        }
        None
    }

    /// Waits for this worker's turn, and meanwhile measures the batches that others deal to it. It
    /// sleeps only after a long wait: waking it takes as long as measuring a thousand packets.
    fn next(&self, peer: &mut Peer<'_>) -> MutexGuard<'_, Input> {
        loop {
            for _ in 0..LOOKS {
                if let Ok(input) = self.turns.input.try_lock()
                    && self.is_next(&input)
                {
                    return input;
                }
                if !peer.receive() {
                    thread::yield_now();
                }
            }
            let input = self.input();
            if self.is_next(&input) {
                return input;
            }
            drop(self.turns.passed.wait_timeout(input, NAP));
        }
    }

    fn is_next(&self, input: &Input) -> bool {
        let own = |workers| input.chunks % workers as u64 == self.worker as u64;
        input.ended || self.turns.fixed.is_none_or(own)
    }

    fn input(&self) -> MutexGuard<'_, Input> {
        self.turns.input.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.input().ended = true;
        self.turns.passed.notify_all();
    }
}
