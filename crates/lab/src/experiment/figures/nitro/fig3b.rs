//! Figure 3b: errors of Elastic Sketch by number of flows.

use flowgauge_core::key::{FlowKey, Key16, KeyKind};
use flowgauge_core::summary::{Answers, Estimate, Summary};
use flowgauge_core::terms::Measure;

use crate::exact::{Exact, number};
use crate::experiment::chart::{Chart, Mark, linear, log};
use crate::experiment::part::Part;
use crate::experiment::setting::{Mix, Setting};
use crate::experiment::stream::{Loop, Stream};
use crate::experiment::structure::Structure;
use crate::experiment::table::{Table, row};
use crate::experiment::verdict::{Claim, Gain, Verdict};
use crate::experiment::{Experiment, Outcome, Preset};
use crate::failure::Failure;

pub(crate) const FIG3B: Experiment = Experiment {
    name: "nitro/fig3b",
    title: "errors of entropy and of the number of flows, by the number of flows",
    paper: "NitroSketch (SIGCOMM 2019), Fig. 3b",
    presets: &[
        Preset::same("Elastic Sketch", "2.7 MB"),
        Preset::other(
            "UnivMon",
            "not in this figure",
            "2.7 MB, 16 levels",
            "the paper compares them elsewhere",
        ),
        Preset::other(
            "traffic",
            "a trace of malware",
            "an epoch like a backbone's, and a scan of up to 35 million flows",
            "the trace is not free to hand on",
        ),
        Preset::same("flows", "up to 35 million"),
    ],
    measure,
    judge,
    missing: &[],
    charts: &[
        Chart { title: "Number of flows", y: &[("distinct_percent", "")], ..BY_FLOWS },
        Chart {
            title: "Number of flows, as published",
            y: &[("published_percent", "")],
            y_axis: log("relative error (%)"),
            paper: &[Mark::Level("the paper: above this at 20M flows", 100.0)],
            ..BY_FLOWS
        },
        Chart { title: "Entropy", y: &[("entropy_percent", "")], ..BY_FLOWS },
    ],
};

const BY_FLOWS: Chart = Chart {
    title: "",
    x: "flows",
    x_axis: log("flows"),
    y: &[],
    y_axis: linear("relative error (%)"),
    series: "structure",
    only: &[],
    paper: &[],
    see: "Elastic Sketch leaves the bottom as flows become many, and UnivMon stays; the paper has an error above 100 % at 20 million flows.",
};

const ELASTIC: &str = "Elastic Sketch";
const UNIVMON: &str = "UnivMon";

/// Bytes per structure.
const MEMORY: usize = 2_700_000;

/// UnivMon's levels and keys per level. The deepest level has room for its share of 35 million
/// flows.
const LEVELS: [(&str, usize); 2] = [("levels", 16), ("top", 2048)];

/// Scan flows beside the trace, in quarters of an epoch's packets: up to 35 million.
const QUARTERS: [usize; 6] = [0, 1, 4, 16, 64, 140];
const FULL_QUARTERS: [usize; 6] = [0, 1, 2, 8, 32, 70];

/// Packets fed at once.
const PIECE: usize = 1 << 14;

fn measure(setting: &Setting) -> Result<Outcome, Failure> {
    let stream = Stream::<Key16>::draw(setting, Mix::Trace, KeyKind::FIVE_TUPLE)?;
    let trace = Exact::count(
        stream.keys.iter().map(|key| number(key.canonical(Key16::SHORTEST))).collect(),
    );
    let mut table = Table::new([
        "structure",
        "flows",
        "packets",
        "distinct_percent",
        "published_percent",
        "entropy_percent",
    ]);
    let univmon = Structure::new(UNIVMON, "univmon").with(LEVELS).in_bytes(MEMORY);
    let structures = [Structure::new(ELASTIC, "elastic-sketch").in_bytes(MEMORY), univmon];
    let quarters = if setting.packets < Setting::full().packets { QUARTERS } else { FULL_QUARTERS };
    for scanned in quarters.map(|quarters| quarters * setting.packets / 4) {
        let flows = (trace.len() + scanned) as f64;
        let packets = stream.keys.len() + scanned;
        let entropy = entropy(packets as f64, logs(&trace));
        for structure in &structures {
            let mut summary = structure.build::<Key16>(setting)?;
            feed(&mut summary, &stream.keys, scanned);
            let answers = summary.answers();
            let error = |estimate: Option<f64>, truth: f64| {
                estimate.map(|estimate| 100.0 * (estimate / truth - 1.0).abs())
            };
            let cardinality = answers.cardinality();
            let distinct = error(cardinality.map(|flows| flows.value), flows);
            let published = match cardinality {
                Some(told) if is_full(&told, packets as f64) => Some(INFINITE),
                _ => distinct,
            };
            let bits = told_entropy(answers, packets as f64);
            let label = structure.label.as_str();
            row!(table, label, flows, packets, distinct, published, error(bits, entropy));
        }
    }
    let limit = "A table of all flows errs nowhere, and takes some 40 bytes for each.".to_owned();
    let notes = "The trace's epoch, and evenly among its packets those of a scan, each of another flow. \
                 Elastic Sketch tells no entropy here: it is worked out from the sizes of its heavy flows, \
                 the rest being as many flows of equal size as it tells of. Once its light part is full it \
                 tells the least number of flows that is likely; the published estimate, the logarithm of \
                 the share of empty counters, is infinite then, for which an error of a million % stands."
        .to_owned();
    Ok(Outcome { table, limit, notes })
}

/// Stands for an infinite error, in percent.
const INFINITE: f64 = 1e6;

/// Whether no counter is empty: then only the packet count bounds the number of flows from above.
/// Otherwise the bounds are as close as a few counters.
fn is_full(told: &Estimate, packets: f64) -> bool {
    told.high - told.value > packets / 4.0
}

/// Σ f log₂ f.
fn logs(flows: &Exact) -> f64 {
    flows.iter().map(|(_, packets)| packets as f64 * (packets as f64).log2()).sum()
}

/// Entropy in bits of `packets` packets, whose flows have this sum of f log₂ f.
fn entropy(packets: f64, logs: f64) -> f64 {
    packets.log2() - logs / packets
}

/// The entropy a summary answers, or the one implied by its heavy flows and its number of flows.
fn told_entropy(answers: &dyn Answers, packets: f64) -> Option<f64> {
    if let Some(logs) = answers.weight_logs(Measure::Packets) {
        return Some(entropy(packets, logs.value));
    }
    let (mut heavy, mut sizes, mut sum) = (0.0, 0.0, 0.0);
    answers.candidates()?.for_each(&mut |_, size| {
        let size = size.packets.map_or(1.0, |size| size.value.max(1.0));
        heavy += 1.0;
        sizes += size;
        sum += size * size.log2();
    });
    let rest = (packets - sizes).max(0.0);
    let flows = (answers.cardinality()?.value - heavy).max(1.0);
    Some(entropy(packets, sum + rest * (rest / flows).max(1.0).log2()))
}

/// Feeds the keys, and evenly among them as many further flows with one packet each.
fn feed(summary: &mut Box<dyn Summary<Key16>>, keys: &[Key16], scanned: usize) {
    let mut piece = Vec::with_capacity(PIECE + scanned / keys.len() + 2);
    let mut flows = 0;
    for (at, key) in keys.iter().enumerate() {
        piece.push(*key);
        let until = (at + 1) * scanned / keys.len();
        piece.extend((flows..until).filter_map(|flow| of_scan(flow as u64)));
        flows = until;
        if piece.len() >= PIECE || at + 1 == keys.len() {
            let packets = piece.len();
            Loop::new(&piece).feed(summary, packets);
            piece.clear();
        }
    }
}

/// A flow from an otherwise unused address.
fn of_scan(flow: u64) -> Option<Key16> {
    let mut tuple = [240, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 80, 6];
    tuple[4..10].copy_from_slice(&flow.to_be_bytes()[2..]);
    Key16::from_canonical(&tuple)
}

fn judge(table: &Table) -> Verdict {
    let of = |name: &str, column: &str| table.numbers("structure", name, column);
    let ends = |name: &str, column: &str| {
        let errors = of(name, column);
        [errors.first(), errors.last()].map(|error| error.copied().unwrap_or(f64::NAN))
    };
    let [few, many] = ends(ELASTIC, "distinct_percent");
    let [few_published, published] = ends(ELASTIC, "published_percent");
    let [_, entropy] = ends(ELASTIC, "entropy_percent");
    let [_, distinct_of_univmon] = ends(UNIVMON, "distinct_percent");
    let [_, entropy_of_univmon] = ends(UNIVMON, "entropy_percent");
    let overflows = |many: f64| {
        let what = "Elastic Sketch's number of flows with most flows, off by %";
        Part::at_least(what, many, 100.0)
    };
    Verdict::of(
        table,
        [
            Claim::new(
                "With tens of millions of flows Elastic Sketch's linear counting overflows, and its number \
                 of flows is off by more than 100 %.",
                [overflows(many)],
                "A full light part tells here the least number of flows that is likely.",
            )
            .on_baseline([overflows(published)], Gain::Closer(published / many)),
            Claim::new(
                "With few flows Elastic Sketch is accurate (5 %).",
                [
                    Part::at_most("its number of flows, fewest, off by %", few, 5.0),
                    Part::at_most("as published, off by %", few_published, 5.0),
                ],
                "The heavy part takes too much of the memory.",
            ),
            Claim::new(
                "A sketch of L2 (UnivMon) errs less with most flows, in their number and in entropy.",
                [
                    Part::at_most(
                        "UnivMon's number of flows over Elastic Sketch's",
                        distinct_of_univmon / many,
                        1.0,
                    ),
                    Part::at_most(
                        "UnivMon's entropy over Elastic Sketch's",
                        entropy_of_univmon / entropy,
                        1.0,
                    ),
                    Part::at_most("UnivMon's number of flows, off by %", distinct_of_univmon, 20.0),
                ],
                "The deepest level has more flows than its heap.",
            ),
        ],
    )
}

#[cfg(test)]
mod tests {
    use flowgauge_core::summary::Flows;

    use super::*;

    #[test]
    fn scans_are_of_other_flows_and_none_is_left_out() {
        let key = |i: u32| Key16::from_canonical(&[&[10; 9][..], &i.to_be_bytes()].concat());
        let keys: Vec<Key16> = (0..1000).filter_map(key).collect();
        let table = Structure::new("", "linear-table");
        let Ok(mut table) = table.build::<Key16>(&Setting::quick()) else { panic!("it is built") };
        feed(&mut table, &keys, 7777);
        let flows = table.answers().flows().map(Flows::len);
        assert_eq!(flows, Some(8777));
        let elastic = Structure::new("", "elastic-sketch").in_bytes(4 << 20);
        let elastic = elastic.build::<Key16>(&Setting::quick());
        let Ok(mut elastic) = elastic else { panic!("it is built") };
        feed(&mut elastic, &keys, 7777);
        let even = told_entropy(elastic.answers(), 8777.0);
        assert!(even.is_some_and(|bits| (bits / 8777_f64.log2() - 1.0).abs() < 0.01), "{even:?}");
    }
}
