//! Figure 3: speed and errors by number of flows.

use flowgauge_core::key::{FlowKey, Key8, Key16};
use flowgauge_core::summary::{Answers, Estimate, Summary};
use flowgauge_core::terms::Measure;

use super::paper::{Kind, Plain, Sketch, Work};
use crate::exact::{Exact, number};
use crate::experiment::chart::{Chart, Mark, linear, log};
use crate::experiment::latency::{BARE, Bare, Runner};
use crate::experiment::part::{Part, median, spread};
use crate::experiment::setting::{LINE_RATE, Mix, Setting};
use crate::experiment::stream::{Loop, Stream};
use crate::experiment::structure::Structure;
use crate::experiment::table::{Table, row, short};
use crate::experiment::verdict::{Claim, Gain, Verdict};
use crate::experiment::{Experiment, Outcome, Preset};
use crate::failure::Failure;
use crate::keys::{FiveTuples, Keys, Pairs};

/// Figure 3a: speed by number of flows.
pub(crate) const FIG3A: Experiment = Experiment {
    name: "nitro/fig3a",
    title: "speed by the number of flows",
    paper: "NitroSketch (SIGCOMM 2019), Fig. 3a",
    presets: &[
        super::SWITCH,
        super::HASHES,
        Preset::of(
            "flows",
            "1000 to 100 million",
            |setting| format!("1024 to {} million", MOST * setting.packets / 1_000_000),
            "the hash table of more takes all memory",
        ),
        Preset::other(
            "traffic",
            "a million packets of flows",
            "flows all alike",
            "no cache knows the next",
        ),
        Preset::same("errors", "UnivMon and K-ary 5 %, Count-Min 1 %"),
        Preset::other(
            "levels of UnivMon",
            "not named",
            "14 of the paper's; the engine's own number",
            "14 levels are enough for 100 million flows",
        ),
    ],
    measure: measure_speed,
    judge: judge_speed,
    missing: &[],
    charts: &[
        Chart { title: "The engine's", only: &OURS, ..SPEED_BY_FLOWS },
        Chart { title: "The paper's, written in the lab", only: &THEIRS, ..SPEED_BY_FLOWS },
    ],
};

const SPEED_BY_FLOWS: Chart = Chart {
    title: "",
    x: "flows",
    x_axis: log("flows"),
    y: &[("mpps", "")],
    y_axis: log("million packets a second"),
    series: "structure",
    only: &[],
    paper: &[Mark::Level("10 Gbit/s", LINE_RATE)],
    see: "The hash table falls with the number of flows, sketches stay; the paper has the table under 10 million a second at 20 million flows, and sketches below the link's rate.",
};

const TABLE: &str = "hash table";
const UNIVMON_5: &str = "UnivMon (5 %)";
const SAMPLED: &str = "UnivMon (5 %) behind NitroSketch";
const SKETCHES: [&str; 3] = [UNIVMON_5, "Count-Min (1 %)", "K-ary (5 %)"];
const WITH_KEYS: &str = "Count-Min (1 %) with heavy keys";

const OURS: [&str; 6] = [TABLE, UNIVMON_5, SKETCHES[1], WITH_KEYS, SKETCHES[2], SAMPLED];

/// The paper's structures: a table that is looked up packet by packet, and sketches with a hash per
/// row and a heap.
const PLAIN_TABLE: &str = "hash table, packet by packet";
const THEIRS: [&str; 4] = [
    PLAIN_TABLE,
    "UnivMon (5 %), hash by hash",
    "Count-Min (1 %), hash by hash",
    "K-ary (5 %), hash by hash",
];

fn theirs() -> [(&'static str, Box<dyn Runner<Pairs>>); 4] {
    // 8 and 2.7 times the columns that an error of one column's share needs.
    let sketch = |kind, levels, columns| Box::new(Sketch::new(kind, levels, columns, Work::Heap));
    [
        (THEIRS[0], Box::<Plain>::default()),
        (THEIRS[1], sketch(Kind::CountSketch, 14, 3200)),
        (THEIRS[2], sketch(Kind::CountMin, 1, 272)),
        (THEIRS[3], sketch(Kind::Kary, 1, 3200)),
    ]
}

/// The fewest flows; the most are this many times the packets.
const LEAST: usize = 1 << 10;
const MOST: usize = 16;

/// A rate is steady if it stays above this share of itself.
const STEADY: f64 = 0.75;

fn structures(flows: usize) -> [Structure; 6] {
    let univmon = || Structure::new(UNIVMON_5, "univmon").with([("epsilon", 0.05)]);
    [
        Structure::new(TABLE, "linear-table").with([("buckets", (2 * flows).next_power_of_two())]),
        univmon(),
        Structure::new(SKETCHES[1], "count-min").with([("epsilon", "0.01"), ("candidates", "0")]),
        Structure::new(WITH_KEYS, "count-min").with([("epsilon", "0.01")]),
        Structure::new(SKETCHES[2], "k-ary").with([("epsilon", "0.05"), ("candidates", "0")]),
        univmon().named(SAMPLED).behind("nitro", [("p", "0.01")]),
    ]
}

fn measure_speed(setting: &Setting) -> Result<Outcome, Failure> {
    let mut table = Table::new(["structure", "flows", "mpps", "mpps_spread"]);
    let sizes = std::iter::successors(Some(LEAST), |flows| Some(flows * setting.factor));
    for flows in sizes.take_while(|flows| *flows <= MOST * setting.packets) {
        measure_flows(&mut table, flows, setting)?;
    }
    let limit = format!(
        "Batches that are filled and digested, with nothing counted: {} million packets a second.",
        short(median(&table.numbers("structure", BARE, "mpps")))
    );
    let notes =
        "Flows are all alike, so that no cache knows the next one; each has sent a packet before. \
                 Structures alone, where the paper has them in a switch. With an error of 1 % and a \
                 threshold of 0.1 % every flow looks heavy to Count-Min: with heavy keys it is slow."
            .to_owned();
    Ok(Outcome { table, limit, notes })
}

/// The rates of all structures with this many flows.
fn measure_flows(table: &mut Table, flows: usize, setting: &Setting) -> Result<(), Failure> {
    let key =
        |flow: u64| Key8::from_canonical(&flow.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
    let every: Vec<Key8> = (1..=flows as u64).filter_map(key).collect();
    let mut random = fastrand::Rng::with_seed(setting.seed);
    let keys: Vec<Key8> = (0..setting.packets).map(|_| every[random.usize(0..flows)]).collect();
    let mut runners: Vec<(String, Box<dyn Runner<Pairs>>)> =
        vec![(BARE.to_owned(), Box::new(Bare::new()))];
    for structure in structures(flows) {
        let built = structure.build::<Pairs>(setting)?;
        runners.push((structure.label, Box::new(built)));
    }
    runners.extend(theirs().map(|(label, runner)| (label.to_owned(), runner)));
    for (_, runner) in &mut runners {
        Loop::new(&every).feed(&mut **runner, flows);
    }
    let mut rates = vec![Vec::new(); runners.len()];
    for _ in 0..setting.rounds {
        for ((_, runner), rates) in runners.iter_mut().zip(&mut rates) {
            let seconds = Loop::new(&keys).feed(&mut **runner, keys.len());
            rates.push(keys.len() as f64 / seconds / 1e6);
        }
    }
    for ((label, _), rates) in runners.into_iter().zip(rates) {
        row!(table, label, flows, median(&rates), spread(&rates));
    }
    Ok(())
}

fn judge_speed(table: &Table) -> Verdict {
    let of = |name: &str| table.numbers("structure", name, "mpps");
    let ends = |name: &str| {
        let rates = of(name);
        [rates.first(), rates.last()].map(|rate| rate.copied().unwrap_or(f64::NAN))
    };
    let most = |name: &str| of(name).into_iter().fold(f64::NAN, f64::max);
    let falls = |name: &str| {
        let [few, many] = ends(name);
        Part::at_most(&format!("the {name} with most flows over fewest"), many / few, 0.5).timed()
    };
    let slow = |name: &str| {
        Part::at_most(&format!("the {name} with most flows, in Mpps"), ends(name)[1], 10.0).timed()
    };
    let steady = |name: &str| {
        let least = of(name).into_iter().fold(f64::NAN, f64::min);
        Part::at_least(&format!("{name}, slowest over fastest"), least / most(name), STEADY).timed()
    };
    let below_line_rate = |name: &str| {
        Part::at_most(&format!("{name} at best, in Mpps"), most(name), LINE_RATE).timed()
    };
    let faster = |ours: &str, theirs: &str| Gain::Faster(ends(ours)[1] / ends(theirs)[1]);
    Verdict::of(
        table,
        [
            Claim::new(
                "A hash table is fast with few flows and falls to less than half of that with millions.",
                [falls(TABLE)],
                "Places of many packets are fetched ahead together.",
            )
            .on_baseline([falls(PLAIN_TABLE)], faster(TABLE, PLAIN_TABLE)),
            Claim::new(
                "Sketches keep their rate whatever the number of flows (within 25 %).",
                SKETCHES.map(steady),
                "Keys that are heavy among few flows take the time of a heap.",
            ),
            Claim::new(
                "With tens of millions of flows the hash table takes less than 10 million packets a second.",
                [slow(TABLE)],
                "Places of a batch are fetched ahead together, and the paper's rates are those of a whole \
                 switch.",
            )
            .on_baseline([slow(PLAIN_TABLE)], faster(TABLE, PLAIN_TABLE)),
            Claim::new(
                "UnivMon is below the 14.88 million packets a second of a 10 Gbit/s link.",
                [below_line_rate(UNIVMON_5)],
                "One digest serves all rows and levels here.",
            )
            .on_baseline([below_line_rate(THEIRS[1])], faster(UNIVMON_5, THEIRS[1])),
            Claim::new(
                "Count-Min and K-ary are below that rate, too.",
                SKETCHES[1..].iter().map(|name| below_line_rate(name)),
                "The paper's rates are those of a whole switch, whose own share of a packet's 67 ns is in them. \
                 Five hashes and a heap alone take less, as the paper's structures show here; \
                 `switch/nitro-fig2` has them in a switch.",
            )
            .on_baseline(
                THEIRS[2..].iter().map(|name| below_line_rate(name)),
                faster(SKETCHES[2], THEIRS[3]),
            ),
        ],
    )
}

/// Figure 3b: errors of Elastic Sketch by number of flows.
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
    measure: measure_errors,
    judge: judge_errors,
    missing: &[],
    charts: &[
        Chart { title: "Number of flows", y: &[("distinct_percent", "")], ..ERROR_BY_FLOWS },
        Chart {
            title: "Number of flows, as published",
            y: &[("published_percent", "")],
            y_axis: log("relative error (%)"),
            paper: &[Mark::Level("the paper: above this at 20M flows", 100.0)],
            ..ERROR_BY_FLOWS
        },
        Chart { title: "Entropy", y: &[("entropy_percent", "")], ..ERROR_BY_FLOWS },
    ],
};

const ERROR_BY_FLOWS: Chart = Chart {
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

fn measure_errors(setting: &Setting) -> Result<Outcome, Failure> {
    let stream = Stream::<FiveTuples>::draw(setting, Mix::Trace)?;
    let trace = Exact::count(
        stream.keys.iter().map(|key| number(key.canonical(FiveTuples::BYTES))).collect(),
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
            let mut summary = structure.build::<FiveTuples>(setting)?;
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
            Loop::<FiveTuples>::new(&piece).feed(summary, packets);
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

fn judge_errors(table: &Table) -> Verdict {
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
        let Ok(mut table) = table.build::<FiveTuples>(&Setting::quick()) else {
            panic!("it is built")
        };
        feed(&mut table, &keys, 7777);
        let flows = table.answers().flows().map(Flows::len);
        assert_eq!(flows, Some(8777));
        let elastic = Structure::new("", "elastic-sketch").in_bytes(4 << 20);
        let elastic = elastic.build::<FiveTuples>(&Setting::quick());
        let Ok(mut elastic) = elastic else { panic!("it is built") };
        feed(&mut elastic, &keys, 7777);
        let even = told_entropy(elastic.answers(), 8777.0);
        assert!(even.is_some_and(|bits| (bits / 8777_f64.log2() - 1.0).abs() < 0.01), "{even:?}");
    }
}
