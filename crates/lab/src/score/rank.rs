//! Errors of ranks.

/// The distance of a rank from `q`, given the share `below` before the value and the share `up_to`
/// up to and including it.
pub(super) fn error(q: f64, below: f64, up_to: f64) -> f64 {
    // Equal values share their ranks, so any of them would do; division rounds.
    let error = (below - q).max(q - up_to).max(0.0);
    if error < 1e-12 { 0.0 } else { error }
}

/// The distance of the rank of `value` among these numbers from `q`.
pub(super) fn error_among(sorted: &[u64], q: f64, value: f64) -> f64 {
    let share = |rank: usize| rank as f64 / sorted.len() as f64;
    let below = sorted.partition_point(|&number| (number as f64) < value);
    let up_to = sorted.partition_point(|&number| number as f64 <= value);
    error(q, share(below), share(up_to))
}

/// The `q`-quantile by nearest rank.
pub(super) fn quantile(sorted: &[u64], q: f64) -> u64 {
    // The product is not always an integer where it should be.
    let rank = (q * sorted.len() as f64 - 1e-6).ceil().max(1.0) as usize;
    sorted[rank.min(sorted.len()) - 1]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_of_what_is_there_and_what_is_not() {
        let sorted = [1, 1, 1, 5, 9];
        assert_eq!(quantile(&sorted, 0.6), 1);
        assert_eq!(quantile(&sorted, 0.61), 5);
        assert_eq!((quantile(&sorted, 0.0), quantile(&sorted, 1.0)), (1, 9));
        for q in [0.1, 0.6] {
            assert!(error_among(&sorted, q, 1.0) == 0.0);
        }
        assert!((error_among(&sorted, 0.9, 1.0) - 0.3).abs() < 1e-12);
        assert!((error_among(&sorted, 0.5, 7.0) - 0.3).abs() < 1e-12);
    }
}
