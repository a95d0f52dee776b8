//! Misra-Gries: the weight of every key is within its bounds, for any traffic.

use flowgauge_core::terms::Measure;

use crate::{estimate, named, options, packets, summary, weights};

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
