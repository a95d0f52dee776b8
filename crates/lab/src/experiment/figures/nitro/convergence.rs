//! Section 4: how long row samples take to become accurate.

use flowgauge_core::key::{Key8, KeyKind};

use crate::experiment::chart::{Chart, Mark, log};
use crate::experiment::part::Part;
use crate::experiment::setting::{FRAME_BYTES, Setting};
use crate::experiment::stream::{RepeatedStream, Stream, TRAFFIC};
use crate::experiment::structure::Structure;
use crate::experiment::table::{Table, row};
use crate::experiment::verdict::{Claim, Verdict};
use crate::experiment::{Experiment, Outcome, Preset};
use crate::failure::Failure;

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
    measure,
    judge,
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
const CORRECT: &str = "AlwaysCorrect at 40 Mpps";

const EPSILON: f64 = 0.05;

/// Share of the queried flows that may exceed the error.
const DELTA: f64 = 0.05;

/// Queried flows, and samples per round.
const FLOWS: usize = 10;
const SAMPLES: usize = 2;

/// Each structure, and the nanoseconds between its packets.
fn structures() -> [(Structure, i64); 6] {
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
        (nitro(CORRECT, &[("mode", "correct"), ("epsilon", "0.05")]), 25),
    ]
}

/// Stream lengths in packets, each four times the one before.
fn lengths(setting: &Setting) -> Vec<usize> {
    let most = 16 * setting.packets;
    std::iter::successors(Some(1000), |length| Some(4 * length))
        .take_while(|length| *length <= most)
        .collect()
}

fn measure(setting: &Setting) -> Result<Outcome, Failure> {
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
        let stream = Stream::<Key8>::draw(setting, mix, KeyKind::PAIR)?;
        let of_rate =
            |gap_ns| RepeatedStream { keys: &stream.keys, wire: &|_| FRAME_BYTES, gap_ns };
        let largest = of_rate(0).largest_along(&lengths, FLOWS);
        for (structure, gap_ns) in structures() {
            let packets = of_rate(gap_ns);
            let mut errors = vec![Vec::new(); lengths.len()];
            for sample in 0..samples as u64 {
                let setting = Setting { seed: setting.seed + sample, ..setting.clone() };
                let mut summary = structure.build::<Key8>(&setting)?;
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

fn judge(table: &Table) -> Verdict {
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
                worst(CORRECT),
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
