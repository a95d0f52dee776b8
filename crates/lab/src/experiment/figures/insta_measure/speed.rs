//! Figure 9a: speed by the number of cores.

use std::thread;

use flowgauge_core::batch::BATCH_PACKETS;
use flowgauge_core::key::{FlowKey, Key16, KeyKind};

use super::of_sketch;
use crate::experiment::chart::{Chart, Mark, linear};
use crate::experiment::latency::{Bare, Runner};
use crate::experiment::parallel::{Together, together};
use crate::experiment::part::{Part, median};
use crate::experiment::setting::{Mix, Setting};
use crate::experiment::stream::Stream;
use crate::experiment::table::{Table, row, short};
use crate::experiment::verdict::{Claim, Missing, Verdict};
use crate::experiment::{Experiment, Outcome, Preset};
use crate::failure::Failure;

pub(crate) const FIG9A: Experiment = Experiment {
    name: "insta-measure/fig9a",
    title: "speed by the number of cores",
    paper: "InstaMeasure (ICDCS 2019), Fig. 9a",
    presets: &[
        super::KEY,
        super::REGULATOR,
        super::TABLE,
        Preset::other(
            "traffic",
            "CAIDA, from memory",
            "generated like a backbone's, from memory",
            "the trace is not free to hand on",
        ),
        Preset::same("dispatch", "by the one-bits of the source"),
        Preset::other(
            "cores",
            "1 to 4 of an Atom of 2.4 GHz",
            "as many as there are",
            "more would share cores",
        ),
    ],
    measure,
    judge,
    missing: &[Missing {
        says: "Three cores take 36.19 million packets a second, and four 46.32.",
        needs: "A machine with four cores.",
    }],
    charts: &[Chart {
        title: "Throughput",
        x: "cores",
        x_axis: linear("cores"),
        y: &[("mpps", "")],
        y_axis: linear("million packets a second"),
        series: "dispatch",
        only: &[ONES, DIGEST],
        paper: &[
            Mark::At(ONES, 1.0, 18.88),
            Mark::At(ONES, 2.0, 25.48),
            Mark::At(ONES, 3.0, 36.19),
            Mark::At(ONES, 4.0, 46.32),
        ],
        see: "The rate grows with the cores; diamonds are the paper's Atom of 2.4 GHz.",
    }],
};

const ONES: &str = "by one-bits of the source";
const DIGEST: &str = "by digest";
const BARE_BY_DIGEST: &str = "bare loop";

/// Passes of each worker over its packets per round.
const PASSES: usize = 3;

/// The paper's rate on two cores over that on one.
const WANTED: f64 = 25.48 / 18.88;

fn measure(setting: &Setting) -> Result<Outcome, Failure> {
    let stream = Stream::<Key16>::draw(setting, Mix::Trace, KeyKind::FIVE_TUPLE)?;
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let mut table = Table::new(["dispatch", "cores", "mpps", "largest_percent"]);
    for workers in 1..=cores {
        for dispatch in [ONES, DIGEST, BARE_BY_DIGEST] {
            let parts =
                if dispatch == ONES { by_ones(&stream, workers) } else { stream.split(workers) };
            let mut runners: Vec<Box<dyn Runner<Key16>>> = Vec::new();
            for _ in 0..workers {
                runners.push(match dispatch {
                    BARE_BY_DIGEST => Box::new(Bare::new()),
                    _ => Box::new(of_sketch(super::SKETCH).build::<Key16>(setting)?),
                });
            }
            // The first pass touches memory for the first time.
            together(runners.iter_mut().map(as_runner).zip(&parts), BATCH_PACKETS, 1);
            let mut rates = Vec::new();
            for _ in 0..setting.rounds {
                let round = || {
                    together(runners.iter_mut().map(as_runner).zip(&parts), BATCH_PACKETS, PASSES)
                };
                let packets = (PASSES * stream.keys.len()) as f64;
                let Some(round) = Together::undisturbed(round) else { continue };
                rates.push(1e3 * packets / round.wall_ns);
            }
            let largest = parts.iter().map(|part| part.keys.len()).max().unwrap_or(0);
            let percent = 100.0 * largest as f64 / stream.keys.len() as f64;
            row!(table, dispatch, workers, median(&rates), percent);
        }
    }
    let bare = table.numbers("dispatch", BARE_BY_DIGEST, "mpps");
    let limit = format!(
        "Batches that are filled and digested, with nothing counted, on one core: {} million packets a \
         second.",
        short(bare.first().copied().unwrap_or(f64::NAN))
    );
    let notes = format!(
        "This machine has {cores} cores. Each worker has a regulator and a table of its own, and its part of \
         the packets in memory; the time is that of the slowest. Rounds in which a worker did not have a core \
         of its own are taken anew, or left out."
    );
    Ok(Outcome { table, limit, notes })
}

fn as_runner(boxed: &mut Box<dyn Runner<Key16>>) -> &mut dyn Runner<Key16> {
    &mut **boxed
}

/// Partitions by worker: the number of one-bits of the source selects the worker.
fn by_ones(stream: &Stream<Key16>, workers: usize) -> Vec<Stream<Key16>> {
    let mut parts = vec![Stream { keys: Vec::new(), elements: Vec::new() }; workers];
    for (key, element) in stream.keys.iter().zip(&stream.elements) {
        let ones: u32 = key.canonical(4).iter().map(|byte| byte.count_ones()).sum();
        let part = &mut parts[ones as usize % workers];
        part.keys.push(*key);
        part.elements.push(*element);
    }
    parts
}

fn judge(table: &Table) -> Verdict {
    let at = |cores: f64| {
        let mut rows =
            table.of("dispatch", ONES).filter(|row| (row.number("cores") - cores).abs() < 0.5);
        rows.next().map_or(f64::NAN, |row| row.number("mpps"))
    };
    Verdict::of(
        table,
        [
            Claim::new(
                "One core takes 18.88 million packets a second.",
                [Part::at_least("one core, in Mpps", at(1.0), 18.88).timed()],
                "This core is slower than the paper's.",
            ),
            Claim::new(
                "Two cores take 25.48, which is 1.35 times as many.",
                [Part::at_least("2 cores over one", at(2.0) / at(1.0), WANTED).timed()],
                "The cores share caches and memory, or something else had one of them.",
            ),
        ],
    )
}
