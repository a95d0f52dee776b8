//! Figure 2: array, hash table and heap.

use super::{ARRAY, HEAP, LINEAR, OVERWRITING, SPACE_SAVING};
use crate::experiment::chart::Chart;
use crate::experiment::setting::Setting;
use crate::experiment::table::Table;
use crate::experiment::verdict::{Part, Verdict};
use crate::experiment::{Experiment, Outcome};
use crate::failure::Failure;

pub(crate) const FIG2: Experiment = Experiment {
    name: "simple/fig2",
    title: "array, hash table and heap, by size",
    paper: "Simple (SOSR 2018), Fig. 2",
    claim: "The array has the lowest latency, the linear table comes next, and the heap is the slowest \
            at every size. The larger the array and the table, the more accurate: the table becomes \
            exact, and a large array nearly so (96 % here).",
    measure,
    judge,
    charts: &[
        super::BY_SIZE,
        Chart { only: NAMES, ..super::PRECISION },
        Chart { only: NAMES, ..super::RECALL },
    ],
};

const NAMES: &[&str] = &[ARRAY, OVERWRITING, LINEAR, HEAP, SPACE_SAVING];

fn measure(setting: &Setting) -> Result<Outcome, Failure> {
    let table = super::heavy_pairs_by_size(NAMES, setting)?;
    let limit = super::limit(&table);
    let notes =
        "The binary heap is written as the paper describes it, and answers as Space-Saving does; \
                 Space-Saving is this project's, which looks for the least entry without a heap."
            .to_owned();
    Ok(Outcome { table, limit, notes })
}

fn judge(table: &Table) -> Verdict {
    let of = |name: &str, column: &str| table.numbers("structure", name, column);
    let last = |name: &str, column: &str| of(name, column).last().copied().unwrap_or(f64::NAN);
    let mut parts = Vec::new();
    for (what, column) in [("mean", "mean_ns"), ("tail", "p99_ns")] {
        let (array, linear, heap) = (of(ARRAY, column), of(LINEAR, column), of(HEAP, column));
        parts.push(Part::less(&format!("{what} of the array over the table"), &array, &linear));
        parts.push(Part::less(&format!("{what} of the table over the heap"), &linear, &heap));
    }
    for column in ["precision", "recall"] {
        let told = |name: &str| format!("{column} of the largest {name}");
        parts.push(Part::at_least(&told(LINEAR), last(LINEAR, column), 1.0));
        parts.push(Part::at_least(&told(OVERWRITING), last(OVERWRITING, column), 0.96));
    }
    Verdict::of(parts)
}
