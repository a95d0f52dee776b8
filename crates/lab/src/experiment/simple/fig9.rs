//! Figure 9: other applications on the same machine.

use std::thread;

use flowgauge_core::key::{Key8, KeyKind};

use super::{ARRAY, BATCH, CUCKOO_1, CUCKOO_4, Contender, LINEAR, OVERWRITING, better};
use crate::experiment::antagonist::{Antagonist, beside};
use crate::experiment::chart::{Chart, linear, log};
use crate::experiment::latency::{BARE, Bare, COLUMNS, Runner, noise, race_paced};
use crate::experiment::part::{Part, median};
use crate::experiment::preset::Preset;
use crate::experiment::setting::{Mix, Setting};
use crate::experiment::stream::Stream;
use crate::experiment::table::Table;
use crate::experiment::verdict::{Claim, Missing, Verdict};
use crate::experiment::{Experiment, Outcome};
use crate::failure::Failure;

pub(crate) const FIG9A: Experiment = Experiment {
    name: "simple/fig9a",
    title: "an application beside that takes the cache",
    paper: "Simple (SOSR 2018), Fig. 9a",
    presets: &[
        super::TRAFFIC,
        super::EPOCH,
        super::BATCHES,
        SIZE,
        Preset::other(
            "rate",
            "lowered, so that the other application has the cache",
            "5 microseconds between two batches",
            "the paper does not say by how much",
        ),
    ],
    measure: |setting| measure(setting, Antagonist::Random),
    judge: judge_cache,
    missing: &[],
    charts: &[Chart {
        x: "antagonist_mb",
        x_axis: log("memory of the thread beside (MB)"),
        ..super::BY_SIZE
    }],
};

pub(crate) const FIG9B: Experiment = Experiment {
    name: "simple/fig9b",
    title: "applications beside that take the memory",
    paper: "Simple (SOSR 2018), Fig. 9b",
    presets: &[
        super::TRAFFIC,
        super::EPOCH,
        super::BATCHES,
        SIZE,
        Preset::other(
            "threads beside",
            "0 to 7 of 10 cores",
            "as many as cores are left, at most 7",
            "one more would share a core with what is measured",
        ),
    ],
    measure: |setting| measure(setting, Antagonist::Stream),
    judge: judge_memory,
    missing: &[Missing {
        says: "With seven threads beside, the array takes 2.9 times as long.",
        needs: "A machine with eight cores.",
    }],
    charts: &[Chart { x: "antagonists", x_axis: linear("threads beside"), ..super::BY_SIZE }],
};

const SIZE: Preset =
    Preset::other("size", "not named", "8 MB", "in the last-level cache, if alone there");

const NAMES: [&str; 5] = [ARRAY, OVERWRITING, LINEAR, CUCKOO_1, CUCKOO_4];

/// Bytes of each structure: it would be in the last-level cache, if it had that alone.
const BYTES: usize = 8 << 20;

/// Bytes of a thread that streams.
const STREAM_BYTES: usize = 128 << 20;

/// Pause between batches, so that the thread beside has the caches more than the structure.
const PAUSE_NS: f64 = 5_000.0;

fn measure(setting: &Setting, antagonist: Antagonist) -> Result<Outcome, Failure> {
    let stream = Stream::<Key8>::draw(setting, Mix::Trace, KeyKind::PAIR)?;
    let mut table =
        Table::new(["structure", "antagonists", "antagonist_mb"].into_iter().chain(COLUMNS));
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let beside_them: Vec<(usize, usize)> = match antagonist {
        Antagonist::Random => (0..=7).map(|power| (1, 1 << (20 + power))).collect(),
        // One more would take the time of what is measured.
        Antagonist::Stream => (0..cores.min(8)).map(|count| (count, STREAM_BYTES)).collect(),
    };
    let contenders = NAMES.iter().map(|name| Contender::<Key8>::named(name, BYTES, setting));
    let mut contenders = contenders.collect::<Result<Vec<_>, _>>()?;
    let mut bare = Bare::new();
    let mut runners: Vec<&mut dyn Runner<Key8>> = vec![&mut bare];
    runners.extend(contenders.iter_mut().map(|one| &mut *one.runner as &mut dyn Runner<Key8>));
    for (count, bytes) in beside_them {
        let times = beside(count, antagonist, bytes, || {
            race_paced(&mut runners, &stream, BATCH, setting.rounds, PAUSE_NS)
        });
        table.add_noise(noise(&times));
        for (label, time) in std::iter::once(&BARE).chain(&NAMES).zip(times) {
            let at = [(*label).into(), count.into(), super::megabytes(bytes).into()];
            table.push(at.into_iter().chain(time.cells()));
        }
    }
    let limit = super::limit(&table);
    let notes = format!(
        "Structures of {} MB; between two batches are {} microseconds. This machine has {cores} cores; \
         threads beside never share a core with what is measured.",
        BYTES >> 20,
        PAUSE_NS / 1e3
    );
    Ok(Outcome { table, limit, notes })
}

/// That an array has the lowest mean in every setting: the better of the two, point by point.
fn array_is_fastest(table: &Table) -> Claim {
    let of = |name: &str| table.numbers("structure", name, "mean_ns");
    let tables = better(&better(&of(LINEAR), &of(CUCKOO_1)), &of(CUCKOO_4));
    let arrays = better(&of(ARRAY), &of(OVERWRITING));
    Claim::new(
        "The array remains the fastest.",
        [Part::less("mean of the faster array over the fastest table", &arrays, &tables)],
        "Where all wait for memory, what is counted there matters little.",
    )
}

fn judge_cache(table: &Table) -> Verdict {
    // Memory well within the last-level cache, and well beyond.
    let mean = |from: f64, to: f64, name: &str| {
        let rows = table.of("structure", name);
        let rows = rows.filter(|row| (from..=to).contains(&row.number("antagonist_mb")));
        median(&rows.map(|row| row.number("mean_ns")).collect::<Vec<_>>())
    };
    let rises = [OVERWRITING, LINEAR, CUCKOO_4].map(|name| {
        let (within, beyond) = (mean(1.0, 4.0, name), mean(64.0, 128.0, name));
        let what = format!("mean of the {name} (ns) beside 1 to 4 MB, and beside 64 to 128 MB");
        Part::moves(&what, &[within, beyond], true)
    });
    Verdict::of(
        table,
        [
            Claim::new(
                "Latency is higher beside a thread that adds to random words of more memory than the \
                 last-level cache has than beside one whose words fit.",
                rises,
                "Cores may have parts of the last-level cache that others cannot take.",
            ),
            array_is_fastest(table),
        ],
    )
}

fn judge_memory(table: &Table) -> Verdict {
    let rises = |name: &str| {
        let means = table.numbers("structure", name, "mean_ns");
        match means.len() {
            0 | 1 => Part::open(format!("{name}: there is no core for a thread beside")),
            _ => Part::moves(&format!("mean of the {name} (ns), by threads beside"), &means, true),
        }
    };
    Verdict::of(
        table,
        [
            Claim::new(
                "Latency rises with the number of threads beside that stream through memory.",
                [OVERWRITING, LINEAR, CUCKOO_4].map(rises),
                "One thread does not take all bandwidth of this machine's memory.",
            ),
            array_is_fastest(table),
        ],
    )
}
