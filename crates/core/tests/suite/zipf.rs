//! Random ranks by Zipf's law, for tests of accuracy.

/// Draws ranks from 0 on; the frequency of rank r is proportional to (r + 1)^−skew.
pub(crate) struct Zipf {
    cumulated: Vec<f64>,
    random: fastrand::Rng,
}

impl Zipf {
    /// A sampler of `ranks` ranks; skew 0 is uniform.
    pub(crate) fn new(ranks: usize, skew: f64, seed: u64) -> Self {
        let mut sum = 0.0;
        let weight = |rank: usize| ((rank + 1) as f64).powf(-skew);
        let cumulated = (0..ranks).map(|rank| {
            sum += weight(rank);
            sum
        });
        Self { cumulated: cumulated.collect(), random: fastrand::Rng::with_seed(seed) }
    }
}

impl Iterator for Zipf {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        let draw = self.random.f64() * self.cumulated.last()?;
        let rank = self.cumulated.partition_point(|below| *below <= draw);
        Some(rank.min(self.cumulated.len() - 1) as u32)
    }
}
