//! Decompounding: from the values of hashed counters to the size distribution of their flows.
//!
//! If flows hash at random to m counters, the value of a counter is compound Poisson: λᵢ flows of
//! size i per counter. The probability P(v) of value v follows by Panjer's recursion, v P(v) = Σ i
//! λᵢ P(v − i). With y_v counters of value v, expectation maximisation repeats λᵢ ← (1/m) Σ_v y_v
//! λᵢ P(v − i)/P(v) until it changes little.

use super::Estimate;

/// The largest value that is decompounded; of larger ones nearly all is one flow. The work grows
/// with its square.
const SMALL: usize = 512;

/// Bins per octave of larger values, 1 % wide each, since there may be as many values as counters.
const PER_OCTAVE: usize = 64;
const LARGE: usize = (u32::BITS - SMALL.ilog2()) as usize * PER_OCTAVE;

/// Counters whose large values are taken to be equal.
#[derive(Clone, Copy, Default)]
struct Bin {
    counters: f64,
    sum: f64,
}

/// The largest number of rounds; most distributions need a third of them.
const ROUNDS: usize = 200;

/// The relative change of the number of flows that ends the rounds.
const SETTLED: f64 = 1e-6;

/// Numbers of flows up to this count as 0.
const NOTHING: f64 = 1e-3;

/// The expected number of flows of each size, by size; above [`SMALL`], sizes are means of bins.
pub(super) fn decompound(values: impl Iterator<Item = u32>) -> Vec<(u64, f64)> {
    let mut histogram =
        Histogram { small: vec![0.0; SMALL + 1], large: vec![Bin::default(); LARGE] };
    values.for_each(|value| histogram.add(value));
    histogram.flows()
}

/// The number of counters by value. It is apart from its values, so that the code exists once.
struct Histogram {
    small: Vec<f64>,
    large: Vec<Bin>,
}

impl Histogram {
    #[inline(never)]
    fn add(&mut self, value: u32) {
        if let Some(counters) = self.small.get_mut(value as usize) {
            *counters += 1.0;
            return;
        }
        let octaves = (f64::from(value) / SMALL as f64).log2();
        let bin = &mut self.large[(octaves * PER_OCTAVE as f64) as usize % LARGE];
        bin.counters += 1.0;
        bin.sum += f64::from(value);
    }

    #[inline(never)]
    fn flows(&self) -> Vec<(u64, f64)> {
        let Self { small, large } = self;
        let larges: f64 = large.iter().map(|bin| bin.counters).sum();
        let counters: f64 = small.iter().sum();
        // If every counter is large, their flows cannot be told apart.
        let rates = if counters > 0.0 { rates(small, counters) } else { vec![0.0; small.len()] };

        // Small flows collide with large ones as often as with each other.
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
}

/// The estimate of a sum over recovered flows. Its error is unknown, so the bounds are those that
/// the counters imply.
pub(super) fn recovered(value: f64, low: f64, high: f64) -> Estimate {
    Estimate::between(low, value.clamp(low, high.max(low)), high.max(low))
}

/// The rates of flows by size that make this histogram of values most likely.
fn rates(histogram: &[f64], counters: f64) -> Vec<f64> {
    let largest = histogram.iter().rposition(|&count| count > 0.0).unwrap_or(0);
    let values = largest + 1;
    // Begin with one flow per counter, plus a little, so that no rate is stuck at 0.
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

/// The probability of each value, by Panjer's recursion.
fn chances_of(rates: &[f64], chances: &mut [f64]) {
    let total: f64 = rates.iter().sum();
    // A common factor cancels in the update, so the smallest positive number may replace 0.
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
    fn counters_without_collisions_are_their_flows() {
        // One flow in a hundred counters.
        let values = (0..100_000).map(|i| if i % 100 == 0 { 1 + i / 100 % 3 } else { 0 });
        let flows = decompound(values);
        let total: f64 = flows.iter().map(|(_, flows)| flows).sum();
        assert!((total - 1000.0).abs() < 15.0, "{flows:?}");
    }

    /// The number of sizes is bounded, however many values there are; the total weight stays, and
    /// large flows are found to 1 %.
    #[test]
    fn large_values_make_a_bounded_number_of_sizes() {
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
