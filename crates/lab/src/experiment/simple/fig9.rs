//! Figure 9: other applications on the same machine.

use std::thread;

use flowgauge_core::key::{Key8, KeyKind};

use super::{ARRAY, BATCH, CUCKOO_1, CUCKOO_4, Contender, LINEAR, OVERWRITING, better};
use crate::experiment::antagonist::{Antagonist, beside};
use crate::experiment::chart::{Chart, linear, log};
use crate::experiment::latency::{BARE, Bare, Runner, race_paced};
use crate::experiment::setting::{Mix, Setting};
use crate::experiment::stream::Stream;
use crate::experiment::table::{Table, row};
use crate::experiment::verdict::{Part, Verdict, median};
use crate::experiment::{Experiment, Outcome};
use crate::failure::Failure;

pub(crate) const FIG9A: Experiment = Experiment {
    name: "simple/fig9a",
    title: "an application beside that takes the cache",
    paper: "Simple (SOSR 2018), Fig. 9a",
    claim: "Beside a thread that adds to random words, latency stays the same until those words are as \
            large as the last-level cache, rises there, and then stays; the array remains the fastest.",
    measure: |setting| measure(setting, Antagonist::Random),
    judge: judge_cache,
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
    claim: "Latency rises with the number of threads beside that stream through memory (2.9 times with \
            seven, for the array); the array remains the fastest.",
    measure: |setting| measure(setting, Antagonist::Stream),
    judge: judge_memory,
    charts: &[Chart { x: "antagonists", x_axis: linear("threads beside"), ..super::BY_SIZE }],
};

const NAMES: [&str; 5] = [ARRAY, OVERWRITING, LINEAR, CUCKOO_1, CUCKOO_4];

/// Bytes of each structure: it would be in the last-level cache, if it had that alone.
const BYTES: usize = 8 << 20;

/// Bytes of a thread that streams.
const STREAM_BYTES: usize = 128 << 20;

/// Pause between batches, so that the thread beside has the caches more than the structure.
const PAUSE_NS: f64 = 5_000.0;

fn measure(setting: &Setting, antagonist: Antagonist) -> Result<Outcome, Failure> {
    let stream = Stream::<Key8>::draw(setting, Mix::Trace, KeyKind::Pair)?;
    let mut table = Table::new(["structure", "antagonists", "antagonist_mb", "mean_ns", "p99_ns"]);
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
        for (label, time) in std::iter::once(&BARE).chain(&NAMES).zip(times) {
            row!(table, *label, count, super::megabytes(bytes), time.mean_ns, time.p99_ns);
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
fn array_is_fastest(table: &Table) -> Part {
    let of = |name: &str| table.numbers("structure", name, "mean_ns");
    let tables = better(&better(&of(LINEAR), &of(CUCKOO_1)), &of(CUCKOO_4));
    Part::less(
        "mean of the faster array over the fastest table",
        &better(&of(ARRAY), &of(OVERWRITING)),
        &tables,
    )
}

fn judge_cache(table: &Table) -> Verdict {
    // Memory well within the last-level cache, and well beyond.
    let mean = |from: f64, to: f64, name: &str| {
        let rows = table.of("structure", name);
        let rows = rows.filter(|row| (from..=to).contains(&row.number("antagonist_mb")));
        median(&rows.map(|row| row.number("mean_ns")).collect::<Vec<_>>())
    };
    let mut parts: Vec<Part> = [OVERWRITING, LINEAR, CUCKOO_4]
        .iter()
        .map(|name| {
            let (within, beyond) = (mean(1.0, 4.0, name), mean(64.0, 128.0, name));
            let what = format!("mean of the {name} (ns) beside 1 to 4 MB, and beside 64 to 128 MB");
            Part::moves(&what, &[within, beyond], true)
        })
        .collect();
    parts.push(array_is_fastest(table));
    Verdict::of(parts)
}

fn judge_memory(table: &Table) -> Verdict {
    let rises = |name: &&str| {
        let means = table.numbers("structure", name, "mean_ns");
        match means.len() {
            0 | 1 => Part::open(format!("{name}: there is no core for a thread beside")),
            _ => Part::moves(&format!("mean of the {name} (ns), by threads beside"), &means, true),
        }
    };
    let mut parts: Vec<Part> = [OVERWRITING, LINEAR, CUCKOO_4].iter().map(rises).collect();
    parts.push(array_is_fastest(table));
    Verdict::of(parts)
}
