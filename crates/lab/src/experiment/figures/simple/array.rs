//! Section 3: the precision of a count array by size.

use flowgauge_core::key::{Key8, KeyKind};

use crate::experiment::chart::{Chart, Mark, linear, log};
use crate::experiment::part::{Part, median, spread};
use crate::experiment::setting::Setting;
use crate::experiment::stream::TRAFFIC;
use crate::experiment::structure::{Exam, Structure};
use crate::experiment::table::Table;
use crate::experiment::verdict::{Claim, Verdict};
use crate::experiment::{Experiment, Outcome, Preset};
use crate::failure::Failure;
use crate::traffic::Scene;

pub(crate) const ARRAY_SIZE: Experiment = Experiment {
    name: "simple/array",
    title: "precision and recall of a count array, by its size",
    paper: "Simple (SOSR 2018), section 3 and Fig. 2b",
    presets: &[
        Preset::other(
            "traffic",
            "a minute of CAIDA: 27 million packets, a million flows, skew 1.1",
            "like a backbone's; Zipf's law with skew 1.1; a million flows all alike has no heavy ones",
            "the trace is not free to hand on",
        ),
        super::EPOCH,
        super::KEY,
        super::HEAVY,
        Preset::other(
            "arrays",
            "one whose colliding flows overwrite each other, and one with a set of heavy keys",
            "both, of 2^12 to 2^22 slots",
            "the paper names no size for its 99.5 and 96.54 %",
        ),
    ],
    measure,
    judge,
    missing: &[],
    charts: &[
        Chart {
            title: "Precision",
            y: &[("precision_percent", "")],
            y_axis: linear("precision (%)"),
            paper: &[Mark::Level("the paper: 99.5 %", PRECISION)],
            see: "The overwriting array names nothing wrongly at any size; the additive one comes to the paper's \
                  level as it grows.",
            ..BY_SIZE
        },
        Chart {
            title: "Recall",
            y: &[("recall_percent", "")],
            y_axis: linear("recall (%)"),
            paper: &[Mark::Level("the paper: 96.54 %", RECALL)],
            see: "The additive array misses nothing at any size; the overwriting one crosses the paper's level where \
                  it has a few slots for each flow.",
            ..BY_SIZE
        },
    ],
};

const BY_SIZE: Chart = Chart {
    title: "",
    x: "slots",
    x_axis: log("slots"),
    y: &[],
    y_axis: linear(""),
    series: "array",
    only: &[],
    paper: &[],
    see: "",
};

/// The paper's precision in percent.
const PRECISION: f64 = 99.5;
const RECALL: f64 = 96.54;

const OVERWRITING: &str = "overwriting";
const ADDITIVE: &str = "additive";

/// Numbers of slots, and those for which the claim is checked.
const SLOTS: [usize; 6] = [1 << 12, 1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 22];
const NAMED: f64 = 4_194_304.0;

fn structures(slots: usize) -> [Structure; 2] {
    let of = |label, algorithm| Structure::new(label, algorithm);
    [
        of(OVERWRITING, "replacing-array").with([("columns", slots), ("candidates", 0)]),
        of(ADDITIVE, "count-array").with([("columns", slots)]),
    ]
}

fn measure(setting: &Setting) -> Result<Outcome, Failure> {
    let mut table = Table::new([
        "array",
        "kind",
        "traffic",
        "slots",
        "precision_percent",
        "precision_percent_spread",
        "recall_percent",
        "recall_percent_spread",
    ]);
    let seeds = setting.rounds.max(3);
    // Uniform traffic has no heavy flows.
    for (traffic, mix) in TRAFFIC.into_iter().take(2) {
        let mut scores = vec![[const { (Vec::new(), Vec::new()) }; 2]; SLOTS.len()];
        for seed in 0..seeds as u64 {
            let setting = Setting { seed: setting.seed + seed, ..setting.clone() };
            let packets = setting.epochs(mix, Scene::Plain)?;
            let exam = Exam::<Key8>::new(&setting, mix, Scene::Plain, KeyKind::PAIR, &packets)?;
            for (slots, scores) in SLOTS.into_iter().zip(&mut scores) {
                for (structure, (precisions, recalls)) in structures(slots).iter().zip(scores) {
                    let score = exam.score(structure, "heavy-hitters")?.unwrap_or_default();
                    // An empty list has no false positives.
                    precisions.push(100.0 * score.precision().unwrap_or(1.0));
                    recalls.push(100.0 * score.recall().unwrap_or(f64::NAN));
                }
            }
        }
        for (slots, scores) in SLOTS.into_iter().zip(scores) {
            for (structure, (precisions, recalls)) in structures(slots).iter().zip(scores) {
                let kind = structure.label.as_str();
                let at = [
                    format!("{kind}, {traffic}").into(),
                    kind.into(),
                    traffic.into(),
                    slots.into(),
                ];
                let of = |percents: &[f64]| [median(percents).into(), spread(percents).into()];
                table.push(at.into_iter().chain(of(&precisions)).chain(of(&recalls)));
            }
        }
    }
    let limit = "A table of all flows names every heavy one and no other.".to_owned();
    let notes = format!(
        "Medians over {seeds} seeds of traffic and digest. In epochs of {} packets; the more flows an epoch has, the \
         more slots it takes.",
        setting.packets
    );
    Ok(Outcome { table, limit, notes })
}

fn judge(table: &Table) -> Verdict {
    let traffics = ["backbone", "Zipf 1.1"];
    let of = |kind: &'static str, traffic: &str, column: &str| -> Vec<(f64, f64)> {
        let rows = table.of("kind", kind).filter(|row| row.text("traffic") == traffic);
        rows.map(|row| (row.number("slots"), row.number(column))).collect()
    };
    let named = |kind, traffic: &str, column: &str| {
        let at =
            of(kind, traffic, column).into_iter().find(|(slots, _)| (slots - NAMED).abs() < 0.5);
        at.map_or(f64::NAN, |(_, percent)| percent)
    };
    let least = |kind, traffic: &str, column: &str| {
        of(kind, traffic, column).into_iter().map(|(_, percent)| percent).fold(f64::NAN, f64::min)
    };
    let both = |kind: &'static str| {
        traffics.into_iter().flat_map(move |traffic| {
            [("precision", "precision_percent", PRECISION), ("recall", "recall_percent", RECALL)]
                .map(|(what, column, wanted)| {
                    let what = format!("{traffic}: {what} of the {kind} array of 2^22 slots, %");
                    Part::at_least(&what, named(kind, traffic, column), wanted)
                })
        })
    };
    let always = |kind, column, what: &'static str| {
        traffics.map(|traffic| {
            let what = format!("{traffic}: {what} of the {kind} array at its worst size, %");
            Part::at_least(&what, least(kind, traffic, column), 100.0)
        })
    };
    Verdict::of(
        table,
        [
            Claim::new(
                "A count array whose flows overwrite each other finds heavy hitters with a precision of 99.5 % and \
                 a recall of 96.54 %: here with 2^22 slots.",
                both(OVERWRITING),
                "The size is not named.",
            ),
            Claim::new(
                "So does one with a set of heavy keys, with as many.",
                both(ADDITIVE),
                "The size is not named.",
            ),
            Claim::new(
                "Overwriting loses flows and names none wrongly, whatever the size.",
                always(OVERWRITING, "precision_percent", "precision"),
                "A slot counts one flow at a time.",
            ),
            Claim::new(
                "A set of heavy keys loses none, whatever the size.",
                always(ADDITIVE, "recall_percent", "recall"),
                "The set has no room for all whose slot is heavy.",
            ),
        ],
    )
}
