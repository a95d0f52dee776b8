//! Answers of UnivMon: sizes, heavy keys, and sums over all flows by its recursion.
//!
//! Let Y be the sum over a level, and Y' the sum over the next one, which has each flow with a
//! chance of one half. The heavy keys of the level are known. For the others, 2·(Y' without heavy
//! keys) is an estimate. So Y = 2·Y' + Σ (1 − 2·b)·g(f) over the heavy keys, with b = 1 for keys in
//! the next level. A level none of whose heaps is full has all of its flows in them, and ends the
//! recursion.
//!
//! The heavy keys of a level are those over a threshold that all keys outside of its heaps are
//! below. Noise cancels out only if it does not depend on whether a key is in the next level, too.
//! But it does: keys that are not in the next level have cells of their own, and may be sampled at
//! another rate. So sizes near the threshold are read with equal noise on either side. The
//! recursion ends at depths where every packet was counted, since a sample knows few of the flows.

use super::grids::{Grids, noise};
use super::trials::Trials;
use super::{MOST_LEVELS, TopKeys, UniversalSketch};
use crate::key::{CanonicalKey, FlowKey};
use crate::summary::remix::remix;
use crate::summary::sketch::rows::{Noise, Signed};
use crate::summary::{
    Answers, Candidates, Cells, Counter, Estimate, LevelSample, Sampling, SizeEstimate, SizeQuery,
};
use crate::terms::{Measure, Size};

/// Width of the bounds in standard errors. Sums of many random signs exceed three one time in 300,
/// and the standard error is itself an estimate.
const DEVIATIONS: f64 = 3.0;
const CONFIDENCE: f64 = 0.95;

/// Distance of the threshold from the estimates of keys outside of the heaps, in standard
/// deviations of the noise. Few keys that exceed it had a lower estimate at their last packet.
const ABOVE: f64 = 2.0;

/// A size is near the threshold up to this multiple of it.
const NEAR: f64 = 8.0;

/// Fewest sampled packets of a flow at the threshold, so that its size errs nearly by the normal
/// law.
const SAMPLED: f64 = 8.0;

/// The word that a key's added noise is made from.
const ADDED_NOISE_WORD: u64 = 14;

impl<K: FlowKey, C: Signed> UniversalSketch<K, C> {
    /// Σ g(f) over the flows, for a function that does not decrease from f = 1 on. `None` if the
    /// deepest level has more flows than it keeps keys.
    ///
    /// The standard error has four parts; a level's are doubled by each level above. Flows that are
    /// not heavy add or remove their g, which is at most the threshold's: the squares add up to at
    /// most that times the level's sum without its heavy keys. The sizes of heavy keys err by the
    /// noise of the cells, and by that of their samples. And noise makes some flows heavy that are
    /// not.
    ///
    /// ```
    /// use flowgauge_core::batch::Batch;
    /// use flowgauge_core::catalog;
    /// use flowgauge_core::key::{FlowKey, Key8};
    /// use flowgauge_core::summary::{Options, sketch::UniversalSketch};
    ///
    /// let options = Options::new(4 << 20, 1).for_keys(4);
    /// let mut univmon = catalog::build::<Key8>("univmon", &options).unwrap();
    /// let mut batch = Batch::new();
    /// for packet in 0..200 {
    ///     batch.push(Key8::from_canonical(&[10, 0, 0, packet % 50]).unwrap(), 64, 0);
    /// }
    /// univmon.ingest(&mut batch);
    /// let univmon: &UniversalSketch<Key8, i32> = univmon.downcast_ref().unwrap();
    /// let squares = univmon.sum(&|size| size * size).unwrap();
    /// assert!((squares.value - 50.0 * 16.0).abs() < 10.0);
    /// ```
    pub fn sum(&self, g: &dyn Fn(f64) -> f64) -> Option<Estimate> {
        self.levels().sum(g)
    }

    /// The sums that tasks ask for, several of them in each report.
    fn sums(&self) -> &Sums {
        self.grids.sums(|| self.levels().sums())
    }

    fn levels(&self) -> Levels<'_, C> {
        let top = |(depth, top): (usize, &TopKeys<K>)| Top {
            keys: top.iter().map(|(_, digest)| (digest, self.grids.read(digest, depth))).collect(),
            is_full: top.is_full(),
            floor: top.floor() as f64,
        };
        let tops = self.tops.iter().enumerate().map(top).collect();
        Levels {
            grids: &self.grids,
            samples: &self.samples,
            tops,
            trials: Trials::new(&self.grids),
        }
    }
}

/// Sums over the flows: their number, their weight f, and f log₂ f.
pub(super) struct Sums {
    flows: Option<Estimate>,
    weight: Option<Estimate>,
    weight_logs: Option<Estimate>,
}

/// The heavy keys of a depth.
struct Top {
    /// The digest of each key, and the size read for it at its depth.
    keys: Vec<(u64, f64)>,
    is_full: bool,
    /// Bound on the estimates of other keys.
    floor: f64,
}

/// What sums need, for keys of any kind.
struct Levels<'a, C> {
    grids: &'a Grids<C>,
    samples: &'a Samples,
    tops: Vec<Top>,
    trials: Trials,
}

impl<C: Signed> Levels<'_, C> {
    #[inline(never)]
    fn sums(&self) -> Sums {
        Sums {
            flows: self.sum(&|_| 1.0),
            weight: self.sum(&|size| size),
            weight_logs: self.sum(&|size| size * size.log2()),
        }
    }

    /// [`UniversalSketch::sum`].
    #[inline(never)]
    fn sum(&self, g: &dyn Fn(f64) -> f64) -> Option<Estimate> {
        let depths = 0..self.tops.len();
        let samples = self.samples;
        let is_whole =
            |depth: &usize| !self.tops[*depth].is_full && samples.depth(*depth).most == 0;
        let last = depths.clone().rev().take_while(is_whole).last()?;
        let left = samples.variance_left(self.grids.shape.first.rows());
        let trials = &self.trials;
        let noise_of = |depth: usize| trials.deviation(|_, reads| reads[depth]);
        let noise: Vec<f64> = depths.map(noise_of).collect();
        let (mut sum, mut flows, mut variance, mut surely) = (0.0, 0.0, 0.0, 0.0);
        let (mut floor, mut unit, mut most) = (0.0f64, 0.0f64, 0.0f64);
        for level in (0..=last).rev() {
            let is_last = level == last;
            // The variance that samples add to a size, divided by that size, in the noisiest depth.
            unit = unit.max(left * samples.depth(level).mean);
            most = most.max(left * samples.depth(level).most as f64);
            floor = floor.max(self.tops[level].floor).max(SAMPLED * unit);
            let near = |digest, read: &dyn Fn(usize) -> f64| {
                if is_last { 0.0 } else { self.read_near(digest, level, &noise, read) }
            };
            let at_random = |digest, reads: &[f64]| near(digest, &|depth| reads[depth]);
            let noise_near = trials.deviation(at_random);
            let about = f64::hypot(noise_near, (unit * floor).sqrt());
            let threshold = if is_last { f64::NEG_INFINITY } else { floor + ABOVE * about };
            let (mut heavy, mut signed, mut known, mut balance) = (0.0, 0.0, 0.0, 0.0);
            let mut of_sizes = 0.0;
            for (depth, top) in self.tops.iter().enumerate().skip(level) {
                let sign = if depth > level && !is_last { -1.0 } else { 1.0 };
                let lacks = floor * (unit - left * samples.depth(depth).mean);
                for &(digest, own) in &top.keys {
                    let read = |at| if at == depth { own } else { self.grids.read(digest, at) };
                    let added = if lacks > 0.0 { lacks.sqrt() * normal(digest) } else { 0.0 };
                    let (mut size, mut noise_of_size) = (near(digest, &read) + added, noise_near);
                    let mut most = most;
                    if size <= threshold {
                        continue;
                    }
                    if is_last || size > NEAR * threshold {
                        (size, noise_of_size) = (own, noise[depth]);
                        most = left * samples.depth(depth).most as f64;
                    }
                    let noise_of_size = f64::hypot(noise_of_size, (most * size.max(0.0)).sqrt());
                    let value = g(size.max(1.0));
                    heavy += value;
                    signed += sign * value;
                    known += 1.0;
                    balance += sign;
                    of_sizes += (g(size.max(1.0) + noise_of_size) - value).powi(2);
                }
            }
            variance = 4.0 * variance + of_sizes;
            sum = 2.0 * sum + signed;
            flows = 2.0 * flows + balance;
            if !is_last {
                let least = threshold.max(1.0);
                // A flow weighs at least 1.
                let square = |digest, reads: &[f64]| {
                    let size = at_random(digest, reads) + 1.0;
                    if size > least { g(size).powi(2) } else { 0.0 }
                };
                variance += g(least) * f64::max(sum - heavy, 0.0);
                variance += f64::max(flows - known, 0.0) * trials.mean(square);
            }
            surely = heavy - DEVIATIONS * f64::sqrt(of_sizes);
        }
        let margin = DEVIATIONS * f64::sqrt(variance);
        let low = (sum - margin).max(surely.min(sum));
        let confidence = Some(CONFIDENCE);
        Some(Estimate { value: sum, low, high: sum + margin, confidence })
    }

    /// The size read for a key of `level` near the threshold. A key of this depth might have been
    /// deeper, and vice versa. The noise of both depths is known, and a key at the less noisy one
    /// gets the missing noise added.
    fn read_near(
        &self,
        digest: u64,
        level: usize,
        noise: &[f64],
        read: &dyn Fn(usize) -> f64,
    ) -> f64 {
        let shape = &self.grids.shape;
        let (mut own, mut other) = (level, shape.depth_from(digest, level + 1));
        if shape.depth(digest) > level {
            (own, other) = (other, own);
        }
        let lacks = 1.0 - (noise[own] / noise[other]).powi(2);
        if lacks > 0.0 { read(own) + lacks.sqrt() * read(other) } else { read(own) }
    }
}

/// A pseudo-random number from a digest with nearly the standard normal distribution: the sum of
/// four numbers from 0 to 1 has the mean 2 and the variance 1/3.
fn normal(digest: u64) -> f64 {
    let random = remix(digest, ADDED_NOISE_WORD);
    let sum: u64 = (0..4).map(|part| random >> (16 * part) & 0xffff).sum();
    (sum as f64 / 65536.0 - 2.0) * 3.0f64.sqrt()
}

impl<K: FlowKey, C: Signed> Answers for UniversalSketch<K, C> {
    fn saturated(&self) -> Size {
        Size::of(C::Weight::MEASURE, self.grids.saturated)
    }

    fn size(&self) -> Option<&dyn SizeQuery> {
        Some(self)
    }

    fn candidates(&self) -> Option<&dyn Candidates> {
        Some(self)
    }

    fn cardinality(&self) -> Option<Estimate> {
        self.sums().flows
    }

    fn weight_logs(&self, by: Measure) -> Option<Estimate> {
        if by == C::Weight::MEASURE { self.sums().weight_logs } else { None }
    }

    fn cells(&self) -> Option<&dyn Cells> {
        Some(self)
    }
}

impl<K: FlowKey, C: Signed> SizeQuery for UniversalSketch<K, C> {
    fn estimate(&self, key: &[u8]) -> SizeEstimate {
        let digest = K::matching(key, &self.digester).map(|key| key.digest(&self.digester));
        let size = |digest| {
            SizeEstimate::of(C::Weight::MEASURE, self.samples.estimate(&self.grids, digest))
        };
        digest.map_or(SizeEstimate::exact(Size::default()), size)
    }
}

/// The heavy keys of all depths.
impl<K: FlowKey, C: Signed> Candidates for UniversalSketch<K, C> {
    fn for_each(&self, visit: &mut dyn FnMut(CanonicalKey, SizeEstimate)) {
        let rows = self.grids.shape.first.rows();
        let keys = self.cardinality().map_or(f64::INFINITY, |keys| keys.high);
        for (depth, top) in self.tops.iter().enumerate() {
            let noise = self.grids.noise(depth);
            let mut digests = top.iter().map(|(_, digest)| digest);
            let list =
                (!self.samples.is_sample()).then(|| self.grids.list(depth, &mut digests, keys));
            for (key, digest) in top.iter() {
                let asked = self.samples.estimate(&self.grids, digest);
                let listed = match &list {
                    None => self.samples.listed(asked, noise, depth, rows),
                    Some(list) => self.grids.listed(list, depth, digest, asked),
                };
                visit(
                    key.to_canonical(&self.digester),
                    SizeEstimate::of(C::Weight::MEASURE, listed),
                );
            }
        }
    }

    /// A heap leaves out the lightest keys; a heavy key is refused only if too many collide with
    /// it.
    fn overflow(&self) -> u64 {
        self.tops.iter().map(TopKeys::refused).fold(0, u64::saturating_add)
    }

    /// A key joins the heap of its depth when its estimate exceeds the least one there, unless it
    /// collides with too many others or only some of its packets are counted.
    fn unnamed(&self, by: Measure) -> Option<f64> {
        if by != C::Weight::MEASURE || self.samples.is_sample() || self.overflow() > 0 {
            return None;
        }
        let weight = self.sums().weight?.high;
        let heavier = |size: f64| (weight / size).max(1.0);
        let may_lack = |(_, top): &(usize, &TopKeys<K>)| top.is_full() || top.floor() > 0;
        let depths = self.tops.iter().enumerate().filter(may_lack);
        let most = depths.map(|(depth, top)| {
            top.floor().max(0) as f64
                + self.grids.shortfall(depth, &heavier)
                + self.grids.saturated as f64
        });
        Some(most.fold(0.0, f64::max))
    }
}

/// All cells, then the margin of estimates at each depth, then the largest unit of a sample.
impl<K: FlowKey, C: Signed> Cells for UniversalSketch<K, C> {
    fn measure(&self) -> Measure {
        C::Weight::MEASURE
    }

    fn len(&self) -> usize {
        self.grids.cells.len() + self.tops.len() + 1
    }

    fn sampled(&self) -> bool {
        self.samples.is_sample()
    }

    fn read(&self, cells: &mut [f64]) {
        for (out, cell) in cells.iter_mut().zip(self.grids.cells.iter()) {
            *out = cell.real();
        }
        let margins = self.grids.cells.len();
        cells[margins..].fill(0.0);
        cells[margins + self.tops.len()] = self.samples.unit() as f64;
    }

    fn seal(&self, cells: &mut [f64]) {
        let (cells, tail) = cells.split_at_mut(self.grids.cells.len());
        for (depth, margin) in tail[..self.tops.len()].iter_mut().enumerate() {
            *margin = self.grids.shape.margin(depth, |place| cells[place]);
        }
    }

    fn estimate(&self, cells: &[f64], key: &[u8]) -> Estimate {
        let Some(key) = K::matching(key, &self.digester) else { return Estimate::exact(0) };
        let (shape, digest) = (&self.grids.shape, key.digest(&self.digester));
        let (cells, tail) = cells.split_at(self.grids.cells.len());
        let depth = shape.depth(digest);
        let value = shape.value(digest, depth, |place| cells[place]);
        let (noise, unit) = (noise(tail[depth]), tail[self.tops.len()].max(0.0));
        self.samples.bounds(value, noise, unit, shape.confidence())
    }
}

/// The samples that the depths counted, of each row separately or of whole packets, whose errors
/// are common to all rows.
#[derive(Clone, Copy, Default)]
pub(super) struct Samples {
    depths: [LevelSample; MOST_LEVELS],
    /// Weight of all packets.
    total: u64,
    /// For samples of whole packets, the chance of an error beyond the bounds.
    delta: Option<f64>,
}

impl Samples {
    pub(super) fn new(total: u64, depths: &[LevelSample], delta: Option<f64>) -> Self {
        let mut samples = Self { depths: [LevelSample::default(); MOST_LEVELS], total, delta };
        samples.depths[..depths.len()].copy_from_slice(depths);
        samples
    }

    /// The same unit for each depth, with samples of each row.
    pub(super) fn of_rows(total: u64, unit: u64) -> Self {
        Self { depths: [LevelSample::steady(unit); MOST_LEVELS], total, delta: None }
    }

    pub(super) fn depth(&self, depth: usize) -> LevelSample {
        self.depths[depth]
    }

    /// Largest ratio of the variance of a flow's sampled weight to that weight; 0 if every packet
    /// counts.
    pub(super) fn unit(&self) -> u64 {
        self.depths.iter().map(|depth| depth.most).max().unwrap_or(0)
    }

    /// Whether there is a sample, or may be one of whole packets once there are more packets.
    pub(super) fn is_sample(&self) -> bool {
        self.unit() > 0 || self.delta.is_some()
    }

    /// The fraction of a row's variance that remains in the median of `rows` rows: all of it if all
    /// rows have the same sample.
    pub(super) fn variance_left(&self, rows: usize) -> f64 {
        match self.delta {
            Some(_) => 1.0,
            // That of the median of many normal variables; for few it is less.
            None => (std::f64::consts::FRAC_PI_2 / rows as f64).min(1.0),
        }
    }

    /// An estimate with its bounds, with `noise` for collisions.
    pub(super) fn bounds(&self, value: f64, noise: Noise, unit: f64, confidence: f64) -> Estimate {
        let unit_of_rows = if self.delta.is_none() { unit } else { 0.0 };
        let (low, high) = Noise { unit: unit_of_rows, ..noise }.bounds(value);
        let estimate = Estimate { value, low, high, confidence: Some(confidence) };
        let sampling = self.delta.and_then(|delta| Sampling::of_packets(unit, 1, delta));
        sampling.map_or(estimate, |sampling| sampling.widen(estimate))
    }

    /// The estimate of a flow of this depth listed from a sample, given its estimate when asked for
    /// by key.
    pub(super) fn listed(
        &self,
        asked: Estimate,
        noise: Noise,
        depth: usize,
        rows: usize,
    ) -> Estimate {
        let unit = self.depths[depth].most as f64;
        let Some(delta) = self.delta else {
            return Noise { unit, ..noise }.listed(asked, self.total, rows);
        };
        let luckiest = Sampling::of_packets(unit, self.total, delta);
        let low = noise.bounds(asked.value).0.max(0.0);
        let low = luckiest.map_or(asked.low, |luckiest| (low - luckiest.error(low)).max(0.0));
        Estimate { low: asked.low.min(low), ..asked }
    }

    /// The estimate of a key with its bounds.
    #[inline(never)]
    pub(super) fn estimate<C: Signed>(&self, grids: &Grids<C>, digest: u64) -> Estimate {
        let depth = grids.shape.depth(digest);
        let unit = self.depth(depth).most as f64;
        let (noise, confidence) = (grids.noise(depth), grids.shape.confidence());
        let estimate = self.bounds(grids.size(digest), noise, unit, confidence);
        let (low, high) = (estimate.low.max(0.0), estimate.high + grids.saturated as f64);
        self.within(Estimate { low, high, ..estimate })
    }

    /// Clamps an estimate to the total, which is known if there is a sample.
    pub(super) fn within(&self, estimate: Estimate) -> Estimate {
        if self.unit() > 0 { estimate.within(self.total) } else { estimate }
    }

    /// Adds the samples of another sketch, which may err at the same packets.
    pub(super) fn merge(&mut self, other: &Self) {
        self.total = self.total.saturating_add(other.total);
        for (own, other) in self.depths.iter_mut().zip(&other.depths) {
            own.most = own.most.saturating_add(other.most);
            own.mean = own.mean.max(other.mean);
        }
    }
}
