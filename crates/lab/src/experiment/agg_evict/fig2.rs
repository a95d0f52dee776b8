//! Figure 2: the size of a batch, without an aggregator.

use std::collections::HashSet;

use flowgauge_core::key::{Extract, FlowKey, Key4, Key8, Key16, KeyKind};

use crate::experiment::chart::{Chart, linear, log};
use crate::experiment::latency::{BARE, of_structures};
use crate::experiment::setting::{Mix, Setting};
use crate::experiment::stream::Stream;
use crate::experiment::table::{Table, row};
use crate::experiment::verdict::{Part, Verdict};
use crate::experiment::{Experiment, Outcome};
use crate::failure::Failure;

pub(crate) const FIG2: Experiment = Experiment {
    name: "agg-evict/fig2",
    title: "the size of a batch: its cost, and the flows in it",
    paper: "Agg-Evict (CCR 2018), Fig. 2",
    claim: "FlowRadar's throughput falls when packets are received in larger batches (by an eighth or more from 32 \
            to 8192 packets with the source or the pair of addresses as the key), while the share of \
            distinct flows in a batch falls (to 45 % of it with the source).",
    measure,
    judge,
    charts: &[
        Chart {
            title: "Throughput of FlowRadar",
            y: &[("mpps", "")],
            y_axis: linear("million packets a second"),
            ..BY_BATCH
        },
        Chart {
            title: "Flows of a batch",
            y: &[("distinct_percent", "")],
            y_axis: linear("distinct flows (% of the packets)"),
            ..BY_BATCH
        },
    ],
};

const BY_BATCH: Chart = Chart {
    title: "",
    x: "batch_packets",
    x_axis: log("packets of a batch"),
    y: &[],
    y_axis: linear(""),
    series: "key",
    only: &["source", "pair", "five-tuple"],
};

/// Packets of a batch.
pub(super) const BATCHES: [usize; 5] = [32, 128, 512, 2048, 8192];

fn measure(setting: &Setting) -> Result<Outcome, Failure> {
    let mut table = Table::new(["key", "batch_packets", "mean_ns", "mpps", "distinct_percent"]);
    measure_key::<Key4>(&mut table, "source", KeyKind::Source, setting)?;
    measure_key::<Key8>(&mut table, "pair", KeyKind::Pair, setting)?;
    measure_key::<Key16>(&mut table, "five-tuple", KeyKind::FiveTuple, setting)?;
    let limit = super::latency::limit(&table.numbers("key", BARE, "mean_ns"), BATCHES[0]);
    let notes =
        "The engine's own batches hold 256 packets; larger ones are received into a buffer first, \
                 and taken from there. In the generated trace nearly each flow has a source of its own, so that \
                 the share of distinct ones is the same by any key."
            .to_owned();
    Ok(Outcome { table, limit, notes })
}

fn measure_key<K: FlowKey + Extract<8>>(
    table: &mut Table,
    name: &str,
    kind: KeyKind,
    setting: &Setting,
) -> Result<(), Failure> {
    let stream = Stream::<K>::draw(setting, Mix::Trace, kind)?;
    for batch in BATCHES {
        let (bare, times) = of_structures(&[super::flow_radar()], setting, &stream, batch)?;
        let percent = 100.0 * distinct(&stream.keys, batch);
        row!(table, name, batch, times[0].mean_ns, 1e3 / times[0].mean_ns, percent);
        row!(table, BARE, batch, bare.mean_ns, 1e3 / bare.mean_ns);
    }
    Ok(())
}

/// The mean share of distinct keys in batches of so many.
fn distinct<K: FlowKey>(keys: &[K], batch: usize) -> f64 {
    let mut seen = HashSet::new();
    let mut share = |keys: &[K]| {
        seen.clear();
        keys.iter().filter(|key| seen.insert(key.canonical(K::SHORTEST).to_vec())).count() as f64
    };
    let batches = keys.chunks_exact(batch);
    let count = batches.len();
    batches.map(&mut share).sum::<f64>() / (count * batch) as f64
}

fn judge(table: &Table) -> Verdict {
    let ends = |key: &str, column: &str| {
        let numbers = table.numbers("key", key, column);
        [numbers.first(), numbers.last()].map(|end| end.copied().unwrap_or(f64::NAN))
    };
    let falls = |key: &str| {
        let [first, last] = ends(key, "mpps");
        let what = format!("throughput of batches of 8192 over 32, by {key}");
        Part::at_most(&what, last / first, 0.875)
    };
    let [first, last] = ends("source", "distinct_percent");
    Verdict::of([
        falls("source"),
        falls("pair"),
        Part::moves("percent of distinct sources in a batch, by its size", &[first, last], false),
    ])
}
