//! From a configuration to a run: the key chooses the lanes, the memory is divided and reserved.

use flowgauge_core::batch::BATCH_PACKETS;
use flowgauge_core::catalog;
use flowgauge_core::key::{
    Extract, FlowKey, Key4, Key8, Key13, Key16, Key32, Key37, KeyKind, KeySpec,
};
use flowgauge_core::summary::{
    BuildError, Cells, Flows, Ingest, Measure, Memory, Options, Parameters,
};
use flowgauge_core::task::{self, HistoryShape, TASKS, Task, TaskEntry, TaskOptions};
use flowgauge_kernel::{Seed, Zeroed};

use crate::breakdown::BreakdownTask;
use crate::config::{Config, EpochLength};
use crate::engine::{Engine, Outcome, Packets, Scratch};
use crate::error::{Able, EngineError};
use crate::lanes::{Lane, Lanes, OneLane, TwoLanes};
use crate::report::SummaryInfo;
use crate::sink::Sink;

/// A run that is ready to begin: all memory is reserved.
pub struct Plan(Box<dyn Ready>);

/// What `explain` prints of a run.
#[derive(Clone, Debug)]
pub struct Explanation {
    /// The summary that measures.
    pub summary: SummaryInfo,
    /// One for each lane.
    pub lanes: Vec<LaneExplanation>,
    /// Bytes that the tasks work in.
    pub scratch_bytes: usize,
    /// Bytes that the tasks keep from epoch to epoch.
    pub history_bytes: usize,
    /// The tasks that will run.
    pub tasks: Vec<&'static str>,
    /// What is left out, and why.
    pub notes: Vec<String>,
}

/// What `explain` prints of a lane.
#[derive(Clone, Copy, Debug)]
pub struct LaneExplanation {
    /// Canonical bytes of a key.
    pub key_bytes: usize,
    /// Bytes that the summary reserves.
    pub memory_bytes: usize,
    /// Flows that there is room for, where the summary is a table.
    pub flows: Option<usize>,
}

impl Plan {
    /// Builds the summaries and tasks of a run.
    ///
    /// # Errors
    /// When something asked for does not exist, cannot be answered, or finds no memory.
    pub fn new(config: Config) -> Result<Self, EngineError> {
        let asked = config.clone();
        Self::build(config).map_err(|error| match error {
            EngineError::Task { task, reason, .. } => {
                let able = able(&asked, task).collect();
                EngineError::Task { task, reason, able: Able(able) }
            }
            // What a part of the run lacks is less than what has to be given for all of it.
            EngineError::Build(BuildError::TooLittleMemory { needed, .. }) => {
                let (given, needed) = (asked.memory_bytes, enough(&asked).unwrap_or(needed));
                EngineError::Build(BuildError::TooLittleMemory { needed, given })
            }
            error => error,
        })
    }

    /// Whether `algorithm`, with its default parameters, answers `task` for this key and measure.
    pub fn answers(key: KeySpec, by: Measure, algorithm: &str, task: &str) -> bool {
        can(&Config { key, by, ..Config::default() }, algorithm, task)
    }

    /// [`Self::new`], without looking for what else could be asked where this cannot.
    pub(crate) fn build(config: Config) -> Result<Self, EngineError> {
        check_ranges(&config)?;
        let kind = config.key.kind;
        Ok(Self(match kind {
            KeyKind::Source | KeyKind::Destination => Box::new(two::<Key4, Key16>(config)?),
            KeyKind::Pair => Box::new(two::<Key8, Key32>(config)?),
            KeyKind::FiveTuple => Box::new(two::<Key13, Key37>(config)?),
            KeyKind::Protocol | KeyKind::DestinationPort => {
                let builder = Builder::new(config, &[Key4::BYTES])?;
                let lane = builder.lane::<Key4>(1.0)?;
                Box::new(builder.finish(OneLane { lane })?)
            }
        }))
    }

    /// Reads `source` to its end, or to the limit, and reports to `sink`. `progress` is called
    /// after every few frames.
    ///
    /// # Errors
    /// When the report cannot be written. What is wrong with the input is in the [`Outcome`].
    pub fn run(
        mut self,
        source: &mut Packets<'_>,
        sink: &mut dyn Sink,
        progress: &mut dyn FnMut(&Packets<'_>),
    ) -> Result<Outcome, EngineError> {
        self.0.run(source, sink, progress)
    }

    /// What the run would do.
    pub fn explain(&self) -> Explanation {
        self.0.explain()
    }
}

/// An engine of any key type.
trait Ready {
    fn run(
        &mut self,
        source: &mut Packets<'_>,
        sink: &mut dyn Sink,
        progress: &mut dyn FnMut(&Packets<'_>),
    ) -> Result<Outcome, EngineError>;
    fn explain(&self) -> Explanation;
}

impl<L: Lanes> Ready for Engine<L> {
    fn run(
        &mut self,
        source: &mut Packets<'_>,
        sink: &mut dyn Sink,
        progress: &mut dyn FnMut(&Packets<'_>),
    ) -> Result<Outcome, EngineError> {
        Engine::run(self, source, sink, progress)
    }

    fn explain(&self) -> Explanation {
        let lanes = self.lanes.views().into_iter().zip(self.lanes.memory_bytes());
        Explanation {
            summary: self.summary.clone(),
            lanes: lanes
                .map(|(lane, memory_bytes)| LaneExplanation {
                    key_bytes: lane.key_bytes,
                    memory_bytes,
                    flows: lane.answers.flows().map(Flows::most),
                })
                .collect(),
            scratch_bytes: self.scratch.words.memory_bytes(),
            history_bytes: self.tasks.iter().map(|task| task.history_bytes()).sum(),
            tasks: self.tasks.iter().map(|task| task.name()).collect(),
            notes: self.notes.clone(),
        }
    }
}

/// Refuses the numbers that a run could not begin with.
fn check_ranges(config: &Config) -> Result<(), EngineError> {
    let refuse = |what, range, value| Err(EngineError::OutOfRange { what, range, value });
    match config.epoch {
        EpochLength::Packets(0) => return refuse("the epoch's packets", "1 or more", 0),
        EpochLength::Time(length_ns) if length_ns < 1 => {
            return refuse("the epoch's nanoseconds", "1 or more", length_ns.into());
        }
        EpochLength::Whole | EpochLength::Packets(_) | EpochLength::Time(_) => {}
    }
    if !(1..=BATCH_PACKETS).contains(&config.batch_packets) {
        return refuse("the batch's packets", "1 to 256", config.batch_packets as i128);
    }
    Ok(())
}

/// Memory for a run that is planned only to see whether it can be.
const PROBE_BYTES: usize = 16 << 20;

/// Whether this algorithm, with its default parameters, answers the task in a run that is otherwise
/// that of `config`.
fn can(config: &Config, algorithm: &str, task: &str) -> bool {
    let config = Config {
        algorithm: algorithm.to_owned(),
        parameters: Parameters::default(),
        tasks: Some(vec![task.to_owned()]),
        memory_bytes: PROBE_BYTES,
        ..config.clone()
    };
    Plan::build(config).is_ok()
}

/// The algorithms that answer `task` in a run that is otherwise that of `config`.
fn able(config: &Config, task: &str) -> impl Iterator<Item = &'static str> {
    let names = catalog::ALGORITHMS.iter().map(|info| info.name);
    names.filter(move |name| can(config, name, task))
}

/// The least memory that is not too little for a run that is otherwise that of `config`, whose own
/// is too little.
fn enough(config: &Config) -> Option<usize> {
    let suffices = |memory_bytes| {
        let refused = Plan::build(Config { memory_bytes, ..config.clone() }).err();
        !matches!(refused, Some(EngineError::Build(BuildError::TooLittleMemory { .. })))
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

/// The share of the memory that the IPv4 lane gets.
const V4_SHARE: f64 = 0.75;

/// An algorithm that holds the keys of IPv4 only measures these, with all the memory; an operator
/// would rather have them and the number of IPv6 packets than nothing.
fn two<A, B>(config: Config) -> Result<Engine<TwoLanes<A, B>>, EngineError>
where
    A: FlowKey + Extract<8>,
    B: FlowKey + Extract<32>,
{
    let mut builder = Builder::new(config, &[A::BYTES, B::BYTES])?;
    let lanes = match builder.lane::<B>(1.0 - V4_SHARE) {
        Err(EngineError::Build(unfit @ BuildError::Unfit { .. })) => {
            let v4 = builder.lane::<A>(1.0)?;
            builder.notes.push(format!("IPv6 packets are counted as untracked: {unfit}"));
            TwoLanes::new(v4, None)
        }
        v6 => TwoLanes::new(builder.lane::<A>(V4_SHARE)?, Some(v6?)),
    };
    builder.finish(lanes)
}

/// Divides the memory among lanes and tasks.
struct Builder {
    config: Config,
    entries: Vec<&'static TaskEntry>,
    /// Bytes for the lanes and for what the tasks need for each of their flows.
    lanes_bytes: usize,
    task_bytes_per_flow: usize,
    task_bytes_per_cell: usize,
    /// What is left out, and why.
    notes: Vec<String>,
}

/// Flows, or cells, for which the tasks are asked what they need, to find what they need for each.
const PROBE: usize = 1 << 16;

impl Builder {
    fn new(config: Config, key_bytes: &[usize]) -> Result<Self, EngineError> {
        let entries = entries(&config)?;
        let probe = |flows: usize, cells: usize| {
            let shapes =
                key_bytes.iter().map(|&key_bytes| HistoryShape { key_bytes, flows, cells });
            let tasks = build_tasks(&config, &entries, shapes.collect())?;
            let history: usize = tasks.iter().map(|task| task.history_bytes()).sum();
            let scratch = tasks.iter().map(|task| task.scratch_bytes(flows)).max().unwrap_or(0);
            Ok::<_, EngineError>(scratch + history)
        };
        let (fixed, flows, cells) = (probe(0, 0)?, probe(PROBE, 0)?, probe(0, PROBE)?);
        let lanes_bytes =
            config.memory_bytes.checked_sub(fixed).filter(|bytes| *bytes > 0).ok_or(
                BuildError::TooLittleMemory { needed: fixed + 1, given: config.memory_bytes },
            )?;
        let task_bytes_per_flow = (flows - fixed).div_ceil(PROBE);
        // Each lane has cells of its own, and they cost the same whatever the key.
        let task_bytes_per_cell = (cells - fixed).div_ceil(key_bytes.len() * PROBE);
        let notes = Vec::new();
        Ok(Self { config, entries, lanes_bytes, task_bytes_per_flow, task_bytes_per_cell, notes })
    }

    /// Builds a lane with `share` of the memory.
    fn lane<K: FlowKey>(&self, share: f64) -> Result<Lane<K>, EngineError> {
        let config = &self.config;
        let options = Options {
            parameters: config.parameters.clone(),
            // Parameters that say more than the memory holds are refused, not obeyed.
            memory: Memory::limited(self.lanes_bytes),
            task_bytes_per_flow: self.task_bytes_per_flow,
            task_bytes_per_cell: self.task_bytes_per_cell,
            by: config.by,
            threshold: config.threshold,
            spread: config.spread,
            hierarchy: config.hierarchy,
            ..Options::new((self.lanes_bytes as f64 * share) as usize, config.seed)
        };
        let summary: Box<dyn Ingest<K>> =
            catalog::build_accelerated(&config.accelerators, &config.algorithm, &options)?;
        let (key, batch, of) = (config.key, config.batch_packets, config.spread_of);
        Ok(Lane::new(key, batch, summary, of, options.digester))
    }

    /// Builds the tasks for lanes of this size, and leaves out those that cannot be answered.
    fn finish<L: Lanes>(mut self, lanes: L) -> Result<Engine<L>, EngineError> {
        let views = lanes.views();
        let most = |lane: &task::Lane<'_>| lane.answers.flows().map_or(0, Flows::most);
        let shapes = views
            .iter()
            .map(|lane| {
                let cells = match lane.answers.flows() {
                    Some(_) => None,
                    None => lane.answers.cells(),
                };
                HistoryShape {
                    key_bytes: lane.key_bytes,
                    flows: most(lane),
                    cells: cells.map_or(0, Cells::len),
                }
            })
            .collect();
        let mut tasks = Vec::new();
        let mut notes = std::mem::take(&mut self.notes);
        for task in build_tasks(&self.config, &self.entries, shapes)? {
            match task.check(self.config.by, &views) {
                Ok(()) => tasks.push(task),
                Err(reason) if self.config.tasks.is_none() => {
                    notes.push(format!("{} is left out: {reason}", task.name()));
                }
                Err(reason) => {
                    return Err(EngineError::Task {
                        task: task.name(),
                        reason,
                        able: Able::default(),
                    });
                }
            }
        }
        let flows: usize = views.iter().map(most).sum();
        let scratch_bytes = tasks.iter().map(|task| task.scratch_bytes(flows)).max().unwrap_or(0);
        let words = Zeroed::new(scratch_bytes.div_ceil(8)).map_err(EngineError::Refused)?;
        let info = catalog::info(&self.config.algorithm)?;
        let summary = SummaryInfo {
            algorithm: info.name,
            accelerator: lanes.accelerator(),
            memory_bytes: lanes.memory_bytes().iter().sum::<usize>()
                + words.memory_bytes()
                + tasks.iter().map(|task| task.history_bytes()).sum::<usize>(),
            parameters: lanes.parameters(),
        };
        drop(views);
        let scratch = Scratch { words, breakdown: BreakdownTask::new() };
        Ok(Engine { config: self.config, lanes, tasks, scratch, summary, notes, unfit: None })
    }
}

/// The tasks asked for, or those by default.
fn entries(config: &Config) -> Result<Vec<&'static TaskEntry>, EngineError> {
    let Some(names) = &config.tasks else {
        return Ok(TASKS.into_iter().filter(|entry| entry.by_default).collect());
    };
    for name in names {
        if task::find(name).is_none() {
            let known = TASKS.map(|entry| entry.name).join(", ");
            return Err(EngineError::UnknownTask { name: name.clone(), known });
        }
    }
    Ok(TASKS.into_iter().filter(|entry| names.iter().any(|name| name == entry.name)).collect())
}

fn build_tasks(
    config: &Config,
    entries: &[&'static TaskEntry],
    history: Vec<HistoryShape>,
) -> Result<Vec<Box<dyn Task>>, EngineError> {
    let options = TaskOptions {
        spread: config.spread,
        spread_of: config.spread_of,
        hierarchy: config.hierarchy,
        flows: config.flows.clone(),
        history,
        forecast: config.forecast,
        seed: Seed::new(config.seed),
    };
    entries
        .iter()
        .map(|entry| entry.build(&options))
        .collect::<Result<_, _>>()
        .map_err(EngineError::Refused)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]
mod tests {
    use super::*;

    #[test]
    fn numbers_out_of_range_are_refused() {
        let refusal = |config| Plan::new(config).err().map(|error| error.to_string());
        for (epoch, message) in [
            (EpochLength::Packets(0), "the epoch's packets must be 1 or more, and are 0"),
            (EpochLength::Time(0), "the epoch's nanoseconds must be 1 or more, and are 0"),
            (EpochLength::Time(-7), "the epoch's nanoseconds must be 1 or more, and are -7"),
        ] {
            let refused = refusal(Config { epoch, ..Config::default() });
            assert_eq!(refused.as_deref(), Some(message));
        }
        for batch_packets in [0, BATCH_PACKETS + 1] {
            let refused = refusal(Config { batch_packets, ..Config::default() });
            let message = format!("the batch's packets must be 1 to 256, and are {batch_packets}");
            assert_eq!(refused, Some(message));
        }
    }

    /// Whatever the memory, summaries, forecasts and scratch stay within it, and fill most of it.
    #[test]
    fn forecasts_of_cells_are_part_of_the_memory() {
        for (_, forecast) in task::ForecastModel::ALL {
            for algorithm in ["k-ary", "count-sketch", "count-min"] {
                for memory_bytes in [64 << 10, 1 << 20, 100_000_000] {
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
    fn changes_of_what_does_not_add_up_are_refused() {
        let refusal = |algorithm: &str, forecast| {
            let tasks = Some(vec!["changes".to_owned()]);
            let algorithm = algorithm.to_owned();
            let config = Config { algorithm, tasks, forecast, ..Config::default() };
            Plan::new(config).err().unwrap().to_string()
        };
        let refused = refusal("conservative-count-min", task::ForecastModel::Ewma);
        assert!(refused.contains("linear-table") && refused.contains("k-ary"), "{refused}");
        let refused = refusal("linear-table", task::ForecastModel::HoltWinters);
        assert!(refused.contains("by ewma only") && refused.contains("k-ary"), "{refused}");
    }
}
