//! Figure 14: missed heavy hitters, and false positives.

use flowgauge_core::terms::Measure;

use super::{LONGER, Lengths, of_sketch, run};
use crate::experiment::chart::{Chart, linear, log};
use crate::experiment::part::Part;
use crate::experiment::setting::Setting;
use crate::experiment::table::{Table, row};
use crate::experiment::verdict::{Claim, Verdict};
use crate::experiment::{Experiment, Outcome, Preset};
use crate::failure::Failure;

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
    measure,
    judge,
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

fn measure(setting: &Setting) -> Result<Outcome, Failure> {
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

fn judge(table: &Table) -> Verdict {
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
