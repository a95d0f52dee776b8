//! Bounds of listed flows. Listing favours flows that collide, and their bounds must still hold
//! with their confidence.
#![expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

#[path = "support/zipf.rs"]
mod zipf;

use flowgauge_core::batch::{BATCH_PACKETS, Batch};
use flowgauge_core::catalog;
use flowgauge_core::key::{FlowKey, Key4};
use flowgauge_core::summary::{Estimate, Options};
use flowgauge_core::terms::{Measure, Threshold};

use zipf::Zipf;

const PACKETS: usize = 20_000;
const FLOWS: usize = 20_000;

/// Memory in bytes: from sizes in which most flows collide to sizes in which few do.
const SIZES: [usize; 3] = [16 << 10, 64 << 10, 256 << 10];

/// Zipf skews of the traffic.
const SKEWS: [f64; 3] = [0.6, 1.0, 1.3];

/// Runs per algorithm, size and skew: 32, or 4,096 if `FLOWGAUGE_LONG` is set.
fn runs() -> u64 {
    if std::env::var_os("FLOWGAUGE_LONG").is_some() { 4096 } else { 32 }
}

/// A stream of packets, and the number of packets of each flow.
struct Stream {
    keys: Vec<Key4>,
    packets: Vec<u64>,
}

impl Stream {
    fn draw(skew: f64, seed: u64) -> Self {
        let flows: Vec<u32> = Zipf::new(FLOWS, skew, seed).take(PACKETS).collect();
        let mut packets = vec![0; FLOWS];
        for flow in &flows {
            packets[*flow as usize] += 1;
        }
        let key = |flow: u32| Key4::from_canonical(&flow.to_be_bytes()).unwrap();
        Self { keys: flows.into_iter().map(key).collect(), packets }
    }
}

/// Numbers of bounds checked and failed.
#[derive(Default)]
struct Held {
    broken: u64,
    asked: u64,
    /// Mean number of failures by the confidence of each bound.
    allowed: f64,
}

impl Held {
    fn take(&mut self, estimate: &Estimate, truth: f64) {
        self.asked += 1;
        self.broken += u64::from(truth < estimate.low || estimate.high < truth);
        self.allowed += 1.0 - estimate.confidence.unwrap_or(1.0);
    }
}

/// The bounds of the first 10 and 100 listed flows, and of all, hold with their confidence.
#[test]
fn bounds_of_listed_flows_hold_with_their_confidence() {
    let streams = SKEWS.map(|skew| (skew, Stream::draw(skew, 1)));
    let (mut wrong, mut listing) = (Vec::new(), 0);
    for name in catalog::ALGORITHMS.iter().map(|info| info.name) {
        let lists = catalog::build::<Key4>(name, &Options::new(SIZES[0], 1))
            .unwrap()
            .answers()
            .candidates()
            .is_some();
        listing += usize::from(lists);
        for memory in SIZES.into_iter().filter(|_| lists) {
            for (skew, stream) in &streams {
                for (first, held) in FIRST.into_iter().zip(listed(name, memory, stream)) {
                    let Held { broken, asked, allowed } = held;
                    let what = format!("{name} in {memory}, skew {skew}, first {first}");
                    if broken > 0 {
                        println!("{what}: {broken} of {asked} broken, {allowed:.1} allowed");
                    }
                    // Four standard deviations are left to chance.
                    if broken as f64 > allowed + 4.0 * allowed.sqrt() {
                        wrong.push(what);
                    }
                }
            }
        }
    }
    // The number of algorithms that list flows.
    assert_eq!(listing, 23);
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Numbers of listed flows to check.
const FIRST: [usize; 3] = [10, 100, 1_000_000];

/// Checks the bounds of the first listed flows of summaries of `memory` bytes, over all runs.
fn listed(name: &str, memory: usize, Stream { keys, packets }: &Stream) -> [Held; 3] {
    let mut held: [Held; 3] = Default::default();
    let mut batch = Batch::new();
    for run in 0..runs() {
        // A threshold low enough to list the 100 largest.
        let threshold = Threshold::Share(1.0 / 1600.0);
        let options = Options { threshold, ..Options::new(memory, run) };
        let mut summary = catalog::build::<Key4>(name, &options).unwrap();
        for keys in keys.chunks(BATCH_PACKETS) {
            batch.clear();
            for key in keys {
                batch.push(*key, 100, 0);
            }
            summary.ingest(&mut batch);
        }
        summary.settle();
        let mut listed = Vec::new();
        summary.answers().candidates().unwrap().for_each(&mut |key, size| {
            let flow = u32::from_be_bytes(key.as_bytes().try_into().unwrap());
            let truth = packets.get(flow as usize).copied().unwrap_or(0);
            if let Some(estimate) = size.by(Measure::Packets) {
                listed.push((estimate, truth as f64));
            }
        });
        listed.sort_by(|(one, _), (other, _)| other.value.total_cmp(&one.value));
        for (first, held) in FIRST.into_iter().zip(&mut held) {
            for (estimate, truth) in listed.iter().take(first) {
                held.take(estimate, *truth);
            }
        }
    }
    held
}
