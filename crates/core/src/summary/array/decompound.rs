//! From the values of counters to the sizes of the flows that met in them.
//!
//! With as many flows as hash at random to m counters, the value of a counter is compound Poisson:
//! flows of size i come at the rate λᵢ. P(v), the chance of the value v, follows by Panjer's
//! recursion, v P(v) = Σ i λᵢ P(v − i), and expectation-maximisation repeats, with y_v counters of
//! value v, λᵢ ← (1/m) Σ_v y_v λᵢ P(v − i)/P(v), until it changes little.

use std::collections::BTreeMap;

/// Values up to this are decompounded; in larger ones the largest flow is nearly all. The work
/// grows with its square.
const SMALL: usize = 512;

/// Rounds at most; most distributions need a third of them.
const ROUNDS: usize = 200;

/// No more rounds once the number of flows changes by less than this share.
const SETTLED: f64 = 1e-6;

/// Fewer flows than this are no flow.
const NOTHING: f64 = 1e-3;

/// Expected flows of each size, by size.
pub(super) fn decompound(values: impl Iterator<Item = u64>) -> Vec<(u64, f64)> {
    let mut small = vec![0.0f64; SMALL + 1];
    let mut large: BTreeMap<u64, f64> = BTreeMap::new();
    for value in values {
        match small.get_mut(value as usize) {
            Some(counters) => *counters += 1.0,
            None => *large.entry(value).or_default() += 1.0,
        }
    }
    let larges: f64 = large.values().sum();
    let counters: f64 = small.iter().sum();
    if counters == 0.0 {
        // Every counter is large: there is nothing to tell its flows apart by.
        return large.into_iter().collect();
    }
    let rates = rates(&small, counters);

    // Small flows met the large ones as often as they met each other.
    let all = counters + larges;
    let mut flows: BTreeMap<u64, f64> = (1..=SMALL as u64)
        .zip(&rates[1..])
        .map(|(size, rate)| (size, rate * all))
        .filter(|(_, flows)| *flows > NOTHING)
        .collect();
    let beside: f64 = (0..).zip(&rates).map(|(size, rate)| f64::from(size) * rate).sum();
    for (value, number) in large {
        let size = value - (beside.round() as u64).min(value - 1);
        *flows.entry(size).or_default() += number;
    }
    flows.into_iter().collect()
}

/// The rates of flows by size, which make such a histogram of values likeliest.
fn rates(histogram: &[f64], counters: f64) -> Vec<f64> {
    let largest = histogram.iter().rposition(|&count| count > 0.0).unwrap_or(0);
    let values = largest + 1;
    // To begin with, each counter is one flow; spread so thin that no rate is 0 that need not be.
    let mut rates = vec![0.0; histogram.len()];
    for size in 1..values {
        rates[size] = (histogram[size] + 1e-3) / counters;
    }
    let mut chances = vec![0.0; values];
    let mut weights = vec![0.0; values];
    let mut total: f64 = rates.iter().sum();
    for _ in 0..ROUNDS {
        chances_of(&rates, &mut chances);
        for value in 0..values {
            let chance = chances[value];
            weights[value] = if chance > 0.0 { histogram[value] / chance } else { 0.0 };
        }
        for size in 1..values {
            let share: f64 =
                weights[size..].iter().zip(&chances).map(|(weight, chance)| weight * chance).sum();
            rates[size] *= share / counters;
        }
        let now: f64 = rates.iter().sum();
        if (now - total).abs() <= SETTLED * now {
            break;
        }
        total = now;
    }
    rates
}

/// The chance of each value, by Panjer's recursion.
fn chances_of(rates: &[f64], chances: &mut [f64]) {
    let total: f64 = rates.iter().sum();
    // A common factor cancels in the update, so that it may be larger than it is.
    chances[0] = (-total).exp().max(f64::MIN_POSITIVE);
    for value in 1..chances.len() {
        let sum: f64 =
            (1..=value).map(|size| size as f64 * rates[size] * chances[value - size]).sum();
        chances[value] = sum / value as f64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_of_no_collision_are_their_flows() {
        // One flow in a hundred counters.
        let values = (0..100_000).map(|i| if i % 100 == 0 { 1 + i / 100 % 3 } else { 0 });
        let flows = decompound(values);
        let total: f64 = flows.iter().map(|(_, flows)| flows).sum();
        assert!((total - 1000.0).abs() < 15.0, "{flows:?}");
    }

    #[test]
    fn the_extremes_end() {
        assert!(decompound(std::iter::empty()).is_empty());
        assert!(decompound([0, 0].into_iter()).is_empty());
        assert_eq!(decompound([u64::MAX, 1 << 40].into_iter()).len(), 2);
        let full: f64 = decompound([500; 64].into_iter()).iter().map(|(_, flows)| flows).sum();
        assert!(full.is_finite());
    }
}
