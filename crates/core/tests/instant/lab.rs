//! Traffic whose flows are known, fed to several summaries at once.

use flowgauge_core::batch::{BATCH_PACKETS, Batch};
use flowgauge_core::catalog;
use flowgauge_core::key::{CanonicalKey, FlowKey, Key4};
use flowgauge_core::summary::{Ingest, Measure, Options, Size, SizeEstimate};

use super::zipf::Zipf;

/// Packets that one which a FlowRegulator lets through stands for.
pub(crate) const UNIT: f64 = 94.923_265_306_122_45;

/// The same of one layer.
pub(crate) const RCC_UNIT: f64 = 9.742_857_142_857_143;

pub(crate) type Summary = Box<dyn Ingest<Key4>>;

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
    let mut stream = Zipf::new(flows, 1.1, seed).take(packets);
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
            return truth;
        }
        for summary in &mut *summaries {
            summary.ingest(&mut batch);
        }
        batch.clear();
    }
}

pub(crate) fn estimate(summary: &Summary, flow: usize) -> SizeEstimate {
    summary.answers().size().unwrap().estimate(key(flow as u32).canonical())
}

/// What a summary let through of each packet, `unit` being what that stands for.
pub(crate) fn regulation(summary: &Summary, truth: &[Size], unit: f64) -> f64 {
    let mut let_through = summary.answers().untracked().packets as f64 / unit;
    summary.answers().candidates().unwrap().for_each(&mut |_, size| {
        let_through += size.packets.unwrap().value / unit;
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

/// The share of the `count` largest flows that are among the `count` largest candidates.
pub(crate) fn recall(summary: &Summary, truth: &[Size], by: Measure, count: usize) -> f64 {
    let mut listed = Vec::new();
    summary.answers().candidates().unwrap().for_each(&mut |key, size| {
        listed.push((size.by(by).unwrap().value, flow_of(&key)));
    });
    listed.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    listed.truncate(count);
    let mut largest: Vec<u64> = truth.iter().map(|size| size.by(by)).collect();
    largest.sort_unstable_by(|a, b| b.cmp(a));
    let least = largest[count - 1];
    let found = listed.iter().filter(|(_, flow)| truth[*flow].by(by) >= least).count();
    found as f64 / count as f64
}
