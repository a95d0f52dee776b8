//! Figures 6 and 7: the size of entries, and values next to their keys or apart.

use super::padded::{Engine, PADDINGS, entry_bytes};
use super::{Contender, HEAP, INLINE, INLINE_ARRAY, LINEAR, Rule};
use crate::experiment::chart::{Chart, linear};
use crate::experiment::latency::{self, BARE, COLUMNS};
use crate::experiment::part::Part;
use crate::experiment::setting::{Mix, Setting};
use crate::experiment::stream::Stream;
use crate::experiment::table::Table;
use crate::experiment::verdict::{Claim, Verdict};
use crate::experiment::{Experiment, Outcome, Preset};
use crate::failure::Failure;
use crate::keys::Pairs;

/// Figure 6: the size of an entry.
pub(crate) const FIG6: Experiment = Experiment {
    name: "simple/fig6",
    title: "the size of an entry",
    paper: "Simple (SOSR 2018), Fig. 6",
    presets: &[
        super::TRAFFIC,
        super::EPOCH,
        super::BATCHES,
        super::SIZE,
        super::ENTRIES,
        Preset::same("entries", "a key of 8 bytes, a counter of 12, and 0, 12, 28 or 60 more"),
    ],
    measure: measure_entries,
    judge: judge_entries,
    missing: &[],
    charts: &[Chart {
        x: "entry_bytes",
        x_axis: linear("key and value (bytes)"),
        ..super::BY_SIZE
    }],
};

fn measure_entries(setting: &Setting) -> Result<Outcome, Failure> {
    let stream = Stream::<Pairs>::draw(setting, Mix::Trace)?;
    let mut table = super::table(["entry_bytes"]);
    for padding in PADDINGS {
        let bytes = super::LARGE;
        let mut contenders = match padding {
            12 => of_padding::<12>(bytes),
            28 => of_padding::<28>(bytes),
            60 => of_padding::<60>(bytes),
            _ => of_padding::<0>(bytes),
        };
        contenders.push(Contender::padded(LINEAR, Engine::Linear, padding, bytes, setting)?);
        let at = [entry_bytes(padding)];
        super::measure(&mut table, &at, contenders, setting, &stream, None)?;
    }
    let limit = super::limit(&table);
    let notes =
        "The arrays of this project have no padding. Its tables keep entries in the order of \
                 arrival, so that large flows share cache lines whatever the size of the table."
            .to_owned();
    Ok(Outcome { table, limit, notes })
}

/// The paper's array, table and heap with `PAYLOAD` more bytes per entry.
fn of_padding<const PAYLOAD: usize>(bytes: usize) -> Vec<Contender<Pairs>> {
    vec![
        Contender::inline::<PAYLOAD>(INLINE_ARRAY, Rule::Overwriting, bytes),
        Contender::inline::<PAYLOAD>(INLINE, Rule::Linear, bytes),
        Contender::heap::<PAYLOAD>(bytes),
    ]
}

fn judge_entries(table: &Table) -> Verdict {
    let grows = |name: &str| {
        let tails = table.numbers("structure", name, "p99_ns");
        Part::moves(&format!("tail of the {name} (ns), by entry size"), &tails, true).tails()
    };
    Verdict::of(
        table,
        [
            Claim::new(
                "In 64 MB, the tail latency of array, table and heap grows with the size of an entry.",
                [INLINE_ARRAY, INLINE, HEAP].map(grows),
                "Entries are fetched ahead of their use, all lines of one at once.",
            ),
            Claim::new(
                "The tail of the engine's table grows, too, whose entries are in the order of arrival.",
                [grows(LINEAR)],
                "Large flows come first and share lines, whatever the size of the table.",
            ),
        ],
    )
}

/// Figure 7: values next to their keys, or apart.
pub(crate) const FIG7: Experiment = Experiment {
    name: "simple/fig7",
    title: "values beside their keys, or apart",
    paper: "Simple (SOSR 2018), Fig. 7",
    presets: &[
        super::SKEWED,
        super::EPOCH,
        super::BATCHES,
        Preset::of(
            "size",
            "32 MB, of fewer buckets for larger entries",
            |setting| format!("{} MB", BYTES * setting.packets / 1_000_000),
            "five to nine tenths of the buckets are taken at the lowest skew",
        ),
        super::ENTRIES,
        Preset::same("entries", "a key of 8 bytes, a counter of 12, and 0, 12, 28 or 60 more"),
    ],
    measure: measure_layouts,
    judge: judge_layouts,
    missing: &[],
    charts: &[
        Chart { title: "Skew 0.75", only: &AT_075, ..BY_ENTRY },
        Chart { title: "Skew 1.25", only: &AT_125, ..BY_ENTRY },
        Chart { title: "Skew 1.75", only: &AT_175, ..BY_ENTRY },
    ],
};

const BY_ENTRY: Chart = Chart {
    x: "entry_bytes",
    x_axis: linear("key and value (bytes)"),
    series: "layout",
    ..super::BY_SIZE
};

const SKEWS: [f64; 3] = [0.75, 1.25, 1.75];

/// The paper's layouts, and the engine's tables.
const BESIDE: &str = "beside";
const APART: &str = "apart";
const ENGINE: [(&str, Engine); 2] =
    [("the engine's linear", Engine::Linear), ("the engine's indirect", Engine::Indirect)];

const AT_075: [&str; 4] = [
    "beside, skew 0.75",
    "apart, skew 0.75",
    "the engine's linear, skew 0.75",
    "the engine's indirect, skew 0.75",
];
const AT_125: [&str; 4] = [
    "beside, skew 1.25",
    "apart, skew 1.25",
    "the engine's linear, skew 1.25",
    "the engine's indirect, skew 1.25",
];
const AT_175: [&str; 4] = [
    "beside, skew 1.75",
    "apart, skew 1.75",
    "the engine's linear, skew 1.75",
    "the engine's indirect, skew 1.75",
];

/// Bytes of a table per packet of an epoch. At the lowest skew, nearly all buckets are occupied
/// with the largest entries.
const BYTES: usize = 44;

/// Both of the paper's layouts with `PAYLOAD` more bytes per entry.
fn both_layouts<const PAYLOAD: usize>(skew: f64, bytes: usize) -> Vec<Contender<Pairs>> {
    let label = |layout: &str| format!("{layout}, skew {skew}");
    vec![
        Contender::inline::<PAYLOAD>(&label(BESIDE), Rule::Linear, bytes),
        Contender::apart::<PAYLOAD>(&label(APART), bytes),
    ]
}

fn measure_layouts(setting: &Setting) -> Result<Outcome, Failure> {
    let mut all = Table::new(["layout", "entry_bytes"].into_iter().chain(COLUMNS));
    for skew in SKEWS {
        let stream = Stream::<Pairs>::draw(setting, Mix::Zipf(skew))?;
        let bytes = BYTES * setting.packets;
        let mut table = super::table(["entry_bytes"]);
        for padding in PADDINGS {
            let mut contenders = match padding {
                12 => both_layouts::<12>(skew, bytes),
                28 => both_layouts::<28>(skew, bytes),
                60 => both_layouts::<60>(skew, bytes),
                _ => both_layouts::<0>(skew, bytes),
            };
            for (layout, engine) in ENGINE {
                let label = format!("{layout}, skew {skew}");
                contenders.push(Contender::padded(&label, engine, padding, 2 * bytes, setting)?);
            }
            let at = [entry_bytes(padding)];
            super::measure(&mut table, &at, contenders, setting, &stream, None)?;
        }
        all.add_noise(table.noise());
        for row in table.rows() {
            let cells = std::iter::once("entry_bytes").chain(COLUMNS);
            let cells = cells.map(|name| row.number(name).into());
            all.push(std::iter::once(row.text("structure").into()).chain(cells));
        }
    }
    let limit = latency::limit(&all.numbers("layout", BARE, "mean_ns"), super::BATCH);
    let notes = "Beside and apart are the paper's: one item a bucket, and keys with pointers to values in \
                 the order of arrival. The engine's linear table has an index before records of key and \
                 value in the order of arrival; its indirect table probes keys and has values behind a \
                 number."
        .to_owned();
    Ok(Outcome { table: all, limit, notes })
}

fn judge_layouts(table: &Table) -> Verdict {
    let tails = |layout: &str, skew: f64| {
        table.numbers("layout", &format!("{layout}, skew {skew}"), "p99_ns")
    };
    // Tail apart over tail beside, for each entry size.
    let over = |skew: f64| -> Vec<f64> {
        tails(APART, skew).iter().zip(tails(BESIDE, skew)).map(|(a, b)| a / b).collect()
    };
    let more = |skew: f64| {
        let more = tails(APART, skew).into_iter().zip(tails(BESIDE, skew)).map(|(a, b)| a - b);
        let what = format!("nanoseconds more apart at skew {skew}, at worst");
        Part::at_most(&what, more.fold(f64::NAN, f64::max), 5.0).tails()
    };
    let low = over(SKEWS[0]);
    let end = |at: Option<&f64>| at.copied().unwrap_or(f64::NAN);
    Verdict::of(
        table,
        [
            Claim::new(
                "At skew 0.75, keys with pointers to their values have a tail 30 % lower with values of 60 \
                 bytes (20 to 40 % here).",
                [Part::within(
                    "tail apart over beside, largest entries",
                    end(low.last()),
                    0.7,
                    0.15,
                )
                .tails()],
                "All lines of an entry are fetched ahead together, and its neighbours' are read in the order \
                 of addresses, which the processor fetches ahead, too; a value behind a pointer is a second \
                 wait.",
            ),
            Claim::new(
                "With small values, pointers cost more.",
                [Part::at_least(
                    "tail apart over beside at skew 0.75, smallest entries",
                    end(low.first()),
                    1.0,
                )
                .tails()],
                "Values in the order of arrival share lines.",
            ),
            Claim::new(
                "At skews 1.25 and 1.75 pointers cost next to nothing: 5 ns.",
                SKEWS[1..].iter().map(|skew| more(*skew)),
                "A value behind a pointer is in a cache that takes longer than 5 ns.",
            ),
        ],
    )
}
