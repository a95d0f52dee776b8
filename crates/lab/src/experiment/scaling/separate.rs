//! Two workers with a summary each, against one.

use std::hint::black_box;
use std::thread;

use flowgauge_core::catalog::ALGORITHMS;
use flowgauge_core::key::{Key8, KeyKind};
use flowgauge_kernel::cycles;

use crate::experiment::chart::{Chart, linear};
use crate::experiment::latency::Runner;
use crate::experiment::parallel::{Start, together};
use crate::experiment::setting::{Mix, Setting};
use crate::experiment::stream::Stream;
use crate::experiment::structure::Structure;
use crate::experiment::table::{Table, row, short};
use crate::experiment::verdict::{Part, Verdict, median};
use crate::experiment::{Experiment, Outcome};
use crate::failure::Failure;

pub(crate) const SEPARATE: Experiment = Experiment {
    name: "scaling/separate",
    title: "two workers with a summary each, against one",
    paper: "Simple (SOSR 2018), section 5.1",
    claim: "Summaries of their own need no synchronisation: two workers take 1.8 times as many packets as \
            one, for each summary that fits the cache, and 1.6 times as many with a linear table of a \
            million flows.",
    measure,
    judge,
    charts: &[Chart {
        title: "Rate of two workers over that of one",
        x: "structure",
        x_axis: linear(""),
        y: &[("ratio", "")],
        y_axis: linear("times"),
        series: "kind",
        only: &[],
    }],
};

const WORKERS: usize = 2;

/// Packets of a batch.
const BATCH: usize = 256;

/// Bytes of a summary that fits the cache, all workers' together.
const SMALL: usize = 1 << 19;

/// Nanoseconds of a measurement at least, for each packet of an epoch: 40 ms are long enough for threads
/// to have a core each.
const LEAST_NS: f64 = 40.0;

/// What is wanted of a summary in the cache, and of a large table.
const WANTED: f64 = 1.8;
const WANTED_LARGE: f64 = 1.6;

const CACHED: &str = "in the cache";
const LARGE: &str = "a million flows";
const ARITHMETIC: &str = "arithmetic alone";

/// Steps of arithmetic, for each packet of an epoch.
const STEPS: u64 = 40;

fn measure(setting: &Setting) -> Result<Outcome, Failure> {
    let stream = Stream::<Key8>::draw(setting, Mix::Trace, KeyKind::Pair)?;
    let parts = stream.split(WORKERS);
    let mut table = Table::new(["structure", "kind", "one_mpps", "two_mpps", "ratio"]);
    let larger = parts.iter().map(|part| part.keys.len()).max().unwrap_or(0) as f64
        / stream.keys.len() as f64;
    let mut left_out = Vec::new();
    for info in ALGORITHMS {
        let structure = Structure::new(info.name, info.name).in_bytes(SMALL);
        if structure.build::<Key8>(setting).is_ok() {
            scale(&mut table, &structure, CACHED, setting, &stream, &parts)?;
        } else {
            left_out.push(info.name);
        }
    }
    let uniform = Setting { packets: 4 * setting.packets, ..setting.clone() };
    let stream = Stream::<Key8>::draw(&uniform, Mix::Zipf(0.0), KeyKind::Pair)?;
    let parts = stream.split(WORKERS);
    let structure = Structure::new("linear-table", "linear-table").in_bytes(128 << 20);
    scale(&mut table, &structure, LARGE, setting, &stream, &parts)?;
    let ratio = arithmetic(setting);
    row!(table, ARITHMETIC, ARITHMETIC, f64::NAN, f64::NAN, ratio);
    let limit = format!(
        "A loop of multiplications, which touches no memory, is {} times as fast on two threads: that is \
         the machine's.",
        short(ratio)
    );
    let notes = format!(
        "Each summary at its defaults in {} KiB, warm. Flows are split by digest: the larger part has \
         {:.1} % of the packets. Left out, since they need more: {}.",
        SMALL >> 10,
        100.0 * larger,
        if left_out.is_empty() { "none".to_owned() } else { left_out.join(", ") }
    );
    Ok(Outcome { table, limit, notes })
}

/// Rates of one worker and of two, in turns; the ratio is the median of the rounds' ratios.
fn scale(
    table: &mut Table,
    structure: &Structure,
    kind: &str,
    setting: &Setting,
    whole: &Stream<Key8>,
    parts: &[Stream<Key8>],
) -> Result<(), Failure> {
    let built = (0..=parts.len()).map(|_| structure.build::<Key8>(setting));
    let mut built = built.collect::<Result<Vec<_>, _>>()?;
    let (alone, both) = built.split_at_mut(1);
    let mut one = |passes| {
        let one = alone.iter_mut().map(|summary| summary as &mut dyn Runner<Key8>);
        together(one.zip(std::slice::from_ref(whole)), BATCH, passes).wall_ns / passes as f64
    };
    let mut two = |passes| {
        let two = both.iter_mut().map(|summary| summary as &mut dyn Runner<Key8>);
        together(two.zip(parts), BATCH, passes).wall_ns / passes as f64
    };
    // The first passes meet every flow for the first time.
    one(1);
    two(1);
    let passes = (LEAST_NS * setting.packets as f64 / one(1)).ceil() as usize;
    let times: Vec<[f64; 2]> = (0..setting.rounds).map(|_| [one(passes), two(passes)]).collect();
    let packets = whole.keys.len() as f64;
    let rate = |at: usize| {
        median(&times.iter().map(|times| 1e3 * packets / times[at]).collect::<Vec<_>>())
    };
    let ratio = median(&times.iter().map(|[one, two]| one / two).collect::<Vec<_>>());
    row!(table, structure.label.as_str(), kind, rate(0), rate(1), ratio);
    Ok(())
}

/// How many times as fast arithmetic is on all workers as on one.
fn arithmetic(setting: &Setting) -> f64 {
    let all = STEPS * setting.packets as u64;
    let work = |threads: u64| {
        let start = Start::of(threads as usize);
        let spans: Vec<(u64, u64)> = thread::scope(|scope| {
            let spawn = |_| {
                let start = &start;
                scope.spawn(move || {
                    start.wait();
                    let begun = cycles();
                    let steps = 0..all / threads;
                    // Four chains at once keep the multiplier busy.
                    black_box(steps.fold([1_u64, 3, 5, 7], |chains, step| {
                        chains.map(|chain| black_box(chain.wrapping_mul(step | 1)))
                    }));
                    (begun, cycles())
                })
            };
            let threads: Vec<_> = (0..threads).map(spawn).collect();
            threads.into_iter().filter_map(|thread| thread.join().ok()).collect()
        });
        let first = spans.iter().map(|span| span.0).min().unwrap_or(0);
        let last = spans.iter().map(|span| span.1).max().unwrap_or(0);
        (last - first) as f64
    };
    median(&(0..setting.rounds).map(|_| work(1) / work(WORKERS as u64)).collect::<Vec<_>>())
}

fn judge(table: &Table) -> Verdict {
    let of = |kind: &str| table.numbers("kind", kind, "ratio");
    let machine = of(ARITHMETIC).first().copied().unwrap_or(f64::NAN);
    let least = |kind: &str| of(kind).into_iter().fold(f64::NAN, f64::min);
    let enough = |wanted: f64| of(CACHED).iter().filter(|ratio| **ratio >= wanted).count();
    let mut parts = vec![Part::at_least("arithmetic alone on two threads, times", machine, WANTED)];
    // No summary scales better than the machine does.
    let wanted = WANTED.min(0.95 * machine);
    let what = format!(
        "the summary in the cache that gains least ({} of {} gain enough)",
        enough(wanted),
        of(CACHED).len()
    );
    parts.push(Part::at_least(&what, least(CACHED), wanted));
    let large = least(LARGE);
    parts.push(Part::at_least(
        "a linear table of a million flows",
        large,
        WANTED_LARGE.min(0.95 * machine),
    ));
    Verdict::of(parts)
}
