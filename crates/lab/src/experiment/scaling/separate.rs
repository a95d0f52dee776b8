//! Two workers with a summary each, against one.

use std::hint::black_box;

use flowgauge_core::batch::{BATCH_PACKETS, Batch};
use flowgauge_core::catalog::ALGORITHMS;
use flowgauge_core::key::{Key8, KeyKind};
use flowgauge_core::summary::Merge;

use super::{WORKERS, in_turns};
use crate::experiment::chart::{Chart, linear};
use crate::experiment::latency::Runner;
use crate::experiment::parallel::together;
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

/// Bytes of a summary that fits the cache, all workers' together.
const SMALL: usize = 1 << 19;

/// What is wanted of a summary in the cache, and of a large table.
const WANTED: f64 = 1.8;
const WANTED_LARGE: f64 = 1.6;

const CACHED: &str = "in the cache";
const LARGE: &str = "a million flows";
const ARITHMETIC: &str = "arithmetic alone";

/// Steps of arithmetic for each packet.
const STEPS: u64 = 8;

fn measure(setting: &Setting) -> Result<Outcome, Failure> {
    let stream = Stream::<Key8>::draw(setting, Mix::Trace, KeyKind::Pair)?;
    let (apart, dealt) = (stream.split(WORKERS), stream.deal(WORKERS, BATCH_PACKETS));
    let mut table = Table::new(["structure", "kind", "one_mpps", "two_mpps", "ratio"]);
    let larger = apart.iter().map(|part| part.keys.len()).max().unwrap_or(0) as f64
        / stream.keys.len() as f64;
    let (mut left_out, mut by_flow) = (Vec::new(), Vec::new());
    for info in ALGORITHMS {
        // As the engine has it: only what adds up may have a flow in both parts.
        let parts = if info.laws.flows || info.laws.merge == Merge::Disjoint {
            by_flow.push(info.name);
            &apart
        } else {
            &dealt
        };
        let structure = Structure::new(info.name, info.name).in_bytes(SMALL);
        let build = || Ok(Box::new(structure.build::<Key8>(setting)?) as Box<dyn Runner<Key8>>);
        if build().is_ok() {
            scale(&mut table, [info.name, CACHED], build, setting, &stream, parts)?;
        } else {
            left_out.push(info.name);
        }
    }
    let build = || Ok(Box::new(Arithmetic) as Box<dyn Runner<Key8>>);
    scale(&mut table, [ARITHMETIC; 2], build, setting, &stream, &dealt)?;
    let uniform = Setting { packets: 4 * setting.packets, ..setting.clone() };
    let stream = Stream::<Key8>::draw(&uniform, Mix::Zipf(0.0), KeyKind::Pair)?;
    let parts = stream.split(WORKERS);
    let structure = Structure::new("linear-table", "linear-table").in_bytes(128 << 20);
    let build = || Ok(Box::new(structure.build::<Key8>(setting)?) as Box<dyn Runner<Key8>>);
    scale(&mut table, ["linear-table", LARGE], build, setting, &stream, &parts)?;
    let ratio = median(&table.numbers("kind", ARITHMETIC, "ratio"));
    let limit = if ratio.is_finite() {
        format!(
            "A loop of multiplications, which touches no memory, is {} times as fast on two threads: \
             that is the machine's.",
            short(ratio)
        )
    } else {
        "Two threads never had a core each, not even for arithmetic.".to_owned()
    };
    let notes = format!(
        "Each summary at its defaults in {} KiB, warm. Rounds in which a worker did not have a core of \
         its own are taken anew. Batches go to the workers by turns; where each flow has a counter of \
         its own ({}), packets go by digest: the larger part then has {:.1} % of them. Left out, since they need more: {}.",
        SMALL >> 10,
        by_flow.join(", "),
        100.0 * larger,
        if left_out.is_empty() { "none".to_owned() } else { left_out.join(", ") }
    );
    Ok(Outcome { table, limit, notes })
}

/// Multiplications for each packet, and no look at it.
struct Arithmetic;

impl Runner<Key8> for Arithmetic {
    fn begin(&mut self) {}

    fn take(&mut self, batch: &mut Batch<Key8>) {
        let steps = 0..STEPS * batch.len() as u64;
        // Four chains at once keep the multiplier busy.
        black_box(steps.fold([1_u64, 3, 5, 7], |chains, step| {
            chains.map(|chain| black_box(chain.wrapping_mul(step | 1)))
        }));
    }
}

/// Rates of one worker and of two; the ratio is the median of the rounds' ratios.
fn scale(
    table: &mut Table,
    [label, kind]: [&str; 2],
    build: impl Fn() -> Result<Box<dyn Runner<Key8>>, Failure>,
    setting: &Setting,
    whole: &Stream<Key8>,
    parts: &[Stream<Key8>],
) -> Result<(), Failure> {
    let mut alone = [build()?];
    let mut both = parts.iter().map(|_| build()).collect::<Result<Vec<_>, _>>()?;
    let run = |runners: &mut [Box<dyn Runner<Key8>>], streams: &[Stream<Key8>], passes| {
        let runners = runners.iter_mut().map(|runner| &mut **runner as &mut dyn Runner<Key8>);
        together(runners.zip(streams), BATCH_PACKETS, passes)
    };
    let whole = std::slice::from_ref(whole);
    let times = in_turns(
        whole[0].keys.len(),
        setting.rounds,
        [&mut |passes| run(&mut alone, whole, passes), &mut |passes| run(&mut both, parts, passes)],
    );
    let rate = |at: usize| median(&times.iter().map(|ns| 1e3 / ns[at]).collect::<Vec<_>>());
    let ratio = median(&times.iter().map(|[one, two]| one / two).collect::<Vec<_>>());
    row!(table, label, kind, rate(0), rate(1), ratio);
    Ok(())
}

fn judge(table: &Table) -> Verdict {
    let of = |kind: &str| table.numbers("kind", kind, "ratio");
    let machine = of(ARITHMETIC).first().copied().unwrap_or(f64::NAN);
    let least = |kind: &str| of(kind).into_iter().fold(f64::NAN, f64::min);
    let missing = of(CACHED).iter().filter(|ratio| ratio.is_nan()).count();
    let enough = |wanted: f64| of(CACHED).iter().filter(|ratio| **ratio >= wanted).count();
    let mut parts = vec![Part::at_least("arithmetic alone on two threads, times", machine, WANTED)];
    if missing > 0 {
        let reason = format!("{missing} summaries, for which the workers never had a core each");
        parts.push(Part::open(reason));
    }
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
