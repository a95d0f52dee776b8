//! The key chooses the lanes; the memory is divided among workers, lanes and tasks, and reserved.

use flowgauge_core::catalog;
use flowgauge_core::key::{Extract, FlowKey, Key4};
use flowgauge_core::summary::{BuildError, Cells, Flows, Memory, Options, Parameters};
use flowgauge_core::task::{self, HistoryShape, TASKS, Task, TaskEntry, TaskOptions};
use flowgauge_kernel::{Seed, Zeroed};

use crate::close::Closer;
use crate::config::Config;
use crate::crew::{Sharing, keeps_apart};
use crate::engine::Engine;
use crate::error::{Able, EngineError};
use crate::lanes::{Lane, Lanes, OneLane, TwoLanes};
use crate::report::SummaryInfo;
use crate::summaries::{Sets, Summaries, Summary};

/// The share of the memory that the IPv4 lane gets.
const V4_SHARE: f64 = 0.75;

/// The run for a key without addresses.
pub(crate) fn one(config: Config) -> Result<Engine<OneLane>, EngineError> {
    let mut builder = Builder::new(config, &[Key4::BYTES])?;
    let built =
        builder.build(|builder| Ok(Summaries { first: builder.summary(1.0)?, second: None }))?;
    let lanes = OneLane(builder.lane(&built.1.first().first));
    builder.finish(lanes, built)
}

/// The run for a key with addresses.
///
/// An algorithm that holds the keys of IPv4 only measures these, with all the memory; an operator
/// would rather have them and the number of IPv6 packets than nothing.
pub(crate) fn two<A, B>(config: Config) -> Result<Engine<TwoLanes<A, B>>, EngineError>
where
    A: FlowKey + Extract<8>,
    B: FlowKey + Extract<32>,
{
    let mut builder = Builder::new(config, &[A::BYTES, B::BYTES])?;
    let built = match builder.summary::<B>(1.0 - V4_SHARE) {
        Err(EngineError::Build(unfit @ BuildError::Unfit { .. })) => {
            builder.notes.push(format!("IPv6 packets are counted as untracked: {unfit}"));
            builder.build(|builder| Ok(Summaries { first: builder.summary(1.0)?, second: None }))?
        }
        fit => {
            drop(fit?);
            builder.build(|builder| {
                let second = Some(builder.summary(1.0 - V4_SHARE)?);
                Ok(Summaries { first: builder.summary(V4_SHARE)?, second })
            })?
        }
    };
    let of_one = built.1.first();
    let v6 = of_one.second.as_ref().map(|second| builder.lane(second));
    let lanes = TwoLanes::new(builder.lane(&of_one.first), v6);
    builder.finish(lanes, built)
}

/// Divides the memory among lanes and tasks.
struct Builder {
    config: Config,
    entries: Vec<&'static TaskEntry>,
    /// Sets of summaries in all, and for each one that the tasks read.
    all: usize,
    all_for_one: usize,
    /// Bytes for the lanes and for what the tasks need for each of their flows.
    lanes_bytes: usize,
    task_bytes_per_flow: usize,
    task_bytes_per_cell: usize,
    /// What is left out, and why.
    notes: Vec<String>,
}

/// How the work is shared, and all summaries.
type Built<A, B> = (Sharing, Sets<A, B>);

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
        Ok(Self {
            config,
            entries,
            all: 1,
            all_for_one: 1,
            lanes_bytes,
            task_bytes_per_flow,
            task_bytes_per_cell,
            notes: Vec::new(),
        })
    }

    /// Makes one set of all the memory, which shows how such summaries are shared, and where that takes
    /// several, these instead.
    fn build<A: FlowKey, B: FlowKey>(
        &mut self,
        make: impl Fn(&Self) -> Result<Summaries<A, B>, EngineError>,
    ) -> Result<Built<A, B>, EngineError> {
        let only = make(self)?;
        let sharing = Sharing::new(&self.config, &only)?;
        (self.all, self.all_for_one) = (sharing.all(), sharing.all_for_one());
        if self.all == 1 {
            return Ok((sharing, Sets { workers: vec![vec![only]], sums: Vec::new() }));
        }
        drop(only);
        let some = |count| (0..count).map(|_| make(self)).collect::<Result<Vec<_>, _>>();
        let workers =
            (0..sharing.measuring).map(|_| some(sharing.sets)).collect::<Result<_, _>>()?;
        let sums = some(sharing.sums)?;
        Ok((sharing, Sets { workers, sums }))
    }

    /// Builds a summary with `share` of the memory of a set.
    fn summary<K: FlowKey>(&self, share: f64) -> Result<Summary<K>, EngineError> {
        let config = &self.config;
        let set_bytes = self.lanes_bytes / self.all;
        let options = Options {
            parameters: config.parameters.clone(),
            // Parameters that say more than the memory holds are refused, not obeyed.
            memory: if config.parameters == Parameters::default() {
                Memory::unlimited()
            } else {
                Memory::limited(set_bytes)
            },
            task_bytes_per_flow: self.task_bytes_per_flow.div_ceil(self.all_for_one),
            task_bytes_per_cell: self.task_bytes_per_cell.div_ceil(self.all_for_one),
            by: config.by,
            threshold: config.threshold,
            spread: config.spread,
            hierarchy: config.hierarchy,
            apart: keeps_apart(config)?,
            ..Options::new((set_bytes as f64 * share) as usize, config.seed)
        };
        Ok(if config.shared {
            Summary::Shared(catalog::build_shared(&config.algorithm, &options)?.into())
        } else {
            let Config { accelerators, algorithm, .. } = config;
            Summary::Own(catalog::build_accelerated(accelerators, algorithm, &options)?)
        })
    }

    /// The lane of packets for such a summary.
    fn lane<K: FlowKey>(&self, summary: &Summary<K>) -> Lane<K> {
        let config = &self.config;
        let digester = Options::new(0, config.seed).digester;
        Lane::new(config.key, config.batch_packets, summary.ordinary(), config.spread_of, digester)
    }

    /// Builds the tasks for summaries of this size, and leaves out those that cannot be answered.
    fn finish<L: Lanes>(
        mut self,
        lanes: L,
        (sharing, sets): Built<L::First, L::Second>,
    ) -> Result<Engine<L>, EngineError> {
        let view = sharing.view(self.config.key, &sets.workers);
        let views = view.lanes();
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
            accelerator: sets.first().accelerator(),
            memory_bytes: sets.all().flat_map(Summaries::memory_bytes).sum::<usize>()
                + words.memory_bytes()
                + tasks.iter().map(|task| task.history_bytes()).sum::<usize>(),
            parameters: sets.first().parameters(),
        };
        let closer = Closer::new(&self.config, tasks, words, summary, notes);
        Ok(Engine { config: self.config, lanes, sets, sharing, closer })
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
