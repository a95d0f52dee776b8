//! Section VII: hierarchical heavy hitters behind Skipper, against RHHH.

use flowgauge_core::key::{FlowKey, Key4, KeyKind};
use flowgauge_core::summary::Answers;

use crate::exact::{Exact, Prefix, number};
use crate::experiment::chart::{Chart, Mark, log};
use crate::experiment::part::Part;
use crate::experiment::setting::{FRAME_BYTES, Setting};
use crate::experiment::stream::{RepeatedStream, Stream, TRAFFIC};
use crate::experiment::structure::Structure;
use crate::experiment::table::{Table, row};
use crate::experiment::verdict::{Claim, Verdict};
use crate::experiment::{Experiment, Outcome, Preset};
use crate::failure::Failure;

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
    measure,
    judge,
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
const SKIPPER: &str = "MST behind Skipper";
const RHHH: &str = "RHHH";

/// Queried prefixes of each length, and samples per round.
const PREFIXES: usize = 5;
const SAMPLES: usize = 4;

fn structures() -> [Structure; 3] {
    let mst = |label| Structure::new(label, "mst").with([("counters", 1000)]);
    [
        mst(MST),
        mst(SKIPPER).behind("skipper", [("epsilon", EPSILON), ("delta", DELTA)]),
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
fn largest(keys: &[Key4]) -> Vec<(Prefix, u64)> {
    let exact =
        Exact::count(keys.iter().map(|key| number(key.canonical(Key4::SHORTEST))).collect());
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
        Some((told.estimate(node, &key[..Key4::SHORTEST]).value - *total as f64).abs())
    };
    prefixes.iter().filter_map(error).collect()
}

fn measure(setting: &Setting) -> Result<Outcome, Failure> {
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
    for structure in structures() {
        for (traffic, mix) in TRAFFIC {
            let stream = Stream::<Key4>::draw(setting, mix, KeyKind::SOURCE)?;
            let packets = RepeatedStream { keys: &stream.keys, wire: &|_| FRAME_BYTES, gap_ns: 0 };
            let prefixes = lengths.iter().map(|length| largest(&stream.keys[..*length]));
            let prefixes: Vec<_> = prefixes.collect();
            let mut off = vec![Vec::new(); lengths.len()];
            for sample in 0..samples as u64 {
                let setting = Setting { seed: setting.seed + sample, ..setting.clone() };
                let mut summary = structure.build::<Key4>(&setting)?;
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

fn judge(table: &Table) -> Verdict {
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
            errors(SKIPPER).first().copied().unwrap_or(f64::NAN)
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
