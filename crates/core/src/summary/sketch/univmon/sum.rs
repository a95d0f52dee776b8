//! Sums over the flows, by UnivMon's recursion.
//!
//! Let Y be the sum over a level, and Y' over the next one, which has each flow with a chance of
//! one half. The heavy keys of the level are known; of the others, 2·(Y' without heavy keys) is an
//! estimate. So Y = 2·Y' + Σ (1 − 2·b)·g(f) over the heavy keys, b being 1 for those that are in
//! the next level. A level whose heap is not full has all of its flows in it, and ends the recursion.

use super::super::cell::Signed;
use super::{Estimate, UniversalSketch};
use crate::key::FlowKey;

/// Standard errors on either side; sums of many random signs leave three one time in 300, and the
/// standard error is itself an estimate.
const DEVIATIONS: f64 = 3.0;
const CONFIDENCE: f64 = 0.95;

impl<K: FlowKey, C: Signed> UniversalSketch<K, C> {
    /// Σ g(f) over the flows, for a function that does not fall from f = 1 on; `None` where the
    /// deepest level has more flows than it keeps keys.
    ///
    /// The standard error has three parts, a level's doubled by each level above. Flows that the
    /// heap lacks add or take away their g, which is at most the heap's least: the squares sum to
    /// at most that least times the level's sum without its heap. The sizes of those in the heap
    /// are off by the sketch's noise. And of the flows that would not be in the heap, noise brings
    /// those there that it makes large.
    pub fn sum(&self, g: impl Fn(f64) -> f64) -> Option<Estimate> {
        let last = self.levels.iter().position(|level| !level.top.is_full())?;
        let (mut sum, mut flows, mut variance, mut surely) = (0.0, 0.0, 0.0, 0.0);
        for number in (0..=last).rev() {
            let level = &self.levels[number];
            let noise = level.mean_over_noise(|noise| noise * noise).sqrt();
            let (mut heavy, mut signed, mut known, mut balance) = (0.0, 0.0, 0.0, 0.0);
            let mut least = f64::INFINITY;
            variance *= 4.0;
            for (key, digest) in level.top.iter() {
                let size = level.size(digest).max(1.0);
                let value = g(size);
                let deeper = number < last && self.depth(key.digest(&self.digester)) > number;
                let sign = if deeper { -1.0 } else { 1.0 };
                heavy += value;
                signed += sign * value;
                known += 1.0;
                balance += sign;
                least = size.min(least);
                variance += (g(size + noise) - value).powi(2);
            }
            sum = 2.0 * sum + signed;
            flows = 2.0 * flows + balance;
            if number < last {
                let made_large = |noise: f64| if noise > least { g(noise).powi(2) } else { 0.0 };
                variance += g(least) * f64::max(sum - heavy, 0.0);
                variance += f64::max(flows - known, 0.0) * level.mean_over_noise(made_large);
            }
            surely = heavy;
        }
        let margin = DEVIATIONS * f64::sqrt(variance);
        let low = (sum - margin).max(surely.min(sum));
        let confidence = Some(CONFIDENCE);
        Some(Estimate { value: sum, low, high: sum + margin, confidence })
    }
}
