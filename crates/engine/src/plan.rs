//! Plans: configurations that are checked, with all memory reserved, and explained on request.

use std::sync::Arc;

use flowgauge_core::accelerator::HeaderRate;
use flowgauge_core::audit::SMALLEST_SLICE;
use flowgauge_core::batch::BATCH_PACKETS;
use flowgauge_core::batcher::BatcherOptions;
use flowgauge_core::key::CanonicalKey;
use flowgauge_core::summary::{BuildErrorKind, Flows};
use flowgauge_core::task::Lane;
use flowgauge_kernel::Seed;

use crate::close::Closer;
use crate::close::group::{Alive, Group, MeterCloser, Side};
use crate::close::queues::QueueCloser;
use crate::config::{Config, Dispatch, EpochLength, is_name};
use crate::crew::{self, Cores, Division, staff};
use crate::error::EngineError;
use crate::intake::Intake;
use crate::meter::{ApartMeter, Meter, OneMeter, SeveralMeter, Stream};
use crate::report::SummaryInfo;
use crate::run::turns;
use crate::sampling::{self, Sampling};
use crate::summaries::{Set, Sets, View};
use crate::{builder, outline, seed, snapshot};

/// Measurements that are ready to begin, with all memory reserved.
///
/// ```
/// use flowgauge_engine::{Config, Plan};
///
/// let plan = Plan::new(Config { memory_bytes: 1 << 20, ..Config::default() })?;
/// let explanation = plan.explain();
/// assert_eq!(explanation.summary.algorithm, "linear-table");
/// assert!(explanation.summary.memory_bytes <= 1 << 20);
/// assert!(explanation.lanes.iter().all(|lane| lane.flows.is_some()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Plan(Vec<Prepared>);

/// One measurement that is ready to begin.
pub(crate) struct Prepared {
    pub(crate) config: Config,
    pub(crate) batcher: BatcherOptions,
    pub(crate) sets: Sets,
    pub(crate) division: Division,
    pub(crate) closer: Closer,
    /// The rate of a sampler before headers and the seed of its draws.
    pub(crate) sampling: Option<(HeaderRate, Seed)>,
}

impl From<Prepared> for Plan {
    fn from(only: Prepared) -> Self {
        Self(vec![only])
    }
}

/// What `explain` prints about a measurement.
///
/// ```
/// use flowgauge_engine::{Config, Plan};
///
/// let explanation = Plan::new(Config { memory_bytes: 4 << 20, ..Config::default() })?.explain();
/// // IPv4 and IPv6 have a lane each, within the memory.
/// let bytes: usize = explanation.lanes.iter().map(|lane| lane.memory_bytes).sum();
/// assert!(explanation.lanes.len() == 2 && bytes <= 4 << 20);
/// # Ok::<(), flowgauge_engine::EngineError>(())
/// ```
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "facts, each independent of the others")]
pub struct Explanation {
    /// The summary that measures.
    pub summary: SummaryInfo,
    /// One entry for each lane.
    pub lanes: Vec<LaneExplanation>,
    /// Bytes of the audits.
    pub audit_bytes: usize,
    /// Bytes of the tasks' working memory.
    pub scratch_bytes: usize,
    /// Bytes that the tasks keep from epoch to epoch.
    pub history_bytes: usize,
    /// Most bytes that reports take beside the reserved memory: one being made, and the previous
    /// one being written.
    pub report_bytes: usize,
    /// Most bytes that storing the epochs takes; 0 if they are not stored.
    pub saving_bytes: usize,
    /// The tasks that will run.
    pub tasks: Vec<&'static str>,
    /// What is left out, and why.
    pub notes: Vec<String>,
    /// Threads that read or measure.
    pub workers: usize,
    /// Sets of summaries of each worker, or of all workers if they share them: one is filled while
    /// the other is read.
    pub sets: usize,
    /// Additional sets in which the closer sums the workers' sets for updates.
    pub sums: usize,
    /// Bytes of the sets that exist only because of updates.
    pub updates_bytes: usize,
    /// Whether all workers fill the same summaries.
    pub shared: bool,
    /// Which worker measures a packet.
    pub dispatch: Dispatch,
    /// Whether each worker instead reads its own files or parts of a file, if these can be cut.
    pub parts: bool,
    /// Whether workers then read by turns the input that cannot be cut.
    pub turns: bool,
    /// Whether several workers give the same numbers as one worker with the same parameters while
    /// no table is full. Otherwise the numbers are within the bounds.
    pub same: bool,
}

impl Explanation {
    /// Most bytes that the measurement takes, including its reports and stored epochs.
    pub fn total_bytes(&self) -> usize {
        self.summary
            .memory_bytes
            .saturating_add(self.report_bytes)
            .saturating_add(self.saving_bytes)
    }
}

/// What `explain` prints about a lane.
#[derive(Clone, Copy, Debug)]
pub struct LaneExplanation {
    /// Canonical bytes of a key.
    pub key_bytes: usize,
    /// Bytes that its summaries reserve, over all workers.
    pub memory_bytes: usize,
    /// Room for flows, if the summary is a table.
    pub flows: Option<usize>,
}

impl Plan {
    /// Builds the summaries and tasks of one measurement.
    ///
    /// # Errors
    /// When something in the configuration does not exist, cannot be answered, or needs more
    /// memory.
    pub fn new(config: Config) -> Result<Self, EngineError> {
        Self::several(vec![config])
    }

    /// Builds the summaries and tasks of several measurements that read each packet once. Options
    /// of the input (`tunnels`, `limit`, `seed`, workers) are taken from the first one.
    ///
    /// # Errors
    /// As [`Self::new`], and when there is no measurement, or two have the same name.
    pub fn several(configs: Vec<Config>) -> Result<Self, EngineError> {
        check_names(&configs)?;
        let seed = match configs.first().and_then(|first| first.seed) {
            Some(seed) => seed,
            None => seed::random().map_err(EngineError::Seed)?,
        };
        let one = |config| Self::one(Config { seed: Some(seed), ..config });
        configs.into_iter().map(one).collect::<Result<_, _>>().map(Self)
    }

    fn one(config: Config) -> Result<Prepared, EngineError> {
        let asked = config.clone();
        prepare(config).map_err(|error| match needed(&error) {
            // A part of the run lacks memory; find the amount that the whole run needs.
            Some(needed) => {
                let (given, needed) = (asked.memory_bytes, enough(&asked).unwrap_or(needed));
                EngineError::Build(BuildErrorKind::TooLittleMemory { needed, given }.into())
            }
            None => error,
        })
    }

    /// As [`Self::new`], but does not search for the memory that would be enough.
    pub(crate) fn bare(config: Config) -> Result<Self, EngineError> {
        prepare(config).map(Self::from)
    }

    /// The only measurement; the plan itself if there are several.
    pub(crate) fn only(mut self) -> Result<Prepared, Self> {
        match (self.0.pop(), self.0.len()) {
            (Some(only), 0) => Ok(only),
            (last, _) => {
                self.0.extend(last);
                Err(self)
            }
        }
    }

    /// The cores of the workers, if they are pinned.
    pub(crate) fn cores(&self) -> Option<Cores> {
        self.0.first()?.division.cores.clone()
    }

    /// Makes a meter for each queue, and the group that closes their epochs. Starts the workers
    /// beside the meter's own thread.
    ///
    /// # Errors
    /// When the operating system refuses a thread.
    pub fn build(self) -> Result<(Vec<Box<dyn Meter>>, Group), EngineError> {
        let one = self.0.len() == 1;
        let apart = self.0.iter().all(|prepared| prepared.sampling.is_some());
        let Some(&Config { tunnels, limit, queues, .. }) = self.0.first().map(|one| &one.config)
        else {
            return Err(EngineError::Measurements("give at least one".to_owned()));
        };
        let (swaps, alive) = (Arc::default(), Alive::default());
        let mut streams: Vec<Vec<Stream>> = (0..queues).map(|_| Vec::new()).collect();
        let (mut closings, mut workers) = (Vec::new(), Vec::new());
        for Prepared { mut config, batcher, sets, division, closer, sampling } in self.0 {
            let mut sums: Vec<_> = sets.sums.into_iter().map(Set::new).collect();
            let (crews, side) = if queues > 1 {
                let (crews, queues) =
                    crew::queues(&config, sets.workers, &swaps).into_iter().unzip();
                let sum = sums.swap_remove(0);
                (crews, Side::Several(Box::new(QueueCloser::new(closer, queues, sum, &config))))
            } else {
                let (crew, keepers) =
                    staff(&config, &division, sets.workers, &swaps, &mut workers)?;
                (
                    vec![crew],
                    Side::One(Box::new(MeterCloser::new(closer, keepers, sums, division.joined))),
                )
            };
            closings.push(side);
            // If measurements share headers, the meter counts the packets of the limit.
            config.limit = config.limit.filter(|_| one || apart);
            for (queue, (streams, crew)) in streams.iter_mut().zip::<Vec<_>>(crews).enumerate() {
                let mut intake = Intake::new(&config, batcher);
                if let Some((rate, seed)) = &sampling {
                    intake.sample(Sampling::new(*rate, seed, &config.name, queue));
                }
                streams.push(Stream { intake, crew, gone: alive.gone() });
            }
        }
        let meter = |streams: Vec<Stream>| match <[Stream; 1]>::try_from(streams) {
            Ok([only]) => Box::new(OneMeter::new(only)) as Box<dyn Meter>,
            Err(streams) if apart => Box::new(ApartMeter::new(streams)),
            Err(streams) => Box::new(SeveralMeter::new(streams, tunnels, limit)),
        };
        let meters = streams.into_iter().map(meter).collect();
        Ok((meters, Group { closings, workers, swaps, alive }))
    }

    /// The first measurement, explained.
    ///
    /// # Panics
    /// Never: a plan has a measurement.
    pub fn explain(&self) -> Explanation {
        self.0[0].explain()
    }

    /// Explains each measurement.
    pub fn measurements(&self) -> impl Iterator<Item = Explanation> {
        self.0.iter().map(Prepared::explain)
    }
}

/// Checks a configuration, and builds its summaries and tasks.
fn prepare(mut config: Config) -> Result<Prepared, EngineError> {
    let seed = config.seed.map_or_else(seed::random, Ok).map_err(EngineError::Seed)?;
    let (outlines, division) = outline::check(&mut config, seed)?;
    builder::build(config, seed, outlines, division)
}

/// Refuses numbers out of range, and measurements that workers cannot share.
pub(crate) fn check_values(config: &Config) -> Result<(), EngineError> {
    check_ranges(config)?;
    check_shared(config)?;
    sampling::check(config)
}

/// Refuses measurements with the same name.
fn check_names(configs: &[Config]) -> Result<(), EngineError> {
    let mut names: Vec<_> = configs.iter().map(|config| &*config.name).collect();
    names.sort_unstable();
    match names.windows(2).find(|pair| pair[0] == pair[1]) {
        _ if names.is_empty() => Err(EngineError::Measurements("give at least one".to_owned())),
        Some(pair) => Err(EngineError::Measurements(format!(
            "two measurements are named '{}'; give each a different name",
            pair[0]
        ))),
        None => Ok(()),
    }
}

impl Prepared {
    fn explain(&self) -> Explanation {
        let (config, division) = (&self.config, &self.division);
        let (view, closer) = (division.view(config.key, &self.sets.workers), &self.closer);
        let set_bytes: Vec<_> = self.sets.first().memory_bytes().collect();
        let for_updates = match config.epoch {
            EpochLength::Whole => division.all() - division.measuring,
            EpochLength::Packets(_) | EpochLength::Time(_) => division.sums,
        };
        let updates_bytes = for_updates * self.sets.first().all_bytes();
        let views = view.lanes().into_iter().zip(set_bytes);
        Explanation {
            summary: closer.summary.clone(),
            lanes: views
                .map(|(lane, memory_bytes)| LaneExplanation {
                    key_bytes: lane.key_bytes,
                    memory_bytes: memory_bytes * division.all(),
                    flows: lane.answers.flows().map(Flows::most),
                })
                .collect(),
            audit_bytes: self.sets.first().audit_bytes() * division.all(),
            scratch_bytes: closer.scratch.memory_bytes(),
            history_bytes: closer.tasks.iter().map(|task| task.history_bytes()).sum(),
            report_bytes: report_bytes(closer, &view),
            saving_bytes: if config.save { snapshot::saving_bytes(self.sets.first()) } else { 0 },
            tasks: closer.tasks.iter().map(|task| task.name()).collect(),
            notes: closer.notes.clone(),
            workers: config.workers,
            sets: division.sets,
            sums: division.sums,
            updates_bytes,
            shared: config.shared,
            dispatch: division.routing.dispatch(),
            parts: division.parts,
            turns: turns::suit(config, division),
            same: division.same,
        }
    }
}

/// Most bytes that reports take.
fn report_bytes(closer: &Closer, view: &View<'_>) -> usize {
    let flows = |lane: &Lane<'_>| lane.answers.flows().map(Flows::most);
    // A summary that is not a table lists fewer keys than fit into its memory.
    let named = closer.summary.memory_bytes / CanonicalKey::MAX_BYTES;
    let flows: Option<usize> = view.lanes().iter().map(flows).sum();
    closer.report_bytes(flows.unwrap_or(named)).saturating_mul(2)
}

/// Refuses numbers out of range, and a name that no file may have.
fn check_ranges(config: &Config) -> Result<(), EngineError> {
    if !is_name(&config.name) {
        return Err(EngineError::Name(config.name.clone()));
    }
    let refuse = |what, range, value| Err(EngineError::OutOfRange { what, range, value });
    match config.epoch {
        EpochLength::Packets(0) => return refuse("the packets of an epoch", "1 or more", 0),
        EpochLength::Time(length_ns) if length_ns < 1 => {
            return refuse("the nanoseconds of an epoch", "1 or more", length_ns.into());
        }
        EpochLength::Whole | EpochLength::Packets(_) | EpochLength::Time(_) => {}
    }
    let long = Err(EngineError::Updates { updates: config.updates, epoch: config.epoch });
    match (config.updates, config.epoch) {
        (EpochLength::Packets(0), _) => {
            return refuse("the packets between updates", "1 or more", 0);
        }
        (EpochLength::Time(every_ns), _) if every_ns < 1 => {
            return refuse("the nanoseconds between updates", "1 or more", every_ns.into());
        }
        (EpochLength::Packets(every), EpochLength::Packets(all)) if every >= all => {
            return long;
        }
        (EpochLength::Time(every_ns), EpochLength::Time(all_ns)) if every_ns >= all_ns => {
            return long;
        }
        _ => {}
    }
    if config.audit.is_some_and(|one_in| !(1..=SMALLEST_SLICE).contains(&one_in)) {
        let one_in = config.audit.unwrap_or_default();
        return refuse("the N of --audit 1/N", "1 to 1,048,576", one_in.into());
    }
    if !(1..=BATCH_PACKETS).contains(&config.batch_packets) {
        return refuse("the packets of a batch", "1 to 256", config.batch_packets as i128);
    }
    if !(1..=MOST_WORKERS).contains(&config.workers) {
        return refuse("the number of workers", "1 to 256", config.workers as i128);
    }
    if !(1..=MOST_WORKERS).contains(&config.queues) {
        return refuse("the number of queues", "1 to 256", config.queues as i128);
    }
    Ok(())
}

/// Refuses concurrent summaries that do not exist.
fn check_shared(config: &Config) -> Result<(), EngineError> {
    let refuse = |reason: &str| Err(EngineError::Workers(reason.to_owned()));
    if config.shared && config.workers == 1 {
        return refuse("--shared needs several workers; give --workers 2 or more");
    }
    if config.shared && config.updates != EpochLength::Whole {
        return refuse(
            "--shared cannot be combined with --updates: a concurrent summary is read only at \
             the end of an epoch",
        );
    }
    if config.shared && !config.accelerators.is_empty() {
        return refuse("--shared cannot be combined with --accelerator; leave one out");
    }
    if config.shared && config.audit.is_some() {
        return refuse("--shared cannot be combined with --audit; leave one out");
    }
    Ok(())
}

/// The largest number of workers; more would not pay on any current machine.
const MOST_WORKERS: usize = 256;

/// The bytes needed, if the error is that the memory is too small.
fn needed(error: &EngineError) -> Option<usize> {
    let EngineError::Build(error) = error else { return None };
    match error.kind() {
        BuildErrorKind::TooLittleMemory { needed, .. } => Some(*needed),
        _ => None,
    }
}

/// The least memory with which a run otherwise like `config` can be built. The memory of `config`
/// is too small.
fn enough(config: &Config) -> Option<usize> {
    let suffices = |memory_bytes| {
        let refused = prepare(Config { memory_bytes, ..config.clone() }).err();
        refused.as_ref().and_then(needed).is_none()
    };
    let (mut too_little, mut enough) = (config.memory_bytes, config.memory_bytes.max(1024));
    while !suffices(enough) {
        (too_little, enough) = (enough, enough.checked_mul(2)?);
    }
    while enough - too_little > 1 {
        let middle = enough.midpoint(too_little);
        if suffices(middle) {
            enough = middle;
        } else {
            too_little = middle;
        }
    }
    Some(enough)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]
mod tests {
    use flowgauge_core::task;

    use super::*;

    #[test]
    fn numbers_out_of_range_are_refused() {
        let refusal = |config| Plan::new(config).err().map(|error| error.to_string());
        for (epoch, message) in [
            (EpochLength::Packets(0), "the packets of an epoch must be 1 or more (got 0)"),
            (EpochLength::Time(0), "the nanoseconds of an epoch must be 1 or more (got 0)"),
            (EpochLength::Time(-7), "the nanoseconds of an epoch must be 1 or more (got -7)"),
        ] {
            let refused = refusal(Config { epoch, ..Config::default() });
            assert_eq!(refused.as_deref(), Some(message));
        }
        for batch_packets in [0, BATCH_PACKETS + 1] {
            let refused = refusal(Config { batch_packets, ..Config::default() });
            let message = format!("the packets of a batch must be 1 to 256 (got {batch_packets})");
            assert_eq!(refused, Some(message));
        }
    }

    /// For any memory limit, summaries, forecasts and working memory stay within it and use most of
    /// it.
    #[test]
    fn forecasts_of_cells_are_part_of_the_memory() {
        for (_, forecast) in task::ForecastModel::ALL {
            for algorithm in ["k-ary", "count-sketch", "count-min"] {
                for memory_bytes in [64 << 10, 1 << 20, 3_000_000] {
                    let config = Config {
                        algorithm: algorithm.to_owned(),
                        tasks: Some(vec!["changes".to_owned()]),
                        memory_bytes,
                        forecast,
                        ..Config::default()
                    };
                    let plan = Plan::new(config).ok().unwrap().explain();
                    let lanes: usize = plan.lanes.iter().map(|lane| lane.memory_bytes).sum();
                    let all = lanes + plan.history_bytes + plan.scratch_bytes;
                    assert!(all <= memory_bytes, "{algorithm} {forecast:?}: {all} {memory_bytes}");
                    assert!(all > memory_bytes / 4, "{algorithm} {forecast:?}: {all}");
                }
            }
        }
    }

    #[test]
    fn changes_of_summaries_that_do_not_add_up_are_refused() {
        let refusal = |algorithm: &str, forecast| {
            let tasks = Some(vec!["changes".to_owned()]);
            let algorithm = algorithm.to_owned();
            let config = Config { algorithm, tasks, forecast, ..Config::default() };
            Plan::new(config).err().unwrap().to_string()
        };
        let refused = refusal("conservative-count-min", task::ForecastModel::Ewma);
        assert!(refused.contains("linear-table") && refused.contains("k-ary"), "{refused}");
        let refused = refusal("linear-table", task::ForecastModel::HoltWinters);
        assert!(refused.contains("only by ewma") && refused.contains("k-ary"), "{refused}");
    }
}
