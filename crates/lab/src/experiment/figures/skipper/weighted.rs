//! Section VII: sampling by bytes, and packet lengths.

use flowgauge_core::key::{Key8, KeyKind};
use flowgauge_core::terms::Measure;

use crate::experiment::chart::{Chart, linear};
use crate::experiment::part::Part;
use crate::experiment::setting::Setting;
use crate::experiment::stream::{RepeatedStream, Stream, TRAFFIC, root_mean_square};
use crate::experiment::structure::Structure;
use crate::experiment::table::{Table, row};
use crate::experiment::verdict::{Claim, Verdict};
use crate::experiment::{Experiment, Outcome, Preset};
use crate::failure::Failure;

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
    measure,
    judge,
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

const UNIFORM: &str = "one packet in 64";
const SKIPPER: &str = "Weighted Skipper";

/// Packet lengths by a number drawn from 0 to 99: the same mean, increasing variance.
const LENGTHS: [(&str, [(u64, u32); 2]); 3] = [
    ("576", [(100, 576), (0, 0)]),
    ("64 or 1088", [(50, 64), (50, 1088)]),
    ("64 or 8600", [(94, 64), (6, 8600)]),
];

/// Bytes of the exact table: all flows fit.
const ROOM: usize = 64 << 20;

/// Queried flows, and samples per round.
const FLOWS: usize = 100;
const SAMPLES: usize = 6;

fn structures() -> [Structure; 2] {
    let table = |label| Structure::new(label, "linear-table").in_bytes(ROOM).by(Measure::Bytes);
    [
        table(UNIFORM).behind("uniform", [("sample", 64)]),
        table(SKIPPER).behind("skipper", [("epsilon", 0.03), ("delta", 0.05)]),
    ]
}

/// The length of a packet by its number, always the same.
fn length(lengths: [(u64, u32); 2], packet: usize) -> u32 {
    let drawn = (packet as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    if drawn % 100 < lengths[0].0 { lengths[0].1 } else { lengths[1].1 }
}

fn measure(setting: &Setting) -> Result<Outcome, Failure> {
    let samples = SAMPLES * setting.rounds;
    let mut table = Table::new(["sample", "traffic", "kind", "lengths", "unit_bytes"]);
    for structure in structures() {
        for (traffic, mix) in TRAFFIC {
            let stream = Stream::<Key8>::draw(setting, mix, KeyKind::PAIR)?;
            for (name, lengths) in LENGTHS {
                let wire = |packet| length(lengths, packet);
                let packets = RepeatedStream { keys: &stream.keys, wire: &wire, gap_ns: 0 };
                let largest = packets.largest(Measure::Bytes, stream.keys.len(), FLOWS);
                let mut errors = Vec::new();
                for sample in 0..samples as u64 {
                    let setting = Setting { seed: setting.seed + sample, ..setting.clone() };
                    let mut summary = structure.build::<Key8>(&setting)?;
                    packets.feed(&mut *summary, 0..stream.keys.len());
                    summary.settle();
                    let of_sample = largest.errors::<Key8>(summary.answers()).into_iter();
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

fn judge(table: &Table) -> Verdict {
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
                    Part::at_least(&named(traffic), growth(UNIFORM, traffic), 4.0)
                }),
                "The largest flows are so large that their lengths even out.",
            ),
            Claim::new(
                "Weighted Skipper has no such limit: its error does not grow (by a tenth at most).",
                TRAFFIC.map(|(traffic, _)| {
                    Part::at_most(&named(traffic), growth(SKIPPER, traffic), 1.21)
                }),
                "Few samples tell an error to a tenth only.",
            ),
        ],
    )
}
