//! Figures 2 and 3: speed and error on arrival, by stream length and by configured error.

use super::{ACCELERATED, EPSILON, HEAP};
use crate::experiment::chart::{linear, log};
use crate::experiment::latency::{BARE, Bare, Runner};
use crate::experiment::part::{Part, median, spread};
use crate::experiment::setting::{Mix, Setting};
use crate::experiment::stream::{Absent, Arrivals, Loop, Stream};
use crate::experiment::structure::Structure;
use crate::experiment::table::{Table, row, short};
use crate::experiment::verdict::{Claim, Verdict};
use crate::experiment::{Experiment, Outcome, Preset};
use crate::failure::Failure;
use crate::keys::Pairs;

/// Figure 2: speed by stream length, and by error.
pub(crate) const FIG2: Experiment = Experiment {
    name: "skipper/fig2",
    title: "speed behind Skipper, by the length of the stream and by the error",
    paper: "Skipper, Fig. 2",
    presets: &[
        super::TRAFFIC,
        super::LENGTH,
        super::ROWS,
        super::COUNTERS,
        super::GAMMA,
        Preset::same("ε, δ", "1 %, or 2⁻⁴ to 2⁻¹²; 0.01 %"),
    ],
    measure: measure_speed,
    judge: judge_speed,
    missing: &[],
    charts: &super::panels(
        &[("mpps", "")],
        linear("million packets a second"),
        &[BARE, super::HEAP, super::BUCKETS, ACCELERATED[2].1],
        "Lines behind Skipper rise with the length of the stream and with the error; those alone stay level.",
    ),
};

/// Probability that the sample exceeds the error.
const SPEED_DELTA: f64 = 0.0001;

fn measure_speed(setting: &Setting) -> Result<Outcome, Failure> {
    let stream = Stream::<Pairs>::draw(setting, Mix::Trace)?;
    let lengths = super::lengths(setting);
    let mut table = Table::new(["structure", "length_packets", "epsilon", "mpps", "mpps_spread"]);
    let structures = super::structures(EPSILON, SPEED_DELTA);
    let rates = race(&structures, setting, &stream, &lengths, super::rounds(setting))?;
    for (label, rates) in labels(&structures).zip(rates) {
        for (length, rate) in lengths.iter().zip(rates) {
            row!(table, label, *length, f64::NAN, rate[0], rate[1]);
        }
    }
    let longest = &lengths[lengths.len() - 1..];
    for epsilon in super::epsilons(setting) {
        let structures = super::structures(epsilon, SPEED_DELTA);
        let rates = race(&structures, setting, &stream, longest, 1)?;
        for (label, rates) in labels(&structures).zip(rates) {
            row!(table, label, f64::NAN, epsilon, rates.first().map(|[rate, _]| *rate));
        }
    }
    let bare = table.numbers("structure", BARE, "mpps");
    let limit = format!(
        "Batches that are filled from memory and digested, with nothing counted: {} million packets a \
         second. What is passed over is not digested, but it is filled into batches.",
        short(median(&bare))
    );
    let notes = format!(
        "A stream is the same {} packets again and again. Of {} packets, a sample for an error of 1 % takes \
         {} at most. Space-Saving is this project's, which looks for the least counter without a heap; \
         sketches have five rows of the next power of two columns.",
        stream.keys.len(),
        longest[0],
        short(samples(longest[0] as f64).round())
    );
    Ok(Outcome { table, limit, notes })
}

/// Maximum mean number of packets sampled from `packets`.
fn samples(packets: f64) -> f64 {
    let step = super::gamma(EPSILON, SPEED_DELTA);
    packets.min(step * ((packets / step).max(1.0).ln() + 2.0))
}

fn labels(structures: &[Structure]) -> impl Iterator<Item = &str> {
    std::iter::once(BARE).chain(structures.iter().map(|structure| structure.label.as_str()))
}

/// Million packets per second up to each of these lengths, of the bare loop and each structure:
/// medians over rounds, and their spread.
fn race(
    structures: &[Structure],
    setting: &Setting,
    stream: &Stream<Pairs>,
    lengths: &[usize],
    rounds: usize,
) -> Result<Vec<Vec<[f64; 2]>>, Failure> {
    let mut runners: Vec<Box<dyn Runner<Pairs>>> = vec![Box::new(Bare::new())];
    for structure in structures {
        runners.push(Box::new(structure.build::<Pairs>(setting)?));
    }
    let mut rates = vec![vec![Vec::new(); lengths.len()]; runners.len()];
    for _ in 0..rounds {
        for (runner, rates) in runners.iter_mut().zip(&mut rates) {
            runner.begin();
            // The first touch of memory costs a page fault.
            Loop::new(&stream.keys).feed(&mut **runner, stream.keys.len() / 8);
            runner.begin();
            let (mut all, mut seconds) = (Loop::new(&stream.keys), 0.0);
            for (length, rates) in lengths.iter().zip(rates) {
                seconds += all.feed(&mut **runner, *length);
                rates.push(*length as f64 / seconds / 1e6);
            }
        }
    }
    let middle = |rates: &Vec<f64>| [median(rates), spread(rates)];
    let middles = |rates: Vec<Vec<f64>>| rates.iter().map(middle).collect();
    Ok(rates.into_iter().map(middles).collect())
}

fn judge_speed(table: &Table) -> Verdict {
    let finite = |name: &str, column: &str| -> Vec<f64> {
        let rows = table.of("structure", name).filter(|row| row.number(column).is_finite());
        rows.map(|row| row.number("mpps")).collect()
    };
    // Rates behind Skipper over those alone, by length and by error.
    let gains = |alone: &str, behind: &str, column: &str| -> Vec<f64> {
        let both = finite(behind, column).into_iter().zip(finite(alone, column));
        both.map(|(behind, alone)| behind / alone).collect()
    };
    let most = ACCELERATED.iter().flat_map(|(alone, behind)| {
        ["epsilon", "length_packets"].into_iter().flat_map(|column| gains(alone, behind, column))
    });
    let most = most.fold(f64::NAN, f64::max);
    let by_length = ACCELERATED.map(|(_, behind)| {
        let rates = finite(behind, "length_packets");
        Part::moves(&format!("{behind} by length, in Mpps"), &rates, true)
    });
    let by_error = ACCELERATED.map(|(alone, behind)| {
        let mut rising = gains(alone, behind, "epsilon");
        rising.reverse();
        Part::moves(&format!("gain of {alone} by error"), &rising, true)
    });
    let least = ACCELERATED.map(|(alone, behind)| {
        let least = gains(alone, behind, "epsilon").last().copied().unwrap_or(f64::NAN);
        Part::at_least(&format!("gain of {alone} at the least error"), least, 0.9).timed()
    });
    Verdict::of(
        table,
        [
            Claim::new(
                "The accelerated structures are up to 12 times as fast as alone.",
                [Part::at_least("the largest gain", most, 12.0).timed()],
                "A stream of a billion packets is longer than this one.",
            ),
            Claim::new(
                "The longer the stream, the faster they are.",
                by_length,
                "Filling batches takes the same time however few packets are taken.",
            ),
            Claim::new(
                "The larger the error that is allowed, the more is gained.",
                by_error,
                "A structure for a larger error is smaller, and faster alone.",
            ),
            Claim::new(
                "Where the error is so small that no packet is passed over, they are only slightly slower \
                 than alone (a tenth).",
                least,
                "What decides whether a packet is taken costs as much as a small structure.",
            ),
        ],
    )
}

/// Figure 3: the error on arrival, by stream length and by configured error.
pub(crate) const FIG3: Experiment = Experiment {
    name: "skipper/fig3",
    title: "the error behind Skipper, by the length of the stream and by the error asked for",
    paper: "Skipper, Fig. 3",
    presets: &[
        super::TRAFFIC,
        super::LENGTH,
        super::ROWS,
        super::COUNTERS,
        super::GAMMA,
        Preset::same("ε, δ", "1 %, or 2⁻⁴ to 2⁻¹²; 5 %"),
        Preset::other(
            "flows that Space-Saving does not hold",
            "0, as its library answers",
            "that, and the least counter",
            "the least counter is what bounds them",
        ),
    ],
    measure: measure_error,
    judge: judge_error,
    missing: &[],
    charts: &super::panels(
        &[("rmse_packets", "")],
        log("error on arrival (RMSE, packets)"),
        &[HEAP, ACCELERATED[2].1, ABSENT_0[0].1, ABSENT_0[1].1],
        "By the paper a line behind Skipper lies on the one alone, and that of Space-Saving below it.",
    ),
};

/// Queried packets before the first length, and between each two.
const ASKED: usize = 2000;

/// Probability that the sample exceeds the error.
const ERROR_DELTA: f64 = 0.05;

/// Space-Saving, alone and behind Skipper, where flows it does not hold count as 0 packets.
const ABSENT_0: [(&str, &str); 2] =
    [(HEAP, "Space-Saving, absent as 0"), ("ACC(Space-Saving)", "ACC(Space-Saving), absent as 0")];

/// Ratio of errors, accelerated over alone, up to which they count as similar.
const SIMILAR: f64 = 1.1;

/// Ratio below which the error is smaller beyond the variation over seeds.
const LESS: f64 = 0.97;

fn measure_error(setting: &Setting) -> Result<Outcome, Failure> {
    let stream = Stream::<Pairs>::draw(setting, Mix::Trace)?;
    let lengths = super::lengths(setting);
    let arrivals = Arrivals::draw(&stream.keys, &lengths, ASKED, setting.seed);
    let mut table = Table::new([
        "structure",
        "length_packets",
        "epsilon",
        "rmse_packets",
        "rmse_packets_spread",
        "passed",
    ]);
    for (label, errors) in errors(EPSILON, super::rounds(setting), setting, &stream, &arrivals)? {
        for (length, [error, spread]) in lengths.iter().zip(errors) {
            let passed = passed(*length, EPSILON);
            row!(table, label.as_str(), *length, f64::NAN, error, spread, passed);
        }
    }
    let longest = lengths.last().copied().unwrap_or(0);
    for epsilon in super::epsilons(setting) {
        for (label, errors) in errors(epsilon, 1, setting, &stream, &arrivals)? {
            let [error, spread] = errors.last().copied().unwrap_or([f64::NAN; 2]);
            row!(table, label, f64::NAN, epsilon, error, spread, passed(longest, epsilon));
        }
    }
    let limit = "An exact table errs nowhere.".to_owned();
    let notes = format!(
        "Asked at {ASKED} packets at random up to the shortest length and between each two lengths, each \
         speaking for its part of the stream; by length with {} seeds of the digest and the sample.",
        super::rounds(setting)
    );
    Ok(Outcome { table, limit, notes })
}

/// Whether a stream is long enough that Skipper skips packets.
fn passed(packets: usize, epsilon: f64) -> &'static str {
    if packets as f64 > super::gamma(epsilon, ERROR_DELTA) { "some" } else { "none" }
}

/// An error per length, and its spread over seeds.
type Errors = Vec<[f64; 2]>;

/// The root mean square errors of each structure at each length over `seeds` seeds, and their
/// spread.
fn errors(
    epsilon: f64,
    seeds: usize,
    setting: &Setting,
    stream: &Stream<Pairs>,
    arrivals: &Arrivals<Pairs>,
) -> Result<Vec<(String, Errors)>, Failure> {
    let lengths = super::lengths(setting);
    let error = |(label, structure, absent): (String, Structure, Absent)| {
        let mut squares = vec![Vec::new(); lengths.len()];
        for seed in 0..seeds as u64 {
            let setting = Setting { seed: setting.seed + seed, ..setting.clone() };
            let mut summary = structure.build::<Pairs>(&setting)?;
            let sums =
                arrivals.squares(&mut summary, |s| s.answers(), absent, &stream.keys, &lengths);
            for ((squares, sum), length) in
                squares.iter_mut().zip(sums.unwrap_or_default()).zip(&lengths)
            {
                squares.push(sum / *length as f64);
            }
        }
        let error = |squares: Vec<f64>| {
            let roots: Vec<f64> = squares.iter().map(|square| square.sqrt()).collect();
            [(squares.iter().sum::<f64>() / seeds as f64).sqrt(), spread(&roots)]
        };
        Ok((label, squares.into_iter().map(error).collect()))
    };
    // Linked buckets have the errors of Space-Saving.
    let structures = super::structures(epsilon, ERROR_DELTA).into_iter();
    let structures = structures.filter(|structure| structure.label != super::BUCKETS);
    let both = structures.flat_map(|structure| {
        let zero = ABSENT_0.iter().find(|(name, _)| *name == structure.label);
        let zero = zero.map(|(_, label)| ((*label).to_owned(), structure.clone(), Absent::None));
        std::iter::once((structure.label.clone(), structure, Absent::Said)).chain(zero)
    });
    both.map(error).collect()
}

fn judge_error(table: &Table) -> Verdict {
    // Errors behind Skipper and alone, where packets are skipped.
    let both = |alone: &str, behind: &str| {
        let errors = |name: &str| -> Vec<f64> {
            let rows = table.of("structure", name).filter(|row| row.text("passed") == "some");
            rows.map(|row| row.number("rmse_packets")).collect()
        };
        (errors(behind), errors(alone))
    };
    let ratios = |alone: &str, behind: &str| -> Vec<f64> {
        let (with, without) = both(alone, behind);
        with.iter().zip(&without).map(|(with, without)| with / without).collect()
    };
    let similar = |(alone, behind): (&str, &str)| {
        let most = ratios(alone, behind).into_iter().fold(f64::NAN, f64::max);
        Part::at_most(&format!("error of {behind} over {alone}, at worst"), most, SIMILAR)
    };
    let less = |alone: &str, behind: &str| {
        let middle = median(&ratios(alone, behind));
        Part::at_most(&format!("error of {behind} over {alone}"), middle, LESS)
    };
    let sketches = ACCELERATED.into_iter().filter(|(alone, _)| *alone != HEAP);
    Verdict::of(
        table,
        [
            Claim::new(
                "Asked for the flow of each packet as it arrives, Count-Min and Count Sketch err as they do \
                 alone, whatever the length of the stream and the error asked for (a tenth more at most).",
                sketches.map(similar),
                "The sample's error comes on top of the sketch's, and shows where the sketch is small: the paper says \
                 'similar', and gives no number.",
            ),
            Claim::new(
                "Space-Saving errs less than alone once packets are passed over, where a flow that it does \
                 not hold has no packets.",
                [less(ABSENT_0[0].1, ABSENT_0[1].1)],
                "Fewer flows come in a sample, so that fewer take the counters of others: how many do \
                 depends on the traffic.",
            ),
            Claim::new(
                "Space-Saving errs less, too, where such a flow has the least counter.",
                [less(HEAP, "ACC(Space-Saving)")],
                "The least counter is about the packets so far over the number of counters, sampled or not: \
                 it is the error of nearly every small flow, and sampling does not lower it. What the \
                 paper measured has no such flows, since its library answers 0 for them.",
            ),
        ],
    )
}
