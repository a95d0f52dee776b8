//! Elastic Sketch against a model that lists every flow.

use std::collections::BTreeMap;

use flowgauge_core::catalog;
use flowgauge_core::key::{FlowKey, Key8};
use flowgauge_core::summary::{Estimate, Options, Summary};
use flowgauge_core::terms::Measure;

use crate::flows::{feed, key};
use crate::zipf::Zipf;

const SEEDS: u64 = 32;

type Sketch = Box<dyn Summary<Key8>>;
type Model = BTreeMap<u32, u64>;

fn elastic(by: Measure, seed: u64, buckets: u64, light: u64) -> Sketch {
    let mut options =
        Options::new(1 << 20, seed).for_keys(4).with([("buckets", buckets), ("light", light)]);
    options.by = by;
    catalog::build("elastic-sketch", &options).unwrap()
}

fn stream(flows: usize, packets: usize, seed: u64) -> Vec<(u32, u32)> {
    let mut random = fastrand::Rng::with_seed(seed);
    Zipf::new(flows, 1.1, seed).take(packets).map(|flow| (flow, random.u32(64..1500))).collect()
}

fn model(packets: &[(u32, u32)], by: Measure) -> Model {
    let mut model = Model::new();
    for &(flow, bytes) in packets {
        *model.entry(flow).or_default() +=
            if by == Measure::Packets { 1 } else { u64::from(bytes) };
    }
    model
}

fn size(summary: &Sketch, flow: u32, by: Measure) -> Estimate {
    summary.answers().size().unwrap().estimate(key(flow).canonical(4)).by(by).unwrap()
}

/// Upper bounds always hold, lower bounds in 95 of 100 cases; bounds without a confidence always
/// hold.
fn check(summary: &Sketch, model: &Model, by: Measure) {
    let mut held = 0;
    for (&flow, &truth) in model {
        let (estimate, truth) = (size(summary, flow, by), truth as f64);
        assert!(truth <= estimate.high, "{flow}: {estimate:?} of {truth}");
        if estimate.confidence.is_none() {
            assert!(estimate.low <= truth, "{flow}: {estimate:?} of {truth}");
        }
        held += usize::from(estimate.low <= truth);
    }
    assert!(held * 100 >= model.len() * 95, "{held} of {}", model.len());
}

#[test]
fn bounds_hold_by_packets_and_by_bytes() {
    for seed in 0..SEEDS {
        let packets = stream(4000, 20_000, seed);
        for by in [Measure::Packets, Measure::Bytes] {
            let mut summary = elastic(by, seed, 64, 1 << 13);
            feed(&mut *summary, key, &packets);
            check(&summary, &model(&packets, by), by);
        }
    }
}

#[test]
fn heavy_flows_are_named_nearly_exactly() {
    let (mut named, mut all, mut off) = (0, 0, 0.0f64);
    for seed in 0..SEEDS {
        let packets = stream(10_000, 30_000, seed);
        for by in [Measure::Packets, Measure::Bytes] {
            let model = model(&packets, by);
            let mut summary = elastic(by, seed, 256, 1 << 15);
            feed(&mut *summary, key, &packets);
            let mut found = BTreeMap::new();
            summary.answers().candidates().unwrap().for_each(&mut |key, size| {
                let flow = u32::from_be_bytes(key.as_bytes().try_into().unwrap());
                assert!(found.insert(flow, size.by(by).unwrap().value).is_none());
            });
            let total: u64 = model.values().sum();
            for (flow, &truth) in model.iter().filter(|(_, size)| **size * 500 > total) {
                all += 1;
                if let Some(value) = found.get(flow) {
                    named += 1;
                    off += (value - truth as f64).abs() / truth as f64;
                }
            }
        }
    }
    println!("{named} of {all}, off by {}", off / f64::from(named));
    assert!(named * 100 >= all * 99 && off / f64::from(named) < 0.01);
}

/// An eviction moves weight under the evicted flow's own key.
#[test]
fn evicted_flows_keep_their_weight() {
    let mut summary = elastic(Measure::Bytes, 1, 2, 1 << 12);
    // Slots for 14 flows, and 60 flows one after the other, each much heavier than the one before.
    let packets: Vec<(u32, u32)> =
        (0..60).flat_map(|flow| vec![(flow, 100); 2 << (flow / 6)]).collect();
    feed(&mut *summary, key, &packets);
    let model = model(&packets, Measure::Bytes);
    assert_eq!(summary.answers().saturated().bytes, 0);
    let off = model.iter().filter(|(flow, truth)| {
        let estimate = size(&summary, **flow, Measure::Bytes);
        assert!(estimate.value >= **truth as f64);
        estimate.value > **truth as f64
    });
    // 60 flows in 4096 counters: one in 70 collides; more than 6 do once in 10,000 times.
    assert!(off.count() <= 6);
}

#[test]
fn the_zero_key_is_a_key() {
    let mut summary = elastic(Measure::Packets, 1, 64, 1 << 10);
    feed(&mut *summary, key, &vec![(0, 64); 2000]);
    assert_eq!(size(&summary, 0, Measure::Packets), Estimate::exact(2000));
    assert_eq!(size(&summary, 1, Measure::Packets), Estimate::exact(0));
    assert_eq!(summary.answers().cardinality().unwrap().value, 1.0);
}

#[test]
fn full_counters_say_so() {
    let mut summary = elastic(Measure::Packets, 1, 2, 2);
    let packets = stream(2000, 20_000, 1);
    feed(&mut *summary, key, &packets);
    assert!(summary.answers().saturated().packets > 10_000);
    check(&summary, &model(&packets, Measure::Packets), Measure::Packets);
    let flows = summary.answers().cardinality().unwrap();
    assert!(flows.high.is_finite() && flows.high > 1000.0, "{flows:?}");
}

/// Within 3 % (RMS) at half a flow per counter, with bounds that hold in 95 of 100 cases: fewer
/// than 27 of 32 do in 1 % of runs.
#[test]
fn cardinality_is_counted_in_the_light_part() {
    let (mut square, mut held) = (0.0, 0);
    for seed in 0..SEEDS {
        let packets = stream(20_000, 20_000, seed);
        let truth = model(&packets, Measure::Packets).len() as f64;
        let mut summary = elastic(Measure::Packets, seed, 128, 1 << 14);
        feed(&mut *summary, key, &packets);
        let flows = summary.answers().cardinality().unwrap();
        square += (flows.value / truth - 1.0).powi(2) / SEEDS as f64;
        held += u32::from(flows.low <= truth && truth <= flows.high);
    }
    println!("{} RMS, {held} of 32 bounds", f64::sqrt(square));
    assert!(square.sqrt() < 0.03 && held >= 27, "{square} {held}");
}

#[test]
fn any_split_is_merged_within_bounds() {
    for seed in 0..8 {
        let packets = stream(3000, 20_000, seed);
        for by in [Measure::Packets, Measure::Bytes] {
            let mut sum = elastic(by, 1, 32, 1 << 13);
            for part in packets.chunks(3000) {
                let mut other = elastic(by, 1, 32, 1 << 13);
                feed(&mut *other, key, part);
                sum.merge(&*other).unwrap();
            }
            check(&sum, &model(&packets, by), by);
            feed(&mut *sum, key, &packets);
            let twice: Vec<_> = packets.iter().chain(&packets).copied().collect();
            check(&sum, &model(&twice, by), by);
        }
    }
}

/// The sizes of flows are recovered. The weighted mean relative error is 0.015 to 0.065, depending
/// on the load of the light part, and entropy is off by 0.2 %. By bytes, collisions of large
/// numbers cannot be undone, and entropy is off by 1 %. Bounds without a confidence always hold.
#[test]
fn sizes_of_light_flows_are_recovered() {
    for (by, packets, light) in [
        (Measure::Packets, 100_000, 1 << 16),
        (Measure::Packets, 400_000, 1 << 16),
        (Measure::Packets, 400_000, 1 << 15),
        (Measure::Bytes, 200_000, 1 << 16),
    ] {
        let stream = stream(100_000, packets, 3);
        let model = model(&stream, by);
        let total: f64 = model.values().map(|size| *size as f64).sum();
        let logs: f64 = model.values().map(|size| *size as f64 * (*size as f64).log2()).sum();
        let mut truth = BTreeMap::new();
        for size in model.values() {
            *truth.entry(*size).or_insert(0.0) += 1.0;
        }
        let (mut of_sizes, mut of_entropy) = (0.0, 0.0);
        for seed in 0..8 {
            let mut summary = elastic(by, seed, 64, light);
            feed(&mut *summary, key, &stream);
            let estimate = summary.answers().weight_logs(by).unwrap();
            assert!(
                estimate.confidence.is_none() && estimate.low <= logs && logs <= estimate.high,
                "{estimate:?}"
            );
            let entropy = |logs: f64| total.log2() - logs / total;
            of_entropy += (entropy(estimate.value) / entropy(logs) - 1.0f64).powi(2) / 8.0;
            let Some(bins) = summary.answers().distribution() else {
                assert_eq!(by, Measure::Bytes);
                continue;
            };
            let mut errors: BTreeMap<u64, f64> =
                truth.iter().map(|(size, n)| (*size, -n)).collect();
            let mut all = 0.0;
            for (size, flows) in &bins {
                let of_size = truth.get(size).copied().unwrap_or(0.0);
                assert!(flows.low <= of_size && of_size <= flows.high, "{size}: {flows:?}");
                *errors.entry(*size).or_insert(0.0) += flows.value;
                all += flows.value;
            }
            let sum: f64 = errors.values().map(|error| error.abs()).sum();
            of_sizes += 2.0 * sum / (all + model.len() as f64) / 8.0;
        }
        let of_entropy = of_entropy.sqrt();
        println!(
            "{by:?}, {} flows, {light} counters: sizes {of_sizes}, entropy {of_entropy}",
            model.len()
        );
        assert!(of_sizes <= 0.08, "{of_sizes}");
        let most = if by == Measure::Packets { 0.003 } else { 0.015 };
        assert!(of_entropy <= most, "{of_entropy}");
    }
}

/// Recovered sizes are discarded with the next packet.
#[test]
fn sizes_are_recovered_again() {
    let stream = stream(20_000, 40_000, 5);
    let mut summary = elastic(Measure::Packets, 1, 64, 1 << 15);
    feed(&mut *summary, key, &stream[..20_000]);
    let before = summary.answers().weight_logs(Measure::Packets).unwrap().value;
    feed(&mut *summary, key, &stream[20_000..]);
    let after = summary.answers().weight_logs(Measure::Packets).unwrap().value;
    let mut one = elastic(Measure::Packets, 1, 64, 1 << 15);
    feed(&mut *one, key, &stream);
    assert!(after > before);
    assert_eq!(after, one.answers().weight_logs(Measure::Packets).unwrap().value);
}
