//! SketchVisor: which packets take the fast path, and the bounds of both paths together.

use flowgauge_core::batch::Batch;
use flowgauge_core::catalog;
use flowgauge_core::key::Key4;
use flowgauge_core::summary::Summary;
use flowgauge_core::terms::Measure;

use crate::{Packet, estimate, key, named, options, packets, weights};

/// A summary with a normal path of `rate` packets per second, after one packet per microsecond.
fn served(packets: &[Packet], by: Measure, rate: u64) -> Box<dyn Summary<Key4>> {
    let parameters = [("rate", rate), ("queue", 100), ("counters", 200)];
    let mut summary = catalog::build::<Key4>("sketch-visor", &options(by, 1, &parameters)).unwrap();
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
