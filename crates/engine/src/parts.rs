//! Workers that each read for themselves: files of their own, and parts of large ones.
//!
//! Who reads what is fixed by the files and the number of workers, so that a run can be repeated.
//! Nothing is reported before all is read: where something is wrong with an input, or a table that
//! the others are merged into is full, everything is forgotten, and one reader begins anew.

use std::path::PathBuf;
use std::thread;

use flowgauge_capture::{Captures, FileCounts, Part, Source, Whole};
use flowgauge_core::batch::Batch;
use flowgauge_core::key::FlowKey;
use flowgauge_core::summary::Size;

use crate::clock::strange;
use crate::config::Config;
use crate::crew::{Cores, failed, spawn};
use crate::error::EngineError;
use crate::lanes::{Lanes, Take};
use crate::reader::{Crew, Ended, Packets, Reader};
use crate::report::Gap;
use crate::summaries::{Summaries, View};

/// What one worker reads in one go.
pub(crate) enum Piece {
    File(PathBuf),
    Part(Part),
}

/// A piece with the number of its file, in the order of the input.
type Numbered = (usize, Piece);

/// Cuts files among so many workers: what each of them reads, in order. A file that cannot be cut
/// goes to one of them, by turns. `None` where that is of no use, or where an input cannot be read a
/// second time.
pub(crate) fn cut(files: &[PathBuf], workers: usize) -> Option<Vec<Vec<Numbered>>> {
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

/// Lets each worker read its share with a set of summaries, and merges these into the first one, or
/// leaves one handle of what all share.
/// Returns the epoch that they make up, and the files; `None` where one reader has to begin anew.
pub(crate) fn read<L: Lanes>(
    config: &Config,
    cores: Option<&Cores>,
    lanes: &L,
    sets: &mut Vec<Summaries<L::First, L::Second>>,
    shares: Vec<Vec<Numbered>>,
    progress: &mut dyn FnMut(&Packets<'_>),
) -> Result<Option<(Ended, Vec<FileCounts>)>, EngineError> {
    let pieces = thread::scope(|scope| {
        let mut workers = sets.iter_mut().zip(shares).enumerate();
        let own = workers.next();
        let mut others = Vec::new();
        for (worker, (set, share)) in workers {
            let (config, lanes) = (config.clone(), lanes.clone());
            others.push(spawn(scope, format!("worker {worker}"), move || {
                let _pinned = cores.map(|cores| cores.pin(worker)).transpose()?;
                read_share(&config, &lanes, set, share, &mut |_| {})
            })?);
        }
        let mut pieces = Vec::new();
        if let Some((worker, (set, share))) = own {
            let _pinned = cores.map(|cores| cores.pin(worker)).transpose()?;
            pieces.push(read_share(config, lanes, set, share, progress)?);
        }
        for (number, worker) in (1..).zip(others) {
            let joined = worker.join();
            pieces
                .push(joined.unwrap_or_else(|panic| failed(format!("worker {number}"), &*panic))?);
        }
        Ok::<_, EngineError>(pieces)
    })?;
    if sets.first().is_some_and(Summaries::is_shared) {
        sets.truncate(1);
    }
    sets.iter_mut().try_for_each(Summaries::collect)?;
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

/// Reads what is one worker's; `None` at the first problem.
fn read_share<L: Lanes>(
    config: &Config,
    lanes: &L,
    set: &mut Summaries<L::First, L::Second>,
    share: Vec<Numbered>,
    progress: &mut dyn FnMut(&Packets<'_>),
) -> Result<Option<Vec<Read>>, EngineError> {
    let mut pieces = Vec::with_capacity(share.len());
    for (number, piece) in share {
        let mut source = match piece {
            Piece::File(file) => Captures::open([file]),
            Piece::Part(part) => part.open(),
        };
        let mut reader = Reader::new(config, lanes.clone());
        let mut own = Own { set, ended: Ended::default() };
        if !reader.read(&mut source, &mut own, progress)?.is_empty() {
            return Ok(None);
        }
        let counts = FileCounts { file: String::new(), frames: 0, irregular: 0 };
        let counts = source.files().first().cloned().unwrap_or(counts);
        pieces.push(Read { number, ended: own.ended, counts });
    }
    set.settle();
    Ok(Some(pieces))
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

/// A worker that measures what it reads.
struct Own<'a, A, B> {
    set: &'a mut Summaries<A, B>,
    ended: Ended,
}

impl<A: FlowKey, B: FlowKey> Take<A, B> for Own<'_, A, B> {
    #[inline(always)]
    fn first(&mut self, batch: &mut Batch<A>) {
        self.set.first(batch);
    }

    #[inline(always)]
    fn second(&mut self, batch: &mut Batch<B>) {
        self.set.second(batch);
    }
}

impl<A: FlowKey, B: FlowKey> Crew<A, B> for Own<'_, A, B> {
    fn end(&mut self, ended: Ended) -> Result<(), EngineError> {
        self.ended = ended;
        Ok(())
    }

    fn gap(&mut self, _: &Gap) -> Result<(), EngineError> {
        Ok(())
    }
}
