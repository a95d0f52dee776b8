//! Skipper: black-box acceleration of measurement algorithms in software switches.

mod composed;
mod lengths;
mod samples;

pub(super) use composed::{HIERARCHICAL, UNIVMON};
pub(super) use lengths::{FIG2, FIG3};
pub(super) use samples::{CONVERGENCE, L2, WEIGHTED};

use crate::experiment::Preset;
use crate::experiment::chart::{Axis, Chart, log};
use crate::experiment::setting::Setting;
use crate::experiment::structure::Structure;

/// The accelerated structures, and the one that cannot be.
const COUNT_MIN: &str = "Count-Min";
const COUNT_SKETCH: &str = "Count Sketch";
const HEAP: &str = "Space-Saving";
const BUCKETS: &str = "Space-Saving, linked buckets";

/// Each with its name behind Skipper.
const ACCELERATED: [(&str, &str); 3] = [
    (COUNT_MIN, "ACC(Count-Min)"),
    (COUNT_SKETCH, "ACC(Count Sketch)"),
    (HEAP, "ACC(Space-Saving)"),
];

/// The error if it is not varied, for structure and sample alike.
const EPSILON: f64 = 0.01;

/// Packets of a stream that are all taken: Γ, from Chernoff's bound. The sample exceeds the error
/// with probability `delta`.
fn gamma(epsilon: f64, delta: f64) -> f64 {
    3.0 / epsilon.powi(2) * (2.0 / delta).ln()
}

const TRAFFIC: Preset = Preset::other(
    "traffic",
    "four traces of a billion packets, of Chicago and San Jose",
    "an epoch like a backbone's, again and again, or `--keys FILE`",
    "the traces are not free to hand on",
);
const LENGTH: Preset = Preset::of(
    "length",
    "up to a billion packets",
    |setting| {
        let longest = lengths(setting).last().copied().unwrap_or(0);
        format!("up to {} million packets", longest as f64 / 1e6)
    },
    "`--quick` is for every day",
);
const ROWS: Preset = Preset::same("sketches", "5 rows of e/ε columns");
const COUNTERS: Preset = Preset::same("Space-Saving", "1/ε counters");
const GAMMA: Preset = Preset::other(
    "Γ",
    "3 ε⁻² ln(1/2δ)",
    "3 ε⁻² ln(2/δ)",
    "Chernoff's bound needs it; the other is printed",
);

/// Stream lengths in packets, up to 64 times the epoch in memory, or 512 times: a billion packets.
fn lengths(setting: &Setting) -> Vec<usize> {
    let most = if setting.packets < Setting::full().packets { 64 } else { 512 };
    std::iter::successors(Some(1), |turns| Some(turns * setting.factor))
        .take_while(|turns| *turns <= most)
        .map(|turns| turns * setting.packets)
        .collect()
}

/// Rounds. Streams are long, so half as many suffice.
fn rounds(setting: &Setting) -> usize {
    setting.rounds.div_ceil(2)
}

/// Errors, from large to small.
fn epsilons(setting: &Setting) -> impl Iterator<Item = f64> {
    (4..=12).step_by(if setting.factor > 2 { 2 } else { 1 }).map(|power| 0.5_f64.powi(power))
}

/// Every structure for this error and probability, the plain ones first.
fn structures(epsilon: f64, delta: f64) -> Vec<Structure> {
    let columns = (std::f64::consts::E / epsilon).ceil() as usize;
    let rows = [("rows", 5), ("columns", columns.next_power_of_two()), ("candidates", 0)];
    let counters = [("counters", (1.0 / epsilon).ceil() as usize)];
    let plain = [
        Structure::new(COUNT_MIN, "count-min").with(rows),
        Structure::new(COUNT_SKETCH, "count-sketch").with(rows),
        Structure::new(HEAP, "space-saving").with(counters),
    ];
    let accelerated = plain.iter().zip(ACCELERATED).map(|(structure, (_, name))| {
        let asked = [("epsilon", epsilon), ("delta", delta)];
        structure.clone().named(name).behind("skipper", asked)
    });
    let accelerated: Vec<Structure> = accelerated.collect();
    let buckets = Structure::new(BUCKETS, "stream-summary").with(counters);
    plain.into_iter().chain([buckets]).chain(accelerated).collect()
}

/// Panels by stream length and by error: sketches, and Space-Saving with its comparison.
const fn panels(
    y: &'static [(&'static str, &'static str)],
    y_axis: Axis,
    heaps: &'static [&'static str],
    see: &'static str,
) -> [Chart; 4] {
    let by_length = Chart {
        title: "Sketches by the length of the stream, at an error of 1 %",
        x: "length_packets",
        x_axis: log("packets of the stream"),
        y,
        y_axis,
        series: "structure",
        only: &[ACCELERATED[0].0, ACCELERATED[0].1, ACCELERATED[1].0, ACCELERATED[1].1],
        paper: &[],
        see,
    };
    let by_epsilon = Chart {
        title: "Sketches by the error, in the longest stream",
        x: "epsilon",
        x_axis: log("error asked for, as a share of the packets"),
        ..by_length
    };
    let title = "Space-Saving by the length of the stream";
    [
        by_length,
        Chart { title, only: heaps, ..by_length },
        by_epsilon,
        Chart { title: "Space-Saving by the error", only: heaps, ..by_epsilon },
    ]
}
