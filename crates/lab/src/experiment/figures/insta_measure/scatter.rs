//! Figure 13: every flow's estimate over its size.

use flowgauge_core::terms::Measure;

use super::{BYTES, Classes, LONGER, Lengths, PACKETS, of_sketch, run};
use crate::experiment::chart::{Chart, log, log_alike};
use crate::experiment::part::Part;
use crate::experiment::setting::Setting;
use crate::experiment::table::{Table, row};
use crate::experiment::verdict::{Claim, Verdict};
use crate::experiment::{Experiment, Outcome, Preset};
use crate::failure::Failure;

pub(crate) const FIG13: Experiment = Experiment {
    name: "insta-measure/fig13",
    title: "every large flow's estimate beside its size",
    paper: "InstaMeasure (ICDCS 2019), Fig. 13",
    presets: &[
        super::LONG,
        super::KEY,
        super::TABLE,
        super::LENGTHS,
        Preset::other(
            "regulator",
            "12 MB, or 128 KB (the text has both)",
            "8 MB",
            "memory is a power of two",
        ),
    ],
    measure,
    judge,
    missing: &[],
    charts: &[
        Chart {
            title: "Packets",
            x: "kilopackets",
            x_axis: log("thousand packets"),
            y: &[("kilopackets_said", "")],
            y_axis: log_alike("thousand packets, as estimated"),
            ..EVERY
        },
        Chart {
            title: "Bytes",
            x: "megabytes",
            x_axis: log("MB"),
            y: &[("megabytes_said", "")],
            y_axis: log_alike("MB, as estimated"),
            ..EVERY
        },
    ],
};

const EVERY: Chart = Chart {
    title: "",
    x: "",
    x_axis: log(""),
    y: &[],
    y_axis: log(""),
    series: "flows",
    only: &[],
    paper: &[],
    see: "Each point is a flow: the nearer to y = x, the better its estimate, and points close in as flows grow.",
};

/// Bytes of the regulator: the power of two below the paper's 12 MB.
const SKETCH: usize = 8 << 20;

/// Units of sizes.
const KILO: f64 = 1e3;
const MEGA: f64 = 1e6;

/// The paper's errors for each class.
const PACKETS_OFF: [f64; 3] = [0.54, 1.61, 3.46];
const BYTES_OFF: [f64; 3] = [0.63, 1.74, 3.65];

fn measure(setting: &Setting) -> Result<Outcome, Failure> {
    let flows = run(setting, &[of_sketch(SKETCH)], Lengths::ByFlow, LONGER)?;
    let columns = ["flows", "kilopackets", "kilopackets_said", "megabytes", "megabytes_said"];
    let mut table = Table::new(columns);
    for classes in [&PACKETS, &BYTES] {
        let by = classes.by;
        let size = |flow: &&super::Flow| flow.truth.by(by);
        let large = flows.iter().filter(|flow| classes.of(size(flow) as f64).is_some());
        let mut large: Vec<_> = large.collect();
        large.sort_unstable_by_key(size);
        for flow in large {
            let (truth, said) = (size(&flow) as f64, flow.estimate(0, by));
            let none = f64::NAN;
            if by == Measure::Packets {
                row!(table, by.name(), truth / KILO, said / KILO);
            } else {
                row!(table, by.name(), none, none, truth / MEGA, said / MEGA);
            }
        }
    }
    let limit = "A table of all flows errs nowhere.".to_owned();
    let notes = format!(
        "{} packets by Zipf's law with skew 1.1; a point is a flow, and the line is where estimates are right.",
        flows.iter().map(|flow| flow.truth.packets).sum::<u64>()
    );
    Ok(Outcome { table, limit, notes })
}

fn judge(table: &Table) -> Verdict {
    let claims = [(&PACKETS, PACKETS_OFF), (&BYTES, BYTES_OFF)].into_iter().flat_map(
        |(classes, wanted)| {
            // The smallest class is the most numerous and the hardest.
            let classes_of = classes.classes.into_iter().zip(wanted).rev();
            classes_of.map(move |((name, _), wanted)| {
                Claim::new(
                    format!("The standard error of flows over {name} is at most {wanted} %."),
                    [of_class(table, classes, name, wanted)],
                    "A shorter run has smaller flows in each class, of which fewer packets are let through.",
                )
            })
        },
    );
    Verdict::of(table, claims)
}

/// The standard error of a class, if it has any flows.
fn of_class(table: &Table, classes: &Classes, name: &str, wanted: f64) -> Part {
    let (truth, said, unit) = match classes.by {
        Measure::Packets => ("kilopackets", "kilopackets_said", KILO),
        Measure::Bytes => ("megabytes", "megabytes_said", MEGA),
    };
    let rows = table.of("flows", classes.by.name());
    let rows = rows.filter(|row| classes.of(unit * row.number(truth)) == Some(name));
    let squares: Vec<f64> =
        rows.map(|row| (row.number(said) / row.number(truth) - 1.0).powi(2)).collect();
    let error = (squares.iter().sum::<f64>() / squares.len() as f64).sqrt();
    let what = format!("standard error of {} flows over {name}, %", squares.len());
    Part::at_most(&what, 100.0 * error, wanted)
}
