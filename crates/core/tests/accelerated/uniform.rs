//! Uniform sampling.

use flowgauge_core::batch::Batch;
use flowgauge_core::key::{FlowKey, Key4};
use flowgauge_core::summary::{Options, Parameters};
use flowgauge_core::terms::Measure;

use super::build;
use super::stream::{Packet, key};

/// Over 1,000 seeds the mean of each flow is within 3 standard errors: of 18 means one is beyond in 20
/// sets of seeds, of which this is one.
#[test]
fn sizes_are_right_on_average() {
    // Of flow 0 one packet in two, of flow 1 one in four, of flow 2 one in eight.
    let stream: Vec<Packet> = (1..3000u32)
        .map(|i| Packet { flow: i.trailing_zeros(), bytes: 64 + i % 7 * 200, peer: 0 })
        .collect();
    let mut batches: Vec<Batch<Key4>> = Vec::new();
    for chunk in stream.chunks(100) {
        let mut batch = Batch::new();
        for packet in chunk {
            batch.push(key(packet.flow), packet.bytes, 0);
        }
        batches.push(batch);
    }
    for sample in [2, 10, 50] {
        for by in [Measure::Packets, Measure::Bytes] {
            let mut sums = [0.0; 3];
            for seed in 0..1000 {
                let options = Options { by, ..Options::new(64 << 10, seed) };
                let sampler = ("uniform", Parameters::new([("sample", sample)]));
                let mut summary = build(Some(sampler), "linear-table", &options).unwrap();
                for batch in &mut batches {
                    summary.ingest(batch);
                }
                summary.settle();
                let sizes = summary.answers().size().unwrap();
                for (flow, sum) in (0..).zip(&mut sums) {
                    *sum += sizes
                        .estimate(key::<Key4>(flow).canonical(Key4::BYTES))
                        .by(by)
                        .unwrap()
                        .value;
                }
            }
            for (flow, sum) in (0..).zip(sums) {
                let of_flow = stream.iter().filter(|packet| packet.flow == flow);
                let weights = of_flow.map(|p| match by {
                    Measure::Packets => 1.0,
                    Measure::Bytes => f64::from(p.bytes),
                });
                let (truth, squares) = weights
                    .fold((0.0, 0.0), |(t, s), weight: f64| (t + weight, s + weight * weight));
                let error = (squares * (f64::from(sample) - 1.0) / 1000.0).sqrt();
                let mean = sum / 1000.0;
                assert!((mean - truth).abs() < 3.0 * error, "1/{sample}: {mean}, {truth}");
            }
        }
    }
}

/// One packet in one is all of them, exactly.
#[test]
fn all_packets_are_no_sample() {
    let mut batch = Batch::<Key4>::new();
    (0..200).for_each(|i| batch.push(key(i % 7), 100, 0));
    let options = Options::new(64 << 10, 1);
    let sampler = ("uniform", Parameters::new([("sample", 1)]));
    let mut summary = build(Some(sampler), "linear-table", &options).unwrap();
    summary.ingest(&mut batch);
    let size = summary.answers().size().unwrap().estimate(key::<Key4>(3).canonical(Key4::BYTES));
    let size = size.packets.unwrap();
    assert_eq!((size.low, size.value, size.high, size.confidence), (29.0, 29.0, 29.0, None));
}
