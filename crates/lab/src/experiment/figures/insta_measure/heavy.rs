//! Figures 9b and 14: how soon heavy hitters are detected, and how many are missed.

use flowgauge_core::key::FlowKey;
use flowgauge_core::summary::Options;
use flowgauge_core::terms::Measure;
use flowgauge_kernel::{Digester, Isa, Seed};

use super::{FlowRegulator, LONGER, Lengths, RATE, SKETCH, of_sketch, run};
use crate::experiment::chart::{Chart, Mark, linear, log};
use crate::experiment::part::Part;
use crate::experiment::setting::{Mix, Setting};
use crate::experiment::stream::Stream;
use crate::experiment::table::{Table, row};
use crate::experiment::verdict::{Claim, Verdict};
use crate::experiment::{Experiment, Outcome, Preset};
use crate::failure::Failure;
use crate::keys::{FiveTuples, Keys};

/// Figure 9b: the delay until a heavy hitter is detected.
pub(crate) const FIG9B: Experiment = Experiment {
    name: "insta-measure/fig9b",
    title: "delay of detection, by the rate of a heavy hitter",
    paper: "InstaMeasure (ICDCS 2019), Fig. 9b",
    presets: &[
        super::REGULATOR,
        Preset::same("flow", "10,000 to 200,000 packets a second"),
        Preset::same("threshold", "0.05 % of a link of 1 Gbit/s"),
        Preset::other(
            "other traffic",
            "none is named",
            "a million packets a second like a backbone's",
            "words that nobody shares are too easy",
        ),
        Preset::other(
            "clock",
            "a network",
            "that of the packets",
            "delays of decoding, and of nothing else",
        ),
    ],
    measure: measure_delay,
    judge: judge_delay,
    missing: &[],
    charts: &[Chart {
        title: "Delay of detection",
        x: "flow_kpps",
        x_axis: log("rate of the flow (thousand packets a second)"),
        y: &[("delay_ms", " mean"), ("most_ms", " at worst")],
        y_axis: log("delay (ms)"),
        series: "decoding",
        only: &[],
        paper: &[Mark::At(SATURATION, 10.0, 10.0), Mark::At(SATURATION, 130.0, 1.0)],
        see: "The faster the flow, the sooner it is seen; diamonds are the paper's mean delays, 10 ms and 1 ms.",
    }],
};

const SATURATION: &str = "at saturation";
const EACH: &str = "at each packet";

/// 0.05 % of the minimum-size packets that a 1 Gbit/s link carries in a second.
const THRESHOLD: f64 = 0.0005 * 1_488_095.0;

/// Rates of the flow in thousands of packets per second.
const RATES: [u64; 6] = [10, 20, 50, 90, 130, 200];

/// Flows per rate and round.
const FLOWS: usize = 15;

fn measure_delay(setting: &Setting) -> Result<Outcome, Failure> {
    let stream = Stream::<FiveTuples>::draw(setting, Mix::Trace)?;
    let digester =
        Digester::new(Seed::number(setting.seed), Isa::best()).for_keys(FiveTuples::BYTES);
    let digests: Vec<u64> = stream.keys.iter().map(|key| key.digest(&digester)).collect();
    let mut background = digests.iter().copied().cycle();
    let options = Options::new(1 << 20, setting.seed).with([("sketch", SKETCH)]);
    let failed = |error| Failure::Build { algorithm: "insta-measure", asked: String::new(), error };
    let mut regulator = FlowRegulator::from_options(&options).map_err(failed)?;
    regulator.regulate(&digests, None, &mut |_| {});
    let mut random = fastrand::Rng::with_seed(setting.seed);
    let mut table = Table::new(["decoding", "flow_kpps", "delay_ms", "most_ms", "early_percent"]);
    for rate in RATES {
        let between = (RATE / 1000 / rate).max(1) as usize;
        let mut late = [Vec::new(), Vec::new()];
        for _ in 0..FLOWS * setting.rounds {
            let crossed = detect(&mut regulator, random.u64(..), between, &mut background);
            for (late, crossed) in late.iter_mut().zip(crossed) {
                late.push((crossed - THRESHOLD.ceil()) / rate as f64);
            }
        }
        for (decoding, late) in [SATURATION, EACH].into_iter().zip(late) {
            let count = late.len() as f64;
            let delay = late.iter().map(|late| late.max(0.0)).sum::<f64>() / count;
            let most = late.iter().copied().fold(0.0, f64::max);
            let early = late.iter().filter(|late| **late < 0.0).count() as f64;
            row!(table, decoding, rate as f64, delay, most, 100.0 * early / count);
        }
    }
    let limit =
        "A counter of each flow's own sees it with no delay, at the cost of a table's entry for \
                 every flow."
            .to_owned();
    let notes = format!(
        "A flow exceeds {:.0} packets among a million a second of others, which it shares 128 KB with. One \
         that is seen early has no delay; `early_percent` says how many are. Decoding at each packet adds \
         what the regulator holds back.",
        THRESHOLD.floor()
    );
    Ok(Outcome { table, limit, notes })
}

/// The packet number at which a flow is found to exceed the threshold: at saturation, and by
/// decoding at every packet. One in `between` packets is the flow's.
fn detect(
    regulator: &mut FlowRegulator,
    flow: u64,
    between: usize,
    background: &mut impl Iterator<Item = u64>,
) -> [f64; 2] {
    let (mut packets, mut through) = (0.0, 0.0);
    let mut seen = [None, None];
    while seen[0].is_none() {
        for other in background.by_ref().take(between - 1) {
            regulator.regulate(&[other], None, &mut |_| {});
        }
        packets += 1.0;
        regulator.regulate(&[flow], None, &mut |_| through += FlowRegulator::UNIT);
        let decoded = [through, through + regulator.residual(flow)];
        for (seen, decoded) in seen.iter_mut().zip(decoded) {
            if seen.is_none() && decoded > THRESHOLD {
                *seen = Some(packets);
            }
        }
    }
    seen.map(|seen| seen.unwrap_or(packets))
}

fn judge_delay(table: &Table) -> Verdict {
    let at = |kpps: f64, column: &str| {
        let rows = table.of("decoding", SATURATION);
        let mut rows = rows.filter(|row| (row.number("flow_kpps") - kpps).abs() < 0.5);
        rows.next().map_or(f64::NAN, |row| row.number(column))
    };
    let means = table.numbers("decoding", SATURATION, "delay_ms");
    let within = |kpps: f64, most: f64| {
        let what = format!("mean delay at {} packets a second, ms", 1000.0 * kpps);
        Part::at_most(&what, at(kpps, "delay_ms"), most)
    };
    Verdict::of(
        table,
        [
            Claim::new(
                "Decoded when it saturates, a flow of 10,000 packets a second is seen to exceed 0.05 % of a \
                 link of 1 Gbit/s some 10 ms after the packet with which it does, one of 130,000 after 1 ms.",
                [within(10.0, 10.0), within(130.0, 1.0)],
                "What one packet that is let through stands for, 95 packets, takes longer.",
            ),
            Claim::new(
                "The faster the flow, the sooner it is seen.",
                [Part::moves("mean delay by rate, ms", &means, false)],
                "A flow waits for packets, not for time.",
            ),
        ],
    )
}

/// Figure 14: missed heavy hitters, and false positives.
pub(crate) const FIG14: Experiment = Experiment {
    name: "insta-measure/fig14",
    title: "heavy hitters overlooked and named wrongly",
    paper: "InstaMeasure (ICDCS 2019), Fig. 14",
    presets: &[
        super::LONG,
        super::KEY,
        super::REGULATOR,
        super::TABLE,
        super::LENGTHS,
        Preset::other(
            "thresholds",
            "in a figure",
            "0.01 to 0.2 % of the total",
            "around that of Fig. 9b",
        ),
    ],
    measure: measure_heavy,
    judge: judge_heavy,
    missing: &[],
    charts: &[
        Chart { title: "Named wrongly", y: &[("wrong_percent", "")], ..BY_THRESHOLD },
        Chart { title: "Overlooked", y: &[("missed_percent", "")], ..BY_THRESHOLD },
    ],
};

const BY_THRESHOLD: Chart = Chart {
    title: "",
    x: "threshold_percent",
    x_axis: log("threshold (% of the total)"),
    y: &[],
    y_axis: linear("%"),
    series: "by",
    only: &[],
    paper: &[],
    see: "Few flows are named wrongly or overlooked, fewer the higher the threshold; the paper has at most 0.1 % of packets' and 0.2 % of bytes' named wrongly.",
};

/// Thresholds in percent.
const THRESHOLDS: [f64; 5] = [0.01, 0.02, 0.05, 0.1, 0.2];

fn measure_heavy(setting: &Setting) -> Result<Outcome, Failure> {
    let flows = run(setting, &[of_sketch(super::SKETCH)], Lengths::ByFlow, LONGER)?;
    let mut table = Table::new([
        "by",
        "threshold_percent",
        "heavy",
        "missed",
        "wrong_percent",
        "missed_percent",
        "wrong_of_heavy_percent",
    ]);
    for by in [Measure::Packets, Measure::Bytes] {
        let total: f64 = flows.iter().map(|flow| flow.truth.by(by) as f64).sum();
        for percent in THRESHOLDS {
            let threshold = percent / 100.0 * total;
            let (mut heavy, mut wrong, mut missed) = (0, 0, 0);
            for flow in &flows {
                let is = flow.truth.by(by) as f64 > threshold;
                let named = flow.estimate(0, by) > threshold;
                heavy += usize::from(is);
                wrong += usize::from(named && !is);
                missed += usize::from(is && !named);
            }
            let of = |part: usize, all: usize| 100.0 * part as f64 / all as f64;
            let rates = (of(wrong, flows.len() - heavy), of(missed, heavy), of(wrong, heavy));
            row!(table, by.name(), percent, heavy, missed, rates.0, rates.1, rates.2);
        }
    }
    let limit = "A table of all flows names each heavy hitter and no other.".to_owned();
    let notes = format!(
        "{} packets of {} flows by Zipf's law with skew 1.1, in 128 KB before a table of 2²⁰ entries. Those \
         named wrongly are flows just below the threshold: `wrong_of_heavy_percent` counts them over the \
         heavy hitters instead of over all others.",
        flows.iter().map(|flow| flow.truth.packets).sum::<u64>(),
        flows.len()
    );
    Ok(Outcome { table, limit, notes })
}

fn judge_heavy(table: &Table) -> Verdict {
    let worst = |by: &str, column: &str| {
        table.numbers("by", by, column).into_iter().fold(f64::NAN, f64::max)
    };
    // The paper's threshold.
    let at = |by: &str, column: &str| {
        let mut rows =
            table.of("by", by).filter(|row| (row.number("threshold_percent") - 0.05).abs() < 1e-6);
        rows.next().map_or(f64::NAN, |row| row.number(column))
    };
    let wrong = |by: &str, most: f64| {
        let what = format!("named wrongly by {by}, at worst %");
        Part::at_most(&what, worst(by, "wrong_percent"), most)
    };
    let few = |by: &str| {
        let (missed, heavy) = (at(by, "missed"), at(by, "heavy"));
        Part::few_are(&format!("overlooked at 0.05 % of the {by}"), missed, heavy, 0.01)
    };
    Verdict::of(
        table,
        [
            Claim::new(
                "Fewer than 0.1 % of the flows that are no heavy hitters by packets are named, and fewer than \
                 0.2 % by bytes.",
                [wrong("packets", 0.1), wrong("bytes", 0.2)],
                "Flows just below the threshold are many.",
            ),
            Claim::new(
                "Of heavy hitters hardly any is overlooked: at most 1 % at a threshold of 0.05 %.",
                [few("packets"), few("bytes")],
                "Half of the flows whose size is within the estimate's error of the threshold are overlooked. \
                 The longer the run, the smaller that error: the paper's has 9.1 billion packets.",
            ),
        ],
    )
}
