//! Section VII: a sample before a Count Sketch, with an error relative to L2.

use flowgauge_core::key::{Key8, KeyKind};

use crate::experiment::chart::{Chart, Mark, log};
use crate::experiment::part::{Part, spread};
use crate::experiment::setting::{FRAME_BYTES, Setting};
use crate::experiment::stream::{RepeatedStream, Stream, TRAFFIC, root_mean_square};
use crate::experiment::structure::Structure;
use crate::experiment::table::{Table, row};
use crate::experiment::verdict::{Claim, Verdict};
use crate::experiment::{Experiment, Outcome, Preset};
use crate::failure::Failure;

pub(crate) const L2: Experiment = Experiment {
    name: "skipper/l2",
    title: "L2 heavy hitters behind Skipper, by the length of the stream",
    paper: "Skipper, section VII: Accelerating L2-heavy hitter sketches",
    presets: &[
        Preset::other(
            "traffic",
            "not measured: a theorem",
            "like a backbone's; Zipf's law with skew 1.1; a million flows all alike",
            "the claim is about any traffic",
        ),
        Preset::other(
            "Count Sketch",
            "O(1/(ε² τ)) columns, O(log 1/δ) rows",
            "65536 columns, 5 rows",
            "1/(ε² τ) is 40,000 at an error of 5 % and one packet in 100 at least",
        ),
        Preset::other(
            "L2",
            "√N, the least that it can be",
            "that, and what the sketch itself tells",
            "by √N no packet is passed over before 10¹⁰",
        ),
    ],
    measure,
    judge,
    missing: &[],
    charts: &[Chart {
        title: "Error of the twenty largest flows",
        x: "length_packets",
        x_axis: log("packets of the stream"),
        y: &[("error_percent", "")],
        y_axis: log("error (RMS, % of L2)"),
        series: "sketch",
        only: &[],
        paper: &[Mark::Level("ε", 100.0 * EPSILON)],
        see: "Behind L2 Skipper errors stay below ε at every length; by √N they are those of the sketch alone.",
    }],
};

const EPSILON: f64 = 0.05;

const ALONE: &str = "Count Sketch";
const OWN: &str = "by its own L2";
const PAPER: &str = "by √N";

/// Queried flows.
const FLOWS: usize = 20;

/// Share of queries that may exceed the error: what chance leaves with five rows.
const DELTA: f64 = 0.01;

fn structures() -> [Structure; 3] {
    let sketch = |label| {
        let shape = [("rows", 5), ("columns", 1 << 16), ("candidates", 0)];
        Structure::new(label, "count-sketch").with(shape)
    };
    let asked = |l2| [("l2", l2), ("epsilon", "0.05"), ("p", "0.01")];
    [
        sketch(ALONE),
        sketch(OWN).behind("skipper", asked("own")),
        sketch(PAPER).behind("skipper", asked("paper")),
    ]
}

fn measure(setting: &Setting) -> Result<Outcome, Failure> {
    let (lengths, seeds) = (super::lengths(setting), setting.rounds);
    let mut table = Table::new([
        "sketch",
        "kind",
        "traffic",
        "length_packets",
        "error_percent",
        "error_percent_spread",
        "off",
        "asked",
    ]);
    for structure in structures() {
        for (traffic, mix) in TRAFFIC {
            let stream = Stream::<Key8>::draw(setting, mix, KeyKind::PAIR)?;
            let packets = RepeatedStream { keys: &stream.keys, wire: &|_| FRAME_BYTES, gap_ns: 0 };
            let mut errors = vec![Vec::new(); lengths.len()];
            let largest = packets.largest_along(&lengths, FLOWS);
            for seed in 0..seeds as u64 {
                let setting = Setting { seed: setting.seed + seed, ..setting.clone() };
                let mut summary = structure.build::<Key8>(&setting)?;
                let found = packets.errors_along(&mut *summary, &lengths, &largest);
                for (errors, found) in errors.iter_mut().zip(found) {
                    errors.push(found);
                }
            }
            for ((length, errors), largest) in lengths.iter().zip(errors).zip(&largest) {
                let percent = |errors: &Vec<f64>| 100.0 * root_mean_square(errors) / largest.norm;
                let by_seed: Vec<f64> = errors.iter().map(percent).collect();
                let all = errors.concat();
                let off = all.iter().filter(|error| error.abs() > EPSILON * largest.norm).count();
                let kind = structure.label.as_str();
                let (name, error) = (format!("{kind}, {traffic}"), percent(&all));
                row!(table, name, kind, traffic, *length, error, spread(&by_seed), off, all.len());
            }
        }
    }
    let limit = "A Count Sketch of all packets errs by its own columns alone.".to_owned();
    let notes = format!(
        "Asked for the {FLOWS} largest flows, with {seeds} seeds of the digest and the sample. `off` is how \
         many of those asked were off by more than 5 % of L2."
    );
    Ok(Outcome { table, limit, notes })
}

fn judge(table: &Table) -> Verdict {
    let sums = |kind: &'static str, traffic: &str| {
        let rows = table.of("kind", kind).filter(|row| row.text("traffic") == traffic);
        rows.fold((0.0, 0.0), |(off, asked), row| {
            (off + row.number("off"), asked + row.number("asked"))
        })
    };
    let within = TRAFFIC.map(|(traffic, _)| {
        let (off, asked) = sums(OWN, traffic);
        Part::few_are(&format!("{traffic}: off by more than ε L2"), off, asked, DELTA)
    });
    let alike = TRAFFIC.map(|(traffic, _)| {
        let errors = |kind: &'static str| {
            let rows = table.of("kind", kind).filter(|row| row.text("traffic") == traffic);
            rows.map(|row| row.number("error_percent")).fold(f64::NAN, f64::max)
        };
        let what = format!("{traffic}: the largest error by √N over that alone");
        Part::within(&what, errors(PAPER) / errors(ALONE), 1.0, 0.001)
    });
    Verdict::of(
        table,
        [
            Claim::new(
                "A Count Sketch behind L2 Skipper has no time in which it converges: at each length of the \
                 stream its largest flows are off by less than ε L2 (but for 1 %).",
                within,
                "The norm that a sketch tells of few packets is off itself.",
            ),
            Claim::new(
                "By the least that L2 can be, √N, a stream of so many packets is not sampled: errors are those \
                 of the sketch alone.",
                alike,
                "Then some packets would be passed over before 10¹⁰.",
            ),
        ],
    )
}
