//! Sampled NetFlow: unbiased, and within its bounds with their confidence.

use flowgauge_core::terms::Measure;

use crate::{are_unbiased, estimate, options, packets, seeds, summary, weights};

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
        for seed in seeds() {
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
