//! Sampled flow tables: right on average, within the bounds as often as they say.

use flowgauge_core::terms::Measure;

use crate::stream::{estimate, options, packets, seeds, summary, weights};

/// Over the seeds, the mean error of a flow is within 4 of its standard errors, of which the estimate
/// of its variance takes part: beyond that once in 16,000 runs of one flow, so once in 800 of these 20.
/// The bounds fail once in 100; of 640 cases more than 20 fail once in 10,000 runs.
#[test]
fn estimates_are_unbiased_and_bounds_hold_as_often_as_stated() {
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
        for (flow, errors) in errors.iter().enumerate() {
            let count = errors.len() as f64;
            let mean = errors.iter().sum::<f64>() / count;
            let variance = errors.iter().map(|error| (error - mean).powi(2)).sum::<f64>() / count;
            let deviations = mean / (variance / count).sqrt();
            assert!(deviations.abs() < 4.0, "{flow}: {mean}, {deviations} standard errors");
        }
        assert!(outside * 32 <= all, "{outside} of {all}");
    }
}

#[test]
fn every_packet_is_counted_where_one_in_one_is_chosen() {
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

/// One in so many is chosen: within 5 standard deviations, beyond which one run in 1.7 million is.
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
