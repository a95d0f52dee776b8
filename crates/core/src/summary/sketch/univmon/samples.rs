//! What the packets of the depths are samples of, and how estimates err for that.

use super::super::super::{Estimate, LevelSample, Sampling};
use super::super::noise::Noise;
use super::MOST_LEVELS;

/// By samples of each row, or of whole packets, whose errors all rows share.
#[derive(Clone, Copy, Default)]
pub(super) struct Samples {
    depths: [LevelSample; MOST_LEVELS],
    /// Weight of all packets.
    total: u64,
    /// Of samples of whole packets, the chance of a larger error than bounds say.
    delta: Option<f64>,
}

impl Samples {
    pub(super) fn new(total: u64, depths: &[LevelSample], delta: Option<f64>) -> Self {
        let mut samples = Self { depths: [LevelSample::default(); MOST_LEVELS], total, delta };
        samples.depths[..depths.len()].copy_from_slice(depths);
        samples
    }

    /// The same for each depth, by samples of each row.
    pub(super) fn of_rows(total: u64, unit: u64) -> Self {
        Self { depths: [LevelSample::steady(unit); MOST_LEVELS], total, delta: None }
    }

    pub(super) fn depth(&self, depth: usize) -> LevelSample {
        self.depths[depth]
    }

    /// The most that the variance of a flow's sampled weight is over that weight; 0 where every packet
    /// counts.
    pub(super) fn unit(&self) -> u64 {
        self.depths.iter().map(|depth| depth.most).max().unwrap_or(0)
    }

    /// Whether there is a sample, or may be one of whole packets once there are more of them.
    pub(super) fn is_sample(&self) -> bool {
        self.unit() > 0 || self.delta.is_some()
    }

    /// How much of a row's variance is left in the median of so many rows: of samples that all rows share,
    /// all of it.
    pub(super) fn left(&self, rows: usize) -> f64 {
        match self.delta {
            Some(_) => 1.0,
            // That of the median of normal numbers, as there are ever more; of few it is less.
            None => (std::f64::consts::FRAC_PI_2 / rows as f64).min(1.0),
        }
    }

    /// The estimate with bounds, where rows err by this `noise` for what collides.
    pub(super) fn bounds(&self, value: f64, noise: Noise, unit: f64, confidence: f64) -> Estimate {
        let unit_of_rows = if self.delta.is_none() { unit } else { 0.0 };
        let (low, high) = Noise { unit: unit_of_rows, ..noise }.bounds(value);
        let estimate = Estimate { value, low, high, confidence: Some(confidence) };
        let sampling = self.delta.and_then(|delta| Sampling::of_packets(unit, 1, delta));
        sampling.map_or(estimate, |sampling| sampling.widen(estimate))
    }

    /// The bounds of a flow of this depth that a sample listed, from those of one that was asked for.
    pub(super) fn listed(
        &self,
        asked: Estimate,
        noise: Noise,
        depth: usize,
        rows: usize,
    ) -> Estimate {
        let unit = self.depths[depth].most as f64;
        let Some(delta) = self.delta else {
            return Noise { unit, ..noise }.listed(asked, self.total, rows);
        };
        let luckiest = Sampling::of_packets(unit, self.total, delta);
        let low = noise.bounds(asked.value).0.max(0.0);
        let low = luckiest.map_or(asked.low, |luckiest| (low - luckiest.error(low)).max(0.0));
        Estimate { low: asked.low.min(low), ..asked }
    }

    /// Clamps an estimate to the total, which is known where there is a sample.
    pub(super) fn within(&self, estimate: Estimate) -> Estimate {
        if self.unit() > 0 { estimate.within(self.total) } else { estimate }
    }

    /// Adds those of another sketch, whose samples may be of the same places.
    pub(super) fn merge(&mut self, other: &Self) {
        self.total = self.total.saturating_add(other.total);
        for (own, other) in self.depths.iter_mut().zip(&other.depths) {
            own.most = own.most.saturating_add(other.most);
            own.mean = own.mean.max(other.mean);
        }
    }
}
