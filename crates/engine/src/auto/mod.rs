//! `--algorithm auto`: what measures best, of what can answer, tried on this machine.
//!
//! Every algorithm of the catalog that answers the tasks, alone and behind every accelerator that
//! goes before it, is tried on a sample of the packets: for a moment all of them, then those that are
//! nearly as fast as the fastest for longer, a second or two in all. The fastest of those whose bounds
//! are narrow enough, and whose memory holds the flows to come, is taken.

mod candidate;
mod sample;
mod trial;

use std::time::Duration;
use std::{fmt, iter};

use flowgauge_core::task::TASKS;

use self::candidate::Candidate;
use self::trial::Trial;
use crate::config::{Config, EpochLength};
use crate::error::EngineError;
use crate::plan::Plan;

pub use self::sample::Sample;
pub use self::trial::widest;

/// The time that the longer trials take together.
const TIME: Duration = Duration::from_millis(600);

/// Packets of an input whose length cannot be told.
const UNKNOWN: u64 = 100_000_000;

/// Packets of the sample that every candidate is tried on.
const MOMENT: usize = 1 << 14;

/// Of candidates that are this much slower than the fastest only a moment is seen.
const FINAL: f64 = 1.5;

/// Times that differ by less are about the same.
const ALIKE: f64 = 1.1;

/// Candidates that are tried for longer, at most.
const FINALISTS: usize = 6;

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

/// A candidate, and what its trial found.
#[derive(Clone, Debug)]
pub struct Tried {
    /// The algorithm, behind its accelerator.
    pub name: String,
    /// Nanoseconds a packet, from its frame to its summary.
    pub ns: f64,
    /// Half the width of the widest bounds, as [`Wanted::error`].
    pub error: f64,
    /// Why it was not taken; `None` for the choice.
    pub reason: Option<Reason>,
    candidate: Candidate,
}

impl Tried {
    fn new(candidate: Candidate, trial: &Trial, wanted: &Wanted, flows: &[f64]) -> Self {
        let error = trial.error.max(candidate.sampling);
        // The flows of one lane have no room in another.
        let mut lanes = flows.iter().zip(trial.room.iter().copied().chain(iter::repeat(Some(0))));
        let full = lanes.find_map(|(flows, room)| room.filter(|room| *flows > *room as f64));
        let table = trial.room.iter().all(Option::is_some);
        let reason = match full {
            _ if error > wanted.error => Some(Reason::Wide),
            // What is exact on a sample may not be so on more: only a table surely is.
            _ if wanted.error == 0.0 && !table => Some(Reason::Wide),
            Some(room) => Some(Reason::Full(room)),
            None if wanted.rate.is_some_and(|rate| trial.ns * rate > 1e9) => Some(Reason::Slow),
            None => None,
        };
        Self { name: candidate.name(), ns: trial.ns, error, reason, candidate }
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
            Self::Wide => f.write_str("bounds wider than wanted"),
            Self::Full(flows) => write!(f, "room for {flows} flows only"),
            Self::Slow => f.write_str("too slow for the rate"),
            Self::Slower => f.write_str("slower"),
            Self::LessExact => f.write_str("about as fast, less exact"),
        }
    }
}

/// Chooses for the tasks, the key and the memory of `asked`, whose algorithm, parameters and
/// accelerators do not matter.
///
/// # Errors
/// When nothing can answer the tasks in this memory, or nothing is as exact and as fast as wanted:
/// the sentence says what comes nearest.
pub fn choose(asked: &Config, wanted: Wanted, sample: &Sample) -> Result<Choice, EngineError> {
    let asked = &with_tasks(asked)?;
    let (packets, flows) = outlook(asked, sample)?;
    let first = sample.len().min(MOMENT);
    let mut tried = Vec::new();
    for candidate in Candidate::all(wanted.error) {
        // What cannot answer is refused here, with all that the plan knows.
        let Ok(trial) = trial::run(&candidate.config(asked), sample, first, 2) else { continue };
        tried.push(Tried::new(candidate, &trial, &wanted, &flows));
    }
    let fit = |tried: &Tried| !matches!(tried.reason, Some(Reason::Wide | Reason::Full(_)));
    tried.sort_by(|a, b| fit(b).cmp(&fit(a)).then(a.ns.total_cmp(&b.ns)));
    let finalists = tried.iter().take(FINALISTS).filter(|one| fit(one));
    let finalists = finalists.filter(|one| one.ns < FINAL * tried[0].ns).count();
    let each = TIME / finalists.max(1) as u32;
    for one in tried.iter_mut().take(finalists) {
        let pass_ns = one.ns * sample.len() as f64;
        // Bounds are relative to the traffic: more of it than an epoch has would narrow them.
        let most = (packets / sample.len() as f64).max(1.0);
        let passes = (each.as_nanos() as f64 / pass_ns.max(1.0)).min(most) as usize;
        let config = one.candidate.config(asked);
        let trial = trial::run(&config, sample, sample.len(), passes.clamp(1, 1000))?;
        *one = Tried::new(one.candidate.clone(), &trial, &wanted, &flows);
    }
    let taken = |one: &Tried| one.reason.is_none();
    let fastest = tried.iter().filter(|one| taken(one)).map(|one| one.ns).fold(f64::MAX, f64::min);
    // Of those that are about as fast the most exact is the better one.
    let alike = |one: &Tried| taken(one) && one.ns <= ALIKE * fastest;
    let rank = |one: &Tried| (!alike(one), !taken(one));
    let error = |one: &Tried| if alike(one) { one.error } else { 0.0 };
    tried.sort_by(|a, b| {
        let errors = error(a).total_cmp(&error(b));
        rank(a).cmp(&rank(b)).then(errors).then(a.ns.total_cmp(&b.ns))
    });
    let Some(choice) = tried.first().filter(|one| taken(one)) else {
        return Err(EngineError::NoChoice { nearest: nearest(&tried, wanted) });
    };
    let (config, ns) = (choice.candidate.config(asked), choice.ns);
    for other in tried.iter_mut().skip(1) {
        let reason = if other.ns < ns { Reason::LessExact } else { Reason::Slower };
        other.reason.get_or_insert(reason);
    }
    Ok(Choice { config, tried, flows: flows.iter().sum(), packets })
}

/// What comes nearest to what is wanted.
fn nearest(tried: &[Tried], wanted: Wanted) -> String {
    let Some(exact) = tried.iter().min_by(|a, b| a.error.total_cmp(&b.error)) else {
        return "no algorithm answers these tasks for this key in this memory; ask for fewer tasks or \
                raise the memory"
            .to_owned();
    };
    let fast = tried.iter().min_by(|a, b| a.ns.total_cmp(&b.ns)).unwrap_or(exact);
    let describe = |one: &Tried| {
        let (error, rate) = (100.0 * one.error, 1e3 / one.ns);
        match one.reason {
            Some(reason) => {
                format!("{} ({error:.3}%, {rate:.1} Mpps, {reason})", one.name)
            }
            None => format!("{} ({error:.3}%, {rate:.1} Mpps)", one.name),
        }
    };
    format!(
        "nothing keeps within {}% of error{} in this memory; the most exact is {}, the fastest {}; raise \
         --memory or --error",
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

/// Packets, and flows of each lane, that are expected in an epoch. Flows grow as a power of the packets, whose
/// exponent the halves of the sample tell.
fn outlook(config: &Config, sample: &Sample) -> Result<(f64, Vec<f64>), EngineError> {
    let taken = sample.len() as f64;
    let all = config.limit.unwrap_or(u64::MAX).min(sample.expected().unwrap_or(UNKNOWN)) as f64;
    let packets = match config.epoch {
        EpochLength::Whole => all,
        EpochLength::Packets(packets) => all.min(packets as f64),
        EpochLength::Time(ns) => all.min(taken * ns as f64 / sample.span_ns() as f64),
    };
    let half = trial::flows(config, sample, sample.len() / 2)?;
    let whole = trial::flows(config, sample, sample.len())?;
    let growth = (packets / taken.max(1.0)).max(1.0);
    let flows = whole.iter().zip(half).map(|(&whole, half)| {
        let (whole, half) = (whole as f64, half.max(1) as f64);
        whole * growth.powf((whole / half).max(1.0).log2().min(1.0))
    });
    Ok((packets, flows.collect()))
}
