//! Figure 13: every flow's estimate beside its size.

use flowgauge_core::terms::Measure;

use super::run::{BYTES, Classes, PACKETS, of_sketch, run};
use crate::experiment::chart::{Chart, log};
use crate::experiment::setting::Setting;
use crate::experiment::table::{Table, row};
use crate::experiment::verdict::{Part, Verdict};
use crate::experiment::{Experiment, Outcome};
use crate::failure::Failure;

pub(crate) const FIG13: Experiment = Experiment {
    name: "insta-measure/fig13",
    title: "every large flow's estimate beside its size",
    paper: "InstaMeasure (ICDCS 2019), Fig. 13",
    claim: "The standard error of flows over 1,000,000, 100,000 and 10,000 packets is 0.54, 1.61 and 3.46 %, \
            that of flows over 1 GB, 100 MB and 10 MB is 0.63, 1.74 and 3.65 %.",
    measure,
    judge,
    charts: &[
        Chart {
            title: "Packets",
            x: "packets",
            x_axis: log("packets"),
            y: &[("packets_said", "")],
            y_axis: log("packets, as estimated"),
            ..EVERY
        },
        Chart {
            title: "Bytes",
            x: "bytes",
            x_axis: log("bytes"),
            y: &[("bytes_said", "")],
            y_axis: log("bytes, as estimated"),
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
};

/// Bytes of the regulator: the power of two below the paper's 12 MB.
const SKETCH: usize = 8 << 20;

/// What the paper has for each class.
const PACKETS_OFF: [f64; 3] = [0.54, 1.61, 3.46];
const BYTES_OFF: [f64; 3] = [0.63, 1.74, 3.65];

fn measure(setting: &Setting) -> Result<Outcome, Failure> {
    let flows = run(setting, &[of_sketch(SKETCH)])?;
    let mut table = Table::new(["flows", "packets", "packets_said", "bytes", "bytes_said"]);
    for classes in [&PACKETS, &BYTES] {
        let by = classes.by;
        let size = |flow: &&super::run::Flow| flow.truth.by(by);
        let large = flows.iter().filter(|flow| classes.of(size(flow) as f64).is_some());
        let mut large: Vec<_> = large.collect();
        large.sort_unstable_by_key(size);
        for flow in large {
            let (truth, said) = (size(&flow) as f64, flow.estimate(0, by));
            let none = f64::NAN;
            if by == Measure::Packets {
                row!(table, by.name(), truth, said);
            } else {
                row!(table, by.name(), none, none, truth, said);
            }
        }
    }
    let limit = "A table of all flows errs nowhere.".to_owned();
    let notes = format!(
        "{} packets by Zipf's law with skew 1.1; flows in the order of their sizes, joined by a line.",
        flows.iter().map(|flow| flow.truth.packets).sum::<u64>()
    );
    Ok(Outcome { table, limit, notes })
}

fn judge(table: &Table) -> Verdict {
    let mut parts = Vec::new();
    for (classes, wanted) in [(&PACKETS, PACKETS_OFF), (&BYTES, BYTES_OFF)] {
        parts.extend(of_classes(table, classes, wanted));
    }
    Verdict::of(parts)
}

/// The standard error of each class that there is.
fn of_classes(table: &Table, classes: &Classes, wanted: [f64; 3]) -> Vec<Part> {
    let (truth, said) = match classes.by {
        Measure::Packets => ("packets", "packets_said"),
        Measure::Bytes => ("bytes", "bytes_said"),
    };
    let part = |((name, _), wanted): ((&str, f64), f64)| {
        let rows = table.of("flows", classes.by.name());
        let rows = rows.filter(|row| classes.of(row.number(truth)) == Some(name));
        let squares: Vec<f64> =
            rows.map(|row| (row.number(said) / row.number(truth) - 1.0).powi(2)).collect();
        let error = (squares.iter().sum::<f64>() / squares.len() as f64).sqrt();
        let what = format!("standard error of {} flows over {name}, %", squares.len());
        (!squares.is_empty()).then(|| Part::at_most(&what, 100.0 * error, wanted))
    };
    classes.classes.into_iter().zip(wanted).filter_map(part).collect()
}
