//! How good answers are: errors, flows named, bounds that held.

mod judge;
mod rank;
mod truth;

use flowgauge_core::summary::Estimate;

pub(crate) use judge::judge;
pub(crate) use truth::Truth;

/// How many of something failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Bounds {
    /// Those that failed.
    pub(crate) broken: u64,
    /// All of them.
    pub(crate) asked: u64,
}

/// What is known of an algorithm's answers to a task, over some streams.
#[derive(Clone, Debug, Default)]
pub(crate) struct Score {
    /// Streams with an answer.
    pub(crate) answered: u64,
    errors: u64,
    /// Errors with a sign.
    signed: u64,
    sum: f64,
    squares: f64,
    worst: f64,
    named: u64,
    right: u64,
    wanted: u64,
    /// Bounds that hold always.
    pub(crate) sure: Bounds,
    /// Bounds that hold with a probability.
    pub(crate) likely: Bounds,
    /// The lowest of these probabilities.
    pub(crate) confidence: Option<f64>,
}

impl Score {
    /// Takes the error of an estimate as a share of the truth.
    fn relative(&mut self, estimate: f64, truth: f64) {
        if truth != 0.0 {
            let error = (estimate - truth) / truth.abs();
            self.signed += 1;
            self.sum += error;
            self.error(error.abs());
        }
    }

    /// Takes an error that has no sign.
    fn error(&mut self, error: f64) {
        self.errors += 1;
        self.squares += error * error;
        self.worst = self.worst.max(error);
    }

    /// Takes the number of flows that were named, of those that were rightly so, and of all that
    /// should have been.
    fn names(&mut self, named: usize, right: usize, wanted: usize) {
        self.named += named as u64;
        self.right += right as u64;
        self.wanted += wanted as u64;
    }

    /// Looks whether an estimate's bounds hold. Those with a probability count only where they are said
    /// to hold of the `flow`: of addresses and prefixes that are named for their estimates too large ones
    /// come first, and what holds of a given one does not hold of these.
    fn bound(&mut self, estimate: &Estimate, truth: f64, flow: bool) {
        // Sums of logarithms are rounded.
        let rounding = 1e-9 * (1.0 + truth.abs());
        let holds = estimate.low - rounding <= truth && truth <= estimate.high + rounding;
        let bounds = match estimate.confidence {
            None => &mut self.sure,
            Some(_) if !flow => return,
            Some(confidence) => {
                let lowest = self.confidence.map_or(confidence, |lowest| lowest.min(confidence));
                self.confidence = Some(lowest);
                &mut self.likely
            }
        };
        bounds.asked += 1;
        bounds.broken += u64::from(!holds);
    }

    /// The mean error.
    pub(crate) fn bias(&self) -> Option<f64> {
        (self.signed > 0).then(|| self.sum / self.signed as f64)
    }

    /// The root of the mean squared error.
    pub(crate) fn rms(&self) -> Option<f64> {
        (self.errors > 0).then(|| (self.squares / self.errors as f64).sqrt())
    }

    /// The largest error.
    pub(crate) fn worst(&self) -> Option<f64> {
        (self.errors > 0).then_some(self.worst)
    }

    /// The share of flows that were rightly named, of those named.
    pub(crate) fn precision(&self) -> Option<f64> {
        (self.named > 0).then(|| self.right as f64 / self.named as f64)
    }

    /// The share of flows that were named, of those that should have been.
    pub(crate) fn recall(&self) -> Option<f64> {
        (self.wanted > 0).then(|| self.right as f64 / self.wanted as f64)
    }
}
