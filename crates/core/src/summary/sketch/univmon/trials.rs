//! The noise of UnivMon's cells, measured by keys that never occurred.

use super::grids::Grids;
use crate::summary::remix::remix;
use crate::summary::sketch::rows::Signed;

/// Number of random digests that stand for these keys, and the word they are made from.
const TRIALS: usize = 1 << 12;
const NOISE_WORD: u64 = 15;

/// What the cells of each depth say of keys that never occurred: 8 bytes for each depth and key.
pub(super) struct Trials {
    levels: usize,
    /// The reads of a key follow one another.
    reads: Vec<f64>,
}

impl Trials {
    pub(super) fn new<C: Signed>(grids: &Grids<C>) -> Self {
        let levels = grids.shape.levels;
        let mut reads = vec![0.0; TRIALS * levels];
        for (trial, reads) in reads.chunks_exact_mut(levels).enumerate() {
            grids.read_all(digest(trial), reads);
        }
        Self { levels, reads }
    }

    /// The mean of a function of a digest and what is read for it at each depth.
    pub(super) fn mean(&self, of: impl Fn(u64, &[f64]) -> f64) -> f64 {
        let trials = self.reads.chunks_exact(self.levels).enumerate();
        trials.map(|(trial, reads)| of(digest(trial), reads)).sum::<f64>() / TRIALS as f64
    }

    /// The standard deviation of sizes, whose mean is 0.
    pub(super) fn deviation(&self, size: impl Fn(u64, &[f64]) -> f64) -> f64 {
        self.mean(|digest, reads| size(digest, reads).powi(2)).sqrt()
    }
}

fn digest(trial: usize) -> u64 {
    remix(trial as u64, NOISE_WORD)
}
