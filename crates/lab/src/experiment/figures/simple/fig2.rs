//! Figure 2: array, hash table and heap.

use super::{ARRAY, HEAP, INLINE, INLINE_ARRAY, LINEAR, OVERWRITING, SPACE_SAVING};
use crate::experiment::chart::Chart;
use crate::experiment::part::Part;
use crate::experiment::setting::Setting;
use crate::experiment::table::Table;
use crate::experiment::verdict::{Claim, Verdict};
use crate::experiment::{Experiment, Outcome};
use crate::failure::Failure;

pub(crate) const FIG2: Experiment = Experiment {
    name: "simple/fig2",
    title: "array, hash table and heap, by size",
    paper: "Simple (SOSR 2018), Fig. 2",
    presets: &[
        super::TRAFFIC,
        super::EPOCH,
        super::BATCHES,
        super::KEY,
        super::HEAVY,
        super::SIZES,
        super::ENTRIES,
    ],
    measure,
    judge,
    missing: &[],
    charts: &[
        Chart { only: &[ARRAY, LINEAR, HEAP, SPACE_SAVING], ..super::BY_SIZE },
        Chart {
            title: "The paper's structures",
            only: &[INLINE_ARRAY, INLINE, HEAP],
            ..super::BY_SIZE
        },
        Chart { only: NAMES, ..super::PRECISION },
        Chart { only: NAMES, ..super::RECALL },
    ],
};

const NAMES: &[&str] = &[ARRAY, OVERWRITING, LINEAR, HEAP, SPACE_SAVING, INLINE_ARRAY, INLINE];

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
    let order = |array: &str, linear: &str| {
        [("mean", "mean_ns"), ("tail", "p99_ns")].map(|(what, column)| {
            let less = |one: &str, other: &str| {
                let what = format!("{what} of the {one} over the {other}");
                Part::less(&what, &of(one, column), &of(other, column))
            };
            [less(array, linear), less(linear, HEAP)]
        })
    };
    let accuracy = |name: &str, least: f64| {
        ["precision", "recall"].map(|column| {
            Part::at_least(&format!("{column} of the largest {name}"), last(name, column), least)
        })
    };
    Verdict::of(
        table,
        [
            Claim::new(
                "The array has the lowest latency, the linear table comes next, and the heap is the \
                 slowest, in mean and tail at every size.",
                order(ARRAY, LINEAR).into_iter().flatten(),
                "A table and an array whose entries are fetched ahead both wait for one line of memory a \
                 packet.",
            )
            .on_baseline(
                order(INLINE_ARRAY, INLINE).into_iter().flatten(),
                super::faster(&of(LINEAR, "mean_ns"), &of(INLINE, "mean_ns")),
            ),
            Claim::new(
                "The linear table is exact.",
                accuracy(LINEAR, 1.0),
                "The largest table has no room for all flows.",
            ),
            Claim::new(
                "An array whose keys overwrite each other reaches a precision of 99.5 % and a recall of \
                 96.5 %.",
                [
                    Part::at_least(
                        "precision of the largest overwriting array",
                        last(OVERWRITING, "precision"),
                        0.995,
                    ),
                    Part::at_least(
                        "recall of the largest overwriting array",
                        last(OVERWRITING, "recall"),
                        0.965,
                    ),
                ],
                "The paper does not name the size; a heavy flow is lost where another one that comes late \
                 has its slot.",
            ),
        ],
    )
}
