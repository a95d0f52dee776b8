//! How far a size decoded at saturation may be from the truth.
//!
//! A flow that is alone in its words is let through after waits of `UNIT` packets in the mean, with
//! the variance of sums of coupon collector's waits, and then has a part of a wait behind it, which
//! its marks tell. Where all marks of its words are other flows', each of its packets is let through
//! with a chance of 1 / `UNIT`, whatever came before: its number is a Poisson number, and the marks
//! tell nothing of it. Between these two, variance and remainder are taken in proportion to the share
//! of other flows' marks.

use super::super::estimate::least_mean;
use super::super::{Estimate, SizeEstimate};
use crate::terms::Size;

/// Standard deviations either way.
const DEVIATIONS: f64 = 2.0;

/// The chance that both bounds hold.
const CONFIDENCE: f64 = 0.95;

/// What the relative variance of bytes over that of packets is taken for, per packet let through:
/// with packets of mixed sizes on the wire the standard deviation is 1.22 where n = `UNIT`.
const SIZE_VARIANCE: f64 = 1.22 * 1.22;

/// What is known of a flow beside what was let through.
pub(super) struct Flow {
    /// Packets that one which was let through stands for.
    pub(super) unit: f64,
    /// The relative variance of a wait without other flows.
    pub(super) variance: f64,
    /// The size of all flows.
    pub(super) total: Size,
    /// Packets that the marks on the flow's vectors would be, were they all its own.
    pub(super) behind: f64,
    /// Marks of all packets that fall on the flow's vector, in the mean.
    pub(super) marks: f64,
    /// Regulators that its packets went through: more than one after a merge.
    pub(super) regulators: f64,
    /// Bytes of the longest packet seen.
    pub(super) longest: f64,
    /// What it may have lost to evictions and full counters, let-through packets and their bytes.
    pub(super) lost: (f64, f64),
}

/// The number of waits whose mean is `deviation` standard deviations from `count`, above it or
/// (negative) below.
fn waits(count: f64, variance: f64, deviation: f64) -> f64 {
    let half = deviation * variance.sqrt() / 2.0;
    let root = half + (half * half + count.max(0.0)).sqrt();
    root.max(0.0).powi(2)
}

impl Flow {
    /// Share of the marks on the flow's vector that are other flows', when `count` packets of its
    /// own were let through.
    fn foreign(&self, count: f64) -> f64 {
        self.marks / (self.marks + self.unit * count.max(1.0))
    }

    fn variance(&self, foreign: f64) -> f64 {
        self.variance + (1.0 - self.variance) * foreign
    }

    /// Packets of the flow that are likely behind, when `count` of its own were let through: no more
    /// than the wait of a flow that is alone, and none of a flow that was never let through, of which
    /// nothing is known.
    fn likely_behind(&self, count: f64) -> f64 {
        if count > 0.0 { (1.0 - self.foreign(count)) * self.behind.min(self.unit) } else { 0.0 }
    }

    /// The size of a given flow of which `count` packets of `bytes` bytes in all were let through.
    pub(super) fn size(&self, (count, bytes): (f64, f64)) -> SizeEstimate {
        SizeEstimate { packets: Some(self.packets(count)), bytes: Some(self.bytes(count, bytes)) }
    }

    /// The same of a flow that was chosen by what was let through, as those listed are: its lower
    /// bounds are those of the luckiest flow.
    pub(super) fn listed(&self, (count, bytes): (f64, f64)) -> SizeEstimate {
        let variance = self.variance(self.foreign(count));
        let least = |variance: f64| {
            self.unit * least_mean(count, variance, self.total.packets as f64, CONFIDENCE)
        };
        let mean = if count > 0.0 { bytes / count } else { 0.0 };
        let of_bytes = mean * least(variance - self.variance + SIZE_VARIANCE);
        let lower = |estimate: Estimate, sure: f64, seen: f64| {
            Some(Estimate { low: sure.max(seen).min(estimate.low), ..estimate })
        };
        SizeEstimate {
            packets: lower(self.packets(count), least(variance), count),
            bytes: lower(self.bytes(count, bytes), of_bytes, bytes),
        }
    }

    /// Packets of a flow of which `count` were let through, surely at least as many.
    fn packets(&self, count: f64) -> Estimate {
        let foreign = self.foreign(count);
        let (own, variance) = (1.0 - foreign, self.variance(foreign));
        let low = waits(count - self.regulators * foreign, variance, -DEVIATIONS);
        let high = waits(count + self.regulators * own + self.lost.0, variance, DEVIATIONS);
        let value = self.unit * count + self.likely_behind(count);
        Estimate {
            value,
            low: (self.unit * low).max(count).min(value),
            high: self.unit * high,
            confidence: Some(CONFIDENCE),
        }
        .within(self.total.packets)
    }

    /// Bytes of such a flow, when those that were let through had `bytes` bytes in all.
    fn bytes(&self, count: f64, bytes: f64) -> Estimate {
        let foreign = self.foreign(count);
        let variance = self.variance(foreign) - self.variance + SIZE_VARIANCE;
        let mean = if count > 0.0 { bytes / count } else { 0.0 };
        let low = mean * waits(count - self.regulators * foreign, variance, -DEVIATIONS);
        // The remainder may be of the longest packets, whatever those let through were.
        let remainder = self.longest * self.regulators + self.lost.1;
        let high = mean * waits(count, variance, DEVIATIONS) + remainder;
        let most = self.packets(count).high * self.longest;
        let value = self.unit * bytes + mean * self.likely_behind(count);
        Estimate {
            value,
            low: (self.unit * low).max(bytes).min(value),
            high: (self.unit * high).min(most).max(value),
            confidence: Some(CONFIDENCE),
        }
        .within(self.total.bytes)
    }
}
