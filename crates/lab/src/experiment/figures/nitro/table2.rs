//! Table 2: where the time goes.

use std::hint::black_box;

use flowgauge_core::batch::{BATCH_PACKETS, Batch};

use super::paper::{Kind, Sketch, Work};
use crate::experiment::chart::{Chart, Mark, linear};
use crate::experiment::latency::{Bare, Runner, noise, race};
use crate::experiment::part::Part;
use crate::experiment::setting::{Mix, Setting};
use crate::experiment::stream::Stream;
use crate::experiment::structure::Structure;
use crate::experiment::table::{Table, row, short};
use crate::experiment::verdict::{Claim, Gain, Verdict};
use crate::experiment::{Experiment, Outcome, Preset};
use crate::failure::Failure;
use crate::keys::{FiveTuples, Keys};

pub(crate) const TABLE2: Experiment = Experiment {
    name: "nitro/table2",
    title: "hashing, counters and heap: where the time of a sketch goes",
    paper: "NitroSketch (SIGCOMM 2019), Table 2",
    presets: &[
        super::TRAFFIC,
        super::EPOCH,
        super::HASHES,
        super::SWITCH,
        Preset::other(
            "UnivMon",
            "not named",
            "14 levels of 5 rows of 10,000 counters, 128 keys each, written in the lab; the engine's with 4 \
             levels of 65536 columns",
            "a common size",
        ),
        Preset::other(
            "shares",
            "of the processor's time, by a profiler",
            "differences of times of runs that do more and more of the work",
            "no profiler tells functions apart that are compiled into one",
        ),
    ],
    measure,
    judge,
    missing: &[],
    charts: &[Chart {
        title: "Where the time goes",
        x: "structure",
        x_axis: linear(""),
        y: &[("percent", "")],
        y_axis: linear("time (%)"),
        series: "part",
        only: &[],
        paper: &[
            Mark::Of(HASHING, THEIRS, PARTS[0].1),
            Mark::Of(COUNTERS, THEIRS, PARTS[1].1),
            Mark::Of(KEYS, THEIRS, PARTS[2].1),
        ],
        see: "Diamonds are the paper's profile of UnivMon, and stand over the bars of its UnivMon here: hashing takes most, and with one digest for all rows it takes least.",
    }],
};

const UNIVMON: &str = "UnivMon";
const THEIRS: &str = "UnivMon, the paper's";
/// The paper's profile of UnivMon's functions: 37.29, 15.91 and 10.71 + 4.91 of 76.84 %.
const PARTS: [(&str, f64); 3] = [
    (HASHING, 100.0 * 37.29 / 76.84),
    (COUNTERS, 100.0 * 15.91 / 76.84),
    (KEYS, 100.0 * (10.71 + 4.91) / 76.84),
];

const FILLING: &str = "filling batches";
const HASHING: &str = "hashing";
const COUNTERS: &str = "counters";
const KEYS: &str = "heavy keys";

/// Only fills batches.
struct Filling;

impl<K: Keys> Runner<K> for Filling {
    fn begin(&mut self) {}

    fn take(&mut self, batch: &mut Batch<K::Key>) {
        black_box(batch.keys());
    }
}

/// A sketch without and with its heavy keys. UnivMon cannot be without, and keeps two per level.
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
    let stream = Stream::<FiveTuples>::draw(setting, Mix::Trace)?;
    let mut table = Table::new(["structure", "part", "ns", "percent"]);
    let mut limit = String::new();
    for [without, with] in pairs() {
        let (mut without, label) = (without.build::<FiveTuples>(setting)?, with.label.clone());
        let mut with = with.build::<FiveTuples>(setting)?;
        let (mut filling, mut bare) = (Filling, Bare::new());
        let mut runners: [&mut dyn Runner<FiveTuples>; 4] =
            [&mut filling, &mut bare, &mut without, &mut with];
        let times = race(&mut runners, &stream, BATCH_PACKETS, setting.rounds);
        table.add_noise(noise(&times, setting.rounds));
        let [filled, digested, counted, all] = [0, 1, 2, 3].map(|at| times[at].mean_ns);
        push(&mut table, &label, [filled, digested, counted, all]);
        limit = format!(
            "Batches that are filled and digested, with nothing counted, take {} ns a packet.",
            short(digested)
        );
    }
    let work = |work| Sketch::<FiveTuples>::new(Kind::CountSketch, 14, 10_000, work);
    let mut sketches = [Work::Hashes, Work::Counters, Work::Heap].map(work);
    let mut filling = Filling;
    let mut runners: Vec<&mut dyn Runner<FiveTuples>> = vec![&mut filling];
    runners.extend(sketches.iter_mut().map(|sketch| sketch as &mut dyn Runner<FiveTuples>));
    let times = race(&mut runners, &stream, BATCH_PACKETS, setting.rounds);
    table.add_noise(noise(&times, setting.rounds));
    push(&mut table, THEIRS, [0, 1, 2, 3].map(|at| times[at].mean_ns));
    let notes = "Each part is the difference of two runs: batches are filled; and digested; and counted, \
                 without heavy keys (UnivMon: two a level); and with them. Here a packet has one digest, \
                 from which all rows and levels are cut, where the paper's sketches have a hash for each: so \
                 has its UnivMon, which is written in the lab."
        .to_owned();
    Ok(Outcome { table, limit, notes })
}

/// Adds a row for each part of the time: packets that are filled into batches, hashed too, counted too,
/// and with the heavy keys.
fn push(table: &mut Table, label: &str, [filled, hashed, counted, all]: [f64; 4]) {
    let parts = [
        (FILLING, filled),
        (HASHING, (hashed - filled).max(0.0)),
        (COUNTERS, (counted - hashed).max(0.0)),
        (KEYS, (all - counted).max(0.0)),
    ];
    let sum: f64 = parts.iter().map(|(_, ns)| ns).sum();
    for (part, ns) in parts {
        row!(table, label, part, ns, 100.0 * ns / sum);
    }
}

fn judge(table: &Table) -> Verdict {
    let of = |name: &str, part: &str, column: &str| {
        let mut rows = table.of("structure", name).filter(|row| row.text("part") == part);
        rows.next().map_or(f64::NAN, |row| row.number(column))
    };
    let percent = |name: &str, part: &str| of(name, part, "percent");
    let most = |name: &str| {
        [COUNTERS, KEYS].map(|part| {
            let what = format!("{part} over hashing");
            Part::less(&what, &[percent(name, part)], &[percent(name, HASHING)])
        })
    };
    let shares = |name: &str| {
        PARTS.map(|(part, wanted)| {
            Part::within(&format!("{part}, %"), percent(name, part), wanted, 0.3).timed()
        })
    };
    let sum = |name: &str| {
        [FILLING, HASHING, COUNTERS, KEYS].iter().map(|part| of(name, part, "ns")).sum::<f64>()
    };
    let faster = Gain::Faster(sum(THEIRS) / sum(UNIVMON));
    Verdict::of(
        table,
        [
            Claim::new(
                "Of UnivMon's time hashing takes most.",
                most(UNIVMON),
                "One digest of a packet serves all rows and levels.",
            )
            .on_baseline(most(THEIRS), faster),
            Claim::new(
                "Of what UnivMon takes in the switch, 77 % of the time in all, hashing is 49 %, copies and \
                 counters are 21 %, and the heap of heavy keys 20 % (within three tenths).",
                shares(UNIVMON),
                "One digest of a packet serves all rows and levels, and the heap is asked only by packets \
                 whose estimate is above its least key.",
            )
            .on_baseline(shares(THEIRS), faster),
        ],
    )
}
