//! Sections III and VII: errors of samples by stream length, relative to L2, and by bytes.

use flowgauge_core::terms::Measure;

use crate::experiment::chart::{Chart, Mark, linear, log};
use crate::experiment::part::{Part, spread};
use crate::experiment::setting::{FRAME_BYTES, Setting};
use crate::experiment::stream::{RepeatedStream, Stream, TRAFFIC, root_mean_square};
use crate::experiment::structure::Structure;
use crate::experiment::table::{Table, row};
use crate::experiment::verdict::{Claim, Verdict};
use crate::experiment::{Experiment, Outcome, Preset};
use crate::failure::Failure;
use crate::keys::Pairs;

/// Section III: samples of a fixed share need traffic to converge, Skipper's do not.
pub(crate) const CONVERGENCE: Experiment = Experiment {
    name: "skipper/convergence",
    title: "a sample of a fixed share against Skipper, by the length of the stream",
    paper: "Skipper, section III and Theorem IV.1",
    presets: &[
        ANY_TRAFFIC,
        Preset::other("ε, δ", "any", "5 %, 5 %", "a sample converges within the stream"),
        Preset::other(
            "uniform sample",
            "any",
            "one packet in 50",
            "it converges within the stream",
        ),
        Preset::other("behind the sample", "any", "an exact table", "only the sample errs"),
    ],
    measure: measure_convergence,
    judge: judge_convergence,
    missing: &[],
    charts: &[Chart {
        title: "Error of the ten largest flows, 95th percentile",
        x: "length_packets",
        x_axis: log("packets of the stream"),
        y: &[("error_percent", "")],
        y_axis: log("error (% of the packets)"),
        series: "sample",
        only: &[],
        paper: &[Mark::Level("ε", 100.0 * EPSILON)],
        see: "Skipper's lines stay below ε from the first packet on; those of one packet in 50 come from above \
              it, until Γ times 50 packets have passed at the latest.",
    }],
};

const ANY_TRAFFIC: Preset = Preset::other(
    "traffic",
    "not measured: a theorem",
    "like a backbone's; Zipf's law with skew 1.1; a million flows all alike",
    "the claim is about any traffic",
);

/// The error that all samples are configured for, and the share of queries that may exceed it.
const EPSILON: f64 = 0.05;
const DELTA: f64 = 0.05;
const ONE_IN: usize = 50;

const ONE_IN_50: &str = "one packet in 50";
const SKIPPER: &str = "Skipper";

/// Bytes of the exact table: all flows fit.
const ROOM: usize = 64 << 20;

/// Queried flows of a stream, and samples per round.
const FLOWS: usize = 10;
const SAMPLES: usize = 6;

fn of_packets() -> [Structure; 2] {
    let table = || Structure::new("", "linear-table").in_bytes(ROOM);
    [
        table().named(ONE_IN_50).behind("uniform", [("sample", ONE_IN)]),
        table().named(SKIPPER).behind("skipper", [("epsilon", EPSILON), ("delta", DELTA)]),
    ]
}

/// Stream lengths in packets, each four times the one before.
fn lengths(setting: &Setting) -> Vec<usize> {
    let most = 8 * setting.packets;
    std::iter::successors(Some(250), |length| Some(4 * length))
        .take_while(|length| *length <= most)
        .collect()
}

/// Packets from which on a sample of one in 64 exceeds the error ε with a probability of at most δ.
fn converged() -> f64 {
    ONE_IN as f64 * super::gamma(EPSILON, DELTA)
}

fn measure_convergence(setting: &Setting) -> Result<Outcome, Failure> {
    let (lengths, samples) = (lengths(setting), SAMPLES * setting.rounds);
    let mut table = Table::new([
        "sample",
        "traffic",
        "kind",
        "length_packets",
        "error_percent",
        "off",
        "asked",
        "converged",
    ]);
    for structure in of_packets() {
        for (traffic, mix) in TRAFFIC {
            let stream = Stream::<Pairs>::draw(setting, mix)?;
            let packets =
                RepeatedStream::<Pairs> { keys: &stream.keys, wire: &|_| FRAME_BYTES, gap_ns: 0 };
            let largest = packets.largest_along(&lengths, FLOWS);
            let mut errors = vec![Vec::new(); lengths.len()];
            for sample in 0..samples as u64 {
                let setting = Setting { seed: setting.seed + sample, ..setting.clone() };
                let mut summary = structure.build::<Pairs>(&setting)?;
                let found = packets.errors_along(&mut *summary, &lengths, &largest);
                for (errors, found) in errors.iter_mut().zip(found) {
                    errors.extend(found.into_iter().map(f64::abs));
                }
            }
            for ((length, errors), largest) in lengths.iter().zip(errors).zip(&largest) {
                let least = EPSILON * largest.total;
                let off = errors.iter().filter(|error| **error > least).count();
                let mut sorted = errors.clone();
                sorted.sort_by(f64::total_cmp);
                let high = sorted.get(sorted.len() * 95 / 100).copied().unwrap_or(f64::NAN);
                let kind = structure.label.as_str();
                let converged = if *length as f64 >= converged() { "yes" } else { "no" };
                let name = format!("{kind}, {traffic}");
                let percent = 100.0 * high / largest.total;
                row!(table, name, traffic, kind, *length, percent, off, errors.len(), converged);
            }
        }
    }
    let limit = "An exact table of all packets errs nowhere.".to_owned();
    let notes = format!(
        "{samples} samples of each stream, each asked for its {FLOWS} largest flows. `off` is how many of \
         those asked were off by more than ε N, `converged` whether the theorem promises a sample of one in \
         {ONE_IN} no more than δ of them. Of flows all alike none is so large that a sample could be off by \
         so much."
    );
    Ok(Outcome { table, limit, notes })
}

fn judge_convergence(table: &Table) -> Verdict {
    let rows = |kind: &'static str, traffic: &'static str| {
        table.of("kind", kind).filter(move |row| row.text("traffic") == traffic)
    };
    let always = TRAFFIC.map(|(traffic, _)| {
        let worst =
            rows(SKIPPER, traffic).max_by(|a, b| a.number("off").total_cmp(&b.number("off")));
        let (off, asked) =
            worst.map_or((f64::NAN, f64::NAN), |row| (row.number("off"), row.number("asked")));
        Part::few_are(&format!("{traffic}: off by more than ε N, at worst"), off, asked, DELTA)
    });
    let at_first = |traffic: &'static str| {
        let share = rows(ONE_IN_50, traffic)
            .next()
            .map_or(f64::NAN, |row| row.number("off") / row.number("asked"));
        Part::at_least(
            &format!("{traffic}: share off by more than ε N at first"),
            share,
            2.0 * DELTA,
        )
    };
    let later = TRAFFIC.map(|(traffic, _)| {
        let later = rows(ONE_IN_50, traffic).filter(|row| row.text("converged") == "yes");
        let (off, asked) = later.fold((0.0, 0.0), |(off, asked), row| {
            (off + row.number("off"), asked + row.number("asked"))
        });
        Part::few_are(&format!("{traffic}: off by more than ε N once converged"), off, asked, DELTA)
    });
    Verdict::of(
        table,
        [
            Claim::new(
                "Skipper is accurate from the first packet on: at each length of the stream, flows are off by \
                 more than ε N no more often than δ.",
                always,
                "By the bound that the paper prints, ln(1/2δ), a sample is too small; here it is ln(2/δ).",
            ),
            Claim::new(
                "A sample of a fixed share is not: in a short stream its errors are larger, more often than \
                 twice δ.",
                ["backbone", "Zipf 1.1"].map(at_first),
                "The sample takes so many packets that it has converged at once.",
            ),
            Claim::new(
                "It converges: from Γ times 50 packets on it errs as rarely.",
                later,
                "Theorem IV.1 says that it does.",
            ),
        ],
    )
}

/// Section VII: a sample before a Count Sketch, with an error relative to L2.
pub(crate) const L2: Experiment = Experiment {
    name: "skipper/l2",
    title: "L2 heavy hitters behind Skipper, by the length of the stream",
    paper: "Skipper, section VII: Accelerating L2-heavy hitter sketches",
    presets: &[
        ANY_TRAFFIC,
        Preset::other(
            "Count Sketch",
            "O(1/(ε² τ)) columns, O(log 1/δ) rows",
            "65536 columns, 5 rows",
            "1/(ε² τ) is 40,000 at an error of 5 % and one packet in 100 at least",
        ),
        Preset::other(
            "L2",
            "√N, the least that it can be",
            "that, and what the sketch itself tells",
            "by √N no packet is passed over before 10¹⁰",
        ),
    ],
    measure: measure_l2,
    judge: judge_l2,
    missing: &[],
    charts: &[Chart {
        title: "Error of the twenty largest flows",
        x: "length_packets",
        x_axis: log("packets of the stream"),
        y: &[("error_percent", "")],
        y_axis: log("error (RMS, % of L2)"),
        series: "sketch",
        only: &[],
        paper: &[Mark::Level("ε", 100.0 * EPSILON)],
        see: "Behind L2 Skipper errors stay below ε at every length; by √N they are those of the sketch alone.",
    }],
};

const ALONE: &str = "Count Sketch";
const OWN: &str = "by its own L2";
const PAPER: &str = "by √N";

/// Queried flows.
const L2_FLOWS: usize = 20;

/// Share of queries that may exceed the error: what chance leaves with five rows.
const SKETCH_DELTA: f64 = 0.01;

fn sketches() -> [Structure; 3] {
    let sketch = |label| {
        let shape = [("rows", 5), ("columns", 1 << 16), ("candidates", 0)];
        Structure::new(label, "count-sketch").with(shape)
    };
    let asked = |l2| [("l2", l2), ("epsilon", "0.05"), ("p", "0.01")];
    [
        sketch(ALONE),
        sketch(OWN).behind("skipper", asked("own")),
        sketch(PAPER).behind("skipper", asked("paper")),
    ]
}

fn measure_l2(setting: &Setting) -> Result<Outcome, Failure> {
    let (lengths, seeds) = (super::lengths(setting), setting.rounds);
    let mut table = Table::new([
        "sketch",
        "kind",
        "traffic",
        "length_packets",
        "error_percent",
        "error_percent_spread",
        "off",
        "asked",
    ]);
    for structure in sketches() {
        for (traffic, mix) in TRAFFIC {
            let stream = Stream::<Pairs>::draw(setting, mix)?;
            let packets =
                RepeatedStream::<Pairs> { keys: &stream.keys, wire: &|_| FRAME_BYTES, gap_ns: 0 };
            let mut errors = vec![Vec::new(); lengths.len()];
            let largest = packets.largest_along(&lengths, L2_FLOWS);
            for seed in 0..seeds as u64 {
                let setting = Setting { seed: setting.seed + seed, ..setting.clone() };
                let mut summary = structure.build::<Pairs>(&setting)?;
                let found = packets.errors_along(&mut *summary, &lengths, &largest);
                for (errors, found) in errors.iter_mut().zip(found) {
                    errors.push(found);
                }
            }
            for ((length, errors), largest) in lengths.iter().zip(errors).zip(&largest) {
                let percent = |errors: &Vec<f64>| 100.0 * root_mean_square(errors) / largest.norm;
                let by_seed: Vec<f64> = errors.iter().map(percent).collect();
                let all = errors.concat();
                let off = all.iter().filter(|error| error.abs() > EPSILON * largest.norm).count();
                let kind = structure.label.as_str();
                let (name, error) = (format!("{kind}, {traffic}"), percent(&all));
                row!(table, name, kind, traffic, *length, error, spread(&by_seed), off, all.len());
            }
        }
    }
    let limit = "A Count Sketch of all packets errs by its own columns alone.".to_owned();
    let notes = format!(
        "Asked for the {L2_FLOWS} largest flows, with {seeds} seeds of the digest and the sample. `off` is how \
         many of those asked were off by more than 5 % of L2."
    );
    Ok(Outcome { table, limit, notes })
}

fn judge_l2(table: &Table) -> Verdict {
    let sums = |kind: &'static str, traffic: &str| {
        let rows = table.of("kind", kind).filter(|row| row.text("traffic") == traffic);
        rows.fold((0.0, 0.0), |(off, asked), row| {
            (off + row.number("off"), asked + row.number("asked"))
        })
    };
    let within = TRAFFIC.map(|(traffic, _)| {
        let (off, asked) = sums(OWN, traffic);
        Part::few_are(&format!("{traffic}: off by more than ε L2"), off, asked, SKETCH_DELTA)
    });
    let alike = TRAFFIC.map(|(traffic, _)| {
        let errors = |kind: &'static str| {
            let rows = table.of("kind", kind).filter(|row| row.text("traffic") == traffic);
            rows.map(|row| row.number("error_percent")).fold(f64::NAN, f64::max)
        };
        let what = format!("{traffic}: the largest error by √N over that alone");
        Part::within(&what, errors(PAPER) / errors(ALONE), 1.0, 0.001)
    });
    Verdict::of(
        table,
        [
            Claim::new(
                "A Count Sketch behind L2 Skipper has no time in which it converges: at each length of the \
                 stream its largest flows are off by less than ε L2 (but for 1 %).",
                within,
                "The norm that a sketch tells of few packets is off itself.",
            ),
            Claim::new(
                "By the least that L2 can be, √N, a stream of so many packets is not sampled: errors are those \
                 of the sketch alone.",
                alike,
                "Then some packets would be passed over before 10¹⁰.",
            ),
        ],
    )
}

/// Section VII: sampling by bytes, and packet lengths.
pub(crate) const WEIGHTED: Experiment = Experiment {
    name: "skipper/weighted",
    title: "sampled packets against Weighted Skipper, by how much lengths of packets differ",
    paper: "Skipper, section VII: Weighted Skipper",
    presets: &[
        Preset::other(
            "traffic",
            "not measured: an argument",
            "like a backbone's; Zipf's law with skew 1.1; a million flows all alike",
            "the claim is about any traffic",
        ),
        Preset::other(
            "lengths of packets",
            "any",
            "all of 576 bytes; 64 or 1088, one as often as the other; 64, and 8600 for 6 in 100",
            "the mean is the same, the variance grows",
        ),
        Preset::other(
            "samples",
            "any",
            "one packet in 64; Weighted Skipper for an error of 3 %",
            "as many packets, where all have one length",
        ),
    ],
    measure: measure_weighted,
    judge: judge_weighted,
    missing: &[],
    charts: &[Chart {
        title: "Square of the error over the size, hundred largest flows",
        x: "lengths",
        x_axis: linear("bytes of a packet"),
        y: &[("unit_bytes", "")],
        y_axis: linear("bytes that one taken stands for"),
        series: "sample",
        only: &[],
        paper: &[],
        see: "Bars of sampled packets grow from left to right, with the variance of lengths; those of Weighted \
              Skipper do not.",
    }],
};

const ONE_IN_64: &str = "one packet in 64";
const WEIGHTED_SKIPPER: &str = "Weighted Skipper";

/// Packet lengths by a number drawn from 0 to 99: the same mean, increasing variance.
const LENGTHS: [(&str, [(u64, u32); 2]); 3] = [
    ("576", [(100, 576), (0, 0)]),
    ("64 or 1088", [(50, 64), (50, 1088)]),
    ("64 or 8600", [(94, 64), (6, 8600)]),
];

/// Queried flows.
const WEIGHTED_FLOWS: usize = 100;

fn of_bytes() -> [Structure; 2] {
    let table = |label| Structure::new(label, "linear-table").in_bytes(ROOM).by(Measure::Bytes);
    [
        table(ONE_IN_64).behind("uniform", [("sample", 64)]),
        table(WEIGHTED_SKIPPER).behind("skipper", [("epsilon", 0.03), ("delta", 0.05)]),
    ]
}

/// The length of a packet by its number, always the same.
fn length(lengths: [(u64, u32); 2], packet: usize) -> u32 {
    let drawn = (packet as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    if drawn % 100 < lengths[0].0 { lengths[0].1 } else { lengths[1].1 }
}

fn measure_weighted(setting: &Setting) -> Result<Outcome, Failure> {
    let samples = SAMPLES * setting.rounds;
    let mut table = Table::new(["sample", "traffic", "kind", "lengths", "unit_bytes"]);
    for structure in of_bytes() {
        for (traffic, mix) in TRAFFIC {
            let stream = Stream::<Pairs>::draw(setting, mix)?;
            for (name, lengths) in LENGTHS {
                let wire = |packet| length(lengths, packet);
                let packets =
                    RepeatedStream::<Pairs> { keys: &stream.keys, wire: &wire, gap_ns: 0 };
                let largest = packets.largest(Measure::Bytes, stream.keys.len(), WEIGHTED_FLOWS);
                let mut errors = Vec::new();
                for sample in 0..samples as u64 {
                    let setting = Setting { seed: setting.seed + sample, ..setting.clone() };
                    let mut summary = structure.build::<Pairs>(&setting)?;
                    packets.feed(&mut *summary, 0..stream.keys.len());
                    summary.settle();
                    let of_sample = largest.errors::<Pairs>(summary.answers()).into_iter();
                    errors.extend(of_sample.zip(largest.sizes()).map(|(e, size)| e / size.sqrt()));
                }
                let kind = structure.label.as_str();
                let unit = root_mean_square(&errors).powi(2);
                row!(table, format!("{kind}, {traffic}"), traffic, kind, name, unit);
            }
        }
    }
    let limit = "An exact table of all packets errs nowhere.".to_owned();
    let notes = format!(
        "{} packets, {samples} samples of each, before an exact table. Weighted Skipper takes bytes: a packet \
         is taken the likelier the longer it is. What a sample is off by grows with the root of a flow's size: \
         the square of the one over the other is compared, which is what a byte that is taken stands for.",
        setting.packets
    );
    Ok(Outcome { table, limit, notes })
}

fn judge_weighted(table: &Table) -> Verdict {
    // The squared error with the most varied lengths over that with equal lengths.
    let growth = |kind: &'static str, traffic: &str| {
        let units: Vec<f64> = table
            .of("kind", kind)
            .filter(|row| row.text("traffic") == traffic)
            .map(|row| row.number("unit_bytes"))
            .collect();
        let [first, last] = [units.first(), units.last()].map(|e| e.copied().unwrap_or(f64::NAN));
        last / first
    };
    let named = |traffic: &str| {
        format!("{traffic}: squared error with 64 or 8600 bytes over that with 576")
    };
    Verdict::of(
        table,
        [
            Claim::new(
                "How accurate a sample of packets is by bytes depends on the variance of their lengths: with \
                 the largest it is off by more than twice as much as with none.",
                TRAFFIC.map(|(traffic, _)| {
                    Part::at_least(&named(traffic), growth(ONE_IN_64, traffic), 4.0)
                }),
                "The largest flows are so large that their lengths even out.",
            ),
            Claim::new(
                "Weighted Skipper has no such limit: its error does not grow (by a tenth at most).",
                TRAFFIC.map(|(traffic, _)| {
                    Part::at_most(&named(traffic), growth(WEIGHTED_SKIPPER, traffic), 1.21)
                }),
                "Few samples tell an error to a tenth only.",
            ),
        ],
    )
}
