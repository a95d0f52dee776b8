//! The nine solutions at the rate of a link, and the aggregator that turns itself off.

use std::hash::{BuildHasher, RandomState};

use flowgauge_core::batch::BATCH_PACKETS;

use super::{ALONE, BEHIND, TWO_LEVEL};
use crate::experiment::chart::{Chart, Mark};
use crate::experiment::latency::{self, BARE, Bare, Latency, Runner, race};
use crate::experiment::part::Part;
use crate::experiment::setting::{Mix, Setting};
use crate::experiment::stream::Stream;
use crate::experiment::structure::Structure;
use crate::experiment::table::{Table, short};
use crate::experiment::verdict::{Claim, Verdict};
use crate::experiment::{Experiment, Outcome, Preset};
use crate::failure::Failure;
use crate::keys::{Keys, Pairs, Sources};

/// The nine solutions alone, behind the aggregator, and behind one that turns itself off.
pub(crate) const AUTO: Experiment = Experiment {
    name: "agg-evict/auto",
    title: "an aggregator that turns itself off, and nine solutions at 100 Gbit/s",
    paper: "This project: `agg-evict:auto`, beside Agg-Evict (CCR 2018), Fig. 5 and 7",
    presets: &[
        super::EPOCH,
        super::HASHES,
        super::RADAR,
        Preset::other(
            "solutions",
            "those of figure 5",
            "the same, with 8 rows for RevSketch, one more to verify keys for it and TwoLevel, and bitmaps of 256 bits",
            "pairs of addresses need 8 rows, and bitmaps of 12 bits tell no threshold of 128",
        ),
        Preset::other(
            "aggregator, batches, key",
            "2000 rows, 32 packets, the source",
            "8192 rows, 256 packets, both addresses; for TwoLevel the source, with the destination as its element",
            "that is how users run it where rates are high",
        ),
        Preset::other(
            "traffic",
            "a minute of CAIDA, and Zipf's law",
            "generated like a backbone's with three seeds drawn by the run, and a million flows that are \
             alike or by Zipf's law, skew 0.75 and 1.1",
            "the claims are about other traffic than figure 5's",
        ),
    ],
    measure,
    judge,
    missing: &[],
    charts: &[
        Chart { title: "Backbone", only: &[ALONE, BEHIND, AUTOMATIC], ..RATES },
        Chart {
            title: "Flat traffic",
            x: "solution",
            only: &[FLAT_ALONE, FLAT_BEHIND, FLAT_AUTOMATIC],
            paper: &[],
            see: "Where flows are all alike, sums hold little: the bar of the aggregator that turns itself off should \
                  be as high as that alone.",
            ..RATES
        },
    ],
};

const RATES: Chart = Chart {
    x: "solution",
    only: &[],
    series: "kind",
    paper: &[Mark::Level("100 Gbit/s", RATE)],
    see: "The higher of the first two bars is a solution's best way, and the third should be as high.",
    ..super::THROUGHPUT
};

/// Names of the other two ways, and of all four with flat traffic. The last is a second instance of
/// the solution alone: it shows how far instances differ.
const AUTOMATIC: &str = "behind agg-evict:auto";
const AGAIN: &str = "alone again";
const FLAT_ALONE: &str = "alone, flat";
const FLAT_BEHIND: &str = "behind Agg-Evict, flat";
const FLAT_AUTOMATIC: &str = "behind agg-evict:auto, flat";
const FLAT_AGAIN: &str = "alone again, flat";

const WAYS: [&str; 4] = [ALONE, BEHIND, AUTOMATIC, AGAIN];
const FLAT_WAYS: [&str; 4] = [FLAT_ALONE, FLAT_BEHIND, FLAT_AUTOMATIC, FLAT_AGAIN];

/// Million packets of 64 bytes a second at 100 Gbit/s.
const RATE: f64 = 148.8;

/// Rows of the aggregator.
const ROWS: &str = "8192";

/// Names of traffic that is flat.
const UNIFORM: &str = "uniform";
const SKEW_075: &str = "Zipf 0.75";

fn measure(setting: &Setting) -> Result<Outcome, Failure> {
    // The standard library's hash has a random key.
    let random = RandomState::new();
    let seeds = [1, 2, 3].map(|number| random.hash_one(number) >> 32);
    let (mut table, mut all) = (super::table(["solution", "traffic", "kind"]), Vec::new());
    for (number, seed) in (1..).zip(seeds) {
        let setting = Setting { seed, ..setting.clone() };
        measure_on(
            &mut table,
            &mut all,
            &format!("backbone {number}"),
            Mix::Trace,
            WAYS,
            &setting,
        )?;
    }
    measure_on(&mut table, &mut all, "Zipf 1.1", Mix::Zipf(1.1), WAYS, setting)?;
    measure_on(&mut table, &mut all, SKEW_075, Mix::Zipf(0.75), FLAT_WAYS, setting)?;
    measure_on(&mut table, &mut all, UNIFORM, Mix::Zipf(0.0), FLAT_WAYS, setting)?;
    // Of all races together, since a single one may have been interrupted.
    table.add_noise(latency::noise(&all, setting.rounds));
    let limit = latency::limit(&table.numbers("how", BARE, "mean_ns"), BATCH_PACKETS);
    let again = ratios_on_flat(&table, AGAIN);
    let notes = format!(
        "This run drew the seeds {}, {} and {} for its backbones. The first trial of `agg-evict:auto`, 94,208 \
         packets, comes before the timed rounds; the second one is in them, but not in their median. Rates are \
         medians of races in different orders, each with new instances. On flat traffic a second \
         instance of the solution alone has {} of the rate of the first in the mean, and {} at worst.",
        seeds[0],
        seeds[1],
        seeds[2],
        short(again.iter().sum::<f64>() / again.len() as f64),
        short(least(&again)),
    );
    Ok(Outcome { table, limit, notes })
}

/// The solution with the rows that its keys need to be recovered: 4 for a source, and 8 for a pair.
fn by_key(solution: Structure) -> Structure {
    match solution.label.as_str() {
        "RevSketch" => solution.with([("rows", "8")]),
        TWO_LEVEL => solution.with([("bits", "256")]),
        _ => solution,
    }
}

/// Adds the rows of all nine solutions on this traffic, each in four ways that have these names,
/// and their latencies to `all`. TwoLevel finds sources, and the others count pairs of addresses.
fn measure_on(
    table: &mut Table,
    all: &mut Vec<Latency>,
    traffic: &str,
    mix: Mix,
    kinds: [&'static str; 4],
    setting: &Setting,
) -> Result<(), Failure> {
    let sources = Stream::<Sources>::draw(setting, mix)?;
    let pairs = Stream::<Pairs>::draw(setting, mix)?;
    for solution in super::nine().map(by_key) {
        let times = if solution.label == TWO_LEVEL {
            race_ways(&solution, &sources, setting)?
        } else {
            race_ways(&solution, &pairs, setting)?
        };
        all.extend(&times);
        let kinds = [BARE].into_iter().chain(kinds);
        for ((how, kind), time) in [BARE].into_iter().chain(WAYS).zip(kinds).zip(times) {
            let at = [solution.label.as_str().into(), traffic.into(), kind.into()];
            super::push(table, &at, [(how, time)].into_iter());
        }
    }
    Ok(())
}

/// The latencies of a bare loop and of the solution in all ways: medians of several races. Each has
/// new instances, whose memory lies elsewhere, in another order: right after the aggregator, a cheap
/// solution takes up to 9 % longer.
fn race_ways<K: Keys>(
    solution: &Structure,
    stream: &Stream<K>,
    setting: &Setting,
) -> Result<Vec<Latency>, Failure> {
    let mut times = vec![Vec::new(); 1 + WAYS.len()];
    for order in &ORDERS[..ORDERS.len().min(setting.rounds.div_ceil(2))] {
        let mut built = order
            .iter()
            .map(|&way| in_way(solution, way).build::<K>(setting))
            .collect::<Result<Vec<_>, _>>()?;
        let mut bare = Bare::new();
        let mut runners: Vec<&mut dyn Runner<K>> = vec![&mut bare];
        runners.extend(built.iter_mut().map(|summary| summary as &mut dyn Runner<K>));
        let raced = race(&mut runners, stream, BATCH_PACKETS, setting.rounds);
        for (at, time) in [0].into_iter().chain(order.map(|way| 1 + way)).zip(raced) {
            times[at].push(time);
        }
    }
    Ok(times.iter().map(|times| latency::middle(times)).collect())
}

/// Orders of the ways, by their index. Each way is first once, and follows each other one once.
const ORDERS: [[usize; 4]; 4] = [[0, 1, 3, 2], [1, 2, 0, 3], [2, 3, 1, 0], [3, 0, 2, 1]];

/// The solution in the way with this index.
fn in_way(solution: &Structure, way: usize) -> Structure {
    let solution = solution.clone();
    match WAYS[way] {
        BEHIND => solution.behind("agg-evict", [("rows", ROWS)]),
        AUTOMATIC => solution.behind("agg-evict", [("rows", ROWS), ("auto", "yes")]),
        _ => solution,
    }
}

/// The rates of one of the ways, on traffic for which `is` holds.
fn rates(table: &Table, how: &str, is: &dyn Fn(&str) -> bool) -> Vec<f64> {
    let rows = table.of("how", how).filter(|row| is(row.text("traffic")));
    rows.map(|row| row.number("mpps")).collect()
}

fn ratios(of: Vec<f64>, over: Vec<f64>) -> Vec<f64> {
    of.into_iter().zip(over).map(|(of, over)| of / over).collect()
}

/// The rates of one of the ways over those alone, on flat traffic.
fn ratios_on_flat(table: &Table, how: &str) -> Vec<f64> {
    ratios(rates(table, how, &is_flat), rates(table, ALONE, &is_flat))
}

fn is_flat(traffic: &str) -> bool {
    [UNIFORM, SKEW_075].contains(&traffic)
}

fn least(numbers: &[f64]) -> f64 {
    numbers.iter().copied().fold(f64::NAN, f64::min)
}

/// The mean of these numbers, and its margin: 95 % of such means are as near.
fn mean(numbers: &[f64]) -> [f64; 2] {
    let count = numbers.len() as f64;
    let mean = numbers.iter().sum::<f64>() / count;
    let squares = numbers.iter().map(|number| (number - mean).powi(2)).sum::<f64>();
    [mean, 1.96 * (squares / (count - 1.0) / count).sqrt()]
}

fn judge(table: &Table) -> Verdict {
    let of = |how: &str, is: &dyn Fn(&str) -> bool| rates(table, how, is);
    let on_backbone = |traffic: &str| traffic.starts_with("backbone");
    let best = |is: &dyn Fn(&str) -> bool| -> Vec<f64> {
        let both = of(ALONE, is).into_iter().zip(of(BEHIND, is));
        both.map(|(alone, behind)| alone.max(behind)).collect()
    };
    let skewed = |traffic: &str| !is_flat(traffic);
    let flat = ratios_on_flat(table, AUTOMATIC);
    let cost = mean(&flat.iter().map(|ratio| 100.0 * (1.0 / ratio - 1.0)).collect::<Vec<_>>());
    Verdict::of(
        table,
        [
            Claim::new(
                "Where traffic is flat (skew 0.75, or all flows alike) `agg-evict:auto` costs at most 3 % of the rate \
                 of the solution alone, in the mean of nine.",
                [Part::mean_at_most("cost in %, mean of both and nine", cost, 3.0)],
                "Its trial was wrong, or the watch on the traffic takes longer than it should.",
            ),
            Claim::new(
                "None of the nine loses more than 3 % there.",
                [Part::at_least(
                    "rate behind agg-evict:auto over that alone, at worst",
                    least(&flat),
                    0.97,
                )
                .timed()],
                "Instances of the same solution differ by where their memory lies: the note says how far a second one \
                 alone is from the first.",
            ),
            Claim::new(
                "Where traffic is skewed it has at least nine tenths of the rate of the better way.",
                [Part::at_least(
                    "rate behind agg-evict:auto over that in the best way, at worst",
                    least(&ratios(of(AUTOMATIC, &skewed), best(&skewed))),
                    0.9,
                )
                .timed()],
                "Its trial was wrong: both ways take nearly as long, or a trial was interrupted.",
            ),
            Claim::new(
                "Each of the nine solutions takes 148.8 million packets a second of a backbone, alone or behind \
                 the aggregator, with three seeds.",
                [Part::at_least(
                    "the slowest of nine solutions in its best way, in Mpps",
                    least(&best(&on_backbone)),
                    RATE,
                )
                .timed()],
                "Rates are those of the core: the slowest two are FlowRadar and TwoLevel, which wait for memory at each \
                 sum.",
            ),
        ],
    )
}
