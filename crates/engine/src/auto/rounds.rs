//! Which candidates are tried, and how long.
//!
//! All of them for a moment, those that are not much slower than the fastest over all of the sample, and
//! those that are nearly as fast several times. Where none of these fits in the end, the next ones
//! get their turn.

use super::candidate::Candidate;
use super::trial::Trial;
use super::{Outlook, Reason, Sample, Tried, Wanted, trial};
use crate::config::Config;
use crate::error::EngineError;
use flowgauge_core::sorting::sort_by;

/// Nanoseconds that the trials of each round but the first take together.
const TIME_NS: f64 = 0.4e9;

/// Packets of the sample that every candidate is tried on.
const MOMENT: usize = 1 << 14;

/// Of candidates that are so many times slower than the fastest only a moment is seen.
const SECOND: f64 = 2.0;

/// And of those that are so many times slower one trial more.
const FINAL: f64 = 1.3;

/// Candidates of the last round, at most, and how often each is tried there.
const FINALISTS: usize = 8;
const TURNS: usize = 5;

/// What all trials have in common.
pub(super) struct Trials<'a> {
    pub(super) asked: &'a Config,
    pub(super) sample: Sample,
    pub(super) wanted: Wanted,
    pub(super) outlook: Outlook,
}

impl Trials<'_> {
    /// Tries everything that can answer. Those without a reason against them were tried for longest.
    pub(super) fn all(mut self) -> Result<Vec<Tried>, EngineError> {
        let (length, moment) = (self.sample.len(), self.sample.len().min(MOMENT));
        let packets = 2 * moment as u64;
        // What cannot answer is refused here, with all that the plan knows. The first time is a warm-up.
        let mut tried = Vec::new();
        for candidate in Candidate::all(self.wanted.error) {
            if let Ok(trial) = self.one(&candidate, moment, packets) {
                tried.push(self.tried(candidate, &trial));
            }
        }
        self.round(&mut tried, moment, packets, 2)?;
        // Bounds are relative to the packets so far, and errors of samples grow with their root.
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

    /// Tries a candidate on the first `packets` packets, over and over until they are `all`.
    fn one(
        &mut self,
        candidate: &Candidate,
        packets: usize,
        all: u64,
    ) -> Result<Trial, EngineError> {
        let (config, largest) = (candidate.config(self.asked), self.outlook.flows.largest);
        trial::run(&config, &mut self.sample, largest, packets, all)
    }

    /// What came of trying a candidate.
    fn tried(&self, candidate: Candidate, trial: &Trial) -> Tried {
        Tried::new(candidate, trial, &self.wanted, &self.outlook.lanes)
    }

    /// Tries these so many times, by turns.
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

    /// Packets that there is time for, with all of these so many times: the epoch's at most, and else all
    /// of the sample at least.
    fn affordable(&self, tried: &[Tried], turns: usize) -> u64 {
        let sum_ns: f64 = tried.iter().map(|one| one.ns).sum();
        let most = (TIME_NS / (sum_ns * turns as f64)).max(self.sample.len() as f64);
        most.min(self.outlook.packets).max(1.0) as u64
    }
}

/// Whether it may be chosen, or is the fastest at least.
fn fits(one: &Tried) -> bool {
    matches!(one.reason, None | Some(Reason::Slow))
}

/// Those that go on, by their time: at most so many, and less than `times` slower than the fastest that
/// fits. The others that fit are slower.
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
