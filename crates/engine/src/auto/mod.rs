//! `--algorithm auto`: what measures best, of what can answer, tried on this machine.
//!
//! Every algorithm of the catalog that answers the tasks, alone and behind every accelerator that
//! goes before it, is tried on a sample of the packets: for a moment all of them, then all of the sample
//! those that are not much slower than the fastest, then several times, by turns, those that are
//! nearly as fast; a second or two in all. The fastest of those whose bounds are narrow enough, and
//! whose memory holds the flows to come, is taken.

mod sample;
mod trial;

use std::{fmt, iter};

use flowgauge_core::catalog::{self, ACCELERATORS, ALGORITHMS};
use flowgauge_core::sorting::sort_by;
use flowgauge_core::summary::{Info, Parameter, Parameters};
use flowgauge_core::task::TASKS;

use self::sample::fresh;
use self::trial::{Flows, Trial, Trials};
use crate::config::{Config, EpochLength};
use crate::error::EngineError;
use crate::plan::Plan;

pub use self::sample::Sample;
pub use self::trial::{Largest, error, largest, plan};

/// Packets of an input whose length cannot be told.
const UNKNOWN: u64 = 100_000_000;

/// Times that differ by less are about the same.
const ALIKE: f64 = 1.05;

/// What is wanted beside the tasks.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// Half the width that bounds may have: a share of the traffic where they are about sizes, of
    /// the number itself elsewhere.
    pub error: f64,
    /// Packets a second that must be kept up with.
    pub rate: Option<f64>,
}

/// What is taken, and what was tried.
#[derive(Clone, Debug)]
pub struct Choice {
    /// The run with the algorithm, the accelerators and their parameters filled in.
    pub config: Config,
    /// Everything that could answer, the choice first and then by time.
    pub tried: Vec<Tried>,
    /// Flows that are expected in an epoch.
    pub flows: f64,
    /// Packets that are expected in an epoch.
    pub packets: f64,
}

/// Chooses for the tasks, the key and the memory of `asked`, whose algorithm, parameters and
/// accelerators do not matter.
///
/// # Errors
/// When nothing can answer the tasks in this memory, or nothing is as exact and as fast as wanted:
/// the sentence says what comes nearest.
pub fn choose(asked: &Config, wanted: Wanted, mut sample: Sample) -> Result<Choice, EngineError> {
    let asked = &with_tasks(asked)?;
    let outlook = outlook(asked, &mut sample)?;
    sample.renew(fresh(sample.packets(), asked.key, asked.tunnels, &outlook.flows.once));
    let (packets, flows) = (outlook.packets, outlook.lanes.iter().sum());
    let mut tried = Trials { asked, sample, wanted, outlook }.all()?;
    rank(&mut tried);
    let Some(choice) = tried.first().filter(|one| one.reason.is_none()) else {
        return Err(EngineError::NoChoice { nearest: nearest(&tried, wanted) });
    };
    let (config, ns) = (choice.config(asked), choice.ns);
    for other in tried.iter_mut().skip(1) {
        let reason = if other.ns < ns { Reason::LessExact } else { Reason::Slower };
        other.reason.get_or_insert(reason);
    }
    Ok(Choice { config, tried, flows, packets })
}

/// Puts the choice first, and the others behind by time. Of those that are about as fast the most
/// exact is the better one. Whose error is not known is chosen where nothing else can be.
fn rank(tried: &mut [Tried]) {
    if tried.iter().all(|one| one.reason.is_some()) {
        for one in tried.iter_mut().filter(|one| one.reason == Some(Reason::Unknown)) {
            one.reason = None;
        }
    }
    let fits = |one: &Tried| one.reason.is_none();
    let fastest = tried.iter().filter(|one| fits(one)).map(|one| one.ns).fold(f64::MAX, f64::min);
    let alike = |one: &Tried| fits(one) && one.ns <= ALIKE * fastest;
    let error = |one: &Tried| one.error.filter(|_| alike(one)).unwrap_or_default();
    sort_by(tried, &|a, b| {
        let (before, after) = ((!alike(a), !fits(a)), (!alike(b), !fits(b)));
        before.cmp(&after).then(error(a).total_cmp(&error(b))).then(a.ns.total_cmp(&b.ns))
    });
}

/// What comes nearest to what is wanted.
fn nearest(tried: &[Tried], wanted: Wanted) -> String {
    let known = |one: &Tried| one.error.unwrap_or(f64::MAX);
    let Some(exact) = tried.iter().min_by(|a, b| known(a).total_cmp(&known(b))) else {
        return "no algorithm answers these tasks for this key within the memory limit; leave out \
                tasks or raise --memory"
            .to_owned();
    };
    let fast = tried.iter().min_by(|a, b| a.ns.total_cmp(&b.ns)).unwrap_or(exact);
    let describe = |one: &Tried| {
        let error = one.error.map(|error| format!("{:.3}%", 100.0 * error));
        let rate = format!("{:.1} Mpps", 1e3 / one.ns);
        let reason = one.reason.map(|reason| reason.to_string());
        let parts = [error, Some(rate), reason].into_iter().flatten();
        format!("{} ({})", one.name, parts.collect::<Vec<_>>().join(", "))
    };
    format!(
        "no algorithm keeps within an error of {}%{} and the memory limit; the most exact is {}, the \
         fastest {}; raise --memory or --error",
        100.0 * wanted.error,
        wanted.rate.map_or(String::new(), |rate| format!(" at {:.1} Mpps", rate / 1e6)),
        describe(exact),
        describe(fast),
    )
}

/// The run with its tasks by name: where none are named, those by default that an exact table
/// answers.
fn with_tasks(asked: &Config) -> Result<Config, EngineError> {
    if asked.tasks.is_some() {
        return Ok(asked.clone());
    }
    let tasks = Plan::new(Candidate::exact().config(asked))?.explain().tasks;
    let tasks = TASKS.iter().map(|entry| entry.name).filter(|name| tasks.contains(name));
    Ok(Config { tasks: Some(tasks.map(str::to_owned).collect()), ..asked.clone() })
}

/// What is expected of an epoch.
struct Outlook {
    packets: f64,
    /// Flows of each lane.
    lanes: Vec<f64>,
    /// Those of the sample.
    flows: Flows,
}

/// Flows grow as a power of the packets, whose exponent the halves of the sample tell.
fn outlook(config: &Config, sample: &mut Sample) -> Result<Outlook, EngineError> {
    let taken = sample.len() as f64;
    let all = config.limit.unwrap_or(u64::MAX).min(sample.expected().unwrap_or(UNKNOWN)) as f64;
    let packets = match config.epoch {
        EpochLength::Whole => all,
        EpochLength::Packets(packets) => all.min(packets as f64),
        EpochLength::Time(ns) => all.min(taken * ns as f64 / sample.span_ns() as f64),
    };
    let half = trial::flows(config, sample, sample.len() / 2)?.lanes;
    let flows = trial::flows(config, sample, sample.len())?;
    let growth = (packets / taken.max(1.0)).max(1.0);
    let lanes = flows.lanes.iter().zip(half).map(|(&whole, half)| {
        let (whole, half) = (whole as f64, half.max(1) as f64);
        whole * growth.powf((whole / half).max(1.0).log2().min(1.0))
    });
    Ok(Outlook { packets, lanes: lanes.collect(), flows })
}

/// An algorithm behind accelerators, with parameters.
#[derive(Clone, Debug, PartialEq)]
struct Candidate {
    algorithm: &'static str,
    parameters: Parameters,
    accelerators: Vec<(String, Parameters)>,
    /// The error that a sample adds, however long it runs.
    sampling: f64,
}

impl Candidate {
    /// The algorithm that answers nearly everything, exactly.
    fn exact() -> Self {
        Self {
            algorithm: "linear-table",
            parameters: Parameters::default(),
            accelerators: Vec::new(),
            sampling: 0.0,
        }
    }

    /// Everything that the catalog can put together, sized for this error where it can be.
    fn all(error: f64) -> impl Iterator<Item = Self> {
        ALGORITHMS.iter().flat_map(move |info| {
            let able = ACCELERATORS
                .iter()
                .filter(|accelerator| catalog::able(accelerator.name).contains(&info.name))
                .filter(move |accelerator| error > 0.0 || !accelerator.samples);
            let behind = able.map(move |accelerator| {
                let own = sized(accelerator.parameters, error / 2.0);
                Self::behind(info, accelerator.name, own, error)
            });
            iter::once(Self::alone(info, error)).chain(behind)
        })
    }

    fn alone(info: &Info, error: f64) -> Self {
        let parameters = sized(info.parameters, error);
        Self { algorithm: info.name, parameters, accelerators: Vec::new(), sampling: 0.0 }
    }

    /// Where both have errors to choose, each has half of what there may be.
    fn behind(info: &Info, accelerator: &str, own: Parameters, error: f64) -> Self {
        let sampling = if own == Parameters::default() { 0.0 } else { error / 2.0 };
        Self {
            algorithm: info.name,
            parameters: sized(info.parameters, error - sampling),
            accelerators: vec![(accelerator.to_owned(), own)],
            sampling,
        }
    }

    /// Its name for people.
    fn name(&self) -> String {
        let before = self.accelerators.iter().map(|(name, _)| format!(" behind {name}"));
        iter::once(self.algorithm.to_owned()).chain(before).collect()
    }

    /// The run `asked`, with this to measure.
    fn config(&self, asked: &Config) -> Config {
        Config {
            algorithm: self.algorithm.to_owned(),
            parameters: self.parameters.clone(),
            accelerators: self.accelerators.clone(),
            ..asked.clone()
        }
    }
}

/// The error as a parameter, where there is such a one.
fn sized(parameters: &[Parameter], error: f64) -> Parameters {
    let named = error > 0.0 && parameters.iter().any(|parameter| parameter.name == "epsilon");
    Parameters::new(named.then_some(("epsilon", error)))
}

/// A candidate, and what its trial found.
#[derive(Clone, Debug)]
pub struct Tried {
    /// The algorithm, behind its accelerator.
    pub name: String,
    /// Nanoseconds a packet, from its frame to its summary.
    pub ns: f64,
    /// Half the width of the widest bounds, as [`Wanted::error`], where the sample tells it.
    pub error: Option<f64>,
    /// Why it was not taken; `None` for the choice.
    pub reason: Option<Reason>,
    candidate: Candidate,
}

impl Tried {
    fn new(candidate: Candidate, trial: &Trial, wanted: &Wanted, flows: &[f64]) -> Self {
        let error = trial.error.map(|error| error.max(candidate.sampling));
        // The flows of one lane have no room in another.
        let mut lanes = flows.iter().zip(trial.room.iter().copied().chain(iter::repeat(Some(0))));
        let full = lanes.find_map(|(flows, room)| room.filter(|room| *flows > *room as f64));
        let table = trial.room.iter().all(Option::is_some);
        let reason = match (error, full) {
            (_, Some(room)) => Some(Reason::Full(room)),
            (Err(reason), _) => Some(reason),
            (Ok(error), _) if error > wanted.error => Some(Reason::Wide),
            // What is exact on a sample may not be so on more: only a table surely is.
            _ if wanted.error == 0.0 && !table => Some(Reason::Wide),
            _ if wanted.rate.is_some_and(|rate| trial.ns * rate > 1e9) => Some(Reason::Slow),
            _ => None,
        };
        let (name, error) = (candidate.name(), error.ok());
        Self { name, ns: trial.ns, error, reason, candidate }
    }

    /// The run `asked`, with this to measure.
    pub fn config(&self, asked: &Config) -> Config {
        self.candidate.config(asked)
    }
}

/// Why a candidate was not taken.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reason {
    /// Its bounds are wider than wanted.
    Wide,
    /// A lane has room for so many flows only.
    Full(usize),
    /// Its table was full on the sample, so that its bounds are not those of all flows.
    Overflowed,
    /// It lists nothing where the largest flow is surely large enough.
    Silent,
    /// The sample has nothing that it lists, and so its bounds are not known.
    Unknown,
    /// It does not keep up with the rate.
    Slow,
    /// Another one is faster.
    Slower,
    /// Another one is about as fast, and more exact.
    LessExact,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Wide => f.write_str("bounds are too wide"),
            Self::Full(flows) => write!(f, "room for only {flows} flows"),
            Self::Overflowed => f.write_str("its table is full"),
            Self::Silent => f.write_str("does not list the largest flow"),
            Self::Unknown => f.write_str("lists no flow, so its error is unknown"),
            Self::Slow => f.write_str("too slow for the rate"),
            Self::Slower => f.write_str("slower"),
            Self::LessExact => f.write_str("about as fast, but less exact"),
        }
    }
}
