//! Figure 2: speed by stream length, and by error.

use flowgauge_core::key::{Key8, KeyKind};

use super::{ACCELERATED, EPSILON};
use crate::experiment::chart::linear;
use crate::experiment::latency::{BARE, Bare, Runner};
use crate::experiment::part::{Part, median, spread};
use crate::experiment::setting::{Mix, Setting};
use crate::experiment::stream::{Loop, Stream};
use crate::experiment::structure::Structure;
use crate::experiment::table::{Table, row, short};
use crate::experiment::verdict::{Claim, Verdict};
use crate::experiment::{Experiment, Outcome, Preset};
use crate::failure::Failure;

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
    measure,
    judge,
    missing: &[],
    charts: &super::panels(
        &[("mpps", "")],
        linear("million packets a second"),
        &[BARE, super::HEAP, super::BUCKETS, ACCELERATED[2].1],
        "Lines behind Skipper rise with the length of the stream and with the error; those alone stay level.",
    ),
};

/// Probability that the sample exceeds the error.
const DELTA: f64 = 0.0001;

fn measure(setting: &Setting) -> Result<Outcome, Failure> {
    let stream = Stream::<Key8>::draw(setting, Mix::Trace, KeyKind::PAIR)?;
    let lengths = super::lengths(setting);
    let mut table = Table::new(["structure", "length_packets", "epsilon", "mpps", "mpps_spread"]);
    let structures = super::structures(EPSILON, DELTA);
    let rates = race(&structures, setting, &stream, &lengths, super::rounds(setting))?;
    for (label, rates) in labels(&structures).zip(rates) {
        for (length, rate) in lengths.iter().zip(rates) {
            row!(table, label, *length, f64::NAN, rate[0], rate[1]);
        }
    }
    let longest = &lengths[lengths.len() - 1..];
    for epsilon in super::epsilons(setting) {
        let structures = super::structures(epsilon, DELTA);
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
    let step = super::gamma(EPSILON, DELTA);
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
    stream: &Stream<Key8>,
    lengths: &[usize],
    rounds: usize,
) -> Result<Vec<Vec<[f64; 2]>>, Failure> {
    let mut runners: Vec<Box<dyn Runner<Key8>>> = vec![Box::new(Bare::new())];
    for structure in structures {
        runners.push(Box::new(structure.build::<Key8>(setting)?));
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

fn judge(table: &Table) -> Verdict {
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
