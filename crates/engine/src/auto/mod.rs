//! `--algorithm auto`: finds the best algorithm for the tasks by trying the candidates on this
//! machine.
//!
//! Candidates are all algorithms of the catalog that answer the tasks, alone and behind every
//! accelerator that supports them. They are tried on a sample of the packets in three rounds: all
//! of them for a moment, those not much slower than the fastest on the whole sample, and those
//! nearly as fast several times in turn. This takes a second or two. The choice is the fastest
//! candidate whose bounds are narrow enough and whose memory holds the expected flows.

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

/// Assumed packets of an input of unknown length.
const UNKNOWN: u64 = 100_000_000;

/// Times within this factor count as equal.
const ALIKE: f64 = 1.05;

/// Requirements beside the tasks.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// Largest half width of bounds: as a share of the traffic for sizes, relative to the number
    /// otherwise.
    pub error: f64,
    /// Packets per second that the run must sustain.
    pub rate: Option<f64>,
}

/// The choice, and all candidates tried.
#[derive(Clone, Debug)]
pub struct Choice {
    /// The configuration with the algorithm, the accelerators and their parameters filled in.
    pub config: Config,
    /// All candidates that can answer: the choice first, then by time.
    pub tried: Vec<Tried>,
    /// Expected flows in an epoch.
    pub flows: f64,
    /// Expected packets in an epoch.
    pub packets: f64,
}

/// Chooses an algorithm for the tasks, the key and the memory of `asked`. Ignores its algorithm,
/// parameters and accelerators.
///
/// # Errors
/// When no candidate answers the tasks in this memory, or none is exact and fast enough. The error
/// names the closest candidate.
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

/// Puts the choice first, and the others after it by time. Among candidates of about equal speed,
/// the most exact one wins. A candidate of unknown error is chosen only if there is no other.
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

/// Describes the candidate closest to the requirements.
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

/// The configuration with its tasks by name. If it names none, these are the default tasks that an
/// exact table answers.
fn with_tasks(asked: &Config) -> Result<Config, EngineError> {
    if asked.tasks.is_some() {
        return Ok(asked.clone());
    }
    let tasks = Plan::new(Candidate::exact().config(asked))?.explain().tasks;
    let tasks = TASKS.iter().map(|entry| entry.name).filter(|name| tasks.contains(name));
    Ok(Config { tasks: Some(tasks.map(str::to_owned).collect()), ..asked.clone() })
}

/// What an epoch is expected to hold.
struct Outlook {
    packets: f64,
    /// Expected flows of each lane.
    lanes: Vec<f64>,
    /// The flows of the sample.
    flows: Flows,
}

/// Extrapolates the sample to an epoch. Flows grow as a power of the packets; comparing the sample
/// with its first half gives the exponent.
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

/// A candidate: an algorithm with its parameters and accelerators.
#[derive(Clone, Debug, PartialEq)]
struct Candidate {
    algorithm: &'static str,
    parameters: Parameters,
    accelerators: Vec<(String, Parameters)>,
    /// The error that sampling adds, however long the run is.
    sampling: f64,
}

impl Candidate {
    /// The algorithm that answers nearly all tasks, exactly.
    fn exact() -> Self {
        Self {
            algorithm: "linear-table",
            parameters: Parameters::default(),
            accelerators: Vec::new(),
            sampling: 0.0,
        }
    }

    /// All combinations of an algorithm with at most one accelerator, sized for this error if they
    /// have a parameter for it.
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

    /// An algorithm behind an accelerator. If both have an error parameter, each gets half of the
    /// error.
    fn behind(info: &Info, accelerator: &str, own: Parameters, error: f64) -> Self {
        let sampling = if own == Parameters::default() { 0.0 } else { error / 2.0 };
        Self {
            algorithm: info.name,
            parameters: sized(info.parameters, error - sampling),
            accelerators: vec![(accelerator.to_owned(), own)],
            sampling,
        }
    }

    /// Its name in reports.
    fn name(&self) -> String {
        let before = self.accelerators.iter().map(|(name, _)| format!(" behind {name}"));
        iter::once(self.algorithm.to_owned()).chain(before).collect()
    }

    /// The configuration `asked` with this algorithm and accelerator.
    fn config(&self, asked: &Config) -> Config {
        Config {
            algorithm: self.algorithm.to_owned(),
            parameters: self.parameters.clone(),
            accelerators: self.accelerators.clone(),
            ..asked.clone()
        }
    }
}

/// The parameter `epsilon` with this error, if the algorithm has it.
fn sized(parameters: &[Parameter], error: f64) -> Parameters {
    let named = error > 0.0 && parameters.iter().any(|parameter| parameter.name == "epsilon");
    Parameters::new(named.then_some(("epsilon", error)))
}

/// A candidate with the result of its trials.
#[derive(Clone, Debug)]
pub struct Tried {
    /// The algorithm and its accelerator.
    pub name: String,
    /// Nanoseconds per packet, from its frame to its summary.
    pub ns: f64,
    /// Half the width of the widest bounds, as [`Wanted::error`], if the sample shows it.
    pub error: Option<f64>,
    /// Why it was not chosen; `None` for the choice.
    pub reason: Option<Reason>,
    candidate: Candidate,
}

impl Tried {
    fn new(candidate: Candidate, trial: &Trial, wanted: &Wanted, flows: &[f64]) -> Self {
        let error = trial.error.map(|error| error.max(candidate.sampling));
        // The flows of one lane do not fit into another.
        let mut lanes = flows.iter().zip(trial.room.iter().copied().chain(iter::repeat(Some(0))));
        let full = lanes.find_map(|(flows, room)| room.filter(|room| *flows > *room as f64));
        let table = trial.room.iter().all(Option::is_some);
        let reason = match (error, full) {
            (_, Some(room)) => Some(Reason::Full(room)),
            (Err(reason), _) => Some(reason),
            (Ok(error), _) if error > wanted.error => Some(Reason::Wide),
            // A summary that is exact on the sample may not be exact on more packets, unless it is
            // a table.
            _ if wanted.error == 0.0 && !table => Some(Reason::Wide),
            _ if wanted.rate.is_some_and(|rate| trial.ns * rate > 1e9) => Some(Reason::Slow),
            _ => None,
        };
        let (name, error) = (candidate.name(), error.ok());
        Self { name, ns: trial.ns, error, reason, candidate }
    }

    /// The configuration `asked` with this algorithm and accelerator.
    pub fn config(&self, asked: &Config) -> Config {
        self.candidate.config(asked)
    }
}

/// Why a candidate was not chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reason {
    /// Its bounds are wider than wanted.
    Wide,
    /// A lane has room for only this many flows.
    Full(usize),
    /// Its table was full on the sample, so its bounds do not cover all flows.
    Overflowed,
    /// It lists nothing although the largest flow is surely above the threshold.
    Silent,
    /// It lists nothing of the sample, so its bounds are unknown.
    Unknown,
    /// It is too slow for the rate.
    Slow,
    /// Another candidate is faster.
    Slower,
    /// Another candidate is about as fast and more exact.
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
