//! Figure 8: one array for all cores, or one per core.

use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

use flowgauge_core::batch::Batch;
use flowgauge_core::key::{FlowKey, Key8, KeyKind};
use flowgauge_kernel::{Digester, Isa, Seed, prefetch};

use super::BATCH;
use crate::experiment::chart::{Chart, log};
use crate::experiment::latency::{self, BARE, Bare, COLUMNS, Latency, Runner};
use crate::experiment::parallel::{Together, together};
use crate::experiment::part::Part;
use crate::experiment::setting::{Mix, Setting};
use crate::experiment::stream::Stream;
use crate::experiment::structure::Structure;
use crate::experiment::table::Table;
use crate::experiment::verdict::{Claim, Verdict};
use crate::experiment::{Experiment, Outcome, Preset};
use crate::failure::Failure;

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
    measure,
    judge,
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
        Self { digester: Digester::new(Seed::number(1), Isa::best()).for_keys(Key8::BYTES), array }
    }
}

impl<K: FlowKey> Runner<K> for Swapped {
    /// Joins the epoch that the other threads are in.
    fn begin(&mut self) {}

    fn take(&mut self, batch: &mut Batch<K>) {
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
fn race<R: Runner<Key8>>(runners: &mut [R], parts: &[Stream<Key8>], rounds: usize) -> Latency {
    let mut run = || {
        let runners = runners.iter_mut().map(|runner| runner as &mut dyn Runner<Key8>);
        together(runners.zip(parts), BATCH, PASSES)
    };
    // The first pass touches memory for the first time.
    run();
    let times = (0..rounds).filter_map(|_| Together::undisturbed(&mut run));
    latency::middle(&times.map(|run| run.latency).collect::<Vec<Latency>>())
}

fn measure(setting: &Setting) -> Result<Outcome, Failure> {
    let parts = Stream::<Key8>::draw(setting, Mix::Trace, KeyKind::PAIR)?.split(CORES);
    let mut table = Table::new(["how", "size_mb"].into_iter().chain(COLUMNS));
    for bytes in setting.sizes(1 << 10) {
        let array = |cell: usize| {
            let parameters = [("columns", bytes / cell), ("candidates", 0)];
            Structure::new("array", "count-array").with(parameters)
        };
        let own = || array(size_of::<u32>()).build::<Key8>(setting);
        let swapped = Swapped::new(bytes / size_of::<u32>());
        let added: Arc<_> = array(size_of::<u64>()).concurrent::<Key8>(setting)?.into();
        let times = [
            (SEPARATE, race(&mut [own()?, own()?], &parts, setting.rounds)),
            (SHARED, race(&mut [swapped.clone(), swapped], &parts, setting.rounds)),
            (ADDED, race(&mut [Arc::clone(&added), added], &parts, setting.rounds)),
        ];
        table.add_noise(latency::noise(&times.map(|(_, time)| time)));
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

fn judge(table: &Table) -> Verdict {
    let of = |how: &str, column: &str| table.numbers("how", how, column);
    let less = |what: &str, column: &str, shared: &str| {
        let what = format!("{what}, separate over {shared}");
        Part::less(&what, &of(SEPARATE, column), &of(shared, column))
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
