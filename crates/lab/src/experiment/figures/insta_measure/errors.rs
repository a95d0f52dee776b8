//! Figures 10 and 11: size errors by memory, and how many of the largest flows are found.

use std::collections::HashSet;

use flowgauge_core::terms::Measure;

use super::{BYTES, Classes, Flow, Lengths, PACKETS, of_sketch, run};
use crate::experiment::chart::{Chart, Mark, linear, log};
use crate::experiment::part::{Part, median};
use crate::experiment::setting::Setting;
use crate::experiment::table::{Row, Table, row};
use crate::experiment::verdict::{Claim, Verdict};
use crate::experiment::{Experiment, Outcome, Preset};
use crate::failure::Failure;

pub(crate) const FIG10: Experiment = Experiment {
    name: "insta-measure/fig10",
    title: "the error of packets by memory, and the largest flows",
    paper: "InstaMeasure (ICDCS 2019), Fig. 10",
    presets: &[super::ZIPF, super::KEY, SIZES, super::TABLE, TOP],
    measure: |setting| measure(setting, &PACKETS),
    judge: |table| judge(table, &PACKETS, &OF_PACKETS),
    missing: &[],
    charts: &[Chart { paper: &IN_PACKETS, ..BY_MEMORY }, BY_K],
};

pub(crate) const FIG11: Experiment = Experiment {
    name: "insta-measure/fig11",
    title: "the error of bytes by memory, and the largest flows",
    paper: "InstaMeasure (ICDCS 2019), Fig. 11",
    presets: &[super::ZIPF, super::KEY, SIZES, super::TABLE, TOP, super::LENGTHS],
    measure: |setting| measure(setting, &BYTES),
    judge: |table| judge(table, &BYTES, &OF_BYTES),
    missing: &[],
    charts: &[Chart { paper: &IN_BYTES, ..BY_MEMORY }, BY_K],
};

/// The paper's mean errors in percent for each class of flows, with 128 KB, 256 KB and 2 MB.
type Errors = [[f64; 3]; 3];

const PAPER_KB: [f64; 3] = [128.0, 256.0, 2048.0];
const OF_PACKETS: Errors = [[0.56, 0.28, 0.19], [1.54, 0.99, 0.58], [3.48, 2.79, 1.76]];
const OF_BYTES: Errors = [[0.54, 0.27, 0.18], [1.57, 1.00, 0.61], [3.47, 2.67, 1.66]];

const IN_PACKETS: [Mark; 9] = marks(&PACKETS, &OF_PACKETS);
const IN_BYTES: [Mark; 9] = marks(&BYTES, &OF_BYTES);

/// The paper's errors by memory in KB.
const fn marks(classes: &Classes, errors: &Errors) -> [Mark; 9] {
    let mut marks = [Mark::Level("", 0.0); 9];
    let mut at = 0;
    while at < marks.len() {
        let (class, memory) = (at / 3, at % 3);
        marks[at] = Mark::At(classes.classes[class].0, PAPER_KB[memory], errors[class][memory]);
        at += 1;
    }
    marks
}

const SIZES: Preset = Preset::same("regulator", "two layers, 128 KB to 2 MB in all");
const TOP: Preset = Preset::other(
    "largest flows",
    "100, 1000, 10,000, a million of 78 million, in 10 MB",
    "100 to 100,000 of a million, in 8 MB",
    "memory is a power of two",
);

const BY_MEMORY: Chart = Chart {
    title: "Error by memory",
    x: "memory_kb",
    x_axis: log("memory of the regulator (KB)"),
    y: &[("error_percent", "")],
    y_axis: log("mean relative error (%)"),
    series: "flows",
    only: &[],
    paper: &[],
    see: "Errors fall with memory and with the size of flows; diamonds are the paper's hour of CAIDA.",
};

const BY_K: Chart = Chart {
    title: "The largest flows, in 8 MB",
    x: "k",
    x_axis: log("flows asked for"),
    y: &[("recall_percent", "")],
    y_axis: linear("found (%)"),
    series: "flows",
    only: &[LARGEST],
    paper: &[Mark::Level("95 %, as the paper has for most", 95.0)],
    see: "The line leaves 95 % where the flows asked for are as small as what the regulator retains.",
};

const LARGEST: &str = "the largest";

/// Class names of flows whose packets differ in length.
const MIXED: [&str; 3] = ["1 GB, mixed", "100 MB, mixed", "10 MB, mixed"];

/// Regulator sizes in bytes; the last one is the power of two below the paper's for the largest
/// flows.
const SKETCHES: [usize; 5] = [128 << 10, 256 << 10, 512 << 10, 1 << 20, 2 << 20];
const FOR_LARGEST: usize = 8 << 20;

/// Numbers of largest flows to look for.
const MOST: [usize; 4] = [100, 1000, 10_000, 100_000];

fn measure(setting: &Setting, classes: &Classes) -> Result<Outcome, Failure> {
    let structures: Vec<_> = SKETCHES.into_iter().chain([FOR_LARGEST]).map(of_sketch).collect();
    let flows = run(setting, &structures, Lengths::ByFlow, 1)?;
    let by = classes.by;
    let mut table = Table::new([
        "flows",
        "memory_kb",
        "error_percent",
        "error_percent_spread",
        "bias_percent",
        "count",
        "k",
        "recall_percent",
        "least_packets",
        "missed_packets",
    ]);
    push(&mut table, &flows, classes, classes.classes.map(|(name, _)| name));
    let none = f64::NAN;
    for k in MOST.into_iter().filter(|k| *k < flows.len()) {
        let Found { recall, least, missed } = find(&flows, SKETCHES.len(), by, k);
        let kb = FOR_LARGEST >> 10;
        row!(table, LARGEST, kb, none, none, none, none, k, 100.0 * recall, least, missed);
    }
    if by == Measure::Bytes {
        let mixed = run(setting, &structures[..SKETCHES.len()], Lengths::Mixed, 1)?;
        push(&mut table, &mixed, classes, MIXED);
    }
    let packets: u64 = flows.iter().map(|flow| flow.truth.packets).sum();
    let limit = "A table of all flows errs nowhere.".to_owned();
    let notes = format!(
        "{packets} packets of {} flows by Zipf's law with skew 1.1; the paper's trace has 3.7 billion. \
         A packet that is let through stands for 95 of its own length: by bytes a flow whose packets have \
         several lengths errs more. `least_packets` is the size of the smallest of the largest flows, \
         `missed_packets` that of the middle one of those that are not found: of a flow of less than some \
         hundreds of packets most stays in the regulator, and it is found if it comes first in its words.",
        flows.len()
    );
    Ok(Outcome { table, limit, notes })
}

/// Adds a row per class of flows and memory size, with these class names.
fn push(table: &mut Table, flows: &[Flow], classes: &Classes, names: [&str; 3]) {
    let by = classes.by;
    for ((class, _), name) in classes.classes.into_iter().zip(names) {
        let is_of = |flow: &&Flow| classes.of(flow.truth.by(by) as f64) == Some(class);
        let of_class: Vec<&Flow> = flows.iter().filter(is_of).collect();
        for (at, bytes) in SKETCHES.into_iter().enumerate() {
            let count = of_class.len() as f64;
            let mean = |of: fn(f64) -> f64| {
                100.0 * of_class.iter().map(|flow| of(flow.error(at, by))).sum::<f64>() / count
            };
            // Errors are roughly normal around 0. The mean of their absolute values then has a
            // standard deviation of 0.6 of theirs over the square root of their number; 95 % lie
            // within two of these.
            let squares = mean(|error| 100.0 * error * error);
            let margin = if count > 0.0 { 1.96 * 0.6 * (squares / count).sqrt() } else { 0.0 };
            let bias = mean(|error| error);
            row!(table, name, bytes >> 10, mean(f64::abs), margin, bias, count);
        }
    }
}

/// How many of the k largest flows are found.
struct Found {
    /// The share of them among the k largest by estimate.
    recall: f64,
    /// Packets of the smallest of them.
    least: f64,
    /// Median packets of those that are missed.
    missed: f64,
}

fn find(flows: &[Flow], structure: usize, by: Measure, k: usize) -> Found {
    let largest = |size: &dyn Fn(&Flow) -> f64| {
        let mut order: Vec<usize> = (0..flows.len()).collect();
        order.select_nth_unstable_by(k - 1, |a, b| size(&flows[*b]).total_cmp(&size(&flows[*a])));
        order.truncate(k);
        order
    };
    let truly = largest(&|flow| flow.truth.by(by) as f64);
    let named: HashSet<usize> = largest(&|flow| flow.estimate(structure, by)).into_iter().collect();
    let packets = |flow: &usize| flows[*flow].truth.packets as f64;
    let missed: Vec<f64> = truly.iter().filter(|flow| !named.contains(flow)).map(packets).collect();
    Found {
        recall: 1.0 - missed.len() as f64 / k as f64,
        least: truly.iter().map(packets).fold(f64::INFINITY, f64::min),
        missed: median(&missed),
    }
}

fn judge(table: &Table, classes: &Classes, wanted: &Errors) -> Verdict {
    let at = |name: &str, kb: f64| {
        let mut rows =
            table.of("flows", name).filter(|row| (row.number("memory_kb") - kb).abs() < 0.5);
        rows.next().map_or([f64::NAN; 2], |row| {
            ["error_percent", "error_percent_spread"].map(|column| row.number(column))
        })
    };
    let errors = |name: &str, wanted: [f64; 3]| {
        PAPER_KB
            .into_iter()
            .zip(wanted)
            .map(|(kb, wanted)| {
                Part::mean_at_most(
                    &format!("over {name} in {kb} KB, off by %"),
                    at(name, kb),
                    wanted,
                )
            })
            .collect::<Vec<_>>()
    };
    // The smallest class is the most numerous and the hardest.
    let of_classes = classes.classes.into_iter().zip(wanted).rev().map(|((name, _), wanted)| {
        let [small, middle, large] = *wanted;
        Claim::new(
            format!(
                "Flows over {name} are off by {small} % in 128 KB, {middle} % in 256 KB and {large} % in 2 \
                 MB, in the mean.",
            ),
            errors(name, *wanted),
            "A shorter run has other flows in each class: with fewer packets let through, sizes near the \
             lower end of the class err more.",
        )
    });
    let recall = |row: Row<'_>| {
        let (k, percent) = (row.number("k"), row.number("recall_percent"));
        Claim::new(
            format!("Of the largest {k} flows more than 95 % are found in 10 MB."),
            [Part::most_are("found", (percent * k / 100.0).round(), k, 0.95)],
            format!(
                "Half of the flows that are missed have at most {} packets, where the regulator keeps 95 of a \
                 flow back before the first is let through: what its marks tell of them is in the estimates \
                 here, and is rough. In the paper's hour of 3.7 billion packets the flows of such a rank are \
                 larger, and so they are in a longer run (`--full`), which finds more of them.",
                row.number("missed_packets")
            ),
        )
    };
    Verdict::of(table, of_classes.chain(table.of("flows", LARGEST).map(recall)))
}
