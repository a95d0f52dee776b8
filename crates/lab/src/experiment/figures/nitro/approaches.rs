//! Table 1 and section 4.1: the approaches before NitroSketch, and its two strawmen.

use flowgauge_core::key::{FlowKey, Key8};
use flowgauge_core::summary::{Answers, Summary};
use flowgauge_core::terms::Measure;

use super::paper::Coin;
use crate::exact::{Exact, number};
use crate::experiment::chart::{Chart, Mark, linear, log};
use crate::experiment::latency::{BARE, Bare, Runner};
use crate::experiment::part::{Part, median, spread};
use crate::experiment::setting::{FRAME_BYTES, LINE_RATE, Mix, Setting};
use crate::experiment::stream::{Loop, RepeatedStream, Stream, root_mean_square};
use crate::experiment::structure::Structure;
use crate::experiment::table::{Table, row, short};
use crate::experiment::verdict::{Claim, Gain, Verdict};
use crate::experiment::{Experiment, Outcome, Preset};
use crate::failure::Failure;
use crate::keys::{Keys, Pairs, Sources};
use crate::trial::THRESHOLD;

/// Table 1: what each approach answers, and the effect of many flows.
pub(crate) const TABLE1: Experiment = Experiment {
    name: "nitro/table1",
    title: "generality and robustness of five approaches",
    paper: "NitroSketch (SIGCOMM 2019), section 2 and Table 1",
    presets: &[
        Preset::other(
            "traffic",
            "skewed, or with many flows",
            "a million flows by Zipf's law, skew 1.5 and 0.75",
            "few flows have most packets, or many have some",
        ),
        Preset::other(
            "sizes",
            "not named",
            "2.7 MB, Elastic Sketch's in figure 3b; a hash table of 65,536 flows",
            "all in as much memory; a small table is what the text is about",
        ),
        Preset::other(
            "UnivMon",
            "not named",
            "14 levels behind NitroSketch, AlwaysCorrect",
            "as in figure 3a",
        ),
    ],
    measure: measure_approaches,
    judge: judge_approaches,
    missing: &[],
    charts: &[
        Chart {
            title: "Error of the hundred largest flows",
            y: &[("error_percent", "")],
            y_axis: linear("error (RMS, % of each flow)"),
            see: "A robust structure has two bars of like height, an accurate one has low bars: look at how much the \
                  flat traffic's stands above the skewed one's.",
            ..BY_STRUCTURE
        },
        Chart {
            title: "The same as a share of all packets",
            y: &[("of_all_percent", "")],
            y_axis: linear("error (RMS, % of all packets)"),
            see: "What RHHH guarantees is a share of all packets: its bar for flat traffic is not higher than that for \
                  skewed traffic.",
            ..BY_STRUCTURE
        },
        Chart {
            title: "Packets that are not counted",
            y: &[("untracked_percent", "")],
            y_axis: linear("packets without room (%)"),
            see: "A small hash table leaves packets uncounted where flows are many.",
            ..BY_STRUCTURE
        },
    ],
};

const BY_STRUCTURE: Chart = Chart {
    title: "",
    x: "structure",
    x_axis: linear(""),
    y: &[],
    y_axis: linear(""),
    series: "traffic",
    only: &[],
    paper: &[],
    see: "",
};

const TABLE: &str = "hash table";
const VISOR: &str = "SketchVisor";
const ELASTIC: &str = "Elastic Sketch";
const RHHH: &str = "RHHH";
const NITRO_UNIVMON: &str = "UnivMon behind NitroSketch";

const SKEWED: &str = "skew 1.5";
const FLAT: &str = "skew 0.75";

const MEMORY: usize = 2_700_000;

/// Number of evaluated tasks: heavy hitters, changes, entropy, number of flows.
const TASKS: f64 = 4.0;

fn approaches() -> [Structure; 5] {
    let correct = [("mode", "correct"), ("p", "0.01")];
    [
        Structure::new(TABLE, "linear-table").with([("buckets", 1 << 16)]),
        Structure::new(VISOR, "sketch-visor").in_bytes(MEMORY),
        Structure::new(ELASTIC, "elastic-sketch").in_bytes(MEMORY),
        Structure::new(RHHH, "rhhh").in_bytes(MEMORY),
        Structure::new(NITRO_UNIVMON, "univmon").in_bytes(MEMORY).behind("nitro", correct),
    ]
}

/// How many of the tasks it answers.
fn tasks(answers: &dyn Answers) -> f64 {
    let changes = answers.cells().is_some() || answers.flows().is_some();
    let answered = [
        answers.candidates().is_some() || answers.flows().is_some(),
        changes,
        answers.weight_logs(Measure::Packets).is_some() || answers.flows().is_some(),
        answers.cardinality().is_some() || answers.flows().is_some(),
    ];
    answered.into_iter().filter(|answered| *answered).count() as f64
}

fn measure_approaches(setting: &Setting) -> Result<Outcome, Failure> {
    let mut table = Table::new([
        "structure",
        "traffic",
        "tasks",
        "error_percent",
        "error_percent_spread",
        "of_all_percent",
        "of_all_percent_spread",
        "untracked_percent",
    ]);
    for structure in approaches() {
        for (traffic, skew) in [(SKEWED, 1.5), (FLAT, 0.75)] {
            let stream = Stream::<Sources>::draw(setting, Mix::Zipf(skew))?;
            let packets = RepeatedStream::<Sources> {
                keys: &stream.keys,
                wire: &|_| FRAME_BYTES,
                gap_ns: 25,
            };
            let largest = packets.largest(Measure::Packets, stream.keys.len(), 100);
            let (mut errors, mut of_all) = (Vec::new(), Vec::new());
            let (mut untracked, mut answered) = (Vec::new(), 0.0);
            for seed in 0..setting.rounds as u64 {
                let setting = Setting { seed: setting.seed + seed, ..setting.clone() };
                let mut summary = structure.build::<Sources>(&setting)?;
                packets.feed(&mut *summary, 0..stream.keys.len());
                summary.settle();
                let answers = summary.answers();
                let off = largest.errors::<Sources>(answers);
                of_all.push(100.0 * root_mean_square(&off) / largest.total);
                let off = off.into_iter().zip(largest.sizes());
                let relative: Vec<f64> = off.map(|(error, size)| 100.0 * error / size).collect();
                errors.push(root_mean_square(&relative));
                untracked
                    .push(100.0 * answers.untracked().packets as f64 / stream.keys.len() as f64);
                answered = tasks(answers);
            }
            let label = structure.label.as_str();
            row!(
                table,
                label,
                traffic,
                answered,
                median(&errors),
                spread(&errors),
                median(&of_all),
                spread(&of_all),
                median(&untracked)
            );
        }
    }
    let limit = "A table with room for all flows errs nowhere, and answers everything.".to_owned();
    let notes = format!(
        "{} packets, {} seeds. `tasks` counts which of heavy hitters, changes, entropy and number of flows are \
         answered, as built here.",
        setting.packets, setting.rounds
    );
    Ok(Outcome { table, limit, notes })
}

fn judge_approaches(table: &Table) -> Verdict {
    let at = |name: &str, traffic: &str, column: &str| {
        let mut rows = table.of("structure", name).filter(|row| row.text("traffic") == traffic);
        rows.next().map_or(f64::NAN, |row| row.number(column))
    };
    let error = |name: &str, traffic: &str| at(name, traffic, "error_percent");
    let of_all = |traffic: &str| at(RHHH, traffic, "of_all_percent");
    let flat_over_nitro = |name: &str| {
        let what = format!("flat traffic: error of {name} over UnivMon's behind NitroSketch");
        Part::at_least(&what, error(name, FLAT) / error(NITRO_UNIVMON, FLAT), 2.0)
    };
    Verdict::of(
        table,
        [
            Claim::new(
                "NitroSketch before UnivMon is general and robust: it answers all four tasks, and the largest flows \
                 of flat traffic are off by no more than 10 %.",
                [
                    Part::at_least(
                        "tasks answered, of four",
                        at(NITRO_UNIVMON, FLAT, "tasks"),
                        TASKS,
                    ),
                    Part::at_most("flat traffic: error, %", error(NITRO_UNIVMON, FLAT), 10.0),
                ],
                "The largest flows of flat traffic are small beside L2, of which a sketch's error is a share.",
            ),
            Claim::new(
                "A small hash table is not robust: it does for skewed traffic, and with many flows it has no room \
                 (over a tenth of the packets).",
                [
                    Part::at_most(
                        "skewed traffic: packets without room, %",
                        at(TABLE, SKEWED, "untracked_percent"),
                        10.0,
                    ),
                    Part::at_least(
                        "flat traffic: packets without room, %",
                        at(TABLE, FLAT, "untracked_percent"),
                        10.0,
                    ),
                ],
                "A million packets have too few flows.",
            ),
            Claim::new(
                "SketchVisor is not robust: where most packets are in many flows, its fast path is less \
                 precise than a sketch (twice the error).",
                [flat_over_nitro(VISOR)],
                "Both paths are added up here, and half of the packets go by a sketch.",
            ),
            Claim::new(
                "RHHH is robust for its own task: the largest sources of flat traffic are off by no larger a share of \
                 all packets than those of skewed traffic are, and by 0.1 % of them at most.",
                [
                    Part::at_most("flat over skewed traffic", of_all(FLAT) / of_all(SKEWED), 1.0),
                    Part::at_most("flat traffic: % of all packets", of_all(FLAT), 0.1),
                ],
                "It has too few counters for the flat traffic's sources.",
            ),
            Claim::new(
                "RHHH is not general: it answers one of the four tasks.",
                [Part::at_most("tasks answered, of four", at(RHHH, FLAT, "tasks"), 1.0)],
                "What it answers beside is no task of its paper.",
            ),
            Claim::new(
                "Elastic Sketch is not general, since its light part guarantees a share of all packets only: it \
                 answers fewer than the four tasks.",
                [Part::at_most("tasks answered, of four", at(ELASTIC, FLAT, "tasks"), 3.0)],
                "What it answers of many flows is off without bounds; `nitro/fig3b` has by how much.",
            ),
        ],
    )
}

/// The two strawmen of section 4.1: a sketch with a single array, and a sketch of sampled packets.
pub(crate) const STRAWMEN: Experiment = Experiment {
    name: "nitro/strawmen",
    title: "NitroSketch against a sketch of one array, and of sampled packets",
    paper: "NitroSketch (SIGCOMM 2019), section 4.1",
    presets: &[
        super::TRAFFIC,
        super::SWITCH,
        Preset::other(
            "Count Sketch",
            "not named",
            "5 rows of 65536 columns",
            "1 MB is in the cache",
        ),
        Preset::same("one array", "50 times the memory"),
        Preset::other(
            "sampled packets",
            "a coin for each packet",
            "that, and the engine's skips; one packet in a hundred",
            "skips draw a number for each packet that is taken",
        ),
    ],
    measure: measure_strawmen,
    judge: judge_strawmen,
    missing: &[],
    charts: &[
        Chart {
            title: "Error of heavy flows",
            y: &[("error_percent", "")],
            y_axis: log("relative error (RMS, %)"),
            ..BY_LENGTH
        },
        Chart {
            title: "Throughput",
            y: &[("mpps", "")],
            y_axis: linear("million packets a second"),
            paper: &[Mark::Level("10 Gbit/s", LINE_RATE)],
            ..BY_LENGTH
        },
    ],
};

const BY_LENGTH: Chart = Chart {
    title: "",
    x: "packets",
    x_axis: log("packets of the stream"),
    y: &[],
    y_axis: linear(""),
    series: "structure",
    only: &[PLAIN, ONE, UNIFORM, COIN, NITRO],
    paper: &[],
    see: "By the paper NitroSketch lies below sampled packets in error, and above one array and coins in rate.",
};

const PLAIN: &str = "Count Sketch";
const ONE: &str = "one array";
const UNIFORM: &str = "sampled packets";
const COIN: &str = "sampled packets, a coin each";
const NITRO: &str = "NitroSketch";

/// One packet in this many is sampled.
const ONE_IN: u64 = 100;

/// Stream lengths as multiples of the one in memory.
const TURNS: [usize; 4] = [1, 4, 16, 64];

fn strawmen() -> [Structure; 4] {
    let sketch = |label, rows, columns| {
        let shape = [("rows", rows), ("columns", columns), ("candidates", 1024)];
        Structure::new(label, "count-sketch").with(shape)
    };
    let rows = |label| sketch(label, 5, 1 << 16);
    [
        rows(PLAIN),
        // 51 times the memory.
        sketch(ONE, 1, 1 << 24),
        rows(UNIFORM).behind("uniform", [("sample", "100")]),
        rows(NITRO).behind("nitro", [("p", "0.01")]),
    ]
}

fn measure_strawmen(setting: &Setting) -> Result<Outcome, Failure> {
    let stream = Stream::<Pairs>::draw(setting, Mix::Trace)?;
    let flows =
        Exact::count(stream.keys.iter().map(|key| number(key.canonical(Pairs::BYTES))).collect());
    let least = THRESHOLD * flows.total() as f64;
    let heavy: Vec<_> = flows.iter().filter(|(_, packets)| *packets as f64 > least).collect();
    let mut table = Table::new([
        "structure",
        "packets",
        "memory_bytes",
        "error_percent",
        "mpps",
        "mpps_spread",
    ]);
    let lengths = TURNS.map(|turns| turns * stream.keys.len());
    let mut bare = vec![Vec::new(); lengths.len()];
    let mut coins = vec![Vec::new(); lengths.len()];
    // Squared errors and rates of each structure, at each length.
    let mut measured = vec![vec![(0.0, Vec::new()); lengths.len()]; strawmen().len()];
    let mut memory = Vec::new();
    // Streams are long, so half as many rounds suffice.
    let rounds = setting.rounds.div_ceil(2);
    for seed in 0..rounds as u64 {
        let setting = Setting { seed: setting.seed + seed, ..setting.clone() };
        rates(&mut Bare::new(), &stream.keys, &lengths, |at, _, rate| bare[at].push(rate));
        let sketch = strawmen()[0].build::<Pairs>(&setting)?;
        let mut coin = Coin::new(ONE_IN, setting.seed, sketch);
        rates(&mut coin, &stream.keys, &lengths, |at, _, rate| coins[at].push(rate));
        memory.clear();
        for (structure, measured) in strawmen().iter().zip(&mut measured) {
            let mut summary = structure.build::<Pairs>(&setting)?;
            memory.push(summary.memory_bytes());
            // The first touch of memory costs a page fault.
            Loop::<Pairs>::new(&stream.keys).feed(&mut summary, stream.keys.len());
            summary.clear();
            rates(&mut summary, &stream.keys, &lengths, |at, summary, rate| {
                measured[at].0 += square(&**summary, &heavy, TURNS[at]);
                measured[at].1.push(rate);
            });
        }
    }
    for (length, rates) in lengths.iter().zip(&bare) {
        row!(table, BARE, *length, f64::NAN, f64::NAN, median(rates), spread(rates));
    }
    for (length, rates) in lengths.iter().zip(&coins) {
        row!(table, COIN, *length, memory[0], f64::NAN, median(rates), spread(rates));
    }
    for ((structure, measured), bytes) in strawmen().iter().zip(measured).zip(memory) {
        for (length, (square, rates)) in lengths.iter().zip(measured) {
            let error = 100.0 * (square / rounds as f64).sqrt();
            let label = structure.label.as_str();
            row!(table, label, *length, bytes, error, median(&rates), spread(&rates));
        }
    }
    let limit = format!(
        "Batches that are filled and digested, with nothing counted: {} million packets a second.",
        short(median(&table.numbers("structure", BARE, "mpps")))
    );
    let notes = format!(
        "Errors of the {} flows with more than {} % of the packets. One packet in a hundred is sampled; of \
         NitroSketch one row in a hundred, which are as many updates. Here whole packets are sampled by \
         skips, too: no random number is drawn for those that are passed over.",
        heavy.len(),
        100.0 * THRESHOLD
    );
    Ok(Outcome { table, limit, notes })
}

/// Reports the state of a runner at each length, with the rate up to there in millions per second.
fn rates<R: Runner<Pairs>>(
    runner: &mut R,
    keys: &[Key8],
    lengths: &[usize],
    mut told: impl FnMut(usize, &R, f64),
) {
    let (mut stream, mut seconds) = (Loop::new(keys), 0.0);
    for (at, length) in lengths.iter().enumerate() {
        seconds += stream.feed(runner, *length);
        told(at, runner, *length as f64 / seconds / 1e6);
    }
}

/// The mean squared relative error of these flows after `turns` repetitions.
fn square(summary: &dyn Summary<Key8>, flows: &[(u128, u64)], turns: usize) -> f64 {
    let Some(sizes) = summary.answers().size() else { return f64::NAN };
    let square = |(key, packets): &(u128, u64)| {
        let estimate = sizes.estimate(&key.to_be_bytes()[..Pairs::BYTES]).by(Measure::Packets);
        let truth = (*packets * turns as u64) as f64;
        estimate.map_or(f64::NAN, |estimate| (estimate.value / truth - 1.0).powi(2))
    };
    flows.iter().map(square).sum::<f64>() / flows.len() as f64
}

fn judge_strawmen(table: &Table) -> Verdict {
    let of = |name: &str, column: &str| table.numbers("structure", name, column);
    let last = |name: &str, column: &str| of(name, column).last().copied().unwrap_or(f64::NAN);
    let slower = |name: &str| {
        let what = format!("rate of {name} over NitroSketch");
        Part::less(&what, &of(name, "mpps"), &of(NITRO, "mpps"))
    };
    Verdict::of(
        table,
        [
            Claim::new(
                "A sketch of one array needs some 50 times the memory for the same guarantee, leaves the \
                 cache, and is slower than NitroSketch.",
                [slower(ONE)],
                "The cache is larger than the array.",
            ),
            Claim::new(
                "A sketch of as small a sample of whole packets errs more than NitroSketch in the same \
                 memory.",
                [Part::less(
                    "error of NitroSketch over sampled packets",
                    &of(NITRO, "error_percent"),
                    &of(UNIFORM, "error_percent"),
                )],
                "Rows that have different samples err apart, and their median errs less.",
            ),
            Claim::new(
                "A sketch of sampled packets is slower, since it draws a random number for each packet.",
                [slower(UNIFORM)],
                "Skips draw one number for each packet that is taken, as NitroSketch does for each row.",
            )
            .on_baseline([slower(COIN)], Gain::Faster(last(UNIFORM, "mpps") / last(COIN, "mpps"))),
            Claim::new(
                "One array that is not in the cache does not reach the 14.88 million packets a second of a \
                 10 Gbit/s link.",
                [Part::at_most("one array in a long stream, Mpps", last(ONE, "mpps"), LINE_RATE).timed()],
                "Counters of a batch are fetched ahead together, so that a packet waits some 5 ns for \
                 memory; and the paper's rate is that of a whole switch.",
            ),
        ],
    )
}
