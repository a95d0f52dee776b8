//! Figure 8: one array for all cores, or one each.

use std::sync::atomic::{AtomicU32, Ordering};

use flowgauge_core::batch::Batch;
use flowgauge_core::key::{FlowKey, Key8, KeyKind};
use flowgauge_kernel::{Digester, Isa, Seed, prefetch};

use super::BATCH;
use crate::experiment::chart::{Chart, log};
use crate::experiment::latency::{self, BARE, Bare, Latency, Runner};
use crate::experiment::parallel::{Together, together};
use crate::experiment::setting::{Mix, Setting};
use crate::experiment::stream::Stream;
use crate::experiment::table::{Table, row};
use crate::experiment::verdict::{Part, Verdict, median};
use crate::experiment::{Experiment, Outcome};
use crate::failure::Failure;

pub(crate) const FIG8: Experiment = Experiment {
    name: "simple/fig8",
    title: "one array for two cores, or one each",
    paper: "Simple (SOSR 2018), Fig. 8",
    claim: "On two cores, arrays of their own have a lower mean and tail latency than one that both share \
            by compare-and-swap, at every size; a shared one is slowest when it is small, since both \
            then meet at the same entries.",
    measure,
    judge,
    charts: &[Chart {
        x: "size_mb",
        x_axis: log("size of an array (MB)"),
        series: "how",
        ..super::BY_SIZE
    }],
};

const CORES: usize = 2;

/// Times that each core takes its packets in a round, so that both are at it for long.
const PASSES: usize = 8;

const SEPARATE: &str = "separate";
const SHARED: &str = "shared, compare-and-swap";
const ADDED: &str = "shared, atomic add";

/// How a counter is counted up.
#[derive(Clone, Copy)]
enum How {
    Plain,
    CompareAndSwap,
    Add,
}

/// A count array that others may count into, too.
struct Counters<'a> {
    how: How,
    digester: Digester,
    array: &'a [AtomicU32],
}

impl<K: FlowKey> Runner<K> for Counters<'_> {
    fn begin(&mut self) {
        self.array.iter().for_each(|counter| counter.store(0, Ordering::Relaxed));
    }

    fn take(&mut self, batch: &mut Batch<K>) {
        batch.digest(&self.digester);
        let mask = self.array.len() - 1;
        let place = |digest: &u64| *digest as usize & mask;
        for digest in batch.digests() {
            prefetch(self.array, place(digest));
        }
        for digest in batch.digests() {
            let counter = &self.array[place(digest)];
            match self.how {
                // What nobody else counts into is loaded and stored, as any number is.
                How::Plain => counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed),
                How::CompareAndSwap => {
                    let next = |count: u32| count.checked_add(1);
                    // A full counter stays full.
                    let _ = counter.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
                }
                How::Add => {
                    counter.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
    }
}

/// The latency on all cores together, of arrays of so many bytes.
fn race(how: How, bytes: usize, parts: &[Stream<Key8>], rounds: usize) -> Latency {
    let array = || (0..bytes / 4).map(|_| AtomicU32::new(0)).collect::<Vec<_>>();
    let arrays = match how {
        How::Plain => parts.iter().map(|_| array()).collect(),
        How::CompareAndSwap | How::Add => vec![array()],
    };
    let digester = Digester::new(Seed::new(1), Isa::best());
    let counters = arrays.iter().cycle().take(parts.len());
    let mut runners: Vec<_> = counters.map(|array| Counters { how, digester, array }).collect();
    let mut run = || {
        let runners = runners.iter_mut().map(|runner| runner as &mut dyn Runner<Key8>);
        together(runners.zip(parts), BATCH, PASSES)
    };
    // The first time touches the memory.
    run();
    let times = (0..rounds).filter_map(|_| Together::undisturbed(&mut run));
    let times: Vec<Latency> = times.map(|run| run.latency).collect();
    let middle = |of: fn(&Latency) -> f64| median(&times.iter().map(of).collect::<Vec<_>>());
    Latency { mean_ns: middle(|time| time.mean_ns), p99_ns: middle(|time| time.p99_ns) }
}

fn measure(setting: &Setting) -> Result<Outcome, Failure> {
    let parts = Stream::<Key8>::draw(setting, Mix::Trace, KeyKind::Pair)?.split(CORES);
    let mut table = Table::new(["how", "size_mb", "mean_ns", "p99_ns"]);
    for bytes in setting.sizes(1 << 10) {
        let mb = super::megabytes(bytes);
        let ways = [(SEPARATE, How::Plain), (SHARED, How::CompareAndSwap), (ADDED, How::Add)];
        for (label, how) in ways {
            let time = race(how, bytes, &parts, setting.rounds);
            row!(table, label, mb, time.mean_ns, time.p99_ns);
        }
    }
    let mut bares = [Bare::new(), Bare::new()];
    let bares = bares.iter_mut().map(|bare| bare as &mut dyn Runner<Key8>);
    let bare = together(bares.zip(&parts), BATCH, PASSES).latency;
    row!(table, BARE, f64::NAN, bare.mean_ns, bare.p99_ns);
    let limit = latency::limit(&[bare.mean_ns], BATCH);
    let notes = "A plain array of counters of 32 bits, written for this figure; packets are split \
                 between the cores by flow."
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
    Verdict::of([
        less("mean", "mean_ns", SHARED),
        less("tail", "p99_ns", SHARED),
        less("mean", "mean_ns", ADDED),
        Part::at_least("mean of the smallest shared array over the fastest shared one", first, 1.1),
    ])
}
