//! Figure 8: who is evicted, and how flows are looked up.

use flowgauge_core::key::{Key4, KeyKind};
use flowgauge_kernel::Isa;

use super::{ALONE, BEHIND};
use crate::experiment::chart::Chart;
use crate::experiment::setting::{Mix, Setting};
use crate::experiment::stream::Stream;
use crate::experiment::table::Table;
use crate::experiment::verdict::{Part, Verdict};
use crate::experiment::{Experiment, Outcome};
use crate::failure::Failure;

pub(crate) const FIG8A: Experiment = Experiment {
    name: "agg-evict/fig8a",
    title: "eviction in turn, or of the least recently used",
    paper: "Agg-Evict (CCR 2018), Fig. 8a",
    claim: "Eviction in turn (global round robin) is faster than that of the least recently used before \
            what hashes, and a little slower before what keeps a heap (Space-Saving, UnivMon).",
    measure,
    judge,
    charts: &[Chart { x: "solution", only: &[IN_TURN, LEAST_RECENT], ..super::LATENCY }],
};

pub(crate) const FIG8B: Experiment = Experiment {
    name: "agg-evict/fig8b",
    title: "the aggregator with and without vector instructions",
    paper: "Agg-Evict (CCR 2018), Fig. 8b and 8c",
    claim: "Comparing all pairs of a row at once is faster than one after another, and FlowRadar behind \
            such an aggregator takes about a third of the time that it takes alone (2.92 times less).",
    measure: measure_isas,
    judge: judge_isas,
    charts: &[
        Chart { x: "instructions", ..super::THROUGHPUT },
        Chart { x: "instructions", ..super::LATENCY },
    ],
};

const IN_TURN: &str = "in turn";
const LEAST_RECENT: &str = "least recent";

/// The solutions that keep heaps.
const HEAPS: [&str; 2] = ["Space-Saving", "UnivMon"];

fn measure(setting: &Setting) -> Result<Outcome, Failure> {
    let stream = Stream::<Key4>::draw(setting, Mix::Trace, KeyKind::Source)?;
    let mut table = super::table(["solution"]);
    let rows = super::ROWS.to_string();
    for structure in super::nine() {
        let at = [structure.label.as_str().into()];
        let by = [(IN_TURN, "round-robin"), (LEAST_RECENT, "lru")].map(|(label, policy)| {
            let behind =
                structure.clone().behind("agg-evict", [("rows", &*rows), ("policy", policy)]);
            behind.named(label)
        });
        super::measure(&mut table, &at, &by, setting, &stream, super::BATCH)?;
    }
    let limit = super::limit(&table);
    Ok(Outcome { table, limit, notes: String::new() })
}

fn judge(table: &Table) -> Verdict {
    let of = |how: &str, heaps: bool| -> Vec<f64> {
        let rows = table.of("how", how);
        let rows = rows.filter(|row| HEAPS.contains(&row.text("solution")) == heaps);
        rows.map(|row| row.number("mean_ns")).collect()
    };
    Verdict::of([
        Part::less(
            "mean in turn over least recent, before what hashes",
            &of(IN_TURN, false),
            &of(LEAST_RECENT, false),
        ),
        Part::less(
            "mean least recent over in turn, before what keeps a heap",
            &of(LEAST_RECENT, true),
            &of(IN_TURN, true),
        ),
    ])
}

fn measure_isas(setting: &Setting) -> Result<Outcome, Failure> {
    let stream = Stream::<Key4>::draw(setting, Mix::Trace, KeyKind::Source)?;
    let mut table = super::table(["instructions"]);
    for isa in Isa::available() {
        let both =
            super::both(&super::flow_radar(), super::ROWS).map(|structure| structure.on(isa));
        super::measure(&mut table, &[isa.name().into()], &both, setting, &stream, super::BATCH)?;
    }
    let limit = super::limit(&table);
    let notes = "The instruction set is that of the whole run, the digest's too.".to_owned();
    Ok(Outcome { table, limit, notes })
}

fn judge_isas(table: &Table) -> Verdict {
    let mean = |how: &str| table.numbers("how", how, "mean_ns");
    let (alone, behind) = (mean(ALONE), mean(BEHIND));
    let ratio = match (alone.last(), behind.last()) {
        (Some(alone), Some(behind)) => alone / behind,
        _ => f64::NAN,
    };
    let faster = match table.texts("instructions").len() {
        0 | 1 => Part::open("this processor has no vector instructions that are used"),
        _ => Part::moves("mean behind the aggregator (ns), by instruction set", &behind, false),
    };
    Verdict::of([
        faster,
        Part::at_least("times that FlowRadar is faster behind the aggregator", ratio, 2.5),
    ])
}
