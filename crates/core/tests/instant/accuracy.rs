//! Regulation, errors by size of flow, and recall: at the size of the paper's evaluation in the
//! long form, and at one 25th of it by default.
//!
//! What an error depends on is a flow's number of packets, and how many marks of other flows fall
//! on its eight bits meanwhile. The small form divides packets and flows by 25 and the sketch by
//! 16 (128 KB) or 32 (8 MB), so that a vector gets 0.64 or 1.3 times as many foreign marks over
//! the run as in the long form: errors of flows of equal size are about the same, and the limits
//! too, but there are fewer large flows to take means over.

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

/// Prints what was measured, and takes note of what is not as it must be.
#[derive(Default)]
struct Findings(Vec<String>);

impl Findings {
    fn expect(&mut self, holds: bool, what: String) {
        println!("{what}");
        if !holds {
            self.0.push(what);
        }
    }

    fn class_errors(
        &mut self,
        summary: &Summary,
        truth: &[Size],
        by: Measure,
        limits: &[((u64, u64), f64)],
    ) {
        for &(class, limit) in limits {
            let errors = errors(summary, truth, by, class, UNIT);
            let [mean, bias, covered] = [errors.mean, errors.bias, errors.covered].map(percent);
            let what = format!(
                "  {by:?} {class:?}: {} flows, mean error {mean} %, bias {bias} %, \
                 within bounds {covered} %, deviation {:.3}",
                errors.flows, errors.deviation,
            );
            self.expect(errors.mean <= limit, what);
        }
    }

    fn regulation(&mut self, summary: &Summary, truth: &[Size], name: &str) {
        let regulation = regulation(summary, truth, UNIT);
        self.expect(regulation <= 0.011, format!("{name}: regulation {} %", percent(regulation)));
    }

    fn rcc_regulation(&mut self, summary: &Summary, truth: &[Size]) {
        let regulation = regulation(summary, truth, RCC_UNIT);
        let what = format!("RCC: regulation {} %", percent(regulation));
        self.expect((0.085..=0.105).contains(&regulation), what);
    }

    /// `least` is by packets and by bytes. Of the largest flows by bytes some have fewer packets
    /// than any of those by packets, and so a larger error: at the 10,000th that costs 3 %.
    fn recall(&mut self, summary: &Summary, truth: &[Size], count: usize, least: [f64; 2]) {
        for (by, least) in [Measure::Packets, Measure::Bytes].into_iter().zip(least) {
            let recall = recall(summary, truth, by, count);
            let what = format!("recall of the {count} largest by {by:?}: {} %", percent(recall));
            self.expect(recall >= least, what);
        }
    }

    fn check(self) {
        assert!(self.0.is_empty(), "{:#?}", self.0);
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
    let mut findings = Findings::default();
    for (summary, name) in
        [(three, "8 KB"), (one, "one level"), (wide, "64 bits"), (large, "256 KB")]
    {
        findings.regulation(summary, &truth, name);
        for by in [Measure::Packets, Measure::Bytes] {
            // Four flows are larger: the mean of their errors is below 1 % by 3 standard errors.
            findings.class_errors(summary, &truth, by, &[(LARGE, 0.010), (MIDDLE, 0.035)]);
        }
        // What is large is together within 4 standard deviations.
        let (mut sum, mut error) = (0.0, 0.0);
        for (flow, size) in truth.iter().enumerate().filter(|(_, size)| size.packets > 10_000) {
            sum += size.packets as f64;
            error += estimate(summary, flow).packets.unwrap().value - size.packets as f64;
        }
        let what = format!("  bias over 10,000 packets {} %", percent(error / sum));
        findings.expect(error.abs() < 4.0 * 0.4 * (UNIT * sum).sqrt(), what);
    }
    findings.class_errors(large, &truth, Measure::Packets, &[(LARGE, 0.009), (MIDDLE, 0.022)]);
    findings.rcc_regulation(rcc, &truth);
    // One 25th of the flows: the 400th has as many packets here as the 10,000th there.
    for (count, by_bytes) in [(10, 0.95), (100, 0.95), (400, 0.92)] {
        findings.recall(large, &truth, count, [0.95, by_bytes]);
    }
    findings.check();
}

/// 100 million packets of a million flows.
#[test]
fn errors_at_the_papers_size() {
    if std::env::var_os("FLOWGAUGE_LONG").is_none() {
        println!("skipped: takes minutes; FLOWGAUGE_LONG=1 runs it, best with --release");
        return;
    }
    let crowded = [(TOP, 0.003), (LARGE, 0.010), (MIDDLE, 0.035)];
    let roomy = [(TOP, 0.003), (LARGE, 0.009), (MIDDLE, 0.022)];
    let insta = |parameters: &[_]| build_in("insta-measure", 128 << 20, 1, parameters);
    let mut summaries = [
        insta(&[("sketch", 128 << 10)]),
        insta(&[("sketch", 64 << 10), ("levels", 1)]),
        insta(&[("sketch", 256 << 10)]),
        insta(&[("sketch", 2 << 20)]),
        insta(&[("sketch", 8 << 20)]),
        build_in("rcc", 128 << 20, 1, &[("sketch", 128 << 10)]),
    ];
    let truth = feed(&mut summaries, 100_000_000, 1_000_000, 1, of_flow);
    let mut findings = Findings::default();
    let forms = [
        ("128 KB", crowded),
        ("64 KB, one level", crowded),
        ("256 KB", crowded),
        ("2 MB", roomy),
        ("8 MB", roomy),
    ];
    for (summary, (name, limits)) in summaries.iter().zip(forms) {
        findings.regulation(summary, &truth, name);
        for by in [Measure::Packets, Measure::Bytes] {
            findings.class_errors(summary, &truth, by, &limits);
        }
        // The mean over some 80 flows has a standard error of 0.08 % of its own: the bias is told
        // from 0.2 % when it is two of these above.
        let over = errors(summary, &truth, Measure::Packets, OVER_100K, UNIT);
        let error = (over.squares / over.flows as f64).sqrt() / (over.flows as f64).sqrt();
        let [bias, deviation] = [over.bias, error].map(percent);
        let what = format!("  bias over 100,000 packets {bias} % ± {deviation} %");
        findings.expect(over.bias.abs() <= 0.002 + 2.0 * error, what);
    }
    let [small, .., large, rcc] = &summaries;
    findings.rcc_regulation(rcc, &truth);
    for (count, by_bytes) in [(100, 0.95), (1000, 0.95), (10_000, 0.92)] {
        findings.recall(large, &truth, count, [0.95, by_bytes]);
    }
    // The last has 39 packets, and is in the table by chance: longer runs are needed for longer lists.
    findings.recall(large, &truth, 100_000, [0.0; 2]);
    super::detection::false_positives(small, &truth);
    super::detection::false_positives(large, &truth);
    findings.check();
}
