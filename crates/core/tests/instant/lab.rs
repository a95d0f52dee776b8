//! Traffic whose flows are known, fed to several summaries at once.

use flowgauge_core::batch::{BATCH_PACKETS, Batch};
use flowgauge_core::catalog;
use flowgauge_core::key::{CanonicalKey, FlowKey, Key4};
use flowgauge_core::summary::{self, Options, Parameters, SizeEstimate};
use flowgauge_core::terms::{Measure, Size};

/// Packets that one which a FlowRegulator lets through stands for.
pub(crate) const UNIT: f64 = 94.923_265_306_122_45;

/// The same of one layer.
pub(crate) const RCC_UNIT: f64 = 9.742_857_142_857_143;

pub(crate) type Summary = Box<dyn summary::Summary<Key4>>;

pub(crate) fn key(flow: u32) -> Key4 {
    Key4::from_canonical(&flow.to_be_bytes()).unwrap()
}

pub(crate) fn flow_of(key: &CanonicalKey) -> usize {
    u32::from_be_bytes(key.as_bytes().try_into().unwrap()) as usize
}

/// A summary with its defaults in 32 MiB but for these parameters: hundreds of thousands of flows.
pub(crate) fn build(name: &str, seed: u64, parameters: &[(&str, u64)]) -> Summary {
    build_in(name, 32 << 20, seed, parameters)
}

pub(crate) fn build_in(
    name: &str,
    memory_bytes: usize,
    seed: u64,
    parameters: &[(&str, u64)],
) -> Summary {
    let options = Options::new(memory_bytes, seed).with(parameters.iter().copied());
    catalog::build(name, &options).unwrap()
}

/// A table behind a FlowRegulator.
pub(crate) fn regulated(
    table: &str,
    memory_bytes: usize,
    parameters: &[(&str, u64)],
    regulator: &[(&str, u64)],
) -> Summary {
    let options = Options::new(memory_bytes, 1).with(parameters.iter().copied());
    let regulator = ("flow-regulator".to_owned(), Parameters::new(regulator.iter().copied()));
    catalog::build_accelerated(&[regulator], table, &options).unwrap()
}

/// Packets of mixed sizes, 7 : 4 : 1 of them of 64, 576 and 1500 bytes.
pub(crate) fn mixed(random: &mut fastrand::Rng) -> u32 {
    match random.u32(0..12) {
        0..7 => 64,
        7..11 => 576,
        _ => 1500,
    }
}

/// Feeds `packets` packets of `flows` flows, Zipf 1.1, a microsecond apart, to all summaries;
/// returns the flows' sizes.
pub(crate) fn feed(
    summaries: &mut [Summary],
    packets: usize,
    flows: usize,
    seed: u64,
    bytes: impl Fn(u32, &mut fastrand::Rng) -> u32,
) -> Vec<Size> {
    let mut truth = vec![Size::default(); flows];
    let mut random = fastrand::Rng::with_seed(!seed);
    let mut stream = Alias::new(flows, 1.1, seed).take(packets);
    let mut batch = Batch::new();
    let mut time_ns = 0;
    loop {
        for flow in stream.by_ref().take(BATCH_PACKETS) {
            let bytes = bytes(flow, &mut random);
            truth[flow as usize] += Size { packets: 1, bytes: u64::from(bytes) };
            batch.push(key(flow), bytes, time_ns);
            time_ns += 1000;
        }
        if batch.is_empty() {
            for summary in summaries {
                summary.settle();
            }
            return truth;
        }
        for summary in &mut *summaries {
            summary.ingest(&mut batch);
        }
        batch.clear();
    }
}

pub(crate) fn estimate(summary: &Summary, flow: usize) -> SizeEstimate {
    summary.answers().size().unwrap().estimate(key(flow as u32).canonical(Key4::BYTES))
}

/// Draws ranks as [`Zipf`](super::zipf::Zipf) does, in a few steps each however many there are: by
/// Vose's alias method, in which half of each of equally likely boxes is another rank's.
struct Alias {
    /// Of each box: the draws of 32 bits that are its own rank, and whose the others are.
    boxes: Vec<(u32, u32)>,
    random: fastrand::Rng,
}

impl Alias {
    fn new(ranks: usize, skew: f64, seed: u64) -> Self {
        let weights = || (0..ranks).map(|rank| ((rank + 1) as f64).powf(-skew));
        let sum: f64 = weights().sum();
        let mut shares: Vec<f64> = weights().map(|weight| weight / sum * ranks as f64).collect();
        let mut boxes: Vec<_> = (0..ranks as u32).map(|rank| (u32::MAX, rank)).collect();
        let (mut small, mut large): (Vec<usize>, Vec<usize>) =
            (0..ranks).partition(|&rank| shares[rank] < 1.0);
        while let (Some(&less), Some(&more)) = (small.last(), large.last()) {
            small.pop();
            boxes[less] = ((shares[less] * f64::from(u32::MAX)) as u32, more as u32);
            shares[more] -= 1.0 - shares[less];
            if shares[more] < 1.0 {
                small.extend(large.pop());
            }
        }
        Self { boxes, random: fastrand::Rng::with_seed(seed) }
    }
}

impl Iterator for Alias {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        let draw = self.random.u64(..);
        let number = ((draw >> 32) * self.boxes.len() as u64) >> 32;
        let (own, other) = self.boxes[number as usize];
        Some(if draw as u32 <= own { number as u32 } else { other })
    }
}

/// What a summary let through of each packet, `unit` being what that stands for.
pub(crate) fn regulation(summary: &Summary, truth: &[Size], unit: f64) -> f64 {
    let mut let_through = summary.answers().untracked().packets as f64 / unit;
    summary.answers().candidates().unwrap().for_each(&mut |_, size| {
        // What is behind is less than one more.
        let_through += (size.packets.unwrap().value / unit).floor();
    });
    let_through / truth.iter().map(|size| size.packets as f64).sum::<f64>()
}

/// Errors of the flows of some sizes.
pub(crate) struct Errors {
    pub(crate) flows: usize,
    /// Mean of |estimate − truth| / truth.
    pub(crate) mean: f64,
    /// Mean of (estimate − truth) / truth.
    pub(crate) bias: f64,
    /// Share of the flows whose bounds hold.
    pub(crate) covered: f64,
    /// Sum of squares of (estimate − truth) / truth.
    pub(crate) squares: f64,
    /// Standard deviation of the error, over √(unit × truth).
    pub(crate) deviation: f64,
}

/// The errors of flows with more than `from` and at most `to` packets.
pub(crate) fn errors(
    summary: &Summary,
    truth: &[Size],
    by: Measure,
    (from, to): (u64, u64),
    unit: f64,
) -> Errors {
    let of_class =
        truth.iter().enumerate().filter(|(_, size)| size.packets > from && size.packets <= to);
    let mut sums =
        Errors { flows: 0, mean: 0.0, bias: 0.0, covered: 0.0, squares: 0.0, deviation: 0.0 };
    for (flow, size) in of_class {
        let estimate = estimate(summary, flow).by(by).unwrap();
        let truth = size.by(by) as f64;
        let error = (estimate.value - truth) / truth;
        sums.flows += 1;
        sums.mean += error.abs();
        sums.bias += error;
        sums.covered += f64::from(estimate.low <= truth && truth <= estimate.high);
        sums.squares += error * error;
        sums.deviation += error * error * size.packets as f64 / unit;
    }
    let flows = sums.flows as f64;
    Errors {
        flows: sums.flows,
        mean: sums.mean / flows,
        bias: sums.bias / flows,
        covered: sums.covered / flows,
        squares: sums.squares,
        deviation: (sums.deviation / flows).sqrt(),
    }
}

/// The share of the `count` largest flows that are among the `count` largest candidates; of equal ones
/// those go first that chance says, and not the flow's rank.
pub(crate) fn recall(summary: &Summary, truth: &[Size], by: Measure, count: usize) -> f64 {
    let mut listed = Vec::new();
    summary.answers().candidates().unwrap().for_each(&mut |key, size| {
        listed.push((size.by(by).unwrap().value, flow_of(&key)));
    });
    let shuffled = |flow: usize| (flow as u32).wrapping_mul(0x9e37_79b9);
    listed.sort_by(|a, b| b.0.total_cmp(&a.0).then(shuffled(a.1).cmp(&shuffled(b.1))));
    listed.truncate(count);
    let mut largest: Vec<u64> = truth.iter().map(|size| size.by(by)).collect();
    largest.sort_unstable_by(|a, b| b.cmp(a));
    let least = largest[count - 1];
    let found = listed.iter().filter(|(_, flow)| truth[*flow].by(by) >= least).count();
    found as f64 / count as f64
}

/// What theory says of the errors of a FlowRegulator of 32-bit words with three levels, in a sketch of
/// so many bytes that takes so many packets.
pub(crate) struct Theory {
    /// Other flows' marks on the eight bits of a flow, in the mean.
    marks: f64,
    /// The variance that the sizes of a flow's packets add, for each packet let through.
    sizes: f64,
}

impl Theory {
    /// Whether packets of a flow are of mixed sizes, those of [`mixed`], is asked for bytes only.
    pub(crate) fn new(sketch: usize, truth: &[Size], sizes_differ: bool) -> Self {
        let packets = truth.iter().map(|size| size.packets as f64).sum::<f64>();
        let sizes = if sizes_differ { 1.22 * 1.22 - 0.1 } else { 0.0 };
        Self { marks: packets * 8.0 / (sketch as f64 / 4.0 * 8.0), sizes }
    }

    /// By how many standard deviations the estimate of a flow is over `threshold` in the mean. Each of
    /// n / 95 packets let through is off by 0.32 of itself where the flow is alone, and as much as itself
    /// where all marks are others'; the square root of such a number has the same deviation whatever it
    /// is, and is normal soon.
    fn above(&self, size: Size, by: Measure, threshold: f64) -> f64 {
        let packets = size.packets as f64;
        let foreign = self.marks / (self.marks + packets);
        let sizes = if by == Measure::Bytes { self.sizes } else { 0.0 };
        let at = packets * threshold / size.by(by) as f64;
        let deviation = ((0.1 + 0.9 * foreign + sizes) * UNIT).sqrt() / 2.0;
        (packets.sqrt() - at.sqrt()) / deviation
    }

    /// The number of these flows whose estimate is over `threshold` in the mean, or is by so many
    /// standard deviations.
    pub(crate) fn over<'a>(
        &self,
        flows: impl Iterator<Item = &'a Size>,
        by: Measure,
        threshold: f64,
        deviations: f64,
    ) -> f64 {
        let flows = flows.filter(|size| size.packets > 0);
        flows.map(|size| normal(self.above(*size, by, threshold) - deviations)).sum()
    }

    /// The share of the `count` largest flows that are over the size of the last of them in the mean:
    /// who is not is replaced by one that should not be.
    pub(crate) fn recall(&self, truth: &[Size], by: Measure, count: usize) -> f64 {
        let mut largest: Vec<&Size> = truth.iter().collect();
        largest.sort_unstable_by_key(|size| std::cmp::Reverse(size.by(by)));
        let least = largest[count - 1].by(by) as f64;
        self.over(largest.into_iter().take(count), by, least, 0.0) / count as f64
    }
}

/// The normal distribution, to some thousandths of it and nothing of its tails (Tocher's logistic).
fn normal(deviations: f64) -> f64 {
    let x = deviations;
    1.0 / (1.0 + (-1.595_769 * x - 0.070_565_99 * x.powi(3)).exp())
}
