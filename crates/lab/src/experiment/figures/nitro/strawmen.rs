//! The two strawmen of section 4.1: a sketch with a single array, and a sketch of sampled packets.

use flowgauge_core::key::{FlowKey, Key8, KeyKind};
use flowgauge_core::summary::Summary;
use flowgauge_core::terms::Measure;

use super::paper::Coin;
use crate::exact::{Exact, number};
use crate::experiment::chart::{Chart, Mark, linear, log};
use crate::experiment::latency::{BARE, Bare, Runner};
use crate::experiment::part::{Part, median, spread};
use crate::experiment::setting::{LINE_RATE, Mix, Setting};
use crate::experiment::stream::{Loop, Stream};
use crate::experiment::structure::Structure;
use crate::experiment::table::{Table, row, short};
use crate::experiment::verdict::{Claim, Gain, Verdict};
use crate::experiment::{Experiment, Outcome, Preset};
use crate::failure::Failure;
use crate::trial::THRESHOLD;

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
    measure,
    judge,
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

fn structures() -> [Structure; 4] {
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

fn measure(setting: &Setting) -> Result<Outcome, Failure> {
    let stream = Stream::<Key8>::draw(setting, Mix::Trace, KeyKind::PAIR)?;
    let flows =
        Exact::count(stream.keys.iter().map(|key| number(key.canonical(Key8::BYTES))).collect());
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
    let mut measured = vec![vec![(0.0, Vec::new()); lengths.len()]; structures().len()];
    let mut memory = Vec::new();
    // Streams are long, so half as many rounds suffice.
    let rounds = setting.rounds.div_ceil(2);
    for seed in 0..rounds as u64 {
        let setting = Setting { seed: setting.seed + seed, ..setting.clone() };
        rates(&mut Bare::new(), &stream.keys, &lengths, |at, _, rate| bare[at].push(rate));
        let sketch = structures()[0].build::<Key8>(&setting)?;
        let mut coin = Coin::new(ONE_IN, setting.seed, sketch);
        rates(&mut coin, &stream.keys, &lengths, |at, _, rate| coins[at].push(rate));
        memory.clear();
        for (structure, measured) in structures().iter().zip(&mut measured) {
            let mut summary = structure.build::<Key8>(&setting)?;
            memory.push(summary.memory_bytes());
            // The first touch of memory costs a page fault.
            Loop::new(&stream.keys).feed(&mut summary, stream.keys.len());
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
    for ((structure, measured), bytes) in structures().iter().zip(measured).zip(memory) {
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
fn rates<R: Runner<Key8>>(
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
        let estimate = sizes.estimate(&key.to_be_bytes()[..Key8::BYTES]).by(Measure::Packets);
        let truth = (*packets * turns as u64) as f64;
        estimate.map_or(f64::NAN, |estimate| (estimate.value / truth - 1.0).powi(2))
    };
    flows.iter().map(square).sum::<f64>() / flows.len() as f64
}

fn judge(table: &Table) -> Verdict {
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
