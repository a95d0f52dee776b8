//! Table 2: what share of the time goes where.

use std::hint::black_box;

use flowgauge_core::batch::{BATCH_PACKETS, Batch};
use flowgauge_core::key::{FlowKey, Key16, KeyKind};

use crate::experiment::chart::{Chart, linear};
use crate::experiment::latency::{Bare, Runner, race};
use crate::experiment::setting::{Mix, Setting};
use crate::experiment::stream::Stream;
use crate::experiment::structure::Structure;
use crate::experiment::table::{Table, row, short};
use crate::experiment::verdict::{Part, Verdict};
use crate::experiment::{Experiment, Outcome};
use crate::failure::Failure;

pub(crate) const TABLE2: Experiment = Experiment {
    name: "nitro/table2",
    title: "hashing, counters and heap: where the time of a sketch goes",
    paper: "NitroSketch (SIGCOMM 2019), Table 2",
    claim: "Of UnivMon's time in a switch hashing takes most, 37 %; copies and counters take 16 %, and the \
            heap of heavy keys 16 %, in three functions.",
    measure,
    judge,
    charts: &[Chart {
        title: "Where the time goes",
        x: "structure",
        x_axis: linear(""),
        y: &[("ns", "")],
        y_axis: linear("time (ns a packet)"),
        series: "part",
        only: &[],
    }],
};

const UNIVMON: &str = "UnivMon";
const FILLING: &str = "filling batches";
const HASHING: &str = "hashing";
const COUNTERS: &str = "counters";
const KEYS: &str = "heavy keys";

/// Only fills batches.
struct Filling;

impl<K: FlowKey> Runner<K> for Filling {
    fn begin(&mut self) {}

    fn take(&mut self, batch: &mut Batch<K>) {
        black_box(batch.keys());
    }
}

/// A sketch without and with its heavy keys; UnivMon cannot be without, and keeps two a level.
fn pairs() -> [[Structure; 2]; 4] {
    let shape = [("rows", "4"), ("columns", "65536")];
    let rows = |label: &str, algorithm| {
        let sketch = |candidates| {
            let candidates = [("candidates", candidates)];
            Structure::new(label, algorithm).with(shape.into_iter().chain(candidates))
        };
        [sketch("0"), sketch("1024")]
    };
    let univmon = |top| {
        let levels = [("levels", "4"), ("columns", "65536"), ("top", top)];
        Structure::new(UNIVMON, "univmon").with(levels)
    };
    [
        rows("Count-Min", "count-min"),
        rows("Count Sketch", "count-sketch"),
        rows("K-ary", "k-ary"),
        [univmon("2"), univmon("128")],
    ]
}

fn measure(setting: &Setting) -> Result<Outcome, Failure> {
    let stream = Stream::<Key16>::draw(setting, Mix::Trace, KeyKind::FiveTuple)?;
    let mut table = Table::new(["structure", "part", "ns", "percent"]);
    let mut limit = String::new();
    for [without, with] in pairs() {
        let (mut without, label) = (without.build::<Key16>(setting)?, with.label.clone());
        let mut with = with.build::<Key16>(setting)?;
        let (mut filling, mut bare) = (Filling, Bare::new());
        let mut runners: [&mut dyn Runner<Key16>; 4] =
            [&mut filling, &mut bare, &mut without, &mut with];
        let times = race(&mut runners, &stream, BATCH_PACKETS, setting.rounds);
        let [filled, digested, counted, all] = [0, 1, 2, 3].map(|at| times[at].mean_ns);
        let parts = [
            (FILLING, filled),
            (HASHING, (digested - filled).max(0.0)),
            (COUNTERS, (counted - digested).max(0.0)),
            (KEYS, (all - counted).max(0.0)),
        ];
        let sum: f64 = parts.iter().map(|(_, ns)| ns).sum();
        for (part, ns) in parts {
            row!(table, label.as_str(), part, ns, 100.0 * ns / sum);
        }
        limit = format!(
            "Batches that are filled and digested, with nothing counted, take {} ns a packet.",
            short(digested)
        );
    }
    let notes = "Each part is the difference of two runs: batches are filled; and digested; and counted, \
                 without heavy keys (UnivMon: two a level); and with them. Here a packet has one digest, \
                 from which all rows and levels are cut, where the paper's sketches have a hash for each."
        .to_owned();
    Ok(Outcome { table, limit, notes })
}

fn judge(table: &Table) -> Verdict {
    let percent = |part: &str| {
        let mut rows = table.of("structure", UNIVMON).filter(|row| row.text("part") == part);
        rows.next().map_or(f64::NAN, |row| row.number("percent"))
    };
    let (hashing, counters, keys) = (percent(HASHING), percent(COUNTERS), percent(KEYS));
    Verdict::of([
        Part::at_least("hashing of UnivMon, %", hashing, 37.0),
        Part::at_least("counters of UnivMon, %", counters, 15.0),
        Part::at_least("heavy keys of UnivMon, %", keys, 15.0),
        Part::at_least("hashing over counters", hashing / counters, 1.0),
    ])
}
