//! Figures 6, 9a and 12: the traffic, and the load that it puts on cores.

use std::thread;

use flowgauge_core::batch::{BATCH_PACKETS, Batch};
use flowgauge_core::key::FlowKey;

use super::of_sketch;
use crate::exact::{Exact, number};
use crate::experiment::chart::{Chart, Mark, linear, log};
use crate::experiment::latency::{Bare, Runner};
use crate::experiment::parallel::{Together, together};
use crate::experiment::part::{Part, median};
use crate::experiment::setting::{FRAME_BYTES, Mix, Setting};
use crate::experiment::stream::{Loop, Stream};
use crate::experiment::table::{Table, row, short};
use crate::experiment::verdict::{Claim, Missing, Verdict};
use crate::experiment::{Experiment, Outcome, Preset};
use crate::failure::Failure;
use crate::keys::{FiveTuples, Keys};
use crate::machine;
use crate::machine::thread_seconds;

/// Figure 9a: speed by the number of cores.
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
    measure: measure_cores,
    judge: judge_cores,
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

fn measure_cores(setting: &Setting) -> Result<Outcome, Failure> {
    let stream = Stream::<FiveTuples>::draw(setting, Mix::Trace)?;
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let mut table = Table::new(["dispatch", "cores", "mpps", "largest_percent"]);
    for workers in 1..=cores {
        for dispatch in [ONES, DIGEST, BARE_BY_DIGEST] {
            let parts =
                if dispatch == ONES { by_ones(&stream, workers) } else { stream.split(workers) };
            let mut runners: Vec<Box<dyn Runner<FiveTuples>>> = Vec::new();
            for _ in 0..workers {
                runners.push(match dispatch {
                    BARE_BY_DIGEST => Box::new(Bare::new()),
                    _ => Box::new(of_sketch(super::SKETCH).build::<FiveTuples>(setting)?),
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

fn as_runner(boxed: &mut Box<dyn Runner<FiveTuples>>) -> &mut dyn Runner<FiveTuples> {
    &mut **boxed
}

/// Partitions by worker: the number of one-bits of the source selects the worker.
fn by_ones(stream: &Stream<FiveTuples>, workers: usize) -> Vec<Stream<FiveTuples>> {
    let mut parts = vec![Stream { keys: Vec::new(), elements: Vec::new() }; workers];
    for (key, element) in stream.keys.iter().zip(&stream.elements) {
        let ones: u32 = key.canonical(4).iter().map(|byte| byte.count_ones()).sum();
        let part = &mut parts[ones as usize % workers];
        part.keys.push(*key);
        part.elements.push(*element);
    }
    parts
}

fn judge_cores(table: &Table) -> Verdict {
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

/// Figure 6: the sizes of flows.
pub(crate) const FIG6: Experiment = Experiment {
    name: "insta-measure/fig6",
    title: "how large flows are",
    paper: "InstaMeasure (ICDCS 2019), Fig. 6",
    presets: &[super::BACKBONE, super::KEY],
    measure: measure_sizes,
    judge: judge_sizes,
    missing: &[],
    charts: &[Chart {
        title: "Sizes of flows by their rank",
        x: "rank",
        x_axis: log("rank of the flow"),
        y: &[("packets", "")],
        y_axis: log("packets of the flow"),
        series: "traffic",
        only: &[],
        paper: &[],
        see: "By Zipf's law a line is straight: few flows have most packets, and most have few.",
    }],
};

/// Figure 12: load and memory over 113 hours.
pub(crate) const FIG12: Experiment = Experiment {
    name: "insta-measure/fig12",
    title: "113 hours with day and night: load and memory",
    paper: "InstaMeasure (ICDCS 2019), Fig. 12",
    presets: &[
        Preset::of(
            "traffic",
            "113 hours of a campus: 9.1 billion packets, more by day than by night and at the weekend",
            |setting| {
                let packets = hourly(setting) * HOURS as f64;
                format!("113 hours of {} million packets likewise", short(packets / 1e6))
            },
            "packets come from memory: their times are those of 113 hours",
        ),
        super::KEY,
        super::REGULATOR,
        super::TABLE,
        Preset::other(
            "processor",
            "one core of an Atom of 2.4 GHz",
            "one core of this machine",
            "that is at hand",
        ),
    ],
    measure: measure_hours,
    judge: judge_hours,
    missing: &[],
    charts: &[
        Chart {
            title: "Traffic",
            y: &[("packets", "")],
            y_axis: linear("packets an hour"),
            ..BY_HOUR
        },
        Chart {
            title: "Load of a core at the paper's rates",
            y: &[("load_percent", "")],
            y_axis: linear("load (%)"),
            see: "The load follows the traffic: peaks by day, little at night and on two days of less.",
            ..BY_HOUR
        },
        Chart {
            title: "Memory",
            y: &[("memory_mb", "")],
            y_axis: linear("memory of the structure (MB)"),
            see: "Memory is a flat line from the first hour to the last.",
            ..BY_HOUR
        },
    ],
};

const BY_HOUR: Chart = Chart {
    title: "",
    x: "hour",
    x_axis: linear("hour"),
    y: &[],
    y_axis: linear(""),
    series: "structure",
    only: &[],
    paper: &[],
    see: "Days and nights, and a weekend from the 72nd hour on, as a campus has them.",
};

const HOURS: usize = 113;
const HOUR_NS: u64 = 3_600_000_000_000;
const NAME: &str = "InstaMeasure";

/// Packets in the paper's 113 hours.
const PAPER_PACKETS: f64 = 9.1e9;

/// An hour's packets over those of a mean hour: more by day, fewer at the weekend.
fn share(hour: usize) -> f64 {
    let day = (hour as f64 / 24.0 * std::f64::consts::TAU).sin();
    let weekend = if (72..120).contains(&hour) { 0.6 } else { 1.0 };
    (1.0 + 0.6 * day) * weekend
}

/// Packets in a mean hour: the paper's, or few.
fn hourly(setting: &Setting) -> f64 {
    if super::is_full(setting) {
        PAPER_PACKETS / HOURS as f64
    } else {
        (setting.packets / 4) as f64
    }
}

fn measure_hours(setting: &Setting) -> Result<Outcome, Failure> {
    let stream = Stream::<FiveTuples>::draw(setting, Mix::Trace)?;
    let mut summary = super::of_sketch(super::SKETCH).build::<FiveTuples>(setting)?;
    let mut table = Table::new([
        "structure",
        "hour",
        "packets",
        "ns",
        "load_percent",
        "memory_mb",
        "process_mb",
    ]);
    // The first touch of memory costs a page fault.
    Loop::<FiveTuples>::new(&stream.keys).feed(&mut summary, stream.keys.len());
    summary.next_epoch();
    let mut keys = stream.keys.iter().cycle();
    let mut batch = Batch::new();
    let all: f64 = (0..HOURS).map(share).sum();
    for hour in 0..HOURS {
        let packets = (hourly(setting) * share(hour)) as usize;
        let gap_ns = HOUR_NS / packets.max(1) as u64;
        let start = thread_seconds();
        for packet in 0..packets {
            let time_ns = 1 + hour as u64 * HOUR_NS + packet as u64 * gap_ns;
            if let Some(key) = keys.next() {
                batch.push(*key, FRAME_BYTES, time_ns.cast_signed());
            }
            if batch.len() == BATCH_PACKETS || packet + 1 == packets {
                summary.ingest(&mut batch);
                batch.clear();
            }
        }
        let seconds = thread_seconds() - start;
        // Load in percent at the packet rate of the paper's hour.
        let load = 100.0 * seconds / packets as f64 * PAPER_PACKETS * share(hour) / all / 3600.0;
        let memory = summary.memory_bytes() as f64 / f64::from(1 << 20);
        let ns = 1e9 * seconds / packets as f64;
        row!(table, NAME, hour, packets, ns, load, memory, machine::resident_mb());
    }
    let limit = "Packets are in memory already; nothing is received.".to_owned();
    let notes = format!(
        "Hours are those of the packets' times: {:.0} packets in a mean hour, each measured as fast as it can be. \
         `load_percent` is what a core takes of the hour at the paper's mean of {:.0} packets a second. There is \
         no queue: packets that come from memory wait for none.",
        hourly(setting),
        PAPER_PACKETS / HOURS as f64 / 3600.0
    );
    Ok(Outcome { table, limit, notes })
}

fn judge_hours(table: &Table) -> Verdict {
    let of = |column: &str| table.numbers("structure", NAME, column);
    let (packets, loads) = (of("packets"), of("load_percent"));
    let (memory, process) = (of("memory_mb"), of("process_mb"));
    let most = |numbers: &[f64]| numbers.iter().copied().fold(f64::NAN, f64::max);
    let growth = |numbers: &[f64]| {
        // Memory touched in the first hour is resident from the second on.
        let at = |at: usize| numbers.get(at).copied().unwrap_or(f64::NAN);
        at(numbers.len().wrapping_sub(1)) / at(1)
    };
    Verdict::of(
        table,
        [
            Claim::new(
                "One core measures 113 hours of a link of 1 Gbit/s, at no time with a load of more than 40 %.",
                [Part::at_most("largest load of an hour, %", most(&loads), 40.0).timed()],
                "This core is slower than the paper's.",
            ),
            Claim::new(
                "The load of the core follows the traffic.",
                [Part::at_least(
                    "correlation of load and packets, by hour",
                    correlation(&packets, &loads),
                    0.9,
                )],
                "Something else took the core meanwhile.",
            ),
            Claim::new(
                "Nothing grows: memory in the last hour is what it was at the beginning (within 1 %).",
                [
                    Part::within(
                        "memory of the structure, last hour over the second",
                        growth(&memory),
                        1.0,
                        0.01,
                    ),
                    Part::within("memory of the process, likewise", growth(&process), 1.0, 0.01),
                ],
                "Something is kept of each flow.",
            ),
        ],
    )
}

/// The correlation of two columns: 1 if one is a multiple of the other.
fn correlation(xs: &[f64], ys: &[f64]) -> f64 {
    let count = xs.len() as f64;
    let mean = |numbers: &[f64]| numbers.iter().sum::<f64>() / count;
    let (x_mean, y_mean) = (mean(xs), mean(ys));
    let product = |f: &dyn Fn(f64, f64) -> f64| {
        xs.iter().zip(ys).map(|(x, y)| f(x - x_mean, y - y_mean)).sum::<f64>()
    };
    product(&|x, y| x * y) / (product(&|x, _| x * x) * product(&|_, y| y * y)).sqrt()
}

fn measure_sizes(setting: &Setting) -> Result<Outcome, Failure> {
    let mut table = Table::new(["traffic", "rank", "packets"]);
    for (traffic, mix) in crate::experiment::stream::TRAFFIC {
        let stream = Stream::<FiveTuples>::draw(setting, mix)?;
        let keys = stream.keys.iter().map(|key| number(key.canonical(FiveTuples::BYTES))).collect();
        let mut sizes = Exact::count(keys).sorted_weights();
        sizes.reverse();
        let ranks = std::iter::successors(Some(1.0_f64), |rank| Some(rank * 10_f64.sqrt()));
        let ranks = ranks.map(|rank| rank.round() as usize);
        for rank in ranks.take_while(|rank| *rank <= sizes.len()) {
            row!(table, traffic, rank, sizes[rank - 1] as f64);
        }
    }
    let limit = "Flows are counted exactly; nothing is timed.".to_owned();
    let notes =
        "The lines of the generated traffic are by Zipf's law, which has been put in; that of the \
                 backbone's was not."
            .to_owned();
    Ok(Outcome { table, limit, notes })
}

fn judge_sizes(table: &Table) -> Verdict {
    let logs = |column: &str| -> Vec<f64> {
        table.numbers("traffic", "backbone", column).into_iter().map(f64::ln).collect()
    };
    let straight = correlation(&logs("rank"), &logs("packets"));
    Verdict::of(
        table,
        [Claim::new(
            "Flows are of sizes as by Zipf's law: on logarithmic axes size falls with rank along a line.",
            [Part::at_most("correlation of the logarithms of rank and size", straight, -0.95)],
            "The traffic is not a backbone's.",
        )],
    )
}
