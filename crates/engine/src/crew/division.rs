//! How workers divide the work, and which work cannot be divided.

use flowgauge_core::key::KeySpec;
use flowgauge_core::summary::{Answers, BuildError, Laws, Merge, Options, QuantileOf};
use flowgauge_core::task::Lane;
use flowgauge_core::terms::Threshold;
use flowgauge_core::{accelerator, catalog};
use flowgauge_kernel::Seed;

use super::{Cores, Routing};
use crate::config::{Config, Dispatch, EpochLength};
use crate::error::EngineError;
use crate::summaries::{Summaries, View};

/// How workers divide the work.
#[derive(Clone, Debug)]
pub(crate) struct Division {
    pub(crate) routing: Routing,
    /// Whether the workers' summaries are read side by side instead of merged, because no flow is
    /// in two of them.
    pub(crate) joined: bool,
    /// Whether several workers give the same numbers as one.
    pub(crate) same: bool,
    /// Whether workers may each read their own files, parts of files, or pieces of them by turns,
    /// in one epoch. Then no thread dispatches packets, unless each flow must have one worker.
    pub(crate) parts: bool,
    /// Number of threads that measure with their own summaries, without a thread that only reads; 1
    /// if all fill the same summaries.
    pub(crate) measuring: usize,
    /// Sets of summaries of each thread: one is filled while the other is read.
    pub(crate) sets: usize,
    /// Additional sets in which the closer sums the parts of an open epoch.
    pub(crate) sums: usize,
    pub(crate) cores: Option<Cores>,
}

impl Division {
    /// The division of work for `config` and its lanes.
    ///
    /// # Errors
    /// When several workers cannot measure this. The error says what could.
    pub(crate) fn new(
        config: &Config,
        seed: Seed,
        lanes: &[Lane<'_>],
    ) -> Result<Self, EngineError> {
        if config.queues > 1 {
            return Self::queues(config, lanes);
        }
        let laws = laws(config)?;
        let merge = laws.merge;
        let fixed = matches!(config.threshold, Threshold::Weight(_));
        // With one worker, updates are read from its summaries in place.
        let updates = config.workers > 1 && config.updates != EpochLength::Whole;
        if updates {
            check_updates(config, laws, sampled(config)?.contains(&true))?;
        }
        let dispatch = dispatch(config)?;
        let disjoint = dispatch != Dispatch::Queue;
        let headers = accelerator::is_before_headers(&config.accelerators);
        if headers && config.workers > 1 && disjoint {
            return Err(EngineError::Sampling(
                "assigns weighted batches to workers: use --dispatch queue, or one worker"
                    .to_owned(),
            ));
        }
        let flows = lanes.iter().all(|lane| lane.answers.flows().is_some());
        if config.workers > 1 {
            for lane in lanes {
                check(lane.answers)?;
            }
            if merge == Merge::Disjoint && !flows {
                return refuse(format!(
                    "full parts of {} behind a sampler cannot be merged: use one worker",
                    config.algorithm
                ));
            }
            if merge == Merge::Disjoint && !disjoint {
                return refuse(format!(
                    "parts of {} merge only if each flow is in one of them: use --dispatch digest",
                    config.algorithm
                ));
            }
        }
        let routing = match dispatch {
            Dispatch::Digest => Routing::Digest(Options::new(0, seed).digester),
            Dispatch::Queue => Routing::Queue,
        };
        // A key above a fixed threshold in the sum may be below it in every part; only tables list
        // all keys.
        let named = !flows && lanes.iter().any(|lane| lane.answers.candidates().is_some());
        if config.workers > 1 && fixed && named && !config.shared && (!disjoint || updates) {
            let instead = if updates { "one worker" } else { "--dispatch digest" };
            return refuse(format!(
                "a key above a fixed threshold may be below it in every part of the epoch: use \
                 {instead}, or a share as --threshold"
            ));
        }
        // A stored epoch holds one summary.
        let joined = config.workers > 1 && disjoint && flows && !config.shared && !config.save;
        // Tables add up, except for distinct peers that a flow has in several parts.
        let elements = lanes.iter().any(|lane| lane.answers.spread().is_some());
        let equal = merge == Merge::Equal && !(flows && elements);
        let counted_as_one = config.shared || joined && !updates || equal;
        let same = counted_as_one && !sampled(config)?.contains(&true);
        // Summaries that add up only if they share no flow need dispatched packets.
        let adds_up = config.shared || laws.commutable && (equal || !same);
        // A sampler before headers needs all packets of its queue.
        let parts = config.workers > 1 && adds_up && may_divide(config) && !headers;
        let cores = config.pin.then(|| Cores::new(config.workers)).transpose()?;
        let measuring = match config.workers {
            _ if config.shared => 1,
            workers if parts || workers == 1 => workers,
            workers => workers - 1,
        };
        // Forecasts stay with the meter, which lends its only set at the end of an epoch.
        let lasting = lanes.iter().any(|lane| lane.answers.forecasts().is_some());
        let swapped = !lasting && (config.epoch != EpochLength::Whole || updates);
        let sets = if swapped { 2 } else { 1 };
        let sums = match updates {
            true if joined => measuring,
            true => 1,
            false => 0,
        };
        Ok(Self { routing, joined, same, parts, measuring, sets, sums, cores })
    }

    /// The division among queues. The network card deals the packets, so a flow may be in several
    /// queues.
    fn queues(config: &Config, lanes: &[Lane<'_>]) -> Result<Self, EngineError> {
        if config.workers > 1 {
            return refuse(
                "each of several queues is measured by one worker: use one worker for each".into(),
            );
        }
        if config.updates != EpochLength::Whole {
            return refuse("--updates supports only one queue: leave it out".into());
        }
        if matches!(config.epoch, EpochLength::Packets(_)) {
            return refuse(
                "an epoch by packets supports only one queue: use an epoch by time".into(),
            );
        }
        let laws = laws(config)?;
        if laws.merge == Merge::Disjoint {
            return refuse(format!(
                "parts of {} merge only if each flow is in one queue: use one queue",
                config.algorithm
            ));
        }
        for lane in lanes {
            check_gaps(lane.answers)?;
            let named = lane.answers.flows().is_none() && lane.answers.candidates().is_some();
            if named && matches!(config.threshold, Threshold::Weight(_)) {
                return refuse(
                    "a key above a fixed threshold may be below it in every queue: use one \
                     queue, or a share as --threshold"
                        .into(),
                );
            }
        }
        Ok(Self {
            routing: Routing::Queue,
            joined: false,
            same: false,
            parts: false,
            measuring: config.queues,
            sets: if config.epoch == EpochLength::Whole { 1 } else { 2 },
            sums: 1,
            cores: config.pin.then(|| Cores::new(config.queues)).transpose()?,
        })
    }

    /// Number of sets of summaries.
    pub(crate) fn all(&self) -> usize {
        self.measuring * self.sets + self.sums
    }

    /// Number of sets of summaries for each one that the tasks read.
    pub(crate) fn all_for_one(&self) -> usize {
        if self.joined { self.all() / self.measuring } else { self.all() }
    }

    /// The tasks' view of these workers' first sets.
    pub(crate) fn view<'a>(&self, key: KeySpec, sets: &'a [Vec<Summaries>]) -> View<'a> {
        let seen = if self.joined { sets.len() } else { 1 };
        View::new(key, sets[..seen].iter().map(|worker| &worker[0]))
    }
}

/// Whether one epoch covers the whole input, and no option depends on the order or the number of
/// packets.
fn may_divide(config: &Config) -> bool {
    config.epoch == EpochLength::Whole
        && config.updates == EpochLength::Whole
        && config.dispatch.is_none()
        && config.limit.is_none()
        && matches!(config.threshold, Threshold::Share(_))
}

/// Refuses updates of summaries that cannot be summed over parts of an epoch.
fn check_updates(config: &Config, laws: Laws, sampled: bool) -> Result<(), EngineError> {
    let reason = match laws {
        Laws { commutable: false, .. } => "its counts depend on the order of all packets",
        _ if sampled || laws.samples => {
            "the samples of its parts are correlated, and their \
                                         errors add up"
        }
        Laws { merge: Merge::Disjoint, .. } => "its parts merge only if they share no flow",
        _ => return Ok(()),
    };
    let before = config.accelerators.iter().map(|(name, _)| format!(" behind {name}"));
    refuse(format!(
        "--updates with several workers does not support {}{}: {reason}; use one worker, or \
         another algorithm, such as linear-table or count-min",
        config.algorithm,
        before.collect::<String>()
    ))
}

/// Whether no two workers share a flow, for any order of the input.
pub(crate) fn keeps_apart(config: &Config) -> Result<bool, BuildError> {
    let whole = config.updates == EpochLength::Whole;
    Ok(whole && !may_divide(config) && dispatch(config)? != Dispatch::Queue)
}

/// How packets are dispatched: as configured, or as suits the summaries.
fn dispatch(config: &Config) -> Result<Dispatch, BuildError> {
    let fixed = matches!(config.threshold, Threshold::Weight(_));
    // A sampler that skips packets does not need their digests.
    let by_turns = !fixed && sampled(config)?.first() == Some(&true) && laws(config)?.commutable;
    let suits = if by_turns || config.shared { Dispatch::Queue } else { Dispatch::Digest };
    Ok(config.dispatch.unwrap_or(suits))
}

fn laws(config: &Config) -> Result<Laws, BuildError> {
    catalog::accelerated_laws(&config.accelerators, &config.algorithm, &config.parameters)
}

/// For each accelerator, whether it passes on a sample.
fn sampled(config: &Config) -> Result<Vec<bool>, BuildError> {
    let info = |(name, _): &(String, _)| Ok(catalog::accelerator_info(name)?.samples);
    config.accelerators.iter().map(info).collect()
}

/// Refuses summaries that need all packets of all epochs.
fn check(answers: &dyn Answers) -> Result<(), EngineError> {
    if answers.forecasts().is_some() {
        return refuse(
            "several workers do not support state=ewma; leave it out, so that the task changes \
             keeps forecasts, or use one worker"
                .to_owned(),
        );
    }
    check_gaps(answers)
}

/// Refuses times between packets, which several threads cannot measure.
fn check_gaps(answers: &dyn Answers) -> Result<(), EngineError> {
    if answers.quantiles().is_some_and(|quantiles| quantiles.of() == QuantileOf::GapNs) {
        return refuse(
            "the time between packets needs one worker that measures all of them: use one worker"
                .to_owned(),
        );
    }
    Ok(())
}

fn refuse<T>(reason: String) -> Result<T, EngineError> {
    Err(EngineError::Workers(reason))
}
