//! Figures 10 and 11: the error of sizes by memory, and how many of the largest flows are found.

use std::collections::HashSet;

use flowgauge_core::terms::Measure;

use super::run::{BYTES, Classes, Flow, PACKETS, of_sketch, run};
use crate::experiment::chart::{Chart, linear, log};
use crate::experiment::setting::Setting;
use crate::experiment::table::{Table, row};
use crate::experiment::verdict::{Part, Verdict};
use crate::experiment::{Experiment, Outcome};
use crate::failure::Failure;

pub(crate) const FIG10: Experiment = Experiment {
    name: "insta-measure/fig10",
    title: "the error of packets by memory, and the largest flows",
    paper: "InstaMeasure (ICDCS 2019), Fig. 10",
    claim: "Flows over 1,000,000, 100,000 and 10,000 packets are off by 0.56, 1.54 and 3.48 % in 128 KB, by \
            0.28, 0.99 and 2.79 % in 256 KB, and by 0.19, 0.58 and 1.76 % in 2 MB. In 10 MB more than 95 % \
            of the largest flows are found, of a hundred as of a million.",
    measure: |setting| measure(setting, &PACKETS),
    judge: |table| judge(table, &PACKETS, [0.56, 1.54, 3.48], [0.19, 0.58, 1.76]),
    charts: &[BY_MEMORY, BY_K],
};

pub(crate) const FIG11: Experiment = Experiment {
    name: "insta-measure/fig11",
    title: "the error of bytes by memory, and the largest flows",
    paper: "InstaMeasure (ICDCS 2019), Fig. 11",
    claim: "Flows over 1 GB, 100 MB and 10 MB are off by 0.54, 1.57 and 3.47 % in 128 KB, and by 0.18, 0.61 \
            and 1.66 % in 2 MB. In 10 MB more than 95 % of the largest flows are found.",
    measure: |setting| measure(setting, &BYTES),
    judge: |table| judge(table, &BYTES, [0.54, 1.57, 3.47], [0.18, 0.61, 1.66]),
    charts: &[BY_MEMORY, BY_K],
};

const BY_MEMORY: Chart = Chart {
    title: "Error by memory",
    x: "memory_kb",
    x_axis: log("memory of the regulator (KB)"),
    y: &[("error_percent", "")],
    y_axis: log("mean relative error (%)"),
    series: "flows",
    only: &[],
};

const BY_K: Chart = Chart {
    title: "The largest flows, in 8 MB",
    x: "k",
    x_axis: log("flows asked for"),
    y: &[("recall_percent", "")],
    y_axis: linear("found (%)"),
    series: "flows",
    only: &[LARGEST],
};

const LARGEST: &str = "the largest";

/// Bytes of the regulators, and that of the largest flows' one: the power of two below the paper's.
const SKETCHES: [usize; 5] = [128 << 10, 256 << 10, 512 << 10, 1 << 20, 2 << 20];
const FOR_LARGEST: usize = 8 << 20;

/// How many of the largest flows are asked for.
const MOST: [usize; 4] = [100, 1000, 10_000, 100_000];

/// Packets of a flow that are enough to be ranked by: ten times what one that is let through stands for.
const SEEN: f64 = 949.0;

fn measure(setting: &Setting, classes: &Classes) -> Result<Outcome, Failure> {
    let structures: Vec<_> = SKETCHES.into_iter().chain([FOR_LARGEST]).map(of_sketch).collect();
    let flows = run(setting, &structures)?;
    let by = classes.by;
    let mut table = Table::new([
        "flows",
        "memory_kb",
        "error_percent",
        "bias_percent",
        "count",
        "k",
        "recall_percent",
        "least_packets",
    ]);
    for (name, _) in classes.classes {
        let of_class: Vec<&Flow> = flows
            .iter()
            .filter(|flow| classes.of(flow.truth.by(by) as f64) == Some(name))
            .collect();
        for (at, bytes) in SKETCHES.into_iter().enumerate() {
            let count = of_class.len() as f64;
            let mean = |of: fn(f64) -> f64| {
                100.0 * of_class.iter().map(|flow| of(flow.error(at, by))).sum::<f64>() / count
            };
            row!(table, name, bytes >> 10, mean(f64::abs), mean(|error| error), count);
        }
    }
    let none = f64::NAN;
    for k in MOST.into_iter().filter(|k| *k < flows.len()) {
        let (recall, least) = recall(&flows, SKETCHES.len(), by, k);
        row!(table, LARGEST, FOR_LARGEST >> 10, none, none, none, k, 100.0 * recall, least);
    }
    let packets: u64 = flows.iter().map(|flow| flow.truth.packets).sum();
    let limit = "A table of all flows errs nowhere.".to_owned();
    let notes = format!(
        "{packets} packets of {} flows by Zipf's law with skew 1.1; the paper's trace has 3.7 billion. \
         Frames are of three lengths, mixed within each flow, so that what a packet let through stands for \
         varies by its length: by bytes small flows err more than by packets. `least_packets` is the size of the smallest of the largest flows: below some hundreds most of a \
         flow stays in the regulator.",
        flows.len()
    );
    Ok(Outcome { table, limit, notes })
}

/// The share of the k truly largest flows that are among the k largest by estimate, and the packets of
/// the smallest of those.
fn recall(flows: &[Flow], structure: usize, by: Measure, k: usize) -> (f64, f64) {
    let largest = |size: &dyn Fn(&Flow) -> f64| {
        let mut order: Vec<usize> = (0..flows.len()).collect();
        order.select_nth_unstable_by(k - 1, |a, b| size(&flows[*b]).total_cmp(&size(&flows[*a])));
        order.truncate(k);
        order
    };
    let truly = largest(&|flow| flow.truth.by(by) as f64);
    let named: HashSet<usize> = largest(&|flow| flow.estimate(structure, by)).into_iter().collect();
    let found = truly.iter().filter(|flow| named.contains(flow)).count();
    let least = truly.iter().map(|flow| flows[*flow].truth.packets).min().unwrap_or(0);
    (found as f64 / k as f64, least as f64)
}

fn judge(table: &Table, classes: &Classes, small: [f64; 3], large: [f64; 3]) -> Verdict {
    let mut parts = Vec::new();
    for (at, (name, _)) in classes.classes.into_iter().enumerate() {
        let errors = table.numbers("flows", name, "error_percent");
        // A class that a short run does not have says nothing.
        if errors.iter().all(|error| error.is_nan()) && !errors.is_empty() {
            continue;
        }
        let first = errors.first().copied().unwrap_or(f64::NAN);
        let last = errors.last().copied().unwrap_or(f64::NAN);
        parts.push(Part::at_most(&format!("over {name} in 128 KB, off by %"), first, small[at]));
        parts.push(Part::at_most(&format!("over {name} in 2 MB, off by %"), last, large[at]));
    }
    for row in table.of("flows", LARGEST).filter(|row| row.number("least_packets") >= SEEN) {
        let what = format!("the largest {} found, %", row.number("k"));
        parts.push(Part::at_least(&what, row.number("recall_percent"), 95.0));
    }
    Verdict::of(parts)
}
