//! Section 4.2, idea C: sampling that adapts to the load.

use flowgauge_core::batch::Batch;
use flowgauge_core::key::{FlowKey, Key8};
use flowgauge_core::terms::Measure;

use crate::experiment::chart::{Chart, Mark, linear, log};
use crate::experiment::part::Part;
use crate::experiment::setting::{FRAME_BYTES, Setting};
use crate::experiment::structure::Structure;
use crate::experiment::table::{Table, row};
use crate::experiment::verdict::{Claim, Verdict};
use crate::experiment::{Experiment, Outcome, Preset};
use crate::failure::Failure;

pub(crate) const LOAD: Experiment = Experiment {
    name: "nitro/load",
    title: "AlwaysLineRate and AlwaysCorrect while the load changes",
    paper: "NitroSketch (SIGCOMM 2019), section 4.2, idea C, and Fig. 6",
    presets: &[
        Preset::other(
            "load",
            "40 and 10 million packets a second",
            "0.5, 10, 40, 10 and 0.5 million, twice",
            "those of the text, and one that needs no sample",
        ),
        Preset::same("windows", "10,000 packets"),
        Preset::other(
            "sketch",
            "any",
            "one row, two flows in turn",
            "each update is seen, and how many packets it stands for",
        ),
    ],
    measure,
    judge,
    missing: &[],
    charts: &[
        Chart {
            title: "Packets that an update stands for",
            y: &[("one_in", "")],
            y_axis: log("1/p"),
            paper: &[
                Mark::At(LINE_RATE, 3.0, 64.0),
                Mark::At(LINE_RATE, 2.0, 16.0),
                Mark::At(LINE_RATE, 4.0, 16.0),
            ],
            ..BY_STEP
        },
        Chart {
            title: "Updates a second",
            y: &[("updates_millions", "")],
            y_axis: linear("million updates of a row a second"),
            see: "AlwaysLineRate keeps to about the same number whatever the load; AlwaysCorrect does once it has \
                  converged.",
            ..BY_STEP
        },
    ],
};

const BY_STEP: Chart = Chart {
    title: "",
    x: "step",
    x_axis: linear("step of the load: 0.5, 10, 40, 10, 0.5 Mpps, twice"),
    y: &[],
    y_axis: linear(""),
    series: "mode",
    only: &[],
    paper: &[],
    see: "AlwaysLineRate goes up and down with the load, to the paper's 64 and 16 (diamonds); AlwaysCorrect takes every \
          packet until it has converged.",
};

const LINE_RATE: &str = "AlwaysLineRate";
const CORRECT: &str = "AlwaysCorrect";

/// Load in millions of packets per second, step by step.
const STEPS: [f64; 10] = [0.5, 10.0, 40.0, 10.0, 0.5, 0.5, 10.0, 40.0, 10.0, 0.5];

/// Packets per flow and step. Only the second half is evaluated: by then the windows have adapted.
const PACKETS: usize = 40_000;

/// Target of AlwaysLineRate in million updates per second.
const MEANT: f64 = 0.625;

fn structures() -> [Structure; 2] {
    let row = |label| {
        let shape = [("rows", 1), ("columns", 256), ("candidates", 0)];
        Structure::new(label, "count-sketch").with(shape)
    };
    // It converges within the stream.
    let correct = [("mode", "correct"), ("epsilon", "0.05"), ("p", "0.015625")];
    [row(LINE_RATE).behind("nitro", [("mode", "line-rate")]), row(CORRECT).behind("nitro", correct)]
}

fn measure(setting: &Setting) -> Result<Outcome, Failure> {
    let mut table =
        Table::new(["mode", "step", "load_mpps", "one_in", "updates_millions", "sampled"]);
    // Estimates are capped at the number of packets: a second flow leaves room above.
    let keys: Vec<Key8> =
        [1, 2].iter().filter_map(|byte| Key8::from_canonical(&[*byte; 8])).collect();
    for structure in structures() {
        let mut summary = structure.build::<Key8>(setting)?;
        let (mut batch, mut time_ns, mut said) = (Batch::new(), 1.0_f64, 0.0_f64);
        for (step, load) in STEPS.iter().enumerate() {
            let (mut updates, mut weight) = (0.0, 0.0);
            for packet in 0..PACKETS {
                for key in &keys {
                    batch.clear();
                    batch.push(*key, FRAME_BYTES, time_ns as i64);
                    time_ns += 1e3 / load;
                    summary.ingest(&mut batch);
                }
                summary.settle();
                let (sizes, key) = (summary.answers().size(), keys[0].canonical(Key8::SHORTEST));
                let size = sizes.and_then(|sizes| sizes.estimate(key).by(Measure::Packets));
                let now = size.map_or(f64::NAN, |size| size.value);
                if packet >= PACKETS / 2 && now > said {
                    updates += 1.0;
                    weight += now - said;
                }
                said = now;
            }
            let share = updates / (PACKETS / 2) as f64;
            let sampled = if weight > updates { "yes" } else { "no" };
            let mode = structure.label.as_str();
            row!(table, mode, step + 1, *load, weight / updates, share * load, sampled);
        }
    }
    let limit =
        "A sketch that takes every packet has as many updates a second as there are packets."
            .to_owned();
    let notes = format!(
        "Steps of {PACKETS} packets of each of two flows, by their times; of each the second half is looked at, packet by packet. \
         An update adds to the row as many packets as it stands for."
    );
    Ok(Outcome { table, limit, notes })
}

fn judge(table: &Table) -> Verdict {
    let at = |mode: &'static str, load: f64, column: &'static str| -> Vec<f64> {
        let rows = table
            .of("mode", mode)
            .filter(move |row| (row.number("load_mpps") / load - 1.0).abs() < 0.01);
        rows.map(|row| row.number(column)).collect()
    };
    let stands_for = |mode: &'static str, load: f64, wanted: f64| {
        let all = at(mode, load, "one_in");
        // The least accurate.
        let worst = all
            .into_iter()
            .reduce(|a, b| if (a - wanted).abs() > (b - wanted).abs() { a } else { b });
        let what = format!("packets that an update stands for at {load} million a second");
        Part::within(&what, worst.unwrap_or(f64::NAN), wanted, 0.1)
    };
    let busy: Vec<f64> =
        [10.0, 40.0].into_iter().flat_map(|load| at(LINE_RATE, load, "updates_millions")).collect();
    let least = busy.iter().copied().fold(f64::NAN, f64::min);
    let most = busy.iter().copied().fold(f64::NAN, f64::max);
    let correct: Vec<f64> = table.numbers("mode", CORRECT, "one_in");
    let [first, last] = [&correct[..correct.len().min(3)], &correct[correct.len().min(5)..]];
    let largest = |numbers: &[f64]| numbers.iter().copied().fold(f64::NAN, f64::max);
    Verdict::of(
        table,
        [
            Claim::new(
                "AlwaysLineRate takes one row in 64 at 40 million packets a second and one in 16 at 10 million, and \
                 comes back when the load does.",
                [
                    stands_for(LINE_RATE, 40.0, 64.0),
                    stands_for(LINE_RATE, 10.0, 16.0),
                    stands_for(LINE_RATE, 0.5, 1.0),
                ],
                "The rate of a window decides about the next.",
            ),
            Claim::new(
                "It has the same number of updates a second whatever the load (within a tenth of what it is meant \
                 for).",
                [
                    Part::within("fewest updates a second under load, millions", least, MEANT, 0.1),
                    Part::within("most updates a second under load, millions", most, MEANT, 0.1),
                ],
                "Rates are powers of two.",
            ),
            Claim::new(
                "AlwaysCorrect takes every packet until it has converged, whatever the load, and then goes on as \
                 AlwaysLineRate.",
                [
                    Part::at_most(
                        "packets that an update stands for, first three steps",
                        largest(first),
                        1.0,
                    ),
                    Part::within(
                        "the same at 40 million a second, afterwards",
                        largest(last),
                        64.0,
                        0.1,
                    ),
                ],
                "It takes a sum of squares of 121 ε⁻⁴ p⁻² to converge.",
            ),
        ],
    )
}
