//! Accuracy of RCC, InstaMeasure and FlowRegulator against exact counts.

mod accuracy;
mod table;

use flowgauge_core::batch::{BATCH_PACKETS, Batch};
use flowgauge_core::catalog;
use flowgauge_core::key::{CanonicalKey, FlowKey, Key8};
use flowgauge_core::summary::{self, Options, Parameters, SizeEstimate};
use flowgauge_core::terms::{Measure, Size};

use crate::flows::key;

/// Packets represented by each packet that a FlowRegulator forwards.
const UNIT: f64 = 94.923_265_306_122_45;

/// The same for RCC, a regulator of one layer.
const RCC_UNIT: f64 = 9.742_857_142_857_143;

type Summary = Box<dyn summary::Summary<Key8>>;

fn flow_of(key: &CanonicalKey) -> usize {
    u32::from_be_bytes(key.as_bytes().try_into().unwrap()) as usize
}

/// A summary in 32 MiB, enough for hundreds of thousands of flows.
fn build(name: &str, seed: u64, parameters: &[(&str, u64)]) -> Summary {
    build_in(name, 32 << 20, seed, parameters)
}

fn build_in(name: &str, memory_bytes: usize, seed: u64, parameters: &[(&str, u64)]) -> Summary {
    let options = Options::new(memory_bytes, seed).for_keys(4).with(parameters.iter().copied());
    catalog::build(name, &options).unwrap()
}

/// A table behind a FlowRegulator.
fn regulated(
    table: &str,
    memory_bytes: usize,
    parameters: &[(&str, u64)],
    regulator: &[(&str, u64)],
) -> Summary {
    let options = Options::new(memory_bytes, 1).for_keys(4).with(parameters.iter().copied());
    let regulator = ("flow-regulator".to_owned(), Parameters::new(regulator.iter().copied()));
    catalog::build_accelerated(&[regulator], table, &options).unwrap()
}

/// A packet size from a mix of 64, 576 and 1500 bytes in the ratio 7 : 4 : 1.
fn mixed(random: &mut fastrand::Rng) -> u32 {
    match random.u32(0..12) {
        0..7 => 64,
        7..11 => 576,
        _ => 1500,
    }
}

/// Feeds all summaries with `packets` packets of `flows` flows (Zipf 1.1), a microsecond apart;
/// returns the sizes of the flows.
fn feed(
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

fn estimate(summary: &Summary, flow: usize) -> SizeEstimate {
    summary.answers().size().unwrap().estimate(key(flow as u32).canonical(4))
}

/// Draws ranks by Zipf's law in constant time, by Vose's alias method: each of equally likely boxes
/// holds its own rank and one other.
struct Alias {
    /// Of each box: the number of 32-bit draws that give its own rank, and the other rank.
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

/// The fraction of all packets that the regulator forwarded; each represents `unit` packets.
fn regulation(summary: &Summary, truth: &[Size], unit: f64) -> f64 {
    let mut forwarded = summary.answers().untracked().packets as f64 / unit;
    summary.answers().candidates().unwrap().for_each(&mut |_, size| {
        // The residual marks represent less than one more.
        forwarded += (size.packets.unwrap().value / unit).floor();
    });
    forwarded / truth.iter().map(|size| size.packets as f64).sum::<f64>()
}

/// Errors of the flows in a size class.
struct Errors {
    flows: usize,
    /// Mean of |estimate − truth| / truth.
    mean: f64,
    /// Mean of (estimate − truth) / truth.
    bias: f64,
    /// Fraction of the flows whose bounds hold.
    covered: f64,
    /// Sum of squares of (estimate − truth) / truth.
    squares: f64,
    /// Standard deviation of the error, divided by √(unit × truth).
    deviation: f64,
}

/// The errors of flows with more than `from` and at most `to` packets.
fn errors(
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

/// The fraction of the `count` largest flows that are among the `count` largest candidates. Equal
/// candidates are in random order, so that the rank of the flow does not decide.
fn recall(summary: &Summary, truth: &[Size], by: Measure, count: usize) -> f64 {
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

/// The theoretical errors of a FlowRegulator of 32-bit words with three levels.
struct Theory {
    /// Mean number of marks of other flows on the eight bits of a flow.
    marks: f64,
    /// Variance that mixed packet sizes add, per forwarded packet.
    sizes: f64,
}

impl Theory {
    /// For a sketch of `sketch` bytes. `sizes_differ` means packets of [`mixed`] sizes; it matters
    /// for bytes only.
    fn new(sketch: usize, truth: &[Size], sizes_differ: bool) -> Self {
        let packets = truth.iter().map(|size| size.packets as f64).sum::<f64>();
        let sizes = if sizes_differ { 1.22 * 1.22 - 0.1 } else { 0.0 };
        Self { marks: packets * 8.0 / (sketch as f64 / 4.0 * 8.0), sizes }
    }

    /// The number of standard deviations by which the estimate of a flow exceeds `threshold` on
    /// average. Each of the n / 95 forwarded packets has a relative deviation of 0.32 if the flow
    /// is alone, and of 1 if all marks are foreign. The square root of their number is nearly
    /// normal and has the same deviation for any number.
    fn above(&self, size: Size, by: Measure, threshold: f64) -> f64 {
        let packets = size.packets as f64;
        let foreign = self.marks / (self.marks + packets);
        let sizes = if by == Measure::Bytes { self.sizes } else { 0.0 };
        let at = packets * threshold / size.by(by) as f64;
        let deviation = ((0.1 + 0.9 * foreign + sizes) * UNIT).sqrt() / 2.0;
        (packets.sqrt() - at.sqrt()) / deviation
    }

    /// The mean number of flows whose estimate exceeds `threshold` by `deviations` standard
    /// deviations.
    fn over<'a>(
        &self,
        flows: impl Iterator<Item = &'a Size>,
        by: Measure,
        threshold: f64,
        deviations: f64,
    ) -> f64 {
        let flows = flows.filter(|size| size.packets > 0);
        flows.map(|size| normal(self.above(*size, by, threshold) - deviations)).sum()
    }

    /// The mean fraction of the `count` largest flows whose estimate exceeds the size of the
    /// smallest of them. Each of the others is replaced by a smaller flow.
    fn recall(&self, truth: &[Size], by: Measure, count: usize) -> f64 {
        let mut largest: Vec<&Size> = truth.iter().collect();
        largest.sort_unstable_by_key(|size| std::cmp::Reverse(size.by(by)));
        let least = largest[count - 1].by(by) as f64;
        self.over(largest.into_iter().take(count), by, least, 0.0) / count as f64
    }
}

/// The normal distribution with an error of some thousandths, without its tails (Tocher's logistic
/// approximation).
fn normal(deviations: f64) -> f64 {
    let x = deviations;
    1.0 / (1.0 + (-1.595_769 * x - 0.070_565_99 * x.powi(3)).exp())
}
