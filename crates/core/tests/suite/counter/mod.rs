//! Counter summaries: the weight of each key is within its bounds, and wrong sizes are refused.

mod space_saving;

use std::collections::BTreeMap;

use flowgauge_core::batch::Batch;
use flowgauge_core::catalog;
use flowgauge_core::key::{FlowKey, Key8};
use flowgauge_core::summary::{Estimate, Options, Summary};
use flowgauge_core::terms::Measure;

use crate::flows::key;
use crate::seeds;
use crate::zipf::Zipf;

/// A flow's number and the bytes of its packet.
type Packet = (u32, u32);

/// Packets of 64 to 1500 bytes, of flows drawn by Zipf's law.
fn packets(count: usize, flows: usize, skew: f64, seed: u64) -> Vec<Packet> {
    let mut random = fastrand::Rng::with_seed(seed ^ 0x5eed);
    Zipf::new(flows, skew, seed).take(count).map(|flow| (flow, random.u32(64..=1500))).collect()
}

/// The weight of each flow.
fn weights(packets: &[Packet], by: Measure) -> BTreeMap<u32, u64> {
    let mut weights = BTreeMap::new();
    for &(flow, bytes) in packets {
        *weights.entry(flow).or_default() += if by == Measure::Bytes { bytes.into() } else { 1 };
    }
    weights
}

fn feed(summary: &mut dyn Summary<Key8>, packets: &[Packet]) {
    let mut batch = Batch::new();
    for chunk in packets.chunks(256) {
        batch.clear();
        for (time_ns, &(flow, bytes)) in (0..).zip(chunk) {
            batch.push(key(flow), bytes, time_ns);
        }
        summary.ingest(&mut batch);
    }
}

fn options(by: Measure, seed: u64, parameters: &[(&str, u64)]) -> Options {
    let parameters = parameters.iter().copied();
    Options { by, ..Options::new(1 << 20, seed).for_keys(4).with(parameters) }
}

/// A summary that has ingested these packets.
fn summary(name: &str, options: &Options, packets: &[Packet]) -> Box<dyn Summary<Key8>> {
    let mut summary = catalog::build::<Key8>(name, options).unwrap();
    feed(&mut *summary, packets);
    summary
}

fn estimate(summary: &dyn Summary<Key8>, by: Measure, flow: u32) -> Estimate {
    let sizes = summary.answers().size().unwrap();
    sizes.estimate(key(flow).canonical(4)).by(by).unwrap()
}

/// The flows that the summary names, with their estimates.
fn named(summary: &dyn Summary<Key8>, by: Measure) -> BTreeMap<u32, Estimate> {
    let mut named = BTreeMap::new();
    summary.answers().candidates().unwrap().for_each(&mut |key, size| {
        let flow = u32::from_be_bytes(key.as_bytes().try_into().unwrap());
        assert!(named.insert(flow, size.by(by).unwrap()).is_none(), "{flow} is named twice");
    });
    named
}

/// Checks that the errors of each flow over the seeds have a mean of 0, within 4 standard errors.
fn are_unbiased(errors: &[Vec<f64>]) {
    for (flow, errors) in errors.iter().enumerate() {
        let count = errors.len() as f64;
        let mean = errors.iter().sum::<f64>() / count;
        let variance = errors.iter().map(|error| (error - mean).powi(2)).sum::<f64>() / count;
        let deviations = mean / (variance / count).sqrt();
        assert!(deviations.abs() < 4.0, "{flow}: {mean}, {deviations} standard errors");
    }
}

fn refusal(name: &str, by: Measure, parameters: &[(&str, &str)]) -> String {
    let options = Options::new(1 << 16, 1).for_keys(4).with(parameters.iter().copied());
    catalog::build::<Key8>(name, &Options { by, ..options }).err().unwrap().to_string()
}

#[test]
fn sizes_and_targets_are_checked() {
    for name in ["space-saving", "stream-summary", "misra-gries"] {
        let both = refusal(name, Measure::Packets, &[("counters", "10"), ("epsilon", "0.1")]);
        assert!(both.contains("counters and epsilon set the same value"), "{both}");
        let none = refusal(name, Measure::Packets, &[("counters", "0")]);
        assert!(none.contains("'counters=0' is not a whole number from 1"), "{none}");
        let whole = refusal(name, Measure::Packets, &[("epsilon", "1.5")]);
        assert!(whole.contains("'epsilon=1.5' is not a number between 0 and 1"), "{whole}");
        let small = refusal(name, Measure::Packets, &[("epsilon", "1e-9")]);
        let text = "'epsilon=1e-9' is not large enough for 536870912 counters";
        assert!(small.contains(text), "{small}");
    }
    let none = refusal("netflow", Measure::Packets, &[("sample", "0")]);
    assert!(none.contains("'sample=0' is not"), "{none}");
    for (name, value) in [("rate", "0"), ("rate", "1000000001"), ("queue", "0")] {
        let out = refusal("sketch-visor", Measure::Packets, &[(name, value)]);
        assert!(
            out.contains(&format!("'{name}={value}' is not a whole number from 1 to")),
            "{out}"
        );
    }
    let more = refusal("csm", Measure::Packets, &[("counters", "10"), ("shared", "11")]);
    assert!(more.contains("'shared=11' is not a whole number from 1 to 10"), "{more}");
}

#[test]
fn an_error_gives_the_number_of_counters() {
    let options = Options::new(1 << 16, 1).for_keys(4).with([("epsilon", "0.003")]);
    let summary = catalog::build::<Key8>("space-saving", &options).unwrap();
    assert_eq!(summary.parameters()[0].1.to_string(), "334");
}

#[test]
fn linked_buckets_count_packets_only() {
    let error = refusal("stream-summary", Measure::Bytes, &[]);
    assert!(error.contains("--algorithm space-saving"), "{error}");
}

// Misra-Gries: the weight of every key is within its bounds, for any traffic.

#[test]
fn bounds_always_hold() {
    for (skew, seed) in [(0.0, 1), (0.9, 2), (1.1, 3), (1.5, 4)] {
        let packets = packets(30_000, 3000, skew, seed);
        for by in [Measure::Packets, Measure::Bytes] {
            let weights = weights(&packets, by);
            for counters in [1, 2, 10, 100, 1000, 4000] {
                let options = options(by, seed, &[("counters", counters)]);
                for shards in [1, 2, 16] {
                    let parts = packets.chunks(packets.len().div_ceil(shards));
                    let mut parts = parts.map(|part| summary("misra-gries", &options, part));
                    let mut sum = parts.next().unwrap();
                    parts.for_each(|part| sum.merge(&*part).unwrap());
                    assert!(named(&*sum, by).len() as u64 <= counters);
                    for flow in 0..=3000 {
                        let truth = weights.get(&flow).copied().unwrap_or(0) as f64;
                        let found = estimate(&*sum, by, flow);
                        assert!(found.low <= truth && truth <= found.high, "{truth}: {found:?}");
                    }
                }
            }
        }
    }
}

/// A key heavier than the sum of all decrements keeps its counter: with 100 counters and Zipf 1.1,
/// the heaviest keys.
#[test]
fn heavy_keys_stay_and_their_bounds_are_tight() {
    let packets = packets(100_000, 10_000, 1.1, 5);
    let weights = weights(&packets, Measure::Packets);
    let options = options(Measure::Packets, 1, &[("counters", 100)]);
    let summary = summary("misra-gries", &options, &packets);
    let absent = estimate(&*summary, Measure::Packets, 1 << 20).high;
    let named = named(&*summary, Measure::Packets);
    let heavy = weights.iter().filter(|(_, weight)| **weight as f64 > absent);
    assert!(heavy.clone().count() >= 10, "{absent}");
    for (flow, weight) in heavy {
        let found = named[flow];
        assert!(found.low <= *weight as f64 && found.high - found.low <= absent);
    }
}

#[test]
fn it_is_exact_while_there_is_room() {
    let packets = packets(10_000, 200, 1.0, 6);
    let options = options(Measure::Bytes, 1, &[("counters", 200)]);
    let summary = summary("misra-gries", &options, &packets);
    for (flow, weight) in weights(&packets, Measure::Bytes) {
        let found = estimate(&*summary, Measure::Bytes, flow);
        assert!(
            found.low.total_cmp(&(weight as f64)).is_eq()
                && found.high.total_cmp(&found.low).is_eq()
        );
    }
}

// Randomized counter sharing (CSM): unbiased, and accurate for heavy flows.

/// The mean error of a flow over the seeds exceeds 4 standard errors once in 16,000 runs, so once
/// in 1,600 runs for the ten flows here. The bias of a flow of n packets, n/m, is far smaller.
#[test]
fn estimates_are_unbiased_and_bounds_hold() {
    let packets = packets(20_000, 500, 1.0, 1);
    for by in [Measure::Packets, Measure::Bytes] {
        let weights = weights(&packets, by);
        let mut errors = vec![Vec::new(); 10];
        let (mut outside, mut all) = (0, 0);
        for seed in 0..seeds() {
            let options = options(by, seed, &[("counters", 4096), ("shared", 64)]);
            let summary = summary("csm", &options, &packets);
            for (flow, errors) in (0..).zip(&mut errors) {
                let truth = weights[&flow] as f64;
                let found = estimate(&*summary, by, flow);
                errors.push(found.value - truth);
                all += 1;
                outside += usize::from(truth < found.low || found.high < truth);
            }
        }
        are_unbiased(&errors);
        // Chebyshev's inequality allows one in 20, far more than occur.
        assert!(outside * 20 <= all, "{outside} of {all}");
    }
}

/// A fifth of the memory of a published setting (60 MB, 10,000 counters per flow: an error of 2.4 %
/// for the 100 heaviest flows), and fewer packets. The noise of other flows has the variance (Σf² +
/// N l) / m, here 26² packets: a mean relative error of 2.1 %, with a standard deviation of a tenth
/// of that.
#[test]
fn the_heaviest_hundred_are_close() {
    let packets = packets(1_000_000, 100_000, 0.8, 2);
    let weights = weights(&packets, Measure::Packets);
    let parameters = [("counters", 3_000_000), ("shared", 1000)];
    let summary = summary("csm", &options(Measure::Packets, 3, &parameters), &packets);
    let error = |flow: u32| {
        let truth = weights[&flow] as f64;
        (estimate(&*summary, Measure::Packets, flow).value - truth).abs() / truth
    };
    let mean = (0..100).map(error).sum::<f64>() / 100.0;
    println!("mean relative error of the heaviest 100 flows: {mean:.4}");
    assert!(mean < 0.03, "{mean}");
}

// Sampled NetFlow: unbiased, and within its bounds with their confidence.

/// The mean error of a flow over the seeds exceeds 4 standard errors once in 16,000 runs, so once
/// in 800 runs for the 20 flows here. The bounds fail once in 100; more than 20 of 640 fail once in
/// 10,000 runs.
#[test]
fn estimates_are_unbiased_and_bounds_hold_with_their_confidence() {
    let packets = packets(50_000, 500, 1.0, 1);
    for by in [Measure::Packets, Measure::Bytes] {
        let weights = weights(&packets, by);
        let mut errors = vec![Vec::new(); 20];
        let (mut outside, mut all) = (0, 0);
        for seed in 0..seeds() {
            let options = options(by, seed, &[("sample", 10)]);
            let summary = summary("netflow", &options, &packets);
            for (flow, errors) in (0..).zip(&mut errors) {
                let truth = weights[&flow] as f64;
                let found = estimate(&*summary, by, flow);
                assert!(found.low <= found.value && found.value <= found.high);
                assert_eq!(found.confidence, Some(0.99));
                errors.push(found.value - truth);
                all += 1;
                outside += usize::from(truth < found.low || found.high < truth);
            }
        }
        are_unbiased(&errors);
        assert!(outside * 32 <= all, "{outside} of {all}");
    }
}

/// Samples of two epochs that err alike would add their errors up where they are merged.
#[test]
fn each_epoch_draws_a_sample_of_its_own() {
    let packets = packets(5_000, 200, 1.0, 3);
    for (name, parameters) in [("netflow", &[("sample", 10)][..]), ("rhhh", &[]), ("csm", &[])] {
        let options = options(Measure::Packets, 3, parameters);
        let mut summary = summary(name, &options, &packets);
        let sizes = |summary: &dyn Summary<Key8>| -> Vec<f64> {
            (0..50).map(|flow| estimate(summary, Measure::Packets, flow).value).collect()
        };
        let first = sizes(&*summary);
        summary.next_epoch();
        feed(&mut *summary, &packets);
        assert_ne!(sizes(&*summary), first, "{name}");
        summary.clear();
        feed(&mut *summary, &packets);
        assert_eq!(sizes(&*summary), first, "{name}");
    }
}

#[test]
fn sampling_one_in_one_counts_every_packet() {
    let packets = packets(10_000, 300, 1.0, 2);
    for by in [Measure::Packets, Measure::Bytes] {
        let options = options(by, 1, &[("sample", 1)]);
        let summary = summary("netflow", &options, &packets);
        for (flow, weight) in weights(&packets, by) {
            let found = estimate(&*summary, by, flow);
            let all = [found.low, found.value, found.high];
            assert!(all.iter().all(|found| (found - weight as f64).abs() < 1e-6), "{found:?}");
        }
    }
}

/// The sample has its size within 5 standard deviations, which one run in 1.7 million exceeds.
#[test]
fn the_sample_has_the_size_asked_for() {
    let packets = packets(200_000, 100, 1.0, 3);
    for sample in [2, 10, 1000] {
        let options = options(Measure::Packets, 4, &[("sample", sample)]);
        let summary = summary("netflow", &options, &packets);
        let mut sum = 0.0;
        summary.answers().candidates().unwrap().for_each(&mut |_, size| {
            sum += size.packets.unwrap().value;
        });
        let share = 1.0 / sample as f64;
        let deviation = (200_000.0 * (1.0 - share) / share).sqrt();
        assert!((sum - 200_000.0).abs() < 5.0 * deviation, "1 in {sample}: {sum}");
    }
}

// SketchVisor: which packets take the fast path, and the bounds of both paths together.

/// A summary with a normal path of `rate` packets per second, after one packet per microsecond.
fn served(packets: &[Packet], by: Measure, rate: u64) -> Box<dyn Summary<Key8>> {
    let parameters = [("rate", rate), ("queue", 100), ("counters", 200)];
    let mut summary = catalog::build::<Key8>("sketch-visor", &options(by, 1, &parameters)).unwrap();
    let mut batch = Batch::new();
    let mut times_ns = (0..).step_by(1000);
    for packets in packets.chunks(256) {
        batch.clear();
        for (&(flow, bytes), time_ns) in packets.iter().zip(&mut times_ns) {
            batch.push(key(flow), bytes, time_ns);
        }
        summary.ingest(&mut batch);
    }
    summary
}

/// The upper bound always holds. The lower one is that of Count-Min, with a confidence of 0.95 for
/// each key.
#[test]
fn bounds_hold_at_any_rate_and_heavy_keys_are_named() {
    let packets = packets(60_000, 5000, 1.1, 1);
    for by in [Measure::Packets, Measure::Bytes] {
        let weights = weights(&packets, by);
        let total: u64 = weights.values().sum();
        for rate in [1, 100_000, 500_000, 900_000, 2_000_000] {
            let summary = served(&packets, by, rate);
            let named = named(&*summary, by);
            let mut below = 0;
            for (flow, weight) in &weights {
                let (found, truth) = (estimate(&*summary, by, *flow), *weight as f64);
                assert!(truth <= found.high, "{flow} at {rate}: {truth}, {found:?}");
                assert!(found.low <= found.value && found.value <= found.high);
                below += usize::from(truth < found.low);
                if truth > 0.02 * total as f64 {
                    assert!(named.contains_key(flow), "{flow} at {rate}");
                    assert!((found.value - truth).abs() < 0.1 * truth, "{truth}: {found:?}");
                }
            }
            assert!(below * 20 <= weights.len(), "{below}");
        }
    }
}

/// The fast path stays empty while the queue has room, and an overload fills it: the upper bound of
/// an absent key shows the decrements of the fast path.
#[test]
fn the_fast_path_is_for_packets_beyond_the_rate() {
    let packets: Vec<Packet> = (0..20_000).map(|i| (i % 1000, 100)).collect();
    let width = |rate| {
        let summary = served(&packets, Measure::Packets, rate);
        estimate(&*summary, Measure::Packets, 1 << 20).high
    };
    assert!(width(1_000_000) < 1.0, "one packet each microsecond is served");
    assert!(width(500_000) > 1.0, "half of the packets are one too many");
}
