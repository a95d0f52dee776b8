//! Figure 2: speed by the length of the stream, and by the error.

use flowgauge_core::key::{Key8, KeyKind};

use super::{ACCELERATED, EPSILON};
use crate::experiment::chart::linear;
use crate::experiment::latency::{BARE, Bare, Runner};
use crate::experiment::long::Loop;
use crate::experiment::setting::{Mix, Setting};
use crate::experiment::stream::Stream;
use crate::experiment::structure::Structure;
use crate::experiment::table::{Table, row, short};
use crate::experiment::verdict::{Part, Verdict, median};
use crate::experiment::{Experiment, Outcome};
use crate::failure::Failure;

pub(crate) const FIG2: Experiment = Experiment {
    name: "skipper/fig2",
    title: "speed behind Skipper, by the length of the stream and by the error",
    paper: "Skipper, Fig. 2",
    claim: "The longer the stream, the faster the accelerated structures are, up to 12 times as fast as \
            alone. The larger the error that is allowed, the more is gained; where it is so small that \
            no packet is passed over, they are only slightly slower than alone.",
    measure,
    judge,
    charts: &super::panels(&[("mpps", "")], linear("million packets a second")),
};

fn measure(setting: &Setting) -> Result<Outcome, Failure> {
    let stream = Stream::<Key8>::draw(setting, Mix::Trace, KeyKind::Pair)?;
    let lengths = super::lengths(setting);
    let mut table = Table::new(["structure", "length_packets", "epsilon", "mpps"]);
    let structures = super::structures(EPSILON);
    let rates = race(&structures, setting, &stream, &lengths, super::rounds(setting))?;
    for (label, rates) in labels(&structures).zip(rates) {
        for (length, rate) in lengths.iter().zip(rates) {
            row!(table, label, *length, f64::NAN, rate);
        }
    }
    let longest = &lengths[lengths.len() - 1..];
    for epsilon in super::epsilons(setting) {
        let structures = super::structures(epsilon);
        let rates = race(&structures, setting, &stream, longest, 1)?;
        for (label, rates) in labels(&structures).zip(rates) {
            row!(table, label, f64::NAN, epsilon, rates.first().copied());
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

/// Packets that are taken of so many, at most on average.
fn samples(packets: f64) -> f64 {
    let step = super::gamma(EPSILON);
    packets.min(step * ((packets / step).max(1.0).ln() + 2.0))
}

fn labels(structures: &[Structure]) -> impl Iterator<Item = &str> {
    std::iter::once(BARE).chain(structures.iter().map(|structure| structure.label.as_str()))
}

/// Million packets a second up to each of these lengths, of the bare loop and of each structure:
/// medians over rounds.
fn race(
    structures: &[Structure],
    setting: &Setting,
    stream: &Stream<Key8>,
    lengths: &[usize],
    rounds: usize,
) -> Result<Vec<Vec<f64>>, Failure> {
    let mut runners: Vec<Box<dyn Runner<Key8>>> = vec![Box::new(Bare::new())];
    for structure in structures {
        runners.push(Box::new(structure.build::<Key8>(setting)?));
    }
    let mut rates = vec![vec![Vec::new(); lengths.len()]; runners.len()];
    for _ in 0..rounds {
        for (runner, rates) in runners.iter_mut().zip(&mut rates) {
            runner.begin();
            // What is touched for the first time costs a fault.
            Loop::new(&stream.keys).feed(&mut **runner, stream.keys.len() / 8);
            runner.begin();
            let (mut all, mut seconds) = (Loop::new(&stream.keys), 0.0);
            for (length, rates) in lengths.iter().zip(rates) {
                seconds += all.feed(&mut **runner, *length);
                rates.push(*length as f64 / seconds / 1e6);
            }
        }
    }
    let medians = |rates: Vec<Vec<f64>>| rates.iter().map(|rates| median(rates)).collect();
    Ok(rates.into_iter().map(medians).collect())
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
    let mut parts = Vec::new();
    let mut most = f64::NAN;
    for (alone, behind) in ACCELERATED {
        let rates = finite(behind, "length_packets");
        parts.push(Part::moves(&format!("{behind} by length, in Mpps"), &rates, true));
        let gains = gains(alone, behind, "epsilon");
        let mut rising = gains.clone();
        rising.reverse();
        parts.push(Part::moves(&format!("gain of {alone} by error"), &rising, true));
        let least = gains.last().copied().unwrap_or(f64::NAN);
        parts.push(Part::at_least(&format!("gain of {alone} at the least error"), least, 0.9));
        most = gains.into_iter().fold(most, f64::max);
    }
    for (alone, behind) in ACCELERATED {
        most = gains(alone, behind, "length_packets").into_iter().fold(most, f64::max);
    }
    parts.push(Part::at_least("the largest gain", most, 12.0));
    Verdict::of(parts)
}
