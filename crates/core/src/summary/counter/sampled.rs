//! Bounds on a weight of which a random sample was seen.

use super::super::Estimate;

/// The two-sided quantile of the normal distribution for [`CONFIDENCE`].
pub(in crate::summary) const Z: f64 = 2.575_829_303_548_901;
/// Probability that the bounds hold.
pub(in crate::summary) const CONFIDENCE: f64 = 0.99;

/// The weight of packets of which each was seen with this probability, those seen weighing
/// `sampled`, and no packet more than `largest`.
///
/// The bounds are Wilson's (JASA 1927) for a binomial number: those means from which the sample is
/// [`Z`] standard deviations away. Packets of unequal weights vary less than as much weight in packets
/// of the largest. What was seen is there for sure.
pub(in crate::summary) fn scaled(sampled: u64, probability: f64, largest: u64) -> Estimate {
    let (unit, seen) = (largest.max(1) as f64, sampled as f64);
    let missed = 1.0 - probability;
    let (count, half) = (seen / unit, Z * Z * missed / 2.0);
    let spread = Z * (missed * (count + Z * Z * missed / 4.0)).sqrt();
    let scale = unit / probability;
    Estimate {
        value: seen / probability,
        low: ((count + half - spread) * scale).max(seen),
        high: (count + half + spread) * scale,
        confidence: Some(CONFIDENCE),
    }
}
