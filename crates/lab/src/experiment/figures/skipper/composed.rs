//! UnivMon and hierarchies (section VII): structures of several sketches behind Skipper.

use flowgauge_core::key::{FlowKey, Key8};
use flowgauge_core::summary::Answers;
use flowgauge_core::terms::Measure;

use crate::exact::{Exact, Prefix, number};
use crate::experiment::chart::{Axis, Chart, Mark, linear, log};
use crate::experiment::part::{Part, median, spread};
use crate::experiment::setting::{FRAME_BYTES, Mix, Setting};
use crate::experiment::stream::{RepeatedStream, Stream, TRAFFIC, root_mean_square};
use crate::experiment::structure::Structure;
use crate::experiment::table::{Cell, Table, row};
use crate::experiment::verdict::{Claim, Verdict};
use crate::experiment::{Experiment, Outcome, Preset};
use crate::failure::Failure;
use crate::keys::{Keys, Pairs, Sources};
use crate::machine::thread_seconds;

/// UnivMon with a sample before each level.
pub(crate) const UNIVMON: Experiment = Experiment {
    name: "skipper/univmon",
    title: "number of flows and entropy from UnivMon with a sample before each level",
    paper: "Skipper, section VII and VIII; NitroSketch (SIGCOMM 2019), section 4.3",
    presets: &[
        super::TRAFFIC,
        super::LENGTH,
        Preset::other(
            "UnivMon",
            "a Count Sketch for each bit of a key",
            "14 levels of 5 rows, 32,768 columns for the first and ever fewer for the next three",
            "its size is not given; a packet counts at its key's level alone",
        ),
        Preset::other(
            "L2 Skipper goes by",
            "√N, the least that L2 can be",
            "the L2 that each level tells",
            "by √N no packet is passed over before 10¹⁰",
        ),
    ],
    measure: measure_univmon,
    judge: judge_univmon,
    missing: &[],
    charts: &[
        Chart { title: "Number of flows", y: &[("flows_percent", "")], ..BY_LENGTH },
        Chart { title: "Entropy", y: &[("entropy_percent", "")], ..BY_LENGTH },
        Chart { title: "Time", y: &[("ns", "")], y_axis: linear("ns a packet"), ..BY_LENGTH },
    ],
};

const ERROR: Axis = log("relative error (%)");

const BY_LENGTH: Chart = Chart {
    title: "",
    x: "length_packets",
    x_axis: log("packets of the stream"),
    y: &[],
    y_axis: ERROR,
    series: "structure",
    only: &[],
    paper: &[],
    see: "Behind samplers the errors should stay near those of UnivMon alone, however long the stream, while the time falls.",
};

const ALONE: &str = "UnivMon";
const BEHIND_SKIPPER: &str = "behind Skipper";
const NORM: &str = "behind L2 Skipper";
const NITRO: &str = "behind NitroSketch";

/// Allowed errors in percent: three times those of UnivMon alone.
const FLOWS: f64 = 10.0;
const ENTROPY: f64 = 5.0;

/// Nanoseconds between packets: 20 million per second.
const GAP_NS: i64 = 50;

fn univmons() -> [Structure; 4] {
    let alone = Structure::new(ALONE, "univmon");
    let nitro = [("mode", "correct"), ("epsilon", "0.2"), ("p", "0.01")];
    [
        alone.clone(),
        alone.clone().named(BEHIND_SKIPPER).behind("skipper", [("epsilon", 0.02)]),
        alone.clone().named(NORM).behind("skipper", [("l2", "own")]),
        alone.named(NITRO).behind("nitro", nitro),
    ]
}

fn measure_univmon(setting: &Setting) -> Result<Outcome, Failure> {
    let stream = Stream::<Pairs>::draw(setting, Mix::Trace)?;
    let flows =
        Exact::count(stream.keys.iter().map(|key| number(key.canonical(Pairs::BYTES))).collect());
    let total = stream.keys.len() as f64;
    let logs: f64 = flows.iter().map(|(_, packets)| packets as f64 * (packets as f64).log2()).sum();
    // A repeated stream has the same flows and the same entropy.
    let (count, entropy) = (flows.len() as f64, total.log2() - logs / total);
    let packets =
        RepeatedStream::<Pairs> { keys: &stream.keys, wire: &|_| FRAME_BYTES, gap_ns: GAP_NS };
    let lengths = super::lengths(setting);
    let mut table = Table::new([
        "structure",
        "length_packets",
        "flows_percent",
        "flows_percent_spread",
        "entropy_percent",
        "entropy_percent_spread",
        "ns",
        "ns_spread",
    ]);
    for structure in univmons() {
        // Errors of the number of flows and of the entropy, by seed.
        let mut errors = vec![[Vec::new(), Vec::new()]; lengths.len()];
        let mut times = vec![Vec::new(); lengths.len()];
        let seeds = super::rounds(setting);
        for seed in 0..seeds as u64 {
            let setting = Setting { seed: setting.seed + seed, ..setting.clone() };
            let mut summary = structure.build::<Pairs>(&setting)?;
            let (mut fed, mut seconds) = (0, 0.0);
            for (at, length) in lengths.iter().enumerate() {
                let start = thread_seconds();
                packets.feed(&mut *summary, fed..*length);
                (fed, seconds) = (*length, seconds + thread_seconds() - start);
                summary.settle();
                times[at].push(seconds * 1e9 / *length as f64);
                let answers = summary.answers();
                let told = answers.cardinality().map_or(f64::NAN, |flows| flows.value);
                let logs =
                    answers.weight_logs(Measure::Packets).map_or(f64::NAN, |logs| logs.value);
                let length = *length as f64;
                let bits = length.log2() - logs / length;
                for (errors, share) in errors[at].iter_mut().zip([told / count, bits / entropy]) {
                    errors.push(100.0 * (share - 1.0).abs());
                }
            }
        }
        for ((length, errors), times) in lengths.iter().zip(errors).zip(times) {
            let [of_flows, of_entropy] =
                errors.map(|errors| [root_mean_square(&errors), spread(&errors)]);
            let at = [structure.label.as_str().into(), (*length).into()];
            let numbers = [of_flows, of_entropy, [median(&times), spread(&times)]];
            table.push(at.into_iter().chain(numbers.concat().into_iter().map(Cell::from)));
        }
    }
    let limit = "An exact table errs nowhere.".to_owned();
    let notes = format!(
        "A stream is the same {} packets again and again, {} million a second by its times; root mean \
         squares over {} seeds of digest and sample; the time is with the pushing of each packet into a batch. \
         Skipper is asked for an error of 2 % of each level's packets, L2 Skipper for 5 % of its L2; NitroSketch waits \
         for an error of 20 % of L2 in each level. The paper's own choice, √N for L2, passes no packet over before \
         10¹⁰.",
        stream.keys.len(),
        1000 / GAP_NS,
        super::rounds(setting)
    );
    Ok(Outcome { table, limit, notes })
}

fn judge_univmon(table: &Table) -> Verdict {
    let of = |name: &str, column: &str| table.numbers("structure", name, column);
    let worst =
        |name: &str, column: &str| of(name, column).into_iter().reduce(worse).unwrap_or(f64::NAN);
    let errors = |name: &str| {
        [("flows_percent", "flows", FLOWS), ("entropy_percent", "entropy", ENTROPY)].map(
            |(column, what, most)| {
                let off = worst(name, column);
                Part::at_most(&format!("{name}: {what} off by %, at worst"), off, most)
            },
        )
    };
    let last = |name: &str| of(name, "ns").last().copied().unwrap_or(f64::NAN);
    let faster = |name: &str| {
        let share = last(name) / last(ALONE);
        Part::at_most(&format!("{name}: time over alone, longest stream"), share, 1.0).timed()
    };
    Verdict::of(
        table,
        [
            Claim::new(
                format!(
                    "With a sample before each of its levels UnivMon still tells the number of flows and the \
                     entropy, which no single sample of the packets tells (here within {FLOWS} % and \
                     {ENTROPY} %, at each length of the stream)."
                ),
                [BEHIND_SKIPPER, NORM].into_iter().flat_map(errors),
                "A level's sample is too small for the flows that are heavy there.",
            ),
            Claim::new(
                "NitroSketch that samples what has converged keeps the accuracy of UnivMon (within the same).",
                errors(NITRO),
                "Levels sample before they have converged.",
            ),
            Claim::new(
                "UnivMon behind Skipper is faster than alone.",
                [faster(BEHIND_SKIPPER)],
                "The stream is too short for a level to leave out more than its sample costs.",
            ),
            Claim::new(
                "So is UnivMon behind L2 Skipper, and behind NitroSketch.",
                [NORM, NITRO].map(faster),
                "Each packet is digested for its level first. A level's L2 grows slowly: by its rule hardly a \
                 packet may be left out yet. NitroSketch takes one row in 16 of the first level at this rate, and \
                 to draw and copy a slot costs as much as some two packets of this UnivMon, which counts a \
                 packet once.",
            ),
        ],
    )
}

/// The larger of two, or NaN if one of them is.
fn worse(one: f64, other: f64) -> f64 {
    if one.is_nan() || other.is_nan() { f64::NAN } else { one.max(other) }
}

/// Section VII: hierarchical heavy hitters behind Skipper, against RHHH.
pub(crate) const HIERARCHICAL: Experiment = Experiment {
    name: "skipper/hierarchical",
    title: "prefixes behind Skipper, against RHHH, by the length of the stream",
    paper: "Skipper, section VII: Hierarchical heavy hitters",
    presets: &[
        Preset::other(
            "traffic",
            "not measured: an argument",
            "like a backbone's; Zipf's law with skew 1.1; a million flows all alike",
            "the claim is about any traffic",
        ),
        Preset::other("hierarchy", "any", "bytes of the source", "five lengths are the fewest"),
        Preset::other(
            "RHHH",
            "a uniform sample of the packets",
            "a die of 50 sides for five lengths",
            "its own paper's ten times as many sides as lengths",
        ),
        Preset::other(
            "ε, δ",
            "any",
            "1 %, 5 %; 1000 counters a length",
            "only samples err by so much",
        ),
    ],
    measure: measure_hierarchies,
    judge: judge_hierarchies,
    missing: &[],
    charts: &[Chart {
        title: "Error of the largest prefixes, 95th percentile",
        x: "length_packets",
        x_axis: log("packets of the stream"),
        y: &[("error_percent", "")],
        y_axis: log("error (% of the packets)"),
        series: "structure",
        only: &[],
        paper: &[Mark::Level("ε", 100.0 * EPSILON)],
        see: "MST behind Skipper lies below ε at every length; RHHH comes from far above it.",
    }],
};

const EPSILON: f64 = 0.01;
const DELTA: f64 = 0.05;

const MST: &str = "MST";
const MST_SKIPPER: &str = "MST behind Skipper";
const RHHH: &str = "RHHH";

/// Queried prefixes of each length, and samples per round.
const PREFIXES: usize = 5;
const SAMPLES: usize = 4;

fn hierarchies() -> [Structure; 3] {
    let mst = |label| Structure::new(label, "mst").with([("counters", 1000)]);
    [
        mst(MST),
        mst(MST_SKIPPER).behind("skipper", [("epsilon", EPSILON), ("delta", DELTA)]),
        Structure::new(RHHH, "rhhh").with([("counters", 1000), ("v", 50)]),
    ]
}

/// Stream lengths in packets, each four times the one before; no packet repeats.
fn lengths(setting: &Setting) -> Vec<usize> {
    std::iter::successors(Some(1000), |length| Some(4 * length))
        .take_while(|length| *length <= setting.packets)
        .collect()
}

/// The largest prefixes of each length in bytes.
fn largest(keys: &[Key8]) -> Vec<(Prefix, u64)> {
    let exact =
        Exact::count(keys.iter().map(|key| number(key.canonical(Sources::BYTES))).collect());
    let mut largest = Vec::new();
    for bits in [8, 16, 24, 32] {
        let mask = !(u128::MAX >> bits);
        let mut prefixes: Vec<u128> = exact.iter().map(|(address, _)| address & mask).collect();
        prefixes.dedup();
        let total = |address| {
            let prefix = Prefix { address, bits };
            (prefix, prefix.total(&exact))
        };
        let mut totals: Vec<_> = prefixes.into_iter().map(total).collect();
        totals.sort_unstable_by_key(|(prefix, total)| (std::cmp::Reverse(*total), *prefix));
        largest.extend(totals.into_iter().take(PREFIXES));
    }
    largest
}

/// The error of each prefix; empty if none is listed.
fn errors(answers: &dyn Answers, prefixes: &[(Prefix, u64)]) -> Vec<f64> {
    let Some(told) = answers.prefixes() else { return Vec::new() };
    let nodes = told.nodes();
    let error = |(prefix, total): &(Prefix, u64)| {
        let node = nodes.iter().position(|(bits, _)| *bits == prefix.bits)?;
        let key = prefix.address.to_be_bytes();
        Some((told.estimate(node, &key[..Sources::BYTES]).value - *total as f64).abs())
    };
    prefixes.iter().filter_map(error).collect()
}

fn measure_hierarchies(setting: &Setting) -> Result<Outcome, Failure> {
    let (lengths, samples) = (lengths(setting), SAMPLES * setting.rounds);
    let mut table = Table::new([
        "structure",
        "kind",
        "traffic",
        "length_packets",
        "error_percent",
        "off",
        "asked",
    ]);
    for structure in hierarchies() {
        for (traffic, mix) in TRAFFIC {
            let stream = Stream::<Sources>::draw(setting, mix)?;
            let packets =
                RepeatedStream::<Sources> { keys: &stream.keys, wire: &|_| FRAME_BYTES, gap_ns: 0 };
            let prefixes = lengths.iter().map(|length| largest(&stream.keys[..*length]));
            let prefixes: Vec<_> = prefixes.collect();
            let mut off = vec![Vec::new(); lengths.len()];
            for sample in 0..samples as u64 {
                let setting = Setting { seed: setting.seed + sample, ..setting.clone() };
                let mut summary = structure.build::<Sources>(&setting)?;
                let mut fed = 0;
                for ((length, prefixes), off) in lengths.iter().zip(&prefixes).zip(&mut off) {
                    packets.feed(&mut *summary, fed..*length);
                    fed = *length;
                    summary.settle();
                    off.extend(errors(summary.answers(), prefixes));
                }
            }
            for (length, mut errors) in lengths.iter().zip(off) {
                errors.sort_by(f64::total_cmp);
                let total = *length as f64;
                let off = errors.iter().filter(|error| **error > EPSILON * total).count();
                let high = errors.get(errors.len() * 95 / 100).copied().unwrap_or(f64::NAN);
                let kind = structure.label.as_str();
                let name = format!("{kind}, {traffic}");
                row!(table, name, kind, traffic, *length, 100.0 * high / total, off, errors.len());
            }
        }
    }
    let limit = "Exact counts of all prefixes err nowhere.".to_owned();
    let notes = format!(
        "{samples} samples of each stream, each asked for its {PREFIXES} largest prefixes of each length. `off` \
         is how many of those asked were off by more than ε N."
    );
    Ok(Outcome { table, limit, notes })
}

fn judge_hierarchies(table: &Table) -> Verdict {
    let rows = |kind: &'static str, traffic: &'static str| {
        table.of("kind", kind).filter(move |row| row.text("traffic") == traffic)
    };
    let always = TRAFFIC.map(|(traffic, _)| {
        let worst =
            rows(MST_SKIPPER, traffic).max_by(|a, b| a.number("off").total_cmp(&b.number("off")));
        let (off, asked) =
            worst.map_or((f64::NAN, f64::NAN), |row| (row.number("off"), row.number("asked")));
        Part::few_are(&format!("{traffic}: off by more than ε N, at worst"), off, asked, DELTA)
    });
    let at_first = TRAFFIC.map(|(traffic, _)| {
        let share =
            rows(RHHH, traffic).next().map_or(f64::NAN, |r| r.number("off") / r.number("asked"));
        let what = format!("{traffic}: share of RHHH's off by more than ε N at first");
        Part::at_least(&what, share, 2.0 * DELTA)
    });
    let sooner = TRAFFIC.map(|(traffic, _)| {
        let errors =
            |kind| rows(kind, traffic).map(|row| row.number("error_percent")).collect::<Vec<_>>();
        Part::at_most(
            &format!("{traffic}: error behind Skipper over RHHH's, at first"),
            errors(MST_SKIPPER).first().copied().unwrap_or(f64::NAN)
                / errors(RHHH).first().copied().unwrap_or(f64::NAN),
            0.5,
        )
    });
    Verdict::of(
        table,
        [
            Claim::new(
                "MST behind Skipper is accurate from the start: at each length of the stream prefixes are off \
                 by more than ε N no more often than δ.",
                always,
                "A thousand counters a length err by as much as a thousandth of the packets on top.",
            ),
            Claim::new(
                "RHHH takes much traffic to be accurate: in a short stream its errors are larger more often \
                 than twice δ.",
                at_first,
                "It counts one packet in 50 for each length.",
            ),
            Claim::new(
                "At first Skipper's errors are less than half of RHHH's.",
                sooner,
                "Skipper takes every packet at first.",
            ),
        ],
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLED: [&str; 3] = [BEHIND_SKIPPER, NORM, NITRO];

    /// The worst finding if the numbers are the same at two lengths for all structures but UnivMon
    /// alone, which takes 30 ns.
    fn worst(flows: f64, entropy: f64, ns: f64) -> &'static str {
        let mut table =
            Table::new(["structure", "length_packets", "flows_percent", "entropy_percent", "ns"]);
        for (name, ns) in [(ALONE, 30.0)].into_iter().chain(SAMPLED.map(|name| (name, ns))) {
            for length in [1e6, 4e6] {
                row!(table, name, length, flows, entropy, ns);
            }
        }
        judge_univmon(&table).worst()
    }

    #[test]
    fn errors_and_times_decide() {
        assert_eq!(worst(3.0, 1.0, 10.0), "Reproduced");
        for (flows, entropy, ns) in [(11.0, 1.0, 10.0), (3.0, 6.0, 10.0), (3.0, 1.0, 40.0)] {
            assert_eq!(worst(flows, entropy, ns), "Contradicted");
        }
        assert_eq!(worst(f64::NAN, 1.0, 10.0), "Cannot be told");
    }
}
