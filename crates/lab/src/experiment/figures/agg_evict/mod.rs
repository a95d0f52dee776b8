//! Zhou et al., "Accelerating network measurement in software" (CCR 2018).

mod auto;
mod batches;
mod paper;
mod solutions;
mod traffic;

pub(super) use auto::AUTO;
pub(super) use batches::{FIG2, FIG6, FIG6C, RECEIVE};
pub(super) use solutions::{FIG5, FIG8A, FIG8B};
pub(super) use traffic::{FIG4, FIG7, FIG7C};

use crate::experiment::chart::{Chart, Mark, linear};
use crate::experiment::latency::{self, BARE, Bare, COLUMNS, Latency, Runner, race};
use crate::experiment::part::{Part, median};
use crate::experiment::setting::{LINE_RATE, Setting};
use crate::experiment::stream::Stream;
use crate::experiment::structure::Structure;
use crate::experiment::table::{Cell, Table};
use crate::experiment::verdict::Gain;
use crate::experiment::{Preset, epoch};
use crate::failure::Failure;
use crate::keys::Keys;
use paper::{Aggregator, Alone, Policy, Search, Solution};

/// The solution that reads both addresses where the others read the source.
const TWO_LEVEL: &str = "TwoLevel";

/// Packets per batch.
const BATCH: usize = 32;

/// Names of a structure in tables, without and with the aggregator.
const ALONE: &str = "alone";
const BEHIND: &str = "behind Agg-Evict";

/// The same for the paper's structures and aggregator.
const THEIRS: &str = "the paper's, alone";
const THEIRS_BEHIND: &str = "the paper's, behind";

const TRAFFIC: Preset = Preset::other(
    "traffic",
    "a minute of CAIDA: 28 million packets of 590,000 sources, skew around 1.1",
    "generated like a backbone's, or `--keys FILE`",
    "the trace is not free to hand on",
);
const EPOCH: Preset = Preset::of("epoch", "2 million packets", epoch, "`--quick` is for every day");
const BATCHES: Preset = Preset::same("batch", "32 packets of 64 bytes");
const SOURCES: Preset = Preset::same("key", "the source; both addresses for TwoLevel");
const AGGREGATOR: Preset = Preset::other(
    "aggregator",
    "2000 rows of 16 pairs by remainder, a fingerprint by exclusive or, each evicted pair updated at once",
    "that, and the engine's: 2048 rows by digest, evicted pairs in half batches of 128",
    "sums that come together are fetched ahead together, at the cost of the tail",
);
const HASHES: Preset = Preset::other(
    "hashes",
    "one for each row",
    "xxHash32 for each row, and the engine's one digest for all rows",
    "the claims are about the former, users have the latter",
);
const RADAR: Preset = Preset::same(
    "FlowRadar",
    "262144 cells, a filter in a third of their memory, 4 hashes for each",
);

/// The paper's 2,000 rows of 16 pairs, as the next power of two.
const ROWS: usize = 2048;

/// The structure behind the aggregator.
fn behind(structure: &Structure, rows: usize) -> Structure {
    structure.clone().behind("agg-evict", [("rows", rows)])
}

/// The structure in most figures.
fn flow_radar() -> Structure {
    Structure::new("FlowRadar", "flow-radar").with([("cells", "262144"), ("hashes", "4")])
}

/// The paper's nine solutions at its sizes.
fn nine() -> [Structure; 9] {
    let array = [("rows", "4"), ("columns", "65536"), ("candidates", "0")];
    let reversible = [("rows", "4"), ("columns", "65536")];
    let levels = [("levels", "4"), ("columns", "65536"), ("top", "128")];
    let two = [("rows", "4"), ("columns", "65536"), ("bitmaps", "4096")];
    [
        Structure::new("Count-Min", "count-min").with(array),
        flow_radar(),
        Structure::new("Space-Saving", "space-saving").with([("counters", "128")]),
        Structure::new("UnivMon", "univmon").with(levels),
        Structure::new("RevSketch", "reversible-sketch").with(reversible),
        Structure::new(TWO_LEVEL, "two-level").with(two),
        // As many counters as the four arrays of the paper, which counts in only one of them.
        Structure::new("MRAC", "mrac").with([("columns", "262144")]),
        Structure::new("FM", "fm").with([("bitmaps", "4")]),
        Structure::new("LC", "linear-counting").with([("bits", "8388608")]),
    ]
}

/// The columns after a table's own.
const MEASURED: [&str; 3] = ["how", "mpps", "mpps_spread"];

/// An empty table with these columns first.
fn table(by: impl IntoIterator<Item = &'static str>) -> Table {
    Table::new(by.into_iter().chain(MEASURED).chain(COLUMNS))
}

/// A runner of the paper's solution with its name in tables.
type Theirs<K> = (&'static str, Box<dyn Runner<K>>);

/// A way to run a solution of the paper: its name in tables, and the aggregator before it, if any.
type Way = (&'static str, Option<(Policy, Search)>);

/// Alone, and behind the paper's aggregator.
const WAYS: [Way; 2] =
    [(THEIRS, None), (THEIRS_BEHIND, Some((Policy::RoundRobin, Search::Vector)))];

/// A solution of the paper, run in these ways.
fn theirs<K: Keys, S: Solution<K> + 'static>(
    new: impl Fn() -> S,
    ways: impl IntoIterator<Item = Way>,
) -> Vec<Theirs<K>> {
    let run = |(label, before): Way| -> Theirs<K> {
        match before {
            Some((policy, search)) => (label, Box::new(Aggregator::new(new(), policy, search))),
            None => (label, Box::new(Alone(new()))),
        }
    };
    ways.into_iter().map(run).collect()
}

/// Measures structures and the paper's solutions in batches of this size. Adds a row for the bare
/// loop and one per structure, each starting with `at`.
fn measure<K: Keys>(
    table: &mut Table,
    at: &[Cell],
    structures: &[Structure],
    mut theirs: Vec<Theirs<K>>,
    setting: &Setting,
    stream: &Stream<K>,
) -> Result<(), Failure> {
    let built = structures.iter().map(|structure| structure.build::<K>(setting));
    let mut built = built.collect::<Result<Vec<_>, _>>()?;
    let mut bare = Bare::new();
    let mut runners: Vec<&mut dyn Runner<K>> = vec![&mut bare];
    runners.extend(built.iter_mut().map(|summary| summary as &mut dyn Runner<K>));
    runners.extend(theirs.iter_mut().map(|(_, runner)| &mut **runner as &mut dyn Runner<K>));
    let times = race(&mut runners, stream, BATCH, setting.rounds);
    table.add_noise(latency::noise(&times, setting.rounds));
    let labels = structures.iter().map(|structure| structure.label.as_str());
    let labels = labels.chain(theirs.iter().map(|(label, _)| *label));
    push(table, at, std::iter::once(BARE).chain(labels).zip(times));
    Ok(())
}

/// Adds a row for each of these times.
fn push<'a>(table: &mut Table, at: &[Cell], times: impl Iterator<Item = (&'a str, Latency)>) {
    for (label, time) in times {
        let rates = [time.mpps(), time.mpps() * time.mean_spread / time.mean_ns].map(Cell::from);
        let at = at.iter().cloned().chain([Cell::from(label)]);
        table.push(at.chain(rates).chain(time.cells()));
    }
}

/// Checks that a column is lower for one structure than for the other, at every point.
fn less(table: &Table, what: &str, column: &str, [one, other]: [&str; 2]) -> Part {
    let of = |how: &str| table.numbers("how", how, column);
    Part::less(&format!("{what} behind the aggregator over alone"), &of(one), &of(other))
        .from(column)
}

/// The engine's two variants, and the paper's two.
const OURS: [&str; 2] = [BEHIND, ALONE];
const BOTH_THEIRS: [&str; 2] = [THEIRS_BEHIND, THEIRS];

/// How many times faster the engine's structures are than the paper's, without the aggregator.
fn faster(table: &Table) -> Gain {
    let of = |how: &str| table.numbers("how", how, "mean_ns");
    let ratios: Vec<f64> =
        of(THEIRS).iter().zip(of(ALONE)).map(|(theirs, ours)| theirs / ours).collect();
    Gain::Faster(median(&ratios))
}

/// A structure alone, and behind an aggregator with this many rows.
fn both(structure: &Structure, rows: usize) -> [Structure; 2] {
    [structure.clone().named(ALONE), behind(structure, rows).named(BEHIND)]
}

/// What the bare loop shows.
fn limit(table: &Table) -> String {
    latency::limit(&table.numbers("how", BARE, "mean_ns"), BATCH)
}

/// Mean and tail latency; each figure sets the horizontal axis.
const LATENCY: Chart = Chart {
    title: "Latency (bars: mean, lines above: 99th percentile)",
    x: "",
    x_axis: linear(""),
    y: &[("mean_ns", " mean"), ("p99_ns", " p99")],
    y_axis: linear("latency (ns a packet)"),
    series: "how",
    only: &[ALONE, BEHIND, THEIRS, THEIRS_BEHIND],
    paper: &[],
    see: "In each group the bar behind the aggregator should be the better one: lower in latency, higher in throughput.",
};

/// Throughput, likewise.
const THROUGHPUT: Chart = Chart {
    title: "Throughput",
    y: &[("mpps", "")],
    y_axis: linear("million packets a second"),
    paper: &[Mark::Level("10 Gbit/s", LINE_RATE)],
    ..LATENCY
};
