//! Workers that each read their own part of the input: whole files, and parts of large ones.
//!
//! The files and the number of workers determine which worker reads what, so a run can be repeated.
//! Nothing is reported before everything is read. If an input has an error, or a table that others
//! are merged into is full, the results are discarded and one reader starts over; but once reading is
//! stopped, a full table is reported as it is.

use std::thread;

use flowgauge_core::any::BatchMut;
use flowgauge_core::batcher::{BatcherOptions, Take};
use flowgauge_core::sorting::sort_by;
use flowgauge_core::summary::Incompatible;
use flowgauge_core::terms::Size;
use flowgauge_kernel::Gone;

use crate::clock::strange;
use crate::close::Closer;
use crate::close::group::{Closed, failed};
use crate::config::Config;
use crate::crew::Cores;
use crate::error::EngineError;
use crate::intake::{Crew, Ended, Intake};
use crate::plan::{Plan, Prepared};
use crate::run::{Read, pinned, spawn, turns};
use crate::sink::Sink;
use crate::source::{Burst, Columns, Counter, Inputs, Origin, Piece, Source};
use crate::summaries::{Summaries, View, hand_out};
use crate::swaps::Swaps;

/// The result of reading one piece.
struct ReadPiece {
    input: usize,
    ended: Ended,
    origin: Origin,
}

/// The result of trying to read inputs side by side.
pub(crate) enum Attempt {
    /// The workers read all of them.
    Closed(Closed, Read),
    /// One reader has to read them, from the start.
    Undivided(Box<Plan>),
}

/// Reads the inputs side by side if that gives the same result and the inputs can be divided.
pub(crate) fn run(
    plan: Plan,
    inputs: &dyn Inputs,
    sink: &mut dyn Sink,
    progress: &mut dyn FnMut(&dyn Source),
) -> Result<Attempt, EngineError> {
    let undivided = |plan| Ok(Attempt::Undivided(Box::new(plan)));
    let mut prepared = match plan.only() {
        Ok(prepared) if prepared.division.parts => prepared,
        Ok(prepared) => return undivided(prepared.into()),
        Err(plan) => return undivided(plan),
    };
    let Some(shares) = inputs.divide(prepared.config.workers) else {
        if turns::suit(&prepared.config, &prepared.division) {
            return by_turns(prepared, inputs, sink, progress);
        }
        return undivided(prepared.into());
    };
    let mut sets: Vec<_> = prepared.sets.workers.into_iter().flatten().collect();
    hand_out(&mut sets, prepared.config.workers, Summaries::another);
    let (config, cores) = (&prepared.config, prepared.division.cores.as_ref());
    if let Some((ended, origin)) =
        read(config, cores, prepared.batcher, &mut sets, (inputs, shares), progress)?
    {
        let mut closer = prepared.closer;
        closer.close(ended, &[&sets[0]], sink)?;
        return Ok(closed(closer, Read { origin, ..Read::default() }));
    }
    for set in &mut sets {
        set.next_epoch(true);
    }
    prepared.sets.workers = sets.into_iter().map(|set| vec![set]).collect();
    undivided(prepared.into())
}

/// Reads inputs by turns.
fn by_turns(
    prepared: Prepared,
    inputs: &dyn Inputs,
    sink: &mut dyn Sink,
    progress: &mut dyn FnMut(&dyn Source),
) -> Result<Attempt, EngineError> {
    let Prepared { config, batcher, sets, division, mut closer, .. } = prepared;
    let mut sets: Vec<_> = sets.workers.into_iter().flatten().collect();
    hand_out(&mut sets, config.workers, Summaries::another);
    let (ended, read) =
        turns::read(&config, &division, batcher, &mut sets, inputs.chain(), progress)?;
    if read.is_something() {
        let sets: Vec<_> = sets.iter().collect();
        closer.close(ended, &sets, sink)?;
    }
    Ok(closed(closer, read))
}

fn closed(closer: Closer, read: Read) -> Attempt {
    Attempt::Closed(Closed { totals: vec![closer.total], swaps: Swaps::default() }, read)
}

/// Lets each worker read its pieces into a set of summaries, and merges the sets into the first
/// one, or keeps one handle of concurrent summaries. Returns the resulting epoch and its inputs;
/// `None` if one reader has to start over.
fn read(
    config: &Config,
    cores: Option<&Cores>,
    batcher: BatcherOptions,
    sets: &mut Vec<Summaries>,
    (inputs, shares): (&dyn Inputs, Vec<Vec<Piece>>),
    progress: &mut dyn FnMut(&dyn Source),
) -> Result<Option<(Ended, Origin)>, EngineError> {
    let pieces = thread::scope(|scope| {
        let mut workers = sets.iter_mut().zip(shares).enumerate();
        let own = workers.next();
        let mut others = Vec::new();
        for (worker, (set, share)) in workers {
            others.push(spawn(scope, &format!("worker {worker}"), move || {
                let _pinned = cores.map(|cores| cores.pin(worker)).transpose()?;
                Ok(read_share(config, batcher, set, share, &mut |_| {}))
            })?);
        }
        let mut pieces = Vec::new();
        if let Some((_, (set, share))) = own {
            pieces
                .push(pinned(cores, 0, || Ok(read_share(config, batcher, set, share, progress)))?);
        }
        for (number, worker) in (1..).zip(others) {
            let joined = worker.join();
            pieces
                .push(joined.unwrap_or_else(|panic| failed(format!("worker {number}"), &*panic))?);
        }
        Ok::<_, EngineError>(pieces)
    })?;
    if sets.first().is_some_and(Summaries::is_concurrent) {
        sets.truncate(1);
    }
    let incompatible = |reason: Incompatible| EngineError::Workers(reason.to_string());
    sets.iter_mut().try_for_each(Summaries::collect).map_err(incompatible)?;
    let Some(pieces) = pieces.into_iter().collect::<Option<Vec<_>>>() else { return Ok(None) };
    let mut pieces: Vec<ReadPiece> = pieces.into_iter().flatten().collect();
    // Parts of a file are in the order of their workers.
    sort_by(&mut pieces, &|one, other| one.input.cmp(&other.input));
    let (first, others) = sets.split_at_mut(1);
    for other in others {
        if first[0].merge(other).is_err() {
            return Ok(None);
        }
    }
    first[0].settle();
    let view = View::new(config.key, std::iter::once(&first[0]));
    let full = |lane: &flowgauge_core::task::Lane<'_>| lane.answers.untracked() != Size::default();
    if view.lanes().iter().any(full) && !inputs.is_stopped() {
        return Ok(None);
    }
    Ok(Some(joined(pieces)))
}

/// Reads the pieces of one worker; `None` at the first problem.
fn read_share(
    config: &Config,
    batcher: BatcherOptions,
    set: &mut Summaries,
    share: Vec<Piece>,
    progress: &mut dyn FnMut(&dyn Source),
) -> Option<Vec<ReadPiece>> {
    let mut pieces = Vec::with_capacity(share.len());
    let mut columns = Columns::default();
    for Piece { input, mut source } in share {
        let mut intake = Intake::new(config, batcher);
        let mut crew = Collect { set, ended: Ended::default() };
        loop {
            let mut burst = Burst::new(&mut columns);
            if !source.poll(&mut burst).ok()? {
                break;
            }
            intake.take(&burst.frames(), &mut crew).ok()?;
            drop(burst);
            progress(&*source);
        }
        intake.close(&mut crew).ok()?;
        pieces.push(ReadPiece { input, ended: crew.ended, origin: Origin::of(&*source) });
    }
    set.settle();
    Some(pieces)
}

/// Joins pieces, in order, into one epoch and one list of inputs.
fn joined(pieces: Vec<ReadPiece>) -> (Ended, Origin) {
    let (mut epoch, mut all) = (Ended::default(), Origin::default());
    let mut last = None;
    for ReadPiece { input, ended, origin } in pieces {
        // No clock has seen the packets on both sides of a seam.
        if let (Some((_, before_ns)), Some((first_ns, _))) = (epoch.ends_ns, ended.ends_ns) {
            let (backwards, jump) = strange(before_ns, first_ns);
            epoch.account.backwards += u64::from(backwards);
            epoch.account.jumps += u64::from(jump);
        }
        let ends_ns = ended.ends_ns.or(epoch.ends_ns);
        epoch = Ended { ends_ns, ..epoch.beside(ended) };
        if last != Some(input) {
            all.inputs.extend(origin.inputs);
        }
        Counter::add(&mut all.counters, &origin.counters);
        last = Some(input);
    }
    (epoch, all)
}

/// Measures pieces into the same summaries, and keeps the end of the latest one.
struct Collect<'a> {
    set: &'a mut Summaries,
    ended: Ended,
}

impl Take for Collect<'_> {
    fn take(&mut self, lane: usize, batch: BatchMut<'_>) {
        self.set.take(lane, batch);
    }
}

impl Crew for Collect<'_> {
    fn end(&mut self, ended: Ended) -> Result<(), Gone> {
        self.ended = ended;
        Ok(())
    }

    fn pass(&mut self, _: u64) -> Result<(), Gone> {
        Ok(())
    }

    fn is_broken(&self) -> bool {
        false
    }
}
