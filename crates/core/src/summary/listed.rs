//! Bounds on flows that a sample itself chose.
//!
//! A bound that holds for 99 of 100 given flows fails for most of the largest ones of a sample, where
//! many flows are small: those are listed that were sampled more often than they should have been.
//! What is said of a list must hold for all of its flows at once, whoever they are.

/// The lower bound on a mean of which `count` was seen: that of the luckiest of `flows` flows is below
/// `count` with this `confidence`.
///
/// Bernstein's inequality: numbers with this mean, whose `variance` is that of a Poisson number or a
/// part of it, are seen as √(2 m v l) + 2 v l / 3 more with a chance of e⁻ˡ, m being the mean and v
/// the variance over it.
pub(crate) fn least_mean(count: f64, variance: f64, flows: f64, confidence: f64) -> f64 {
    let spread = variance * (flows.max(1.0) / (1.0 - confidence)).ln();
    let room = (count - spread / 6.0).max(0.0);
    (room.sqrt() - (spread / 2.0).sqrt()).max(0.0).powi(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of Poisson numbers with means of 0.01 to 300: the chance that some number is seen whose bound
    /// exceeds the mean is the allowed one of a flow, or less.
    #[test]
    fn the_luckiest_flow_is_within_its_bound() {
        for (flows, confidence) in [(1.0, 0.99), (1e6, 0.99), (1e9, 0.95)] {
            for mean in (0..200).map(|step| 0.01 * f64::powf(1.055, f64::from(step))) {
                let (mut chance, mut broken) = (f64::exp(-mean), 0.0);
                for count in 0..2000 {
                    let count = f64::from(count);
                    if least_mean(count, 1.0, flows, confidence) > mean {
                        broken += chance;
                    }
                    chance *= mean / (count + 1.0);
                }
                let allowed = (1.0 - confidence) / flows;
                assert!(broken <= allowed, "{mean} of {flows}: {broken:e} > {allowed:e}");
            }
        }
        // It is of use: of 1,000 in a million flows four fifths are sure.
        assert!(least_mean(1000.0, 1.0, 1e6, 0.99) > 800.0);
    }
}
