//! Section 4: how soon samples of NitroSketch's modes are accurate, and how modes adapt to load.

use flowgauge_core::batch::Batch;
use flowgauge_core::key::{FlowKey, Key8};
use flowgauge_core::terms::Measure;

use crate::experiment::chart::{Chart, Mark, linear, log};
use crate::experiment::part::Part;
use crate::experiment::setting::{FRAME_BYTES, Setting};
use crate::experiment::stream::{RepeatedStream, Stream, TRAFFIC};
use crate::experiment::structure::Structure;
use crate::experiment::table::{Table, row};
use crate::experiment::verdict::{Claim, Verdict};
use crate::experiment::{Experiment, Outcome, Preset};
use crate::failure::Failure;
use crate::keys::{Keys, Pairs};

/// Section 4: how long row samples take to become accurate.
pub(crate) const CONVERGENCE: Experiment = Experiment {
    name: "nitro/convergence",
    title: "how long samples take until they are accurate, in each of NitroSketch's modes",
    paper: "NitroSketch (SIGCOMM 2019), section 4: idea C and the strawmen",
    presets: &[
        Preset::other(
            "traffic",
            "CAIDA",
            "like a backbone's; Zipf's law with skew 1.1; a million flows all alike",
            "the claims are about any traffic",
        ),
        Preset::other(
            "Count Sketch",
            "not named",
            "5 rows of 524,288 columns",
            "8/(ε² p) are 320,000 for an error of 5 % and one row in 100",
        ),
        Preset::other(
            "rates",
            "up to 40 million packets a second",
            "40 million; and 100,000 beside",
            "of the latter every row takes every packet",
        ),
    ],
    measure: measure_convergence,
    judge: judge_convergence,
    missing: &[],
    charts: &[
        Chart { title: "Backbone", only: &BACKBONE, ..BY_LENGTH },
        Chart { title: "Zipf 1.1", only: &ZIPF, ..BY_LENGTH },
    ],
};

const BY_LENGTH: Chart = Chart {
    title: "",
    x: "length_packets",
    x_axis: log("packets of the stream"),
    y: &[("error_percent", "")],
    y_axis: log("error, 95th percentile (% of L2)"),
    series: "sketch",
    only: &[],
    paper: &[Mark::Level("ε", 100.0 * EPSILON)],
    see: "Fixed samples and AlwaysLineRate at 40 million a second come from above ε; AlwaysCorrect stays below it. Errors \
          of 0 have no place on the axis.",
};

const BACKBONE: [&str; 4] = [
    "sampled packets, backbone",
    "p = 0.01, backbone",
    "AlwaysLineRate at 40 Mpps, backbone",
    "AlwaysCorrect at 40 Mpps, backbone",
];
const ZIPF: [&str; 4] = [
    "sampled packets, Zipf 1.1",
    "p = 0.01, Zipf 1.1",
    "AlwaysLineRate at 40 Mpps, Zipf 1.1",
    "AlwaysCorrect at 40 Mpps, Zipf 1.1",
];

const ALONE: &str = "Count Sketch";
const UNIFORM: &str = "sampled packets";
const FIXED: &str = "p = 0.01";
const FAST: &str = "AlwaysLineRate at 40 Mpps";
const SLOW: &str = "AlwaysLineRate at 0.1 Mpps";
const CORRECT_FAST: &str = "AlwaysCorrect at 40 Mpps";

const EPSILON: f64 = 0.05;

/// Share of the queried flows that may exceed the error.
const DELTA: f64 = 0.05;

/// Queried flows, and samples per round.
const FLOWS: usize = 10;
const SAMPLES: usize = 2;

/// Each structure, and the nanoseconds between its packets.
fn converging() -> [(Structure, i64); 6] {
    let sketch = |label| {
        let shape = [("rows", 5), ("columns", 1 << 19), ("candidates", 0)];
        Structure::new(label, "count-sketch").with(shape)
    };
    let nitro =
        |label, asked: &[(&str, &str)]| sketch(label).behind("nitro", asked.iter().copied());
    [
        (sketch(ALONE), 25),
        (sketch(UNIFORM).behind("uniform", [("sample", 100)]), 25),
        (nitro(FIXED, &[("p", "0.01")]), 25),
        (nitro(FAST, &[("mode", "line-rate")]), 25),
        (nitro(SLOW, &[("mode", "line-rate")]), 10_000),
        (nitro(CORRECT_FAST, &[("mode", "correct"), ("epsilon", "0.05")]), 25),
    ]
}

/// Stream lengths in packets, each four times the one before.
fn lengths(setting: &Setting) -> Vec<usize> {
    let most = 16 * setting.packets;
    std::iter::successors(Some(1000), |length| Some(4 * length))
        .take_while(|length| *length <= most)
        .collect()
}

fn measure_convergence(setting: &Setting) -> Result<Outcome, Failure> {
    let (lengths, samples) = (lengths(setting), SAMPLES * setting.rounds);
    let mut table = Table::new([
        "sketch",
        "kind",
        "traffic",
        "length_packets",
        "error_percent",
        "off",
        "asked",
    ]);
    for (traffic, mix) in TRAFFIC {
        let stream = Stream::<Pairs>::draw(setting, mix)?;
        let of_rate =
            |gap_ns| RepeatedStream::<Pairs> { keys: &stream.keys, wire: &|_| FRAME_BYTES, gap_ns };
        let largest = of_rate(0).largest_along(&lengths, FLOWS);
        for (structure, gap_ns) in converging() {
            let packets = of_rate(gap_ns);
            let mut errors = vec![Vec::new(); lengths.len()];
            for sample in 0..samples as u64 {
                let setting = Setting { seed: setting.seed + sample, ..setting.clone() };
                let mut summary = structure.build::<Pairs>(&setting)?;
                let found = packets.errors_along(&mut *summary, &lengths, &largest);
                for (errors, found) in errors.iter_mut().zip(found) {
                    errors.extend(found.into_iter().map(f64::abs));
                }
            }
            for ((length, mut errors), largest) in lengths.iter().zip(errors).zip(&largest) {
                errors.sort_by(f64::total_cmp);
                let off = errors.iter().filter(|error| **error > EPSILON * largest.norm).count();
                let high = errors.get(errors.len() * 95 / 100).copied().unwrap_or(f64::NAN);
                let kind = structure.label.as_str();
                let (name, percent) = (format!("{kind}, {traffic}"), 100.0 * high / largest.norm);
                row!(table, name, kind, traffic, *length, percent, off, errors.len());
            }
        }
    }
    let limit =
        "A Count Sketch of all packets errs by its columns alone, a thousandth of L2.".to_owned();
    let notes = format!(
        "{samples} seeds of digest and sample, each asked for the {FLOWS} largest flows. `off` is how many of those \
         asked were off by more than ε L2. AlwaysLineRate measures the rate from window to window of 10,000 packets: \
         in the first it takes all."
    );
    Ok(Outcome { table, limit, notes })
}

fn judge_convergence(table: &Table) -> Verdict {
    let rows = |kind: &'static str, traffic: &'static str| {
        table.of("kind", kind).filter(move |row| row.text("traffic") == traffic)
    };
    let worst = |kind: &'static str| {
        TRAFFIC.map(|(traffic, _)| {
            let worst =
                rows(kind, traffic).max_by(|a, b| a.number("off").total_cmp(&b.number("off")));
            let (off, asked) =
                worst.map_or((f64::NAN, f64::NAN), |row| (row.number("off"), row.number("asked")));
            Part::few_are(
                &format!("{traffic}, {kind}: off by more than ε L2, at worst"),
                off,
                asked,
                DELTA,
            )
        })
    };
    let skewed = ["backbone", "Zipf 1.1"];
    let at_first = [UNIFORM, FIXED].into_iter().flat_map(|kind| {
        skewed.map(|traffic| {
            let first = rows(kind, traffic).next();
            let share = first.map_or(f64::NAN, |row| row.number("off") / row.number("asked"));
            let what = format!("{traffic}, {kind}: share off by more than ε L2 at first");
            Part::at_least(&what, share, 2.0 * DELTA)
        })
    });
    let at_last = [UNIFORM, FIXED, FAST].into_iter().flat_map(|kind| {
        skewed.map(|traffic| {
            let last = rows(kind, traffic).last();
            let (off, asked) =
                last.map_or((f64::NAN, f64::NAN), |row| (row.number("off"), row.number("asked")));
            Part::few_are(
                &format!("{traffic}, {kind}: off by more than ε L2 at last"),
                off,
                asked,
                DELTA,
            )
        })
    });
    Verdict::of(
        table,
        [
            Claim::new(
                "AlwaysCorrect is accurate throughout: at each length of the stream flows are off by more than \
                 ε L2 no more often than one time in twenty.",
                worst(CORRECT_FAST),
                "What converged by the norm that the sketch tells has not by the true one.",
            ),
            Claim::new(
                "A fixed sampling rate has a convergence time: in a short stream flows are off by more, more \
                 often than one time in ten.",
                at_first,
                "The largest flow is so large that a hundredth of it is enough.",
            ),
            Claim::new(
                "When it has passed, samples are accurate, at AlwaysLineRate too.",
                at_last,
                "The stream is too short.",
            ),
            Claim::new(
                "AlwaysLineRate converges sooner where fewer packets come: at 100,000 a second, of which each is \
                 counted, it is accurate at each length.",
                worst(SLOW),
                "The rate is measured from window to window.",
            ),
        ],
    )
}

/// Section 4.2, idea C: sampling that adapts to the load.
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
    measure: measure_load,
    judge: judge_load,
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

fn adapting() -> [Structure; 2] {
    let row = |label| {
        let shape = [("rows", 1), ("columns", 256), ("candidates", 0)];
        Structure::new(label, "count-sketch").with(shape)
    };
    // It converges within the stream.
    let correct = [("mode", "correct"), ("epsilon", "0.05"), ("p", "0.015625")];
    [row(LINE_RATE).behind("nitro", [("mode", "line-rate")]), row(CORRECT).behind("nitro", correct)]
}

fn measure_load(setting: &Setting) -> Result<Outcome, Failure> {
    let mut table =
        Table::new(["mode", "step", "load_mpps", "one_in", "updates_millions", "sampled"]);
    // Estimates are capped at the number of packets: a second flow leaves room above.
    let keys: Vec<Key8> =
        [1, 2].iter().filter_map(|byte| Key8::from_canonical(&[*byte; 8])).collect();
    for structure in adapting() {
        let mut summary = structure.build::<Pairs>(setting)?;
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
                let (sizes, key) = (summary.answers().size(), keys[0].canonical(Pairs::BYTES));
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

fn judge_load(table: &Table) -> Verdict {
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
