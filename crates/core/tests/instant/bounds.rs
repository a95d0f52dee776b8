//! Bounds hold with their confidence, and forwarded packets and residual marks are unbiased.

use flowgauge_core::catalog;
use flowgauge_core::key::{FlowKey, Key4};
use flowgauge_core::summary::instant::Regulator;
use flowgauge_core::summary::{Estimate, Options};
use flowgauge_core::terms::Measure;

use super::*;

/// Over 32 seeds, 95 % of the flows of each size class lie within the bounds, with mixed packet
/// sizes: in crowded words, in words about as full as 128 KB on a busy link, and alone in their
/// words. The test allows three standard errors, which one of the 48 cases would exceed in one run
/// of 15 if the bounds were not wider than necessary.
#[test]
fn bounds_hold_with_their_confidence() {
    let seeds = if std::env::var_os("FLOWGAUGE_LONG").is_some() { 256 } else { 32 };
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
    let options = Options::new(32 << 20, 1).with([("sketch", 8 << 20)]);
    let digester = options.digester.for_keys(Key4::BYTES);
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
            catalog::build(name, &Options::new(32 << 20, 1).with(parameters)).unwrap()
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
