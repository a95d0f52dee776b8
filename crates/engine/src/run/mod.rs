//! A run: a loop that pushes the bursts of a source into a meter, and the closer on its own thread.

mod parts;
pub(crate) mod turns;

use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, Scope, ScopedJoinHandle};

use crate::close::group::{Closed, failed};
use crate::crew::Cores;
use crate::error::EngineError;
use crate::intake::add_note;
use crate::meter::Meter;
use crate::plan::Plan;
use crate::report::TotalReport;
use crate::sink::{Item, Sink};
use crate::source::{Burst, Columns, Counter, CounterKind, Inputs, Origin, Source, SourceError};
use crate::swaps::Swaps;

/// Least number of unwanted packets in a row that a source is asked to pass over. Passing over
/// fewer is faster among the frames that it lends out.
const WORTH: u64 = 16;

/// The result of a run, beside its reports.
///
/// ```
/// use flowgauge_capture::Captures;
/// use flowgauge_engine::sink::{Json, Written};
/// use flowgauge_engine::{Config, Plan, run};
///
/// let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../capture/tests/data/tcpdump");
/// let mut captures = Captures::open([format!("{folder}/isup.pcap")]);
/// let plan = Plan::new(Config { memory_bytes: 4 << 20, ..Config::default() })?;
/// let outcome = run(plan, &mut captures, &mut Written::new(Json, Vec::new()), &mut |_| {})?;
/// assert!(outcome.problems.is_empty());
/// assert!(outcome.total.account.keyed > 0);
/// # Ok::<(), flowgauge_engine::EngineError>(())
/// ```
#[derive(Debug)]
pub struct Outcome {
    /// The problems of the inputs, in the order of reading.
    pub problems: Vec<SourceError>,
    /// The total of the first measurement.
    pub total: TotalReport,
    /// How long the ends of epochs and updates stopped meters and workers.
    pub swaps: Swaps,
}

/// Reads `source` to its end or to the limit, and reports to `sink`. Calls `progress` after every
/// burst.
///
/// ```
/// use flowgauge_capture::Captures;
/// use flowgauge_engine::{Config, Plan, report::EpochReport, run, sink::Each};
/// use flowgauge_synthetic::{Traffic, to_pcap_bytes};
///
/// let traffic = flowgauge_synthetic::Config { packets: 1_000, ..Default::default() };
/// let capture = to_pcap_bytes(Traffic::new(traffic)?);
/// let mut source = Captures::from_bytes("synthetic.pcap", capture);
/// let plan = Plan::new(Config { memory_bytes: 1 << 20, ..Config::default() })?;
/// let mut bytes = 0;
/// let mut sink = Each(|report: &EpochReport| Ok(bytes += report.account.keyed_bytes));
/// let outcome = run(plan, &mut source, &mut sink, &mut |_| {})?;
/// assert_eq!(outcome.total.account.keyed, 1_000);
/// assert_eq!(bytes, 64_000);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// When a report cannot be written, or a thread cannot be started or fails. Problems of the input
/// are in the [`Outcome`].
pub fn run(
    plan: Plan,
    source: &mut dyn Source,
    sink: &mut dyn Sink,
    progress: &mut dyn FnMut(&dyn Source),
) -> Result<Outcome, EngineError> {
    let cores = plan.cores();
    let (mut meters, group) = plan.build()?;
    let Some(meter) = meters.pop().filter(|_| meters.is_empty()) else {
        return Err(EngineError::Workers("one source needs a plan of one queue".to_owned()));
    };
    let (read, closed) = thread::scope(|scope| {
        let closing = spawn(scope, "closer", || group.close(sink))?;
        let read = pinned(cores.as_ref(), 0, || Ok(read(meter, source, progress)));
        let closed = closing.join().unwrap_or_else(|panic| failed("closer".to_owned(), &*panic));
        Ok::<_, EngineError>((read?, closed?))
    })?;
    total(closed, read, sink)
}

/// Reads each source to its end or to the limit, on its own thread with the meter of one of the
/// plan's queues, and reports to `sink`.
///
/// # Errors
/// As [`run`], and when the plan has more or fewer queues than there are sources.
pub fn run_queues(
    plan: Plan,
    sources: Vec<Box<dyn Source + Send>>,
    sink: &mut dyn Sink,
) -> Result<Outcome, EngineError> {
    let cores = plan.cores();
    let (meters, group) = plan.build()?;
    if meters.len() != sources.len() {
        let (queues, sources) = (meters.len(), sources.len());
        let message = format!(
            "the plan has {queues} queues for {sources} sources; give one \
                               source for each queue"
        );
        return Err(EngineError::Workers(message));
    }
    // Holds the queues until all threads are started: none reads on where one is missing.
    let all_started = Mutex::new(false);
    let (reads, closed) = thread::scope(|scope| {
        let cores = cores.as_ref();
        let start = || all_started.lock().unwrap_or_else(PoisonError::into_inner);
        let mut started = start();
        let closing = spawn(scope, "closer", || group.close(sink))?;
        let reading =
            meters.into_iter().zip(sources).enumerate().map(|(queue, (meter, mut source))| {
                spawn(scope, &format!("queue {queue}"), move || {
                    if !*start() {
                        return Ok(Read::default());
                    }
                    pinned(cores, queue, || Ok(read(meter, &mut *source, &mut |_| {})))
                })
            });
        let reading: Vec<_> = reading.collect::<Result<_, _>>()?;
        *started = true;
        drop(started);
        let reads = reading.into_iter().enumerate().map(|(queue, thread)| {
            thread.join().unwrap_or_else(|panic| failed(format!("queue {queue}"), &*panic))
        });
        let reads: Result<Vec<_>, _> = reads.collect();
        let closed = closing.join().unwrap_or_else(|panic| failed("closer".to_owned(), &*panic));
        Ok::<_, EngineError>((reads?, closed?))
    })?;
    total(closed, reads.into_iter().fold(Read::default(), Read::and), sink)
}

/// Reads inputs to their ends or to the limit, and reports to `sink`. If the result is the same,
/// several workers read them side by side: each its own files or parts of a large one, or, by
/// turns, pieces of input that cannot be cut. Calls `progress` after every burst or piece of the
/// first worker.
///
/// # Errors
/// As [`run`].
pub fn run_inputs(
    plan: Plan,
    inputs: &dyn Inputs,
    sink: &mut dyn Sink,
    progress: &mut dyn FnMut(&dyn Source),
) -> Result<Outcome, EngineError> {
    match parts::run(plan, inputs, sink, progress)? {
        parts::Attempt::Closed(closed, read) => total(closed, read, sink),
        parts::Attempt::Undivided(plan) => run(*plan, &mut *inputs.chain(), sink, progress),
    }
}

/// What a source reported while it was read.
#[derive(Default)]
pub(crate) struct Read {
    pub(crate) origin: Origin,
    pub(crate) problems: Vec<SourceError>,
    pub(crate) notes: Vec<String>,
}

impl Read {
    /// Whether an input could be read. A run over sound but empty input has one empty epoch; a run
    /// over unreadable input has none.
    pub(crate) fn is_something(&self) -> bool {
        let unreadable = |problem: &&SourceError| matches!(problem, SourceError::Unreadable(_));
        let unreadable = self.problems.iter().filter(unreadable).count();
        self.problems.is_empty() || unreadable != self.origin.inputs.len()
    }

    /// Adds what another source reported. An input of both is named once.
    fn and(mut self, other: Self) -> Self {
        for input in other.origin.inputs {
            if !self.origin.inputs.contains(&input) {
                self.origin.inputs.push(input);
            }
        }
        Counter::add(&mut self.origin.counters, &other.origin.counters);
        self.problems.extend(other.problems);
        other.notes.into_iter().for_each(|note| add_note(&mut self.notes, note));
        self
    }
}

/// Pushes the packets of the source into the meter; returns what the source reported.
fn read(
    mut meter: Box<dyn Meter>,
    source: &mut dyn Source,
    progress: &mut dyn FnMut(&dyn Source),
) -> Read {
    let (mut problems, mut notes, mut lost) = (Vec::new(), Vec::new(), 0);
    let (mut columns, mut thinned, mut outage) = (Columns::default(), None, None);
    let mut goes_on = true;
    while goes_on && !meter.is_done() {
        let (ahead, gaps) = (meter.ahead(), meter.gaps());
        if ahead.packets.max(mean(gaps)) >= WORTH {
            let skipped = source.pick(&ahead, gaps);
            meter.skip(&skipped);
        }
        let mut burst = Burst::new(&mut columns);
        match source.poll(&mut burst) {
            Ok(true) => {
                if burst.thinned() != thinned {
                    thinned = burst.thinned();
                    meter.thin(thinned);
                }
                meter.push(burst.frames());
            }
            // It may still have losses and notes.
            Ok(false) => goes_on = false,
            Err(problem) => problems.push(problem),
        }
        // Return the frames to the source.
        drop(burst);
        let lost_so_far = Counter::sum(source.counters(), CounterKind::Lost);
        if lost_so_far > lost {
            meter.lose(lost_so_far - lost);
            lost = lost_so_far;
        }
        if source.outage() != outage.as_deref() {
            outage = source.outage().map(str::to_owned);
            meter.outage(outage.as_deref());
            notes.extend(outage.clone());
        }
        if let Some(now_ns) = source.clock_ns() {
            meter.advance(now_ns);
        }
        while let Some(note) = source.note() {
            meter.note(&note);
            notes.push(note);
        }
        progress(source);
    }
    let read = Read { origin: Origin::of(source), problems, notes };
    if read.is_something() {
        meter.finish();
    }
    read
}

/// The mean of gaps; 0 if there are none.
fn mean(gaps: &[u64]) -> u64 {
    let all = gaps.iter().fold(0u64, |all, gap| all.saturating_add(*gap));
    all.checked_div(gaps.len() as u64).unwrap_or(0)
}

/// Reports the end of a run.
fn total(closed: Closed, read: Read, sink: &mut dyn Sink) -> Result<Outcome, EngineError> {
    let Closed { mut totals, swaps } = closed;
    let Read { origin, problems, notes } = read;
    for total in &mut totals {
        total.files.clone_from(&origin.inputs);
        total.irregular = Counter::sum(&origin.counters, CounterKind::Irregular);
        total.problems = problems.iter().map(ToString::to_string).collect();
        total.counters.clone_from(&origin.counters);
        total.notes.extend(notes.iter().cloned().chain(swaps.note()));
        sink.deliver(&Item::Total(Arc::new(total.clone())))?;
    }
    Ok(Outcome { problems, total: totals.swap_remove(0), swaps })
}

/// Runs `work`, on the core of this worker if workers are pinned.
pub(crate) fn pinned<T>(
    cores: Option<&Cores>,
    worker: usize,
    work: impl FnOnce() -> Result<T, EngineError>,
) -> Result<T, EngineError> {
    let _pinned = cores.map(|cores| cores.pin(worker)).transpose()?;
    work()
}

/// Starts a thread with this name.
pub(crate) fn spawn<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    name: &str,
    work: impl FnOnce() -> Result<T, EngineError> + Send + 'scope,
) -> Result<ScopedJoinHandle<'scope, Result<T, EngineError>>, EngineError> {
    let thread = thread::Builder::new().name(name.to_owned());
    thread.spawn_scoped(scope, work).map_err(EngineError::Thread)
}
