//! Figure 6: the key, and the size of a batch, with and without the aggregator.

use flowgauge_core::key::{Extract, FlowKey, Key4, Key8, Key16, KeyKind};

use super::fig2::BATCHES;
use super::{ALONE, BEHIND};
use crate::experiment::chart::{Chart, log};
use crate::experiment::setting::{Mix, Setting};
use crate::experiment::stream::Stream;
use crate::experiment::table::Table;
use crate::experiment::verdict::{Part, Verdict};
use crate::experiment::{Experiment, Outcome};
use crate::failure::Failure;

pub(crate) const FIG6: Experiment = Experiment {
    name: "agg-evict/fig6",
    title: "the key, with and without the aggregator",
    paper: "Agg-Evict (CCR 2018), Fig. 6a and 6b",
    claim: "Whatever the key, FlowRadar is faster behind the aggregator, in mean and tail, and takes more \
            than 10 million packets a second even by the five-tuple.",
    measure,
    judge,
    charts: &[Chart { x: "key", ..super::THROUGHPUT }, Chart { x: "key", ..super::LATENCY }],
};

pub(crate) const FIG6C: Experiment = Experiment {
    name: "agg-evict/fig6c",
    title: "the size of a batch, with and without the aggregator",
    paper: "Agg-Evict (CCR 2018), Fig. 6c",
    claim: "With larger batches latency rises a little with and without the aggregator; behind it FlowRadar \
            is always faster, and the tail is closer to the mean.",
    measure: measure_batches,
    judge: judge_batches,
    charts: &[Chart {
        title: "Latency",
        x: "batch_packets",
        x_axis: log("packets of a batch"),
        ..super::LATENCY
    }],
};

fn measure(setting: &Setting) -> Result<Outcome, Failure> {
    let mut table = super::table(["key"]);
    measure_key::<Key4>(&mut table, "source", KeyKind::Source, setting)?;
    measure_key::<Key8>(&mut table, "pair", KeyKind::Pair, setting)?;
    measure_key::<Key16>(&mut table, "five-tuple", KeyKind::FiveTuple, setting)?;
    let limit = super::limit(&table);
    Ok(Outcome { table, limit, notes: String::new() })
}

fn measure_key<K: FlowKey + Extract<8>>(
    table: &mut Table,
    name: &str,
    kind: KeyKind,
    setting: &Setting,
) -> Result<(), Failure> {
    let stream = Stream::<K>::draw(setting, Mix::Trace, kind)?;
    let both = super::both(&super::flow_radar(), super::ROWS);
    super::measure(table, &[name.into()], &both, setting, &stream, super::BATCH)
}

fn less(table: &Table, what: &str, column: &str) -> Part {
    let of = |how: &str| table.numbers("how", how, column);
    Part::less(&format!("{what} behind the aggregator over alone"), &of(BEHIND), &of(ALONE))
}

fn judge(table: &Table) -> Verdict {
    let reached = table.of("how", BEHIND).filter(|row| row.text("key") == "five-tuple");
    let rate = reached.map(|row| row.number("mpps")).fold(f64::NAN, f64::min);
    Verdict::of([
        less(table, "mean", "mean_ns"),
        less(table, "tail", "p99_ns"),
        Part::at_least("million packets a second by the five-tuple", rate, 10.0),
    ])
}

fn measure_batches(setting: &Setting) -> Result<Outcome, Failure> {
    let stream = Stream::<Key4>::draw(setting, Mix::Trace, KeyKind::Source)?;
    let both = super::both(&super::flow_radar(), super::ROWS);
    let mut table = super::table(["batch_packets"]);
    for batch in BATCHES {
        super::measure(&mut table, &[batch.into()], &both, setting, &stream, batch)?;
    }
    let limit = super::limit(&table);
    Ok(Outcome { table, limit, notes: String::new() })
}

fn judge_batches(table: &Table) -> Verdict {
    let of = |how: &str, column: &str| table.numbers("how", how, column);
    let gap = |how: &str| -> Vec<f64> {
        of(how, "p99_ns").iter().zip(of(how, "mean_ns")).map(|(tail, mean)| tail - mean).collect()
    };
    let rises = |how: &str| {
        Part::moves(&format!("mean {how} (ns), by the size of a batch"), &of(how, "mean_ns"), true)
    };
    Verdict::of([
        rises(ALONE),
        rises(BEHIND),
        less(table, "mean", "mean_ns"),
        Part::less("tail less mean behind the aggregator over alone", &gap(BEHIND), &gap(ALONE)),
    ])
}
