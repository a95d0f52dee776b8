//! Figure 5: nine solutions with and without the aggregator.

use flowgauge_core::key::{Key4, KeyKind};

use super::{ALONE, BEHIND};
use crate::experiment::chart::Chart;
use crate::experiment::setting::{LINE_RATE, Mix, Setting};
use crate::experiment::stream::Stream;
use crate::experiment::table::Table;
use crate::experiment::verdict::{Part, Verdict};
use crate::experiment::{Experiment, Outcome};
use crate::failure::Failure;

pub(crate) const FIG5: Experiment = Experiment {
    name: "agg-evict/fig5",
    title: "nine solutions with and without the aggregator",
    paper: "Agg-Evict (CCR 2018), Fig. 5",
    claim: "All nine are faster behind the aggregator, in the mean and in the tail, and all but TwoLevel \
            reach the 14.88 million packets a second of a 10 Gbit/s link.",
    measure,
    judge,
    charts: &[
        Chart { x: "solution", ..super::THROUGHPUT },
        Chart { x: "solution", ..super::LATENCY },
    ],
};

fn measure(setting: &Setting) -> Result<Outcome, Failure> {
    let stream = Stream::<Key4>::draw(setting, Mix::Trace, KeyKind::Source)?;
    let mut table = super::table(["solution"]);
    for structure in super::nine() {
        let at = [structure.label.as_str().into()];
        let both = super::both(&structure, super::ROWS);
        super::measure(&mut table, &at, &both, setting, &stream, super::BATCH)?;
    }
    let limit = super::limit(&table);
    let notes =
        "This aggregator hands on what it evicts in half batches of 128 sums, so that one batch \
                 of 32 packets in some pays for many: that is the tail."
            .to_owned();
    Ok(Outcome { table, limit, notes })
}

fn judge(table: &Table) -> Verdict {
    let of = |how: &str, column: &str| table.numbers("how", how, column);
    let less = |what: &str, column: &str| {
        let what = format!("{what} behind the aggregator over alone");
        Part::less(&what, &of(BEHIND, column), &of(ALONE, column))
    };
    let reached = table.of("how", BEHIND).filter(|row| row.text("solution") != "TwoLevel");
    let slowest = reached.map(|row| row.number("mpps")).fold(f64::NAN, f64::min);
    Verdict::of([
        less("mean", "mean_ns"),
        less("tail", "p99_ns"),
        Part::at_least("the slowest but TwoLevel, in million packets a second", slowest, LINE_RATE),
    ])
}
