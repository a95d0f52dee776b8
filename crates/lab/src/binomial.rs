//! Binomial limits on how many confidence bounds may fail.

/// Probability that a row of correct bounds is flagged, if bounds were independent and seeds not
/// fixed.
pub(crate) const FALSE_ALARM: f64 = 1e-6;

/// The smallest number of bounds, each failing with this probability, for which too many failures
/// are possible at all.
pub(crate) fn enough_to_judge(probability: f64) -> u64 {
    let mut asked = 1;
    while probability < 1.0 && most_failures(asked, probability) == asked {
        asked += 1;
    }
    asked
}

/// The largest number of failures among `asked` bounds, each failing with this probability. More
/// occur with a probability of at most [`FALSE_ALARM`].
pub(crate) fn most_failures(asked: u64, probability: f64) -> u64 {
    if probability <= 0.0 {
        return 0;
    }
    if probability >= 1.0 {
        return asked;
    }
    // Terms from the top down, smallest first: ln P(X = k), by the ratio of neighbouring terms.
    let (n, odds) = (asked as f64, (1.0 - probability).ln() - probability.ln());
    let mut log = n * probability.ln();
    let mut tail = 0.0;
    for failures in (1..=asked).rev() {
        tail += log.exp();
        if tail > FALSE_ALARM {
            return failures;
        }
        let k = failures as f64;
        log += odds + k.ln() - (n - k + 1.0).ln();
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares with sums of the probability's terms, from zero failures up.
    #[test]
    fn the_tail_is_the_binomial_one() {
        for (asked, probability) in [(20_u64, 0.05), (100, 0.05), (1000, 0.01), (300, 0.3)] {
            let most = most_failures(asked, probability);
            let mut term = (1.0_f64 - probability).powi(asked as i32);
            let mut below = 0.0;
            for k in 0..most {
                below += term;
                term *= (asked - k) as f64 / (k + 1) as f64 * probability / (1.0 - probability);
            }
            // Tolerance for rounding near 1.
            assert!(
                1.0 - below > FALSE_ALARM * 0.999,
                "{asked} {probability}: {most} are too many"
            );
            assert!(1.0 - below - term <= FALSE_ALARM * 1.001, "{asked} {probability}: {most}");
        }
    }

    #[test]
    fn edges() {
        assert_eq!(most_failures(0, 0.05), 0);
        assert_eq!(most_failures(1, 0.05), 1);
        assert_eq!(most_failures(1000, 0.0), 0);
        assert_eq!(most_failures(7, 1.0), 7);
        // 0.05⁴ is 6 × 10⁻⁶, and 0.002² 4 × 10⁻⁶.
        assert_eq!(enough_to_judge(0.05), 5);
        assert_eq!(enough_to_judge(0.002), 3);
    }
}
