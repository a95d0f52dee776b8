//! Accuracy: regulation rate, errors by flow size, bounds, recall, and detection delay. The long
//! form is at the size of the paper's evaluation, the short one at one 25th of it.
//!
//! The error of a flow depends on its packets and on the marks of other flows that fall on its
//! eight bits. The short form divides packets and flows by 25 and the sketch by 16 (128 KB) or 32
//! (8 MB), so that a vector gets 0.64 or 1.3 times as many foreign marks as in the long form. So
//! errors and limits for flows of equal size are about the same, but there are fewer large flows to
//! average over.

use flowgauge_core::catalog;
use flowgauge_core::key::FlowKey;
use flowgauge_core::summary::instant::Regulator;
use flowgauge_core::summary::{Estimate, Options};
use flowgauge_core::terms::{Measure, Size};

use super::*;
use crate::zipf::Zipf;
use crate::{long, seeds};

const TOP: (u64, u64) = (1_000_000, u64::MAX);
const LARGE: (u64, u64) = (100_000, 1_000_000);
const MIDDLE: (u64, u64) = (10_000, 100_000);
const OVER_100K: (u64, u64) = (100_000, u64::MAX);
const BOTH: [Measure; 2] = [Measure::Packets, Measure::Bytes];

/// One packet length per flow, so that errors in bytes equal those in packets.
fn of_flow(flow: u32, _: &mut fastrand::Rng) -> u32 {
    64 + flow.wrapping_mul(0x9e37_79b9) % 1437
}

fn percent(share: f64) -> f64 {
    (share * 1e5).round() / 1e3
}

/// Prints the results, and collects those that fail.
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

    /// Expects at least this recall of the `count` largest flows, by packets and by bytes.
    fn recall(&mut self, summary: &Summary, truth: &[Size], count: usize, least: [f64; 2]) {
        for (by, least) in BOTH.into_iter().zip(least) {
            let recall = recall(summary, truth, by, count);
            let what = format!("recall of the {count} largest by {by:?}: {} %", percent(recall));
            self.expect(recall >= least, what);
        }
    }

    fn check(self) {
        assert!(self.0.is_empty(), "{:#?}", self.0);
    }
}

/// The theoretical recall, minus four standard deviations of the number of missed flows.
fn at_least(theory: &Theory, truth: &[Size], by: Measure, count: usize) -> f64 {
    let missed = (1.0 - theory.recall(truth, by, count)) * count as f64;
    1.0 - (missed + 4.0 * missed.sqrt()) / count as f64
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
        for by in BOTH {
            // Only four flows are larger; their mean error is below 1 % by 3 standard errors.
            findings.class_errors(summary, &truth, by, &[(LARGE, 0.010), (MIDDLE, 0.035)]);
        }
        // The total error of large flows is within 4 standard deviations.
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
    findings.recall(large, &truth, 10, [0.95; 2]);
    // At one 25th of the flows, the 400th has about 770 packets, with a standard error of
    // 0.32 √(95 × 770) packets. Some of the largest by bytes have fewer packets and a larger error.
    for count in [100, 400] {
        let theory = Theory::new(256 << 10, &truth, false);
        findings.recall(large, &truth, count, BOTH.map(|by| at_least(&theory, &truth, by, count)));
    }
    findings.check();
}

/// 100 million packets of a million flows.
#[test]
fn errors_at_the_papers_size() {
    if !long() {
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
        for by in BOTH {
            findings.class_errors(summary, &truth, by, &limits);
        }
    }
    let [.., large, rcc] = &summaries;
    findings.rcc_regulation(rcc, &truth);
    for count in [100, 1000] {
        findings.recall(large, &truth, count, [0.95; 2]);
    }
    // The 10,000th flow by packets has 493; the theoretical recall of flows alone in their words is
    // 95.1 %. By bytes, flows of long packets have fewer packets: the theoretical recall is 95.0 %
    // for flows alone, and slightly less in 8 MB. The test below has ten times as many packets.
    let theory = Theory::new(8 << 20, &truth, false);
    let by_bytes = at_least(&theory, &truth, Measure::Bytes, 10_000);
    findings.recall(large, &truth, 10_000, [0.95, by_bytes]);
    findings.check();
}

/// The mean error of the 800 flows above 100,000 packets in ten runs, and light flows whose lower
/// bound exceeds the threshold.
#[test]
fn large_flows_are_unbiased_and_false_positives_rare() {
    if !long() {
        return;
    }
    let forms = [("128 KB", 128 << 10), ("2 MB", 2 << 20), ("8 MB", 8 << 20)];
    let mut findings = Findings::default();
    let mut sums = [(0.0, 0.0, 0.0); 3];
    let mut detected: [[Detected; 2]; 3] = Default::default();
    for seed in 0..10 {
        let mut summaries = forms.map(|(_, sketch)| {
            build_in("insta-measure", 128 << 20, seed, &[("sketch", sketch as u64)])
        });
        let truth = feed(&mut summaries, 100_000_000, 1_000_000, seed, of_flow);
        for (number, summary) in summaries.iter().enumerate() {
            let over = errors(summary, &truth, Measure::Packets, OVER_100K, UNIT);
            let (flows, bias, squares) = &mut sums[number];
            *flows += over.flows as f64;
            *bias += over.bias * over.flows as f64;
            *squares += over.squares;
            let theory = Theory::new(forms[number].1, &truth, false);
            for (detected, by) in detected[number].iter_mut().zip(BOTH) {
                detected.add(summary, &truth, (by, SHARE), &theory);
            }
        }
    }
    for (((name, _), (flows, bias, squares)), detected) in
        forms.into_iter().zip(sums).zip(&detected)
    {
        let (bias, error) = (bias / flows, (squares / flows).sqrt() / flows.sqrt());
        let [mean, error] = [bias, error].map(percent);
        let what = format!("{name}: bias of {flows} flows {mean} % ± {error} %");
        findings.expect(bias.abs() <= 0.002, what);
        for (detected, limit) in detected.iter().zip([0.001, 0.002]) {
            detected.check();
            let wrong = detected.surely_wrong / detected.heavy;
            let what = format!("{name}: {} % surely heavy that are not", percent(wrong));
            findings.expect(wrong < limit, what);
        }
    }
    findings.check();
}

/// A billion packets of a million flows; the 100,000th has 392.
#[test]
fn long_lists_are_found_in_long_runs() {
    if !long() {
        return;
    }
    let mut summaries = [build_in("insta-measure", 128 << 20, 1, &[("sketch", 8 << 20)])];
    let truth = feed(&mut summaries, 1_000_000_000, 1_000_000, 1, of_flow);
    let mut findings = Findings::default();
    for (count, least) in [(100, 0.95), (1000, 0.95), (10_000, 0.95), (100_000, 0.9)] {
        findings.recall(&summaries[0], &truth, count, [least; 2]);
    }
    findings.check();
}

/// Threshold of a heavy hitter, as a fraction of all packets or bytes, or of the link's capacity in
/// a second.
const SHARE: f64 = 0.0005;

/// Minimum-size frames per second of a link of 1 Gbit/s.
const LINK_PACKETS: f64 = 1_488_095.0;

/// Numbers of heavy flows and of detection errors.
#[derive(Debug, Default)]
struct Detected {
    heavy: f64,
    /// Heavy flows whose estimate is not above the threshold, and light flows whose estimate is.
    missed: f64,
    wrong: f64,
    /// Light flows whose lower bound is above the threshold, too.
    surely_wrong: f64,
    /// The theoretical means of these three.
    should: [f64; 3],
}

impl Detected {
    /// Adds the detections of a summary. Flows just below the threshold count as false positives
    /// like any others. By the estimate alone, these are the flows within about 0.4 standard
    /// deviations of the threshold: at the paper's size 0.5 % of the heavy flows, for any sketch.
    fn add(
        &mut self,
        summary: &Summary,
        truth: &[Size],
        (by, share): (Measure, f64),
        theory: &Theory,
    ) {
        let threshold = share * truth.iter().map(|size| size.by(by) as f64).sum::<f64>();
        let is_heavy = |size: &Size| size.by(by) as f64 > threshold;
        for (flow, size) in truth.iter().enumerate() {
            let estimate = estimate(summary, flow).by(by).unwrap();
            let (heavy, reported) = (is_heavy(size), estimate.value > threshold);
            self.heavy += f64::from(heavy);
            self.missed += f64::from(heavy && !reported);
            self.wrong += f64::from(!heavy && reported);
            self.surely_wrong += f64::from(!heavy && estimate.low > threshold);
        }
        let light = || truth.iter().filter(|size| !is_heavy(size));
        let heavy = || truth.iter().filter(|size| is_heavy(size));
        let over = |deviations| theory.over(light(), by, threshold, deviations);
        let missed = heavy().count() as f64 - theory.over(heavy(), by, threshold, 0.0);
        for (sum, more) in self.should.iter_mut().zip([missed, over(0.0), over(2.0)]) {
            *sum += more;
        }
    }

    /// Checks that the numbers exceed the theoretical means by at most four standard deviations.
    fn check(&self) {
        println!("{self:.1?}");
        let are = [self.missed, self.wrong, self.surely_wrong];
        for (is, should) in are.into_iter().zip(self.should) {
            assert!(is <= should + 4.0 * (should + 0.25).sqrt(), "{self:?}");
        }
    }
}

/// With a hundredth of the packets and ten times the fraction, the threshold is a tenth of the
/// paper's.
#[test]
fn few_light_flows_are_reported() {
    for sketch in [8 << 10, 256 << 10] {
        let mut detected = [Detected::default(), Detected::default()];
        for seed in 0..4 {
            let mut summaries = [build("insta-measure", seed, &[("sketch", sketch)])];
            let truth = feed(&mut summaries, 1_000_000, 40_000, seed, |_, random| mixed(random));
            let theory = Theory::new(sketch as usize, &truth, true);
            for (detected, by) in detected.iter_mut().zip([Measure::Packets, Measure::Bytes]) {
                detected.add(&summaries[0], &truth, (by, 10.0 * SHARE), &theory);
            }
        }
        detected.iter().for_each(Detected::check);
    }
}

/// Flows of 10 to 200 thousand packets per second in a background of a million per second. The
/// delay is the number of a flow's packets between exceeding the threshold and its detection. It is
/// the same at each rate; an early detection counts as a delay of zero.
#[test]
fn detection_takes_as_long_as_95_packets() {
    let threshold = SHARE * LINK_PACKETS;
    let (mut delays, mut early, mut flows, mut signed) = (0.0, 0.0, 0.0, 0.0);
    for seed in 0..32 {
        let mut summary = build("insta-measure", seed, &[]);
        let mut random = fastrand::Rng::with_seed(seed);
        let mut background = Zipf::new(100_000, 1.1, seed);
        let mut batch = Batch::new();
        // Attackers have the numbers above the background. Packets sent so far, and at detection.
        let rates = [10e3, 20e3, 50e3, 100e3, 130e3, 200e3];
        let mut sent = [0.0; 6];
        let mut detected = [None; 6];
        let all = 1e6 + rates.iter().sum::<f64>();
        let mut packets = 0;
        while detected.iter().any(Option::is_none) {
            packets += 1;
            assert!(packets < 1_000_000, "{detected:?}");
            let mut draw = random.f64() * all;
            let attacker = rates.iter().position(|rate| {
                draw -= rate;
                draw < 0.0
            });
            let Some(number) = attacker.filter(|_| packets > 50_000) else {
                batch.push(key(background.next().unwrap()), 100, packets * 1000);
                if batch.len() == 256 {
                    summary.ingest(&mut batch);
                    batch.clear();
                }
                continue;
            };
            let flow = 100_000 + number;
            batch.push(key(flow as u32), 100, packets * 1000);
            summary.ingest(&mut batch);
            batch.clear();
            sent[number] += 1.0;
            if detected[number].is_none()
                && estimate(&summary, flow).packets.unwrap().value > threshold
            {
                detected[number] = Some(sent[number]);
            }
        }
        for at in detected.iter().flatten() {
            let delay = at - threshold.floor() - 1.0;
            flows += 1.0;
            signed += delay;
            early += f64::from(delay < 0.0);
            delays += delay.max(0.0);
        }
    }
    let (mean, signed) = (delays / flows, signed / flows);
    println!(
        "{flows} flows: mean delay {mean:.1} packets ({signed:.1} if early ones count as negative), {early} early"
    );
    assert!(mean <= 95.0);
    assert!(early < 0.6 * flows);
}

// Bounds hold with their confidence, and forwarded packets and residual marks are unbiased.

/// Over 32 seeds, 95 % of the flows of each size class lie within the bounds, with mixed packet
/// sizes: in crowded words, in words about as full as 128 KB on a busy link, and alone in their
/// words. The test allows three standard errors, which one of the 48 cases would exceed in one run
/// of 15 if the bounds were not wider than necessary.
#[test]
fn bounds_hold_with_their_confidence() {
    let seeds = seeds();
    let classes = [(0, 10), (10, 100), (100, 1000), (1000, u64::MAX)];
    for sketch in [1 << 9, 1 << 12, 1 << 17] {
        let mut within = [[[0.0; 2]; 4]; 2];
        let mut flows = [0.0; 4];
        for seed in 0..seeds {
            let mut summaries =
                ["insta-measure", "rcc"].map(|name| build(name, seed, &[("sketch", sketch)]));
            let truth = feed(&mut summaries, 200_000, 4_000, seed, |_, random| mixed(random));
            for (number, class) in classes.into_iter().enumerate() {
                for (summary, within) in summaries.iter().zip(&mut within) {
                    for (by, within) in
                        [Measure::Packets, Measure::Bytes].into_iter().zip(&mut within[number])
                    {
                        let errors = errors(summary, &truth, by, class, UNIT);
                        if errors.flows > 0 {
                            *within += errors.covered * errors.flows as f64;
                        }
                        if by == Measure::Packets {
                            flows[number] += errors.flows as f64 / 2.0;
                        }
                    }
                }
            }
        }
        for (name, within) in ["insta-measure", "rcc"].iter().zip(within) {
            for ((class, within), flows) in classes.iter().zip(within).zip(flows) {
                let shares = within.map(|within| within / flows);
                println!("{name} {sketch} {class:?}: {flows} flows, {shares:.4?} within");
                let least = 0.95 - 3.0 * f64::sqrt(0.95 * 0.05 / flows);
                assert!(shares.iter().all(|share| *share >= least), "{name} {class:?} {shares:?}");
            }
        }
    }
}

/// No flow has more packets than the total, however many a forwarded packet represents.
#[test]
fn bounds_end_with_the_total() {
    let zero = Estimate { value: 0.0, low: 0.0, high: 0.0, confidence: Some(0.95) };
    let mut summary = [build("insta-measure", 1, &[("sketch", 64)])];
    let empty = estimate(&summary[0], 1);
    assert_eq!((empty.packets, empty.bytes), (Some(zero), Some(zero)));
    for seed in 0..20 {
        summary[0].clear();
        feed(&mut summary, 60, 2, seed, |_, _| 100);
        for flow in 0..3 {
            let packets = estimate(&summary[0], flow).packets.unwrap();
            assert!(packets.low <= packets.value && packets.value <= packets.high);
            assert!(packets.high <= 60.0);
        }
    }
}

/// Each mark adds one packet to the size on average, in any state of the words: the mean size of
/// 2,000 flows is within 4 standard errors after any number of packets.
fn marks_are_unbiased<const LAYERS: usize>(unit: f64, variance: f64) {
    let options = Options::new(32 << 20, 1).for_keys(4).with([("sketch", 8 << 20)]);
    let digester = options.digester.for_keys(4);
    let mut regulator = Regulator::<u32, LAYERS>::from_options(&options).unwrap();
    let digests: Vec<u64> = (0..2000).map(|flow| key(flow).digest(&digester)).collect();
    let (mut forwarded, mut sent) = (0.0, 0);
    for packets in [1, 3, 10, 30, 100, 300] {
        while sent < packets {
            regulator.regulate(&digests, None, &mut |_| forwarded += unit);
            sent += 1;
        }
        let residual: f64 = digests.iter().map(|digest| regulator.residual(*digest)).sum();
        let (mean, packets) = ((forwarded + residual) / 2000.0, f64::from(packets));
        let error = (variance * unit * packets / 2000.0).sqrt();
        println!("{LAYERS} layers: {mean} of {packets}");
        assert!((mean - packets).abs() < 4.0 * error, "{LAYERS} layers: {mean} of {packets}");
    }
}

#[test]
fn forwarded_packets_and_residual_marks_are_unbiased() {
    marks_are_unbiased::<1>(RCC_UNIT, 0.09);
    marks_are_unbiased::<2>(UNIT, 0.1);
}

/// With `decode=saturation` a flow has a whole number of units, on average half a unit less than
/// with its residual marks, and the same bounds.
#[test]
fn decoding_at_saturation_omits_residual_marks() {
    for (name, unit, packets) in [("insta-measure", UNIT, 400_000), ("rcc", RCC_UNIT, 400_000)] {
        let ways = ["marks", "saturation"].map(|decode| {
            let parameters = [("sketch", "1048576"), ("decode", decode)];
            catalog::build(name, &Options::new(32 << 20, 1).for_keys(4).with(parameters)).unwrap()
        });
        let mut ways: [Summary; 2] = ways;
        let truth = feed(&mut ways, packets, 4_000, 1, of_size_100);
        let (mut flows, mut residual) = (0.0, 0.0);
        for flow in (0..truth.len()).filter(|flow| truth[*flow].packets > 200) {
            let [marks, saturation] =
                ways.each_ref().map(|summary| estimate(summary, flow).packets.unwrap());
            let forwarded = saturation.value / unit;
            let off = (forwarded - forwarded.round()).abs();
            assert!(off < 1e-6, "{name} {flow}: {forwarded}");
            let bounds = |of: Estimate| [of.low.to_bits(), of.high.to_bits()];
            assert_eq!(bounds(saturation), bounds(marks));
            residual += marks.value - saturation.value;
            flows += 1.0;
        }
        let residual = residual / flows;
        println!("{name}: {flows} flows, {residual} packets in residual marks");
        assert!((0.35 * unit..0.65 * unit).contains(&residual), "{name}: {residual}");
        // The parameter is listed, so that summaries that differ in it do not merge.
        assert!(ways[1].parameters().iter().any(|(name, _)| *name == "decode"));
    }
}

fn of_size_100(_: u32, _: &mut fastrand::Rng) -> u32 {
    100
}
