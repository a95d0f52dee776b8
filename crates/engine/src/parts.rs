//! Workers that each read for themselves: files of their own, and parts of large ones.
//!
//! Who reads what is fixed by the files and the number of workers, so that a run can be repeated.
//! Nothing is reported before all is read: where something is wrong with an input, or a table that
//! the others are merged into is full, everything is forgotten, and one reader begins anew.

use std::path::PathBuf;
use std::thread;

use flowgauge_capture::{Captures, FileCounts, Part, Source, Whole};
use flowgauge_core::any::BatchMut;
use flowgauge_core::lanes::{LaneOptions, Take};
use flowgauge_core::summary::{Incompatible, Size};
use flowgauge_kernel::Gone;

use crate::clock::strange;
use crate::config::Config;
use crate::crew::Cores;
use crate::error::EngineError;
use crate::group::{Closed, failed};
use crate::intake::{Crew, Ended, Intake};
use crate::plan::Plan;
use crate::run::{Packets, pinned, slices, spawn};
use crate::sink::Sink;
use crate::summaries::{Summaries, View, hand_out};
use crate::swaps::Swaps;

/// What one worker reads in one go.
enum Piece {
    File(PathBuf),
    Part(Part),
}

/// A piece with the number of its file, in the order of the input.
type Numbered = (usize, Piece);

/// Cuts files among so many workers: what each of them reads, in order. A file that cannot be cut
/// goes to one of them, by turns. `None` where that is of no use, or where an input cannot be read a
/// second time.
fn cut(files: &[PathBuf], workers: usize) -> Option<Vec<Vec<Numbered>>> {
    let mut shares: Vec<Vec<Numbered>> = (0..workers).map(|_| Vec::new()).collect();
    let mut turn = 0;
    for (number, file) in files.iter().enumerate() {
        match flowgauge_capture::cut(file, workers) {
            Ok(parts) => {
                for (share, part) in shares.iter_mut().zip(parts) {
                    share.push((number, Piece::Part(part)));
                }
            }
            Err(Whole::NoFile | Whole::Unreadable(_)) => return None,
            Err(_) => {
                shares[turn % workers].push((number, Piece::File(file.clone())));
                turn += 1;
            }
        }
    }
    (shares.iter().filter(|share| !share.is_empty()).count() > 1).then_some(shares)
}

/// What came of a piece.
struct Read {
    number: usize,
    ended: Ended,
    counts: FileCounts,
}

/// What came of a run over files.
pub(crate) enum Run {
    /// Workers read the files side by side.
    Closed(Closed, Vec<FileCounts>),
    /// One reader has to read them, from the start.
    Undivided(Box<Plan>),
}

/// Runs a plan over files side by side where that is as good, and the files can be divided.
pub(crate) fn run(
    plan: Plan,
    files: &[PathBuf],
    sink: &mut dyn Sink,
    progress: &mut dyn FnMut(&Packets<'_>),
) -> Result<Run, EngineError> {
    let undivided = |plan| Ok(Run::Undivided(Box::new(plan)));
    let mut prepared = match plan.only() {
        Ok(prepared) if prepared.sharing.parts => prepared,
        Ok(prepared) => return undivided(prepared.into()),
        Err(plan) => return undivided(plan),
    };
    let Some(shares) = cut(files, prepared.config.workers) else {
        return undivided(prepared.into());
    };
    let mut sets: Vec<_> = prepared.sets.workers.into_iter().flatten().collect();
    hand_out(&mut sets, prepared.config.workers, Summaries::another);
    let (config, cores) = (&prepared.config, prepared.sharing.cores.as_ref());
    if let Some((ended, counts)) = read(config, cores, prepared.lanes, &mut sets, shares, progress)?
    {
        let mut closer = prepared.closer;
        let view = View::new(closer.key, std::iter::once(&sets[0]));
        closer.close(ended, &view.lanes(), sink)?;
        let closed = Closed { totals: vec![closer.total], swaps: Swaps::default() };
        return Ok(Run::Closed(closed, counts));
    }
    sets.iter_mut().for_each(Summaries::next_epoch);
    prepared.sets.workers = sets.into_iter().map(|set| vec![set]).collect();
    undivided(prepared.into())
}

/// Lets each worker read its share with a set of summaries, and merges these into the first one, or
/// leaves one handle of concurrent summaries. Returns the epoch that they make up, and the files; `None`
/// where one reader has to start over.
fn read(
    config: &Config,
    cores: Option<&Cores>,
    lanes: LaneOptions,
    sets: &mut Vec<Summaries>,
    shares: Vec<Vec<Numbered>>,
    progress: &mut dyn FnMut(&Packets<'_>),
) -> Result<Option<(Ended, Vec<FileCounts>)>, EngineError> {
    let pieces = thread::scope(|scope| {
        let mut workers = sets.iter_mut().zip(shares).enumerate();
        let own = workers.next();
        let mut others = Vec::new();
        for (worker, (set, share)) in workers {
            others.push(spawn(scope, &format!("worker {worker}"), move || {
                let _pinned = cores.map(|cores| cores.pin(worker)).transpose()?;
                Ok(read_share(config, lanes, set, share, &mut |_| {}))
            })?);
        }
        let mut pieces = Vec::new();
        if let Some((_, (set, share))) = own {
            pieces.push(pinned(cores, || Ok(read_share(config, lanes, set, share, progress)))?);
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
    let mut pieces: Vec<Read> = pieces.into_iter().flatten().collect();
    // Parts of a file stand in the order of their workers.
    pieces.sort_by_key(|piece| piece.number);
    let (first, others) = sets.split_at_mut(1);
    for other in others {
        if first[0].merge(other).is_err() {
            return Ok(None);
        }
    }
    first[0].settle();
    let view = View::new(config.key, std::iter::once(&first[0]));
    let full = |lane: &flowgauge_core::task::Lane<'_>| lane.answers.untracked() != Size::default();
    if view.lanes().iter().any(full) {
        return Ok(None);
    }
    Ok(Some(joined(pieces)))
}

/// Reads the pieces of one worker; `None` at the first problem.
fn read_share(
    config: &Config,
    lanes: LaneOptions,
    set: &mut Summaries,
    share: Vec<Numbered>,
    progress: &mut dyn FnMut(&Packets<'_>),
) -> Option<Vec<Read>> {
    let mut pieces = Vec::with_capacity(share.len());
    for (number, piece) in share {
        let mut source = match piece {
            Piece::File(file) => Captures::open([file]),
            Piece::Part(part) => part.open(),
        };
        let mut intake = Intake::new(config, lanes);
        let mut crew = Collect { set, ended: Ended::default() };
        while let Some(frames) = source.poll().ok()? {
            intake.take(&slices(&frames), &mut crew).ok()?;
            progress(&source);
        }
        intake.close(&mut crew).ok()?;
        let counts = FileCounts { file: String::new(), frames: 0, irregular: 0 };
        let counts = source.files().first().cloned().unwrap_or(counts);
        pieces.push(Read { number, ended: crew.ended, counts });
    }
    set.settle();
    Some(pieces)
}

/// The epoch and the files that these pieces make up, in their order.
fn joined(pieces: Vec<Read>) -> (Ended, Vec<FileCounts>) {
    let (mut epoch, mut files) = (Ended::default(), Vec::<FileCounts>::new());
    let mut last = None;
    for Read { number, ended, counts } in pieces {
        epoch.account.add(&ended.account);
        epoch.unmeasured += ended.unmeasured;
        epoch.unfit = epoch.unfit.or(ended.unfit);
        if let Some((earliest_ns, latest_ns)) = ended.times_ns {
            let (start_ns, end_ns) = epoch.times_ns.unwrap_or((earliest_ns, latest_ns));
            epoch.times_ns = Some((start_ns.min(earliest_ns), end_ns.max(latest_ns)));
        }
        // Nobody saw the packets on both sides of a seam.
        if let (Some((_, before_ns)), Some((first_ns, _))) = (epoch.ends_ns, ended.ends_ns) {
            let (backwards, jump) = strange(before_ns, first_ns);
            epoch.account.backwards += u64::from(backwards);
            epoch.account.jumps += u64::from(jump);
        }
        epoch.ends_ns = ended.ends_ns.or(epoch.ends_ns);
        match files.last_mut().filter(|_| last == Some(number)) {
            Some(file) => {
                file.frames += counts.frames;
                file.irregular += counts.irregular;
            }
            None => files.push(counts),
        }
        last = Some(number);
    }
    epoch.bounds_ns = epoch.times_ns;
    (epoch, files)
}

/// Measures one piece after another in the same summaries, and keeps the end of each.
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
