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
/// of the largest. The normal distribution is too light where few are seen: with the lower bound of
/// one packet less, the bounds hold as often as they say for any number of packets. What was seen is
/// there for sure.
pub(in crate::summary) fn scaled(sampled: u64, probability: f64, largest: u64) -> Estimate {
    let (unit, seen) = (largest.max(1) as f64, sampled as f64);
    let missed = 1.0 - probability;
    let (count, half) = (seen / unit, Z * Z * missed / 2.0);
    let spread = |count: f64| Z * (missed * (count + Z * Z * missed / 4.0)).sqrt();
    let (below, scale) = ((count - 1.0).max(0.0), unit / probability);
    Estimate {
        value: seen / probability,
        low: ((below + half - spread(below)) * scale).max(seen),
        high: (count + half + spread(count)) * scale,
        confidence: Some(CONFIDENCE),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The chance that the bounds hold for a flow of so many packets, summed over all samples.
    fn coverage(packets: u32, probability: f64) -> f64 {
        let (mut chance, mut held) = ((1.0 - probability).powf(packets.into()), 0.0);
        for sampled in 0..=packets {
            let bounds = scaled(sampled.into(), probability, 1);
            if bounds.low <= packets.into() && f64::from(packets) <= bounds.high {
                held += chance;
            }
            chance *= f64::from(packets - sampled) / f64::from(sampled + 1) * probability
                / (1.0 - probability);
        }
        held
    }

    #[test]
    fn bounds_hold_as_often_as_they_say_for_flows_of_any_size() {
        for probability in [0.5, 0.1, 0.01, 0.001] {
            for packets in (1..=100).chain((110..1000).step_by(10)) {
                let coverage = coverage(packets, probability);
                assert!(coverage >= CONFIDENCE, "{packets} at {probability}: {coverage}");
            }
        }
    }
}
