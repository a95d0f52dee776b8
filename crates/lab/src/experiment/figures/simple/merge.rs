//! Section 5.1: the cost of merging structures of several cores.

use std::hint::black_box;
use std::sync::Barrier;
use std::thread;

use flowgauge_core::key::{Key8, KeyKind};

use super::BATCH;
use crate::experiment::chart::{Chart, Mark, linear};
use crate::experiment::latency::pass;
use crate::experiment::part::{Part, median, spread};
use crate::experiment::setting::{Mix, Setting};
use crate::experiment::stream::Stream;
use crate::experiment::structure::Structure;
use crate::experiment::table::{Table, row};
use crate::experiment::verdict::{Claim, Verdict};
use crate::experiment::{Experiment, Outcome, Preset};
use crate::failure::Failure;
use crate::machine::thread_seconds;

pub(crate) const MERGE: Experiment = Experiment {
    name: "simple/merge",
    title: "merging the structures of ten cores every 100 ms",
    paper: "Simple (SOSR 2018), section 5.1",
    presets: &[
        super::TRAFFIC,
        Preset::same("interval, cores", "100 ms, 10 cores"),
        Preset::other("size", "5 MB for each core", "4 MB", "columns are a power of two"),
        Preset::other(
            "bandwidth",
            "that of a Xeon of 2018",
            "that of this machine's cores",
            "all of them read at once",
        ),
    ],
    measure,
    judge,
    missing: &[],
    charts: &[Chart {
        title: "What merging takes",
        x: "structure",
        x_axis: linear(""),
        y: &[("percent", "")],
        y_axis: linear("share (%)"),
        series: "of",
        only: &[],
        paper: &[Mark::Level("the paper: less than 1 % of the bandwidth", 1.0)],
        see: "Both bars are small: little of the cores' time, and about as much of the memory's bandwidth as the paper \
              has.",
    }],
};

const CORES: usize = 10;
const INTERVAL_S: f64 = 0.1;
const COLUMNS: usize = 1 << 20;

/// Bytes that each core reads to measure bandwidth: more than the caches hold.
const READ_BYTES: usize = 256 << 20;

const TIME: &str = "of the ten cores' time";
const BANDWIDTH: &str = "of the memory's bandwidth";

fn structures() -> [Structure; 2] {
    let rows = [("rows", "4"), ("columns", "262144"), ("candidates", "0")];
    let columns = COLUMNS.to_string();
    [
        Structure::new("count array", "count-array")
            .with([("columns", columns.as_str()), ("candidates", "0")]),
        Structure::new("Count-Min", "count-min").with(rows),
    ]
}

/// Bytes per second that all cores together read.
fn bandwidth() -> f64 {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let barrier = Barrier::new(cores);
    let read = || {
        let words = vec![1_u64; READ_BYTES / 8];
        barrier.wait();
        let start = thread_seconds();
        black_box(black_box(&words).iter().sum::<u64>());
        READ_BYTES as f64 / (thread_seconds() - start)
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..cores).map(|_| scope.spawn(read)).collect();
        threads.into_iter().filter_map(|thread| thread.join().ok()).sum()
    })
}

fn measure(setting: &Setting) -> Result<Outcome, Failure> {
    let stream = Stream::<Key8>::draw(setting, Mix::Trace, KeyKind::PAIR)?;
    let mut table =
        Table::new(["structure", "of", "percent", "percent_spread", "megabytes", "gigabytes_s"]);
    for structure in structures() {
        let build = || structure.build::<Key8>(setting);
        let mut parts = (0..CORES).map(|_| build()).collect::<Result<Vec<_>, _>>()?;
        let mut batch = flowgauge_core::batch::Batch::new();
        for part in &mut parts {
            pass(part, &stream, BATCH, &mut batch, None);
        }
        let bytes = parts.iter().map(|part| part.memory_bytes()).sum::<usize>() as f64;
        let (mut times, mut shares, mut rates) = (Vec::new(), Vec::new(), Vec::new());
        let mut all = build()?;
        let mut merge = || {
            all.clear();
            let start = thread_seconds();
            for part in &parts {
                all.merge(&**part).map_err(|error| Failure::Merge(error.to_string()))?;
            }
            Ok::<_, Failure>(thread_seconds() - start)
        };
        // The first touch of memory costs a page fault.
        merge()?;
        for _ in 0..setting.rounds {
            times.push(100.0 * merge()? / INTERVAL_S / CORES as f64);
            let rate = bandwidth();
            rates.push(rate / 1e9);
            shares.push(100.0 * bytes / INTERVAL_S / rate);
        }
        let (label, megabytes) = (structure.label.as_str(), bytes / CORES as f64 / 1e6);
        let rate = median(&rates);
        row!(table, label, TIME, median(&times), spread(&times), megabytes, rate);
        row!(table, label, BANDWIDTH, median(&shares), spread(&shares), megabytes, rate);
    }
    let limit = "A merge reads each counter once, and cannot read less.".to_owned();
    let notes = format!(
        "Ten structures with {} packets each are added to an eleventh. `gigabytes_s` is what all cores together read \
         from memory.",
        setting.packets
    );
    Ok(Outcome { table, limit, notes })
}

fn judge(table: &Table) -> Verdict {
    let of = |name: &str, what: &str| {
        let mut rows = table.of("structure", name).filter(|row| row.text("of") == what);
        rows.next().map_or(f64::NAN, |row| row.number("percent"))
    };
    let array = "count array";
    Verdict::of(
        table,
        [
            Claim::new(
                "Merging the structures of ten cores every 100 ms takes less than 1 % of the memory's bandwidth.",
                [Part::at_most("share of the bandwidth, %", of(array, BANDWIDTH), 1.0).timed()],
                "It reads some 400 MB a second, which is a hundredth of 40 GB a second. A server of several memory \
                 channels has that, two cores of a virtual machine do not.",
            ),
            Claim::new(
                "It takes little time: less than 1 % of that of the ten cores, too.",
                [array, "Count-Min"].map(|name| {
                    Part::at_most(
                        &format!("{name}: share of the ten cores' time, %"),
                        of(name, TIME),
                        1.0,
                    )
                    .timed()
                }),
                "All ten are read from memory, and added up by one core.",
            ),
        ],
    )
}
