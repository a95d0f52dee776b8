//! Regulation, errors by size of flow, and recall: at the size of the paper's evaluation in the
//! long form, and at one 25th of it by default.
//!
//! What an error depends on is a flow's number of packets, and how many marks of other flows fall
//! on its eight bits meanwhile. The small form divides packets and flows by 25 and the sketch by
//! 16 (128 KB) or 32 (10 MB), so that a vector gets 0.64 or 1.3 times as many foreign marks over the run as in the
//! long form: errors of flows of equal size are about the same, and the limits too, but there are
//! fewer large flows to take means over.

use flowgauge_core::summary::{Measure, Size};

use super::lab::*;

const TOP: (u64, u64) = (1_000_000, u64::MAX);
const LARGE: (u64, u64) = (100_000, 1_000_000);
const MIDDLE: (u64, u64) = (10_000, 100_000);
const OVER_100K: (u64, u64) = (100_000, u64::MAX);

/// A packet length for each flow, so that errors in bytes are those in packets.
fn of_flow(flow: u32, _: &mut fastrand::Rng) -> u32 {
    64 + flow.wrapping_mul(0x9e37_79b9) % 1437
}

fn percent(share: f64) -> f64 {
    (share * 1e5).round() / 1e3
}

fn class_errors(summary: &Summary, truth: &[Size], by: Measure, limits: &[((u64, u64), f64)]) {
    for &(class, limit) in limits {
        let Errors { flows, mean, bias, covered, deviation } =
            errors(summary, truth, by, class, UNIT);
        println!(
            "  {by:?} {class:?}: {flows} flows, mean error {} %, bias {} %, within bounds {} %, \
             deviation {deviation:.3}",
            percent(mean),
            percent(bias),
            percent(covered),
        );
        assert!(mean <= limit, "mean error {mean} in {class:?}");
    }
}

#[test]
fn errors_at_one_25th_of_the_papers_size() {
    let mut summaries = [
        build("insta-measure", 1, &[("sketch", 8 << 10)]),
        build("insta-measure", 1, &[("sketch", 4 << 10), ("levels", 1)]),
        build("insta-measure", 1, &[("sketch", 8 << 10), ("word", 64)]),
        build("rcc", 1, &[("sketch", 8 << 10)]),
        build("insta-measure", 1, &[("sketch", 256 << 10)]),
    ];
    let truth = feed(&mut summaries, 4_000_000, 40_000, 1, of_flow);
    let [three, one, wide, rcc, large] = &summaries;
    for summary in [three, one, wide, large] {
        let regulation = regulation(summary, &truth, UNIT);
        println!("regulation {} %", percent(regulation));
        assert!(regulation <= 0.011);
        for by in [Measure::Packets, Measure::Bytes] {
            // Four flows are larger: the mean of their errors is below 1 % by 3 standard errors.
            class_errors(summary, &truth, by, &[(LARGE, 0.010), (MIDDLE, 0.035)]);
        }
        // The bias of all that is large, in units of its standard deviation.
        let (mut sum, mut error) = (0.0, 0.0);
        for (flow, size) in truth.iter().enumerate().filter(|(_, size)| size.packets > 10_000) {
            sum += size.packets as f64;
            error += estimate(summary, flow).packets.unwrap().value - size.packets as f64;
        }
        println!("  bias over 10,000 packets {} %", percent(error / sum));
        assert!(error.abs() < 4.0 * 0.4 * (UNIT * sum).sqrt(), "biased by {error}");
    }
    class_errors(large, &truth, Measure::Packets, &[(LARGE, 0.009), (MIDDLE, 0.022)]);

    let regulation = regulation(rcc, &truth, RCC_UNIT);
    println!("regulation of RCC {} %", percent(regulation));
    assert!((0.085..=0.105).contains(&regulation));

    // One 25th of the flows: the 400th has as many packets here as the 10,000th there.
    for count in [10, 100, 400] {
        for by in [Measure::Packets, Measure::Bytes] {
            let recall = recall(large, &truth, by, count);
            println!("recall of the {count} largest by {by:?}: {} %", percent(recall));
            assert!(recall >= 0.95, "{recall} of the {count} largest by {by:?}");
        }
    }
}

/// 100 million packets of a million flows.
#[test]
fn errors_at_the_papers_size() {
    if std::env::var_os("FLOWGAUGE_LONG").is_none() {
        println!("skipped: takes minutes; FLOWGAUGE_LONG=1 runs it, best with --release");
        return;
    }
    let sketches = [128 << 10, 256 << 10, 2 << 20, 8 << 20];
    let limits = [
        [0.003, 0.010, 0.035],
        [0.003, 0.010, 0.035],
        [0.003, 0.009, 0.022],
        [0.003, 0.009, 0.022],
    ];
    let mut summaries = sketches
        .map(|sketch| build_in("insta-measure", 128 << 20, 1, &[("sketch", sketch)]))
        .into_iter()
        .chain([
            build_in("insta-measure", 128 << 20, 1, &[("sketch", 64 << 10), ("levels", 1)]),
            build_in("rcc", 128 << 20, 1, &[("sketch", 128 << 10)]),
        ])
        .collect::<Vec<_>>();
    let truth = feed(&mut summaries, 100_000_000, 1_000_000, 1, of_flow);
    let rcc = regulation(&summaries.pop().unwrap(), &truth, RCC_UNIT);
    println!("regulation of RCC {} %", percent(rcc));
    assert!((0.085..=0.105).contains(&rcc));
    let one = summaries.pop().unwrap();
    println!("64 KB with one level: regulation {} %", percent(regulation(&one, &truth, UNIT)));
    class_errors(&one, &truth, Measure::Packets, &[(TOP, 0.003), (LARGE, 0.010), (MIDDLE, 0.035)]);
    for ((summary, sketch), [top, large, middle]) in summaries.iter().zip(sketches).zip(limits) {
        let regulation = regulation(summary, &truth, UNIT);
        println!("{sketch} bytes: regulation {} %", percent(regulation));
        assert!(regulation <= 0.011);
        for by in [Measure::Packets, Measure::Bytes] {
            class_errors(summary, &truth, by, &[(TOP, top), (LARGE, large), (MIDDLE, middle)]);
        }
        let bias = errors(summary, &truth, Measure::Packets, OVER_100K, UNIT).bias;
        println!("  bias over 100,000 packets {} %", percent(bias));
        assert!(bias.abs() <= 0.002, "{bias}");
    }
    let large = summaries.last().unwrap();
    for count in [100, 1000, 10_000, 100_000] {
        for by in [Measure::Packets, Measure::Bytes] {
            let recall = recall(large, &truth, by, count);
            println!("recall of the {count} largest by {by:?}: {} %", percent(recall));
            // The 100,000th flow has 39 packets, less than what stays behind.
            assert!(recall >= 0.95 || count == 100_000, "{recall} of the {count} largest");
        }
    }
    super::detection::false_positives(large, &truth);
    super::detection::false_positives(&summaries[0], &truth);
}
