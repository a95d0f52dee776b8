//! Figure 5: nine solutions with and without the aggregator.

use flowgauge_core::key::{Key4, KeyKind};

use crate::experiment::chart::{Chart, linear};
use crate::experiment::latency;
use crate::experiment::setting::{Mix, Setting};
use crate::experiment::stream::Stream;
use crate::experiment::table::{Table, row};
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
        Chart {
            title: "Throughput",
            x: "solution",
            x_axis: linear(""),
            y: &[("mpps", "")],
            y_axis: linear("million packets a second"),
            series: "how",
            only: &[super::ALONE, super::BEHIND],
        },
        Chart {
            title: "Latency (the line is the 99th percentile)",
            x: "solution",
            x_axis: linear(""),
            y: &[("mean_ns", " mean"), ("p99_ns", " p99")],
            y_axis: linear("latency (ns a packet)"),
            series: "how",
            only: &[super::ALONE, super::BEHIND],
        },
    ],
};

/// Packets of 64 bytes that a link of 10 Gbit/s carries, in millions a second.
const LINE_RATE: f64 = 14.88;

fn measure(setting: &Setting) -> Result<Outcome, Failure> {
    let stream = Stream::<Key4>::draw(setting, Mix::Trace, KeyKind::Source)?;
    let mut table = Table::new(["solution", "how", "mean_ns", "p99_ns", "mpps"]);
    let mut bares = Vec::new();
    for structure in super::nine() {
        let both = [structure.clone(), super::behind(&structure, super::ROWS)];
        let (bare, times) = latency::of_structures(&both, setting, &stream, super::BATCH)?;
        bares.push(bare.mean_ns);
        for (how, time) in [super::ALONE, super::BEHIND].into_iter().zip(times) {
            let label = structure.label.as_str();
            row!(table, label, how, time.mean_ns, time.p99_ns, 1e3 / time.mean_ns);
        }
    }
    let limit = latency::limit(&bares, super::BATCH);
    Ok(Outcome { table, limit, notes: String::new() })
}

fn judge(table: &Table) -> Verdict {
    let of = |how: &str, column: &str| table.numbers("how", how, column);
    let less = |what: &str, column: &str| {
        let what = format!("{what} behind the aggregator over alone");
        Part::less(&what, &of(super::BEHIND, column), &of(super::ALONE, column))
    };
    let reached = table.of("how", super::BEHIND).filter(|row| row.text("solution") != "TwoLevel");
    let slowest = reached.map(|row| row.number("mpps")).fold(f64::NAN, f64::min);
    Verdict::of([
        less("mean", "mean_ns"),
        less("tail", "p99_ns"),
        Part::at_least("the slowest but TwoLevel, in million packets a second", slowest, LINE_RATE),
    ])
}
