//! Trials: candidates run on the sample, for their time per packet and the width of their bounds.

use std::collections::HashSet;

use flowgauge_core::key::CanonicalKey;
use flowgauge_core::sorting::sort_by;
use flowgauge_core::summary::{BuildError, BuildErrorKind, Estimate, Parameters};
use flowgauge_core::task::{Report, SizeItem};
use flowgauge_core::terms::{Measure, Size};
use rustix::time::{ClockId, clock_gettime};

use super::{Candidate, Outlook, Reason, Sample, Tried, Wanted};
use crate::config::{Config, EpochLength, Overrun};
use crate::error::EngineError;
use crate::plan::{LaneExplanation, Plan};
use crate::report::EpochReport;
use crate::run as engine;
use crate::sink::Each;
use crate::source::Source;

/// The result of a trial.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Trial {
    /// Nanoseconds per packet, from its frame to its summary.
    pub(super) ns: f64,
    /// Half the width of the widest bounds, or why it is unknown.
    pub(super) error: Result<f64, Reason>,
    /// Room for flows in each lane, if the summary is a table.
    pub(super) room: Vec<Option<usize>>,
}

impl Trial {
    /// Combines two trials of a candidate: the shorter time, since other load only adds to it, and
    /// the wider bounds, since they depend on the flows.
    pub(super) fn and(self, other: Self) -> Self {
        let error = self.error.and_then(|error| other.error.map(|other| error.max(other)));
        Self { ns: self.ns.min(other.ns), error, room: other.room }
    }
}

/// The flows of a sample, counted exactly.
pub(super) struct Flows {
    /// Number of flows in each lane.
    pub(super) lanes: Vec<usize>,
    /// The largest flow.
    pub(super) largest: Option<Largest>,
    /// The flows with one packet.
    pub(super) once: HashSet<CanonicalKey>,
}

/// The largest flow of a sample or a source.
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

/// The plan of a trial. If tasks list flows, it also asks for the size of the largest flow, if the
/// candidate answers that, so that bounds are known even if lists stay empty.
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

/// Runs `config` over the first `packets` packets of the sample, repeated up to `all` packets.
/// Times the second half, without fresh memory and the tasks at the close.
pub(super) fn run(
    config: &Config,
    sample: &mut Sample,
    largest: Option<Largest>,
    packets: usize,
    all: u64,
) -> Result<Trial, EngineError> {
    let config =
        Config { epoch: EpochLength::Whole, limit: None, overrun: Overrun::Wait, ..config.clone() };
    // CPU time of a single worker is free of other load; several workers wait for each other.
    let clock = if config.workers == 1 { ClockId::ThreadCPUTime } else { ClockId::Monotonic };
    let given = config.memory_bytes;
    let plan = plan(config, largest)?;
    let explanation = plan.explain();
    // A summary sized for an error may need more than the memory limit.
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
    // The whole run, if it is a single batch.
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

/// Memory in which an exact table holds the flows of any sample.
const ENOUGH: usize = 64 << 20;

/// The flows of the first `packets` packets of the sample.
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

/// The largest flow of `source`, counted exactly in a run otherwise like `config`.
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

/// Total nanoseconds of the trials of each round but the first.
const TIME_NS: f64 = 0.4e9;

/// Packets of the sample on which every candidate is tried.
const MOMENT: usize = 1 << 14;

/// Candidates slower than the fastest by this factor are only tried for a moment.
const SECOND: f64 = 2.0;

/// Candidates slower than the fastest by this factor do not reach the last round.
const FINAL: f64 = 1.3;

/// Most candidates of the last round, and the number of times each is tried there.
const FINALISTS: usize = 8;
const TURNS: usize = 5;

/// The trials of all candidates, and what they have in common. If no candidate of the last round
/// fits, the next faster ones get their turn.
pub(super) struct Trials<'a> {
    pub(super) asked: &'a Config,
    pub(super) sample: Sample,
    pub(super) wanted: Wanted,
    pub(super) outlook: Outlook,
}

impl Trials<'_> {
    /// Tries all candidates. Those without a reason against them have been tried longest.
    pub(super) fn all(mut self) -> Result<Vec<Tried>, EngineError> {
        let (length, moment) = (self.sample.len(), self.sample.len().min(MOMENT));
        let packets = 2 * moment as u64;
        // The plan refuses candidates that cannot answer. The first time is a warm-up.
        let mut tried = Vec::new();
        for candidate in Candidate::all(self.wanted.error) {
            if let Ok(trial) = self.one(&candidate, moment, packets) {
                tried.push(self.tried(candidate, &trial));
            }
        }
        self.round(&mut tried, moment, packets, 2)?;
        // Bounds are relative to the packets so far, and sampling errors grow with their square
        // root.
        let shrink = (packets as f64 / self.outlook.packets).sqrt().min(1.0);
        let most = self.wanted.error / shrink;
        let narrows = |one: &Tried| one.error.is_some_and(|error| error <= most);
        let hopeful = |one: &Tried| fits(one) || one.reason == Some(Reason::Wide) && narrows(one);
        loop {
            let near = front(&mut tried, SECOND, usize::MAX, hopeful);
            let packets = self.affordable(near, 1);
            self.round(near, length, packets, 1)?;
            let near = front(&mut tried, FINAL, FINALISTS, fits);
            let packets = self.affordable(near, TURNS);
            self.round(near, length, packets, TURNS)?;
            if near.iter().any(fits) {
                return Ok(tried);
            }
            let mut others = false;
            for one in tried.iter_mut().filter(|one| one.reason == Some(Reason::Slower)) {
                (one.reason, others) = (None, true);
            }
            if !others {
                return Ok(tried);
            }
        }
    }

    /// Tries a candidate on the first `packets` packets, repeated up to `all` packets.
    fn one(
        &mut self,
        candidate: &Candidate,
        packets: usize,
        all: u64,
    ) -> Result<Trial, EngineError> {
        let (config, largest) = (candidate.config(self.asked), self.outlook.flows.largest);
        run(&config, &mut self.sample, largest, packets, all)
    }

    /// The result of trying a candidate.
    fn tried(&self, candidate: Candidate, trial: &Trial) -> Tried {
        Tried::new(candidate, trial, &self.wanted, &self.outlook.lanes)
    }

    /// Tries these candidates `turns` times, in turn.
    fn round(
        &mut self,
        tried: &mut [Tried],
        packets: usize,
        all: u64,
        turns: usize,
    ) -> Result<(), EngineError> {
        let mut trials: Vec<Option<Trial>> = vec![None; tried.len()];
        for _ in 0..turns {
            for (one, trial) in tried.iter().zip(&mut trials) {
                let now = self.one(&one.candidate, packets, all)?;
                *trial = Some(trial.take().map_or(now.clone(), |before| before.and(now)));
            }
        }
        for (one, trial) in tried.iter_mut().zip(trials) {
            if let Some(trial) = trial {
                *one = self.tried(one.candidate.clone(), &trial);
            }
        }
        Ok(())
    }

    /// Packets for which there is time if all of these are tried `turns` times: at least the whole
    /// sample, at most the packets of the epoch.
    fn affordable(&self, tried: &[Tried], turns: usize) -> u64 {
        let sum_ns: f64 = tried.iter().map(|one| one.ns).sum();
        let most = (TIME_NS / (sum_ns * turns as f64)).max(self.sample.len() as f64);
        most.min(self.outlook.packets).max(1.0) as u64
    }
}

/// Whether it meets the requirements, the rate aside.
fn fits(one: &Tried) -> bool {
    matches!(one.reason, None | Some(Reason::Slow))
}

/// The candidates that advance, by time: at most `most` of them, and less than `times` slower than
/// the fastest that fits. The others that fit are marked as slower.
fn front(
    tried: &mut [Tried],
    times: f64,
    most: usize,
    goes_on: impl Fn(&Tried) -> bool,
) -> &mut [Tried] {
    sort_by(tried, &|a, b| goes_on(b).cmp(&goes_on(a)).then(a.ns.total_cmp(&b.ns)));
    let fastest = tried.iter().find(|one| fits(one)).or(tried.first()).map_or(0.0, |one| one.ns);
    let near = tried.iter().take_while(|one| goes_on(one) && one.ns < times * fastest);
    let (near, others) = tried.split_at_mut(near.count().min(most));
    for one in others {
        one.reason = one.reason.or(Some(Reason::Slower));
    }
    near
}

/// Half the width of the widest bounds in an epoch's answers: as a share of the traffic for sizes,
/// relative to the number for numbers. `largest` is the largest flow, if known.
///
/// # Errors
/// When the error is unknown: a table was full, flows above the threshold are not listed, or all
/// lists are empty.
pub fn error(report: &EpochReport, largest: Option<Largest>) -> Result<f64, Reason> {
    if report.account.untracked != Size::default() {
        return Err(Reason::Overflowed);
    }
    let total = report.keyed().by(report.by).max(1) as f64;
    let bounds = report.tasks.iter().filter_map(|(_, task)| widest(task, report.by, total));
    let widest = bounds.reduce(f64::max).ok_or(Reason::Unknown)?;
    let silent = report.tasks.iter().any(|(_, task)| match task {
        Report::Sizes { selection, items, .. } if items.is_empty() => {
            let least = selection.threshold().unwrap_or_default() / total + widest;
            largest.is_some_and(|largest| largest.share > least)
        }
        _ => false,
    });
    if silent { Err(Reason::Silent) } else { Ok(widest) }
}

/// Half the width of the widest bounds in an answer; `None` if it is empty and has none.
fn widest(report: &Report, by: Measure, total: f64) -> Option<f64> {
    let half = |estimate: &Estimate| (estimate.high - estimate.low) / 2.0;
    let of_traffic = |estimate: &Estimate| half(estimate) / total;
    let of_itself = |estimate: &Estimate| half(estimate) / estimate.value.abs().max(1.0);
    let widest = |errors: &mut dyn Iterator<Item = f64>| errors.reduce(f64::max);
    match report {
        Report::Sizes { items, .. } => {
            widest(&mut items.iter().filter_map(|item| item.size.by(by)).map(|e| of_traffic(&e)))
        }
        Report::Findings { .. } => None,
        Report::Addresses { items, .. } => {
            widest(&mut items.iter().filter_map(|item| item.size.by(by)).map(|e| of_traffic(&e)))
        }
        Report::Spread { items, .. } => {
            widest(&mut items.iter().map(|item| of_itself(&item.distinct)))
        }
        Report::Changes { items, .. } => {
            widest(&mut items.iter().map(|item| of_traffic(&item.now)))
        }
        Report::Cardinality { flows } => Some(of_itself(flows)),
        Report::Entropy { bits, .. } => Some(of_itself(bits)),
        Report::SizeDistribution { bins } => {
            let flows: f64 = bins.iter().map(|(_, flows)| flows.value).sum();
            Some(bins.iter().map(|(_, flows)| half(flows)).sum::<f64>() / flows.max(1.0))
        }
        Report::Quantiles { sizes, .. } => {
            widest(&mut sizes.iter().map(|(_, size)| of_itself(size)))
        }
        Report::Hierarchical { items, .. } => {
            widest(&mut items.iter().map(|item| of_traffic(&item.total)))
        }
    }
}
