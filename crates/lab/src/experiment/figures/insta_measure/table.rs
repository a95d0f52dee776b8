//! Section IV-B: the flow table's load, and which flows it evicts.

use flowgauge_core::summary::Answers;
use flowgauge_core::terms::Measure;

use crate::experiment::chart::{Chart, linear, log};
use crate::experiment::part::Part;
use crate::experiment::setting::{FRAME_BYTES, Setting};
use crate::experiment::stream::{RepeatedStream, Stream, TRAFFIC};
use crate::experiment::structure::Structure;
use crate::experiment::table::{Table, row};
use crate::experiment::verdict::{Claim, Verdict};
use crate::experiment::{Experiment, Outcome, Preset};
use crate::failure::Failure;
use crate::keys::FiveTuples;

pub(crate) const WSAF: Experiment = Experiment {
    name: "insta-measure/wsaf",
    title: "the flow table: how full it gets, and which flows it gives up",
    paper: "InstaMeasure (ICDCS 2019), section IV-B",
    presets: &[
        Preset::other(
            "traffic",
            "not measured: a design",
            "like a backbone's; Zipf's law with skew 1.1; a million flows all alike",
            "the claim is about any traffic",
        ),
        super::KEY,
        super::REGULATOR,
        Preset::other(
            "flow table",
            "2^20 entries",
            "2^8 to 2^16",
            "so few that entries are given up",
        ),
    ],
    measure,
    judge,
    missing: &[],
    charts: &[
        Chart { title: "How full the table is", y: &[("load_percent", "")], ..BY_ENTRIES },
        Chart {
            title: "The largest flows that it holds",
            y: &[("held_percent", "")],
            y_axis: linear("held of the largest flows (%)"),
            see: "The lines of skewed traffic stay near 100 %: entries that are given up are those of small flows.",
            ..BY_ENTRIES
        },
    ],
};

const BY_ENTRIES: Chart = Chart {
    title: "",
    x: "entries",
    x_axis: log("entries of the table"),
    y: &[],
    y_axis: linear("entries taken (%)"),
    series: "traffic",
    only: &[],
    paper: &[],
    see: "Small tables are full: triangular probing reaches every entry.",
};

/// Table sizes in entries, ascending.
const ENTRIES: [usize; 5] = [1 << 8, 1 << 10, 1 << 12, 1 << 14, 1 << 16];

/// Length of the stream in epochs.
const TURNS: usize = 8;

/// Looks for the largest flows: one per this many entries.
const LARGEST: usize = 100;

fn measure(setting: &Setting) -> Result<Outcome, Failure> {
    let mut table =
        Table::new(["traffic", "entries", "load_percent", "held", "largest", "held_percent"]);
    for (traffic, mix) in TRAFFIC {
        let stream = Stream::<FiveTuples>::draw(setting, mix)?;
        let packets = RepeatedStream::<FiveTuples> {
            keys: &stream.keys,
            wire: &|_| FRAME_BYTES,
            gap_ns: 1000,
        };
        let length = TURNS * stream.keys.len();
        for entries in ENTRIES {
            let parameters = [("sketch", super::SKETCH), ("entries", entries)];
            let structure = Structure::new(traffic, "insta-measure").with(parameters);
            let largest = packets.largest(Measure::Packets, length, (entries / LARGEST).max(1));
            let (mut held, mut taken, mut asked) = (0, 0, 0);
            for seed in 0..setting.rounds as u64 {
                let setting = Setting { seed: setting.seed + seed, ..setting.clone() };
                let mut summary = structure.build::<FiveTuples>(&setting)?;
                packets.feed(&mut *summary, 0..length);
                summary.settle();
                let named = named(summary.answers());
                taken += named.len();
                held += largest.keys().filter(|key| named.binary_search(key).is_ok()).count();
                asked += largest.keys().count();
            }
            let load = 100.0 * taken as f64 / (setting.rounds * entries) as f64;
            let percent = 100.0 * held as f64 / asked as f64;
            row!(table, traffic, entries, load, held, asked, percent);
        }
    }
    let limit = "A table with an entry for each flow gives none up.".to_owned();
    let notes = format!(
        "An epoch of {} packets {TURNS} times, a million packets a second, with {} seeds. Looked for are the \
         largest flows, one for each {LARGEST} entries.",
        setting.packets, setting.rounds
    );
    Ok(Outcome { table, limit, notes })
}

/// The keys of the table's flows, sorted.
fn named(answers: &dyn Answers) -> Vec<u128> {
    let mut named = Vec::new();
    if let Some(candidates) = answers.candidates() {
        candidates.for_each(&mut |key, _| named.push(crate::exact::number(key.as_bytes())));
    }
    named.sort_unstable();
    named
}

fn judge(table: &Table) -> Verdict {
    let least = table.rows().next().map_or(f64::NAN, |row| row.number("entries"));
    let full = TRAFFIC.map(|(traffic, _)| {
        let mut rows = table.of("traffic", traffic);
        let load = rows.find(|row| (row.number("entries") - least).abs() < 0.5);
        let load = load.map_or(f64::NAN, |row| row.number("load_percent"));
        Part::at_least(&format!("{traffic}: load of the smallest table, %"), load, 95.0)
    });
    let kept = ["backbone", "Zipf 1.1"].map(|traffic| {
        let full = table.of("traffic", traffic).filter(|row| row.number("load_percent") >= 90.0);
        let (held, largest) = full.fold((0.0, 0.0), |(held, largest), row| {
            (held + row.number("held"), largest + row.number("largest"))
        });
        Part::most_are(&format!("{traffic}: held by tables that are full"), held, largest, 0.95)
    });
    Verdict::of(
        table,
        [
            Claim::new(
                "Probes by triangular numbers visit every entry, so that the table gets full (95 %).",
                full,
                "Too few flows come through the regulator to fill it.",
            ),
            Claim::new(
                "Entries of mice are given up for others, those of elephants are kept: a full table holds 95 \
                 % of the largest flows.",
                kept,
                "An entry is spared once after a packet of its flow; in a table that is too small even large \
                 flows wait longer for their next one than the hand takes to come again.",
            ),
        ],
    )
}
