//! Figure 7: the skew of the traffic, and the size of the aggregator.

use flowgauge_core::key::{Key4, KeyKind};

use super::{ALONE, BEHIND};
use crate::experiment::chart::{Chart, linear, log};
use crate::experiment::setting::{Mix, Setting};
use crate::experiment::stream::Stream;
use crate::experiment::table::Table;
use crate::experiment::verdict::{Part, Verdict};
use crate::experiment::{Experiment, Outcome};
use crate::failure::Failure;

pub(crate) const FIG7: Experiment = Experiment {
    name: "agg-evict/fig7",
    title: "the skew of the traffic, with and without the aggregator",
    paper: "Agg-Evict (CCR 2018), Fig. 7a and 7b",
    claim: "FlowRadar is faster behind the aggregator at every skew. More skew makes it a little faster \
            alone and much faster behind the aggregator.",
    measure,
    judge,
    charts: &[
        Chart { x: "skew", x_axis: linear("skew"), ..super::THROUGHPUT },
        Chart { title: "Latency", x: "skew", x_axis: linear("skew"), ..super::LATENCY },
    ],
};

pub(crate) const FIG7C: Experiment = Experiment {
    name: "agg-evict/fig7c",
    title: "the size of the aggregator",
    paper: "Agg-Evict (CCR 2018), Fig. 7c",
    claim: "A larger aggregator lowers mean and tail, and brings them closer together.",
    measure: measure_sizes,
    judge: judge_sizes,
    charts: &[Chart {
        title: "Latency of FlowRadar",
        x: "rows",
        x_axis: log("rows of 16 pairs"),
        ..super::LATENCY
    }],
};

const SKEWS: [f64; 6] = [0.75, 1.0, 1.1, 1.25, 1.5, 1.75];
const ROWS: [usize; 7] = [256, 512, 1024, 2048, 4096, 8192, 16384];

fn measure(setting: &Setting) -> Result<Outcome, Failure> {
    let both = super::both(&super::flow_radar(), super::ROWS);
    let mut table = super::table(["skew"]);
    for skew in SKEWS {
        let stream = Stream::<Key4>::draw(setting, Mix::Zipf(skew), KeyKind::Source)?;
        super::measure(&mut table, &[skew.into()], &both, setting, &stream, super::BATCH)?;
    }
    let limit = super::limit(&table);
    let notes =
        "A million sources in random order: flows of few packets come back late. Where FlowRadar \
                 has too few cells for all flows it still counts them."
            .to_owned();
    Ok(Outcome { table, limit, notes })
}

fn judge(table: &Table) -> Verdict {
    let mean = |how: &str| table.numbers("how", how, "mean_ns");
    let (alone, behind) = (mean(ALONE), mean(BEHIND));
    let fall = |numbers: &[f64]| match (numbers.first(), numbers.last()) {
        (Some(first), Some(last)) => [first / last],
        _ => [f64::NAN],
    };
    Verdict::of([
        Part::less("mean behind the aggregator over alone", &behind, &alone),
        Part::moves("mean behind the aggregator (ns), by skew", &behind, false),
        Part::less("factor between skews alone over behind", &fall(&alone), &fall(&behind)),
    ])
}

fn measure_sizes(setting: &Setting) -> Result<Outcome, Failure> {
    let stream = Stream::<Key4>::draw(setting, Mix::Trace, KeyKind::Source)?;
    let mut table = super::table(["rows"]);
    for rows in ROWS {
        let both = super::both(&super::flow_radar(), rows);
        super::measure(&mut table, &[rows.into()], &both, setting, &stream, super::BATCH)?;
    }
    let limit = super::limit(&table);
    Ok(Outcome { table, limit, notes: String::new() })
}

fn judge_sizes(table: &Table) -> Verdict {
    let of = |column: &str| table.numbers("how", BEHIND, column);
    let (mean, tail) = (of("mean_ns"), of("p99_ns"));
    let gap: Vec<f64> = tail.iter().zip(&mean).map(|(tail, mean)| tail - mean).collect();
    Verdict::of([
        Part::moves("mean (ns), by rows", &mean, false),
        Part::moves("tail (ns), by rows", &tail, false),
        Part::moves("tail less mean (ns), by rows", &gap, false),
    ])
}
