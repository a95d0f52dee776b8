//! One candidate tried on the sample: its time a packet, and how wide its bounds are.

use std::collections::HashSet;

use flowgauge_core::key::CanonicalKey;
use flowgauge_core::summary::{BuildError, BuildErrorKind, Parameters};
use flowgauge_core::task::{Report, SizeItem};
use rustix::time::{ClockId, clock_gettime};

use super::error::error;
use super::{Reason, Sample};
use crate::config::{Config, EpochLength, Overrun};
use crate::error::EngineError;
use crate::plan::{LaneExplanation, Plan};
use crate::report::EpochReport;
use crate::run as engine;
use crate::sink::Each;
use crate::source::Source;

/// What a trial found.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Trial {
    /// Nanoseconds a packet, from its frame to its summary.
    pub(super) ns: f64,
    /// Half the width of the widest bounds, or why there is no telling.
    pub(super) error: Result<f64, Reason>,
    /// Flows that there is room for in each lane, where the summary is a table.
    pub(super) room: Vec<Option<usize>>,
}

impl Trial {
    /// This trial and another of the same. Of the times the least counts, since what else the machine
    /// does only adds to it; of the bounds, which depend on the flows, the widest.
    pub(super) fn and(self, other: Self) -> Self {
        let error = self.error.and_then(|error| other.error.map(|other| error.max(other)));
        Self { ns: self.ns.min(other.ns), error, room: other.room }
    }
}

/// The flows of a sample, counted exactly.
pub(super) struct Flows {
    /// How many there are in each lane.
    pub(super) lanes: Vec<usize>,
    /// The largest.
    pub(super) largest: Option<Largest>,
    /// Those that occur once.
    pub(super) once: HashSet<CanonicalKey>,
}

/// The largest flow of some packets.
#[derive(Clone, Copy, Debug)]
pub struct Largest {
    /// Its key.
    pub key: CanonicalKey,
    /// Its share of the traffic.
    pub share: f64,
}

impl Largest {
    fn of(item: &SizeItem) -> Self {
        Self { key: item.key, share: item.share }
    }
}

/// The plan of a trial. Where tasks list flows, the largest is asked for by name, too, so that bounds
/// are seen even where lists stay empty: so far as the candidate can answer that.
///
/// # Errors
/// As [`Plan::new`].
pub fn plan(config: Config, largest: Option<Largest>) -> Result<Plan, EngineError> {
    const ASKED: &str = "flow-size";
    let named = |task: &str| config.tasks.iter().flatten().any(|name| name == task);
    if let Some(Largest { key, .. }) = largest
        && (named("top") || named("heavy-hitters") || named("changes"))
        && !named(ASKED)
    {
        let tasks = config.tasks.iter().flatten().cloned().chain([ASKED.to_owned()]).collect();
        let asking = Config { tasks: Some(tasks), flows: vec![key], ..config.clone() };
        match Plan::bare(asking) {
            Err(EngineError::Task { task: ASKED, .. }) => {}
            plan => return plan,
        }
    }
    Plan::bare(config)
}

/// Runs `config` over the first `packets` packets of the sample, over and over until they are `all`.
/// The time is that of their second half, so that fresh memory and the tasks at the close do not
/// count.
pub(super) fn run(
    config: &Config,
    sample: &mut Sample,
    largest: Option<Largest>,
    packets: usize,
    all: u64,
) -> Result<Trial, EngineError> {
    let config =
        Config { epoch: EpochLength::Whole, limit: None, overrun: Overrun::Wait, ..config.clone() };
    // One that works alone is not slower for what else runs on its core; several wait for each other.
    let clock = if config.workers == 1 { ClockId::ThreadCPUTime } else { ClockId::Monotonic };
    let given = config.memory_bytes;
    let plan = plan(config, largest)?;
    let explanation = plan.explain();
    // Sized for an error, a summary may be larger than what the memory would hold.
    let needed = explanation.summary.memory_bytes;
    if needed > given {
        return Err(BuildError::from(BuildErrorKind::TooLittleMemory { needed, given }).into());
    }
    let room = explanation.lanes.iter().map(|lane| lane.flows).collect();
    let mut seen = None;
    let mut keep = Each(|report: &EpochReport| {
        seen = Some(report.clone());
        Ok(())
    });
    // All of it, where it is but one batch.
    let (mut before, mut start_ns, mut ns) = (0, now_ns(clock), f64::MAX);
    engine::run(plan, &mut sample.replay(packets, all), &mut keep, &mut |source| {
        let read = source.progress().read;
        if before == 0 && 2 * read >= all && read < all {
            (before, start_ns) = (read, now_ns(clock));
        }
        if read == all {
            ns = (now_ns(clock) - start_ns) / (all - before) as f64;
        }
    })?;
    let report = seen.ok_or(Reason::Unknown);
    let error = report.and_then(|report| error(&report, largest));
    Ok(Trial { ns, error, room })
}

fn now_ns(clock: ClockId) -> f64 {
    let now = clock_gettime(clock);
    now.tv_sec as f64 * 1e9 + now.tv_nsec as f64
}

/// Memory in which an exact table holds whatever flows a sample may have.
const ENOUGH: usize = 64 << 20;

/// The flows among the first `packets` of the sample.
pub(super) fn flows(
    config: &Config,
    sample: &mut Sample,
    packets: usize,
) -> Result<Flows, EngineError> {
    let mut replay = sample.replay(packets, packets as u64);
    let (lanes, items) = counted(config, packets, &mut replay)?;
    let of = |key_bytes| items.iter().filter(|item| item.key.as_bytes().len() == key_bytes).count();
    let occurs_once = |item: &&SizeItem| item.size.packets.is_some_and(|size| size.value < 1.5);
    Ok(Flows {
        lanes: lanes.iter().map(|lane| of(lane.key_bytes)).collect(),
        largest: items.first().map(Largest::of),
        once: items.iter().filter(occurs_once).map(|item| item.key).collect(),
    })
}

/// The largest flow of `source` in a run that is otherwise that of `config`, counted exactly.
///
/// # Errors
/// As [`Plan::new`].
pub fn largest(config: &Config, source: &mut dyn Source) -> Result<Option<Largest>, EngineError> {
    Ok(counted(config, 1, source)?.1.first().map(Largest::of))
}

/// The lanes of an exact table, and its `top` largest flows.
fn counted(
    config: &Config,
    top: usize,
    source: &mut dyn Source,
) -> Result<(Vec<LaneExplanation>, Vec<SizeItem>), EngineError> {
    let plan = Plan::new(Config {
        memory_bytes: config.memory_bytes.max(ENOUGH),
        algorithm: "linear-table".to_owned(),
        parameters: Parameters::default(),
        accelerators: Vec::new(),
        tasks: Some(vec!["top".to_owned()]),
        top: top.max(1),
        list_limit: usize::MAX,
        epoch: EpochLength::Whole,
        updates: EpochLength::Whole,
        limit: None,
        workers: 1,
        shared: false,
        ..config.clone()
    })?;
    let lanes = plan.explain().lanes;
    let mut tasks = Vec::new();
    let mut keep = Each(|report: &EpochReport| {
        tasks.clone_from(&report.tasks);
        Ok(())
    });
    engine::run(plan, source, &mut keep, &mut |_| {})?;
    let items = tasks.into_iter().find_map(|(_, task)| match task {
        Report::Sizes { items, .. } => Some(items),
        _ => None,
    });
    Ok((lanes, items.unwrap_or_default()))
}
