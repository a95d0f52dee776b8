//! Figure 8 and section 5.1: one array for all cores, or a structure per core and merging.

use std::hint::black_box;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Barrier};
use std::thread;

use flowgauge_core::batch::Batch;
use flowgauge_kernel::{Digester, Isa, Seed, prefetch};

use super::BATCH;
use crate::experiment::chart::{Chart, Mark, linear, log};
use crate::experiment::latency::{self, BARE, Bare, COLUMNS, Latency, Runner, pass};
use crate::experiment::parallel::{Together, together};
use crate::experiment::part::{Part, median, spread};
use crate::experiment::setting::{Mix, Setting};
use crate::experiment::stream::Stream;
use crate::experiment::structure::Structure;
use crate::experiment::table::{Table, row};
use crate::experiment::verdict::{Claim, Verdict};
use crate::experiment::{Experiment, Outcome, Preset};
use crate::failure::Failure;
use crate::keys::{Keys, Pairs};
use crate::machine::thread_seconds;

/// Figure 8: one array for all cores, or one per core.
pub(crate) const FIG8: Experiment = Experiment {
    name: "simple/fig8",
    title: "one array for two cores, or one each",
    paper: "Simple (SOSR 2018), Fig. 8",
    presets: &[
        super::TRAFFIC,
        super::EPOCH,
        super::BATCHES,
        Preset::same("cores", "2"),
        Preset::of(
            "sizes",
            "0.001 to 1000 MB",
            |setting| format!("0.001 to {} MB", setting.most_bytes >> 20),
            "powers of two",
        ),
    ],
    measure: measure_sharing,
    judge: judge_sharing,
    missing: &[],
    charts: &[Chart {
        x: "size_mb",
        x_axis: log("size of an array (MB)"),
        series: "how",
        ..super::BY_SIZE
    }],
};

const CORES: usize = 2;

/// Passes of each core over its packets per round, so that both run together for long.
const PASSES: usize = 8;

const SEPARATE: &str = "separate";
const SHARED: &str = "shared, compare-and-swap";
const ADDED: &str = "shared, atomic add";

fn measure_sharing(setting: &Setting) -> Result<Outcome, Failure> {
    let parts = Stream::<Pairs>::draw(setting, Mix::Trace)?.split(CORES);
    let mut table = Table::new(["how", "size_mb"].into_iter().chain(COLUMNS));
    for bytes in setting.sizes(1 << 10) {
        let array = |cell: usize| {
            let parameters = [("columns", bytes / cell), ("candidates", 0)];
            Structure::new("array", "count-array").with(parameters)
        };
        let own = || array(size_of::<u32>()).build::<Pairs>(setting);
        let swapped = Swapped::new(bytes / size_of::<u32>());
        let added: Arc<_> = array(size_of::<u64>()).concurrent::<Pairs>(setting)?.into();
        let times = [
            (SEPARATE, race(&mut [own()?, own()?], &parts, setting.rounds)),
            (SHARED, race(&mut [swapped.clone(), swapped], &parts, setting.rounds)),
            (ADDED, race(&mut [Arc::clone(&added), added], &parts, setting.rounds)),
        ];
        table.add_noise(latency::noise(&times.map(|(_, time)| time), setting.rounds));
        for (how, time) in times {
            let at = [how.into(), super::megabytes(bytes).into()];
            table.push(at.into_iter().chain(time.cells()));
        }
    }
    let bare = race(&mut [Bare::new(), Bare::new()], &parts, 1);
    table.push([BARE.into(), f64::NAN.into()].into_iter().chain(bare.cells()));
    let limit = latency::limit(&[bare.mean_ns], BATCH);
    let notes = "Packets are split between the cores by flow. The arrays are the engine's, but for that \
                 by compare-and-swap, written for this figure. Counters that are added to have 64 bits, \
                 so that there are half as many in as much memory; the others have 32."
        .to_owned();
    Ok(Outcome { table, limit, notes })
}

fn judge_sharing(table: &Table) -> Verdict {
    let of = |how: &str, column: &str| table.numbers("how", how, column);
    let less = |what: &str, column: &str, shared: &str| {
        let what = format!("{what}, separate over {shared}");
        Part::less(&what, &of(SEPARATE, column), &of(shared, column)).from(column)
    };
    let shared = of(SHARED, "mean_ns");
    let least = shared.iter().copied().fold(f64::INFINITY, f64::min);
    let first = shared.first().map_or(f64::NAN, |first| first / least);
    Verdict::of(
        table,
        [
            Claim::new(
                "On two cores, arrays of their own have a lower mean and tail latency than one that both \
                 share by compare-and-swap, at every size.",
                [less("mean", "mean_ns", SHARED), less("tail", "p99_ns", SHARED)],
                "Two cores that share caches have the memory of one array between them.",
            ),
            Claim::new(
                "A shared array is slowest when it is small, since both cores then meet at the same \
                 entries: 10 % slower.",
                [Part::at_least(
                    "mean of the smallest shared array over the fastest one",
                    first,
                    1.1,
                )
                .timed()],
                "A large array waits for memory more than a small one for the other core.",
            ),
            Claim::new(
                "Arrays of their own are faster than one with atomic additions, too.",
                [less("mean", "mean_ns", ADDED)],
                "Additions that nobody waits for are as fast in one array as in two.",
            ),
        ],
    )
}

/// An array that several threads count into by compare-and-swap.
#[derive(Clone)]
struct Swapped {
    digester: Digester,
    array: Arc<[AtomicU32]>,
}

impl Swapped {
    /// An array of this many counters.
    fn new(counters: usize) -> Self {
        let array = (0..counters).map(|_| AtomicU32::new(0)).collect();
        Self { digester: Digester::new(Seed::number(1), Isa::best()).for_keys(Pairs::BYTES), array }
    }
}

impl<K: Keys> Runner<K> for Swapped {
    /// Joins the epoch that the other threads are in.
    fn begin(&mut self) {}

    fn take(&mut self, batch: &mut Batch<K::Key>) {
        batch.digest(&self.digester);
        let mask = self.array.len() - 1;
        let place = |digest: &u64| *digest as usize & mask;
        for digest in batch.digests() {
            prefetch(&self.array, place(digest));
        }
        for digest in batch.digests() {
            let next = |count: u32| count.checked_add(1);
            // A full counter stays full.
            let _ = self.array[place(digest)].fetch_update(Relaxed, Relaxed, next);
        }
    }
}

/// The latency on all cores together.
fn race<R: Runner<Pairs>>(runners: &mut [R], parts: &[Stream<Pairs>], rounds: usize) -> Latency {
    let mut run = || {
        let runners = runners.iter_mut().map(|runner| runner as &mut dyn Runner<Pairs>);
        together(runners.zip(parts), BATCH, PASSES)
    };
    // The first pass touches memory for the first time.
    run();
    let times = (0..rounds).filter_map(|_| Together::undisturbed(&mut run));
    latency::middle(&times.map(|run| run.latency).collect::<Vec<Latency>>())
}

/// Section 5.1: the cost of merging structures of several cores.
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
    measure: measure_merging,
    judge: judge_merging,
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

const MERGED_CORES: usize = 10;
const INTERVAL_S: f64 = 0.1;
const MERGED_COLUMNS: usize = 1 << 20;

/// Bytes that each core reads to measure bandwidth: more than the caches hold.
const READ_BYTES: usize = 256 << 20;

const TIME: &str = "of the ten cores' time";
const BANDWIDTH: &str = "of the memory's bandwidth";

fn structures() -> [Structure; 2] {
    let rows = [("rows", "4"), ("columns", "262144"), ("candidates", "0")];
    let columns = MERGED_COLUMNS.to_string();
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

fn measure_merging(setting: &Setting) -> Result<Outcome, Failure> {
    let stream = Stream::<Pairs>::draw(setting, Mix::Trace)?;
    let mut table =
        Table::new(["structure", "of", "percent", "percent_spread", "megabytes", "gigabytes_s"]);
    for structure in structures() {
        let build = || structure.build::<Pairs>(setting);
        let mut parts = (0..MERGED_CORES).map(|_| build()).collect::<Result<Vec<_>, _>>()?;
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
            times.push(100.0 * merge()? / INTERVAL_S / MERGED_CORES as f64);
            let rate = bandwidth();
            rates.push(rate / 1e9);
            shares.push(100.0 * bytes / INTERVAL_S / rate);
        }
        let (label, megabytes) = (structure.label.as_str(), bytes / MERGED_CORES as f64 / 1e6);
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

fn judge_merging(table: &Table) -> Verdict {
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
