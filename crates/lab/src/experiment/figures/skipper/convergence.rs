//! Section III: samples of a fixed share need traffic to converge, Skipper's do not.

use flowgauge_core::key::{Key8, KeyKind};

use crate::experiment::chart::{Chart, Mark, log};
use crate::experiment::part::Part;
use crate::experiment::setting::{FRAME_BYTES, Setting};
use crate::experiment::stream::{RepeatedStream, Stream, TRAFFIC};
use crate::experiment::structure::Structure;
use crate::experiment::table::{Table, row};
use crate::experiment::verdict::{Claim, Verdict};
use crate::experiment::{Experiment, Outcome, Preset};
use crate::failure::Failure;

pub(crate) const CONVERGENCE: Experiment = Experiment {
    name: "skipper/convergence",
    title: "a sample of a fixed share against Skipper, by the length of the stream",
    paper: "Skipper, section III and Theorem IV.1",
    presets: &[
        Preset::other(
            "traffic",
            "not measured: a theorem",
            "like a backbone's; Zipf's law with skew 1.1; a million flows all alike",
            "the claim is about any traffic",
        ),
        Preset::other("ε, δ", "any", "5 %, 5 %", "a sample converges within the stream"),
        Preset::other(
            "uniform sample",
            "any",
            "one packet in 50",
            "it converges within the stream",
        ),
        Preset::other("behind the sample", "any", "an exact table", "only the sample errs"),
    ],
    measure,
    judge,
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

const EPSILON: f64 = 0.05;
const DELTA: f64 = 0.05;
const ONE_IN: usize = 50;

const UNIFORM: &str = "one packet in 50";
const SKIPPER: &str = "Skipper";

/// Bytes of the exact table: all flows fit.
const ROOM: usize = 64 << 20;

/// Queried flows of a stream, and samples of it per round.
const FLOWS: usize = 10;
const SAMPLES: usize = 6;

fn structures() -> [Structure; 2] {
    let table = || Structure::new("", "linear-table").in_bytes(ROOM);
    [
        table().named(UNIFORM).behind("uniform", [("sample", ONE_IN)]),
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

fn measure(setting: &Setting) -> Result<Outcome, Failure> {
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
    for structure in structures() {
        for (traffic, mix) in TRAFFIC {
            let stream = Stream::<Key8>::draw(setting, mix, KeyKind::PAIR)?;
            let packets = RepeatedStream { keys: &stream.keys, wire: &|_| FRAME_BYTES, gap_ns: 0 };
            let largest = packets.largest_along(&lengths, FLOWS);
            let mut errors = vec![Vec::new(); lengths.len()];
            for sample in 0..samples as u64 {
                let setting = Setting { seed: setting.seed + sample, ..setting.clone() };
                let mut summary = structure.build::<Key8>(&setting)?;
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
    let at_first = |traffic: &'static str| {
        let share = rows(UNIFORM, traffic)
            .next()
            .map_or(f64::NAN, |row| row.number("off") / row.number("asked"));
        Part::at_least(
            &format!("{traffic}: share off by more than ε N at first"),
            share,
            2.0 * DELTA,
        )
    };
    let later = TRAFFIC.map(|(traffic, _)| {
        let later = rows(UNIFORM, traffic).filter(|row| row.text("converged") == "yes");
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
