//! From the values of counters to the sizes of the flows that met in them.
//!
//! With as many flows as hash at random to m counters, the value of a counter is compound Poisson:
//! flows of size i come at the rate λᵢ. P(v), the chance of the value v, follows by Panjer's
//! recursion, v P(v) = Σ i λᵢ P(v − i), and expectation-maximisation repeats, with y_v counters of
//! value v, λᵢ ← (1/m) Σ_v y_v λᵢ P(v − i)/P(v), until it changes little.

use super::Estimate;

/// Values up to this are decompounded; in larger ones the largest flow is nearly all. The work
/// grows with its square.
const SMALL: usize = 512;

/// Values above are told apart to a 64th of an octave, 1 %: many counters may have values of their
/// own.
const PER_OCTAVE: usize = 64;
const LARGE: usize = (u32::BITS - SMALL.ilog2()) as usize * PER_OCTAVE;

/// Counters with large values that are taken for the same.
#[derive(Clone, Copy, Default)]
struct Bin {
    counters: f64,
    sum: f64,
}

/// Rounds at most; most distributions need a third of them.
const ROUNDS: usize = 200;

/// No more rounds once the number of flows changes by less than this share.
const SETTLED: f64 = 1e-6;

/// Fewer flows than this are no flow.
const NOTHING: f64 = 1e-3;

/// Expected flows of each size, by size; above [`SMALL`] the means of sizes that are nearly equal.
pub(super) fn decompound(values: impl Iterator<Item = u32>) -> Vec<(u64, f64)> {
    let mut small = vec![0.0f64; SMALL + 1];
    let mut large = vec![Bin::default(); LARGE];
    for value in values {
        if let Some(counters) = small.get_mut(value as usize) {
            *counters += 1.0;
            continue;
        }
        let octaves = (f64::from(value) / SMALL as f64).log2();
        let bin = &mut large[(octaves * PER_OCTAVE as f64) as usize % LARGE];
        bin.counters += 1.0;
        bin.sum += f64::from(value);
    }
    let larges: f64 = large.iter().map(|bin| bin.counters).sum();
    let counters: f64 = small.iter().sum();
    // Where every counter is large, there is nothing to tell its flows apart by.
    let rates = if counters > 0.0 { rates(&small, counters) } else { vec![0.0; small.len()] };

    // Small flows met the large ones as often as they met each other.
    let all = counters + larges;
    let mut flows: Vec<f64> = rates.iter().map(|rate| rate * all).collect();
    let beside: f64 = (0..).zip(&rates).map(|(size, rate)| f64::from(size) * rate).sum();
    let mut larger: Vec<(u64, f64)> = Vec::with_capacity(LARGE);
    for bin in large.iter().filter(|bin| bin.counters > 0.0) {
        let size = (bin.sum / bin.counters - beside).round().max(1.0) as u64;
        match (flows.get_mut(size as usize), larger.last_mut()) {
            (Some(flows), _) => *flows += bin.counters,
            (None, Some((last, flows))) if *last == size => *flows += bin.counters,
            _ => larger.push((size, bin.counters)),
        }
    }
    let small = (1..).zip(flows.split_off(1)).filter(|(_, flows)| *flows > NOTHING);
    small.chain(larger).collect()
}

/// The worth of a sum over the recovered flows: nothing bounds it, so nothing is promised beyond what the
/// counters allow.
pub(super) fn recovered(value: f64, low: f64, high: f64) -> Estimate {
    Estimate::between(low, value.clamp(low, high.max(low)), high.max(low))
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
#[expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]
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

    /// However many values there are, what is made of them is bounded; their weight stays, and large
    /// flows are found to 1 %.
    #[test]
    fn large_values_take_no_more_room_than_there_is() {
        let values = (0..400_000u32).map(|i| if i % 2 == 0 { 0 } else { 600 + i * 17 % (1 << 22) });
        let flows = decompound(values.clone());
        assert!(flows.len() <= SMALL + LARGE, "{}", flows.len());
        assert!(flows.is_sorted_by(|a, b| a.0 < b.0));
        let weight: f64 = flows.iter().map(|(size, flows)| *size as f64 * flows).sum();
        let truth: f64 = values.map(f64::from).sum();
        assert!((weight / truth - 1.0).abs() < 0.001, "{weight} {truth}");
        let alone = decompound([0, 0, 0, 1_000_000].into_iter());
        assert_eq!(alone.last().unwrap(), &(1_000_000, 1.0));
    }

    #[test]
    fn the_extremes_end() {
        assert!(decompound(std::iter::empty()).is_empty());
        assert!(decompound([0, 0].into_iter()).is_empty());
        assert_eq!(decompound([u32::MAX, 1 << 20].into_iter()).len(), 2);
        let full: f64 = decompound([500; 64].into_iter()).iter().map(|(_, flows)| flows).sum();
        assert!(full.is_finite());
    }
}
