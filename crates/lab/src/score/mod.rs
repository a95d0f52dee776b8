//! Scores of answers: errors, listed flows, and bounds that held.

mod judge;
mod rank;
mod truth;

use flowgauge_core::summary::Estimate;

pub(crate) use judge::judge;
pub(crate) use truth::Truth;

/// How many bounds failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Bounds {
    /// Failed ones.
    pub(crate) broken: u64,
    /// All of them.
    pub(crate) asked: u64,
}

/// The score of an algorithm at a task, over several streams.
#[derive(Clone, Debug, Default)]
pub(crate) struct Score {
    /// Streams with an answer.
    pub(crate) answered: u64,
    errors: u64,
    /// Signed errors.
    signed: u64,
    sum: f64,
    squares: f64,
    worst: f64,
    named: u64,
    right: u64,
    wanted: u64,
    /// Bounds that always hold.
    pub(crate) sure: Bounds,
    /// Bounds that hold with a probability.
    pub(crate) likely: Bounds,
    /// The lowest of these probabilities.
    pub(crate) confidence: Option<f64>,
}

impl Score {
    /// Adds the relative error of an estimate.
    fn relative(&mut self, estimate: f64, truth: f64) {
        if truth != 0.0 {
            let error = (estimate - truth) / truth.abs();
            self.signed += 1;
            self.sum += error;
            self.error(error.abs());
        }
    }

    /// Adds an unsigned error.
    fn error(&mut self, error: f64) {
        self.errors += 1;
        self.squares += error * error;
        self.worst = self.worst.max(error);
    }

    /// Adds the number of listed flows, of correctly listed ones, and of those that should be
    /// listed.
    fn names(&mut self, named: usize, right: usize, wanted: usize) {
        self.named += named as u64;
        self.right += right as u64;
        self.wanted += wanted as u64;
    }

    /// Checks an estimate's bounds. Bounds with a probability count only if they are for a given
    /// `flow`. Lists of addresses and prefixes are selected by their estimates and favour
    /// overestimates, so the stated probability does not apply to them.
    fn bound(&mut self, estimate: &Estimate, truth: f64, flow: bool) {
        // Sums of logarithms have rounding errors.
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

    /// The root mean square error.
    pub(crate) fn rms(&self) -> Option<f64> {
        (self.errors > 0).then(|| (self.squares / self.errors as f64).sqrt())
    }

    /// The largest error.
    pub(crate) fn worst(&self) -> Option<f64> {
        (self.errors > 0).then_some(self.worst)
    }

    /// The share of listed flows that are correct.
    pub(crate) fn precision(&self) -> Option<f64> {
        (self.named > 0).then(|| self.right as f64 / self.named as f64)
    }

    /// The share of wanted flows that are listed.
    pub(crate) fn recall(&self) -> Option<f64> {
        (self.wanted > 0).then(|| self.right as f64 / self.wanted as f64)
    }
}
