//! Jang et al., "InstaMeasure: instant per-flow detection using large in-DRAM working set of active
//! flows" (ICDCS 2019).

mod errors;
mod heavy;
mod load;
mod regulation;
mod table;

pub(super) use errors::{CSM, FIG10, FIG11, FIG13};
pub(super) use heavy::{FIG9B, FIG14};
pub(super) use load::{FIG6, FIG9A, FIG12};
pub(super) use regulation::{FIG1, FIG7, FIG8};
pub(super) use table::WSAF;

use flowgauge_core::batch::{BATCH_PACKETS, Batch};
use flowgauge_core::key::{Extract, FlowKey, Key16, KeyKind};
use flowgauge_core::summary::Answers;
use flowgauge_core::summary::instant::Regulator;
use flowgauge_core::terms::{Measure, Size};
use flowgauge_kernel::{Digester, Isa, Seed};
use flowgauge_synthetic::{self as synthetic, Config, Profile, Traffic};

use crate::experiment::Preset;
use crate::experiment::setting::{Mix, Setting};
use crate::experiment::structure::Structure;
use crate::failure::Failure;
use crate::keys::{FiveTuples, Keys};
use crate::traffic::{Packet, Scene};

/// The regulators in most figures, with one layer and with two.
type Rcc = Regulator<u32, 1>;
type FlowRegulator = Regulator<u32, 2>;

const KEY: Preset = Preset::same("key", "the five-tuple");
const REGULATOR: Preset =
    Preset::same("regulator", "two layers of vectors of 8 bits in words of 32, 128 KB in all");
const TABLE: Preset = Preset::same("flow table", "2^20 entries");
const BACKBONE: Preset = Preset::of(
    "traffic",
    "an hour of CAIDA: 3.7 billion packets of 78 million flows, a million a second",
    |setting| format!("{} million packets like a backbone's", millions(setting, 1) / 4.0),
    "the trace is not free to hand on; the rate settles in less than a second",
);
const ZIPF: Preset = Preset::of(
    "traffic",
    "an hour of CAIDA: 3.7 billion packets of 78 million flows",
    |setting| {
        format!(
            "{} million packets of a million flows by Zipf's law, skew 1.1",
            millions(setting, 1)
        )
    },
    "the trace is not free to hand on",
);
const LONG: Preset = Preset::of(
    "traffic",
    "113 hours of a campus: 9.1 billion packets of 122 million flows",
    |setting| {
        format!(
            "{} million packets of a million flows by Zipf's law, skew 1.1",
            millions(setting, LONGER)
        )
    },
    "the trace is not free to hand on",
);
const LENGTHS: Preset = Preset::other(
    "lengths of packets",
    "those of the trace",
    "each flow has one of 64, 570 and 1518 bytes, 7 to 4 to 1; the same mixed within each flow beside",
    "a flow's packets are mostly alike: those of a transfer are full, those of its acknowledgements empty",
);

/// Runs with a single structure have this many times more packets.
const LONGER: usize = 4;

/// Millions of packets in a run of `times` the usual length.
fn millions(setting: &Setting, times: usize) -> f64 {
    (times * epochs(setting) * setting.packets) as f64 / 1e6
}

/// Bytes of the paper's regulator.
const SKETCH: usize = 128 << 10;

/// Average packet rate of the traffic, per second.
const RATE: u64 = 1_000_000;

/// Packets drawn at once.
const PIECE: usize = 1 << 16;

/// Passes on this many epochs of packets, piece by piece. A trace provides only its own.
fn pieces(
    setting: &Setting,
    mix: Mix,
    epochs: usize,
    mut take: impl FnMut(&[Packet]),
) -> Result<(), Failure> {
    if mix == Mix::Trace && setting.trace.is_some() {
        let epochs = setting.epochs(mix, Scene::Plain)?;
        epochs.iter().flat_map(|epoch| epoch.chunks(PIECE)).for_each(take);
        return Ok(());
    }
    let profile = setting.profile.unwrap_or(mix.profile());
    let packets = (epochs * setting.packets) as u64;
    let (size, seed) = (synthetic::Size::Imix, setting.seed);
    let config = Config { profile, packets, size, rate: RATE, seed, ..Config::default() };
    let mut traffic = Traffic::new(config)?;
    let mut piece: Vec<Packet> = Vec::with_capacity(PIECE);
    loop {
        piece.clear();
        piece.extend(traffic.by_ref().take(PIECE).map(Packet::from));
        if piece.is_empty() {
            return Ok(());
        }
        take(&piece);
    }
}

/// Epochs in a long run: 16 million packets, or 128 million.
fn epochs(setting: &Setting) -> usize {
    if is_full(setting) { 64 } else { 16 }
}

/// Whether runs are as long as the papers'.
fn is_full(setting: &Setting) -> bool {
    setting.packets >= Setting::full().packets
}

/// How many long runs make one for the largest flows: a billion packets, where the paper's hour has
/// 3.7. The exact table does not hold the flows of a billion packets of a backbone.
fn for_largest(setting: &Setting) -> usize {
    let backbone = matches!(setting.profile, Some(Profile::Backbone { .. }));
    if is_full(setting) && !backbone { 8 } else { 1 }
}

/// The skew of the traffic.
const SKEW: f64 = 1.1;

/// Buckets of the exact table: more than there are flows.
const BUCKETS: usize = 1 << 23;

/// A flow.
struct Flow {
    truth: Size,
    /// Packets and bytes as each structure estimates them.
    estimates: Vec<[f64; 2]>,
}

impl Flow {
    /// A structure's estimate.
    fn estimate(&self, structure: usize, by: Measure) -> f64 {
        self.estimates[structure][usize::from(by == Measure::Bytes)]
    }

    /// The signed relative error of a structure's estimate.
    fn error(&self, structure: usize, by: Measure) -> f64 {
        self.estimate(structure, by) / self.truth.by(by) as f64 - 1.0
    }
}

/// Packet lengths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lengths {
    /// One length per flow: out of 12 flows, on average 7 have 64 bytes, 4 have 570 and 1 has
    /// 1,518.
    ByFlow,
    /// The same distribution per packet.
    Mixed,
}

impl Lengths {
    /// The length of a packet, given the drawn length and the flow's digest.
    fn of(self, drawn: u32, digest: u64) -> u32 {
        match (self, digest % 12) {
            (Self::Mixed, _) => drawn,
            (Self::ByFlow, 0..7) => 64,
            (Self::ByFlow, 7..11) => 570,
            (Self::ByFlow, _) => 1518,
        }
    }
}

/// Every flow of a run over Zipf five-tuples, `times` as long as the usual one.
///
/// # Errors
/// When a structure cannot be built.
fn run(
    setting: &Setting,
    structures: &[Structure],
    lengths: Lengths,
    times: usize,
) -> Result<Vec<Flow>, Failure> {
    // A separate digest, so that lengths are independent of positions in the structures.
    let digester = Digester::new(Seed::number(setting.seed + 1), Isa::best());
    let digester = digester.for_keys(FiveTuples::BYTES);
    let exact = Structure::new("exact", "linear-table").with([("buckets", BUCKETS)]);
    let mut exact = exact.build::<FiveTuples>(setting)?;
    let built = structures.iter().map(|structure| structure.build::<FiveTuples>(setting));
    let mut built = built.collect::<Result<Vec<_>, _>>()?;
    let mut batch = Batch::new();
    pieces(setting, Mix::Zipf(SKEW), times * epochs(setting), |packets| {
        for packets in packets.chunks(BATCH_PACKETS) {
            batch.clear();
            for packet in packets {
                if let Ok(key) = Key16::extract(KeyKind::FIVE_TUPLE, &packet.ip) {
                    let bytes = lengths.of(packet.wire, key.digest(&digester));
                    batch.push(key, bytes, packet.time_ns);
                }
            }
            exact.ingest(&mut batch);
            for summary in &mut built {
                summary.ingest(&mut batch);
            }
        }
    })?;
    exact.settle();
    for summary in &mut built {
        summary.settle();
    }
    if exact.answers().untracked().packets > 0 {
        let reason = "more flows than the exact table has room for".to_owned();
        return Err(Failure::Trace { name: "the traffic".to_owned(), reason });
    }
    let mut flows = Vec::new();
    if let Some(all) = exact.answers().flows() {
        all.for_each(&mut |key, truth| {
            let estimate = |answers: &dyn Answers| {
                let size = answers.size().map(|sizes| sizes.estimate(key));
                [Measure::Packets, Measure::Bytes].map(|by| {
                    size.and_then(|size| size.by(by)).map_or(f64::NAN, |estimate| estimate.value)
                })
            };
            let estimates = built.iter().map(|summary| estimate(summary.answers())).collect();
            flows.push(Flow { truth, estimates });
        });
    }
    Ok(flows)
}

/// InstaMeasure with a regulator of this many bytes before the paper's table.
fn of_sketch(bytes: usize) -> Structure {
    let parameters = [("sketch", bytes), ("entries", 1 << 20)];
    Structure::new(format!("{} KB", bytes >> 10), "insta-measure").with(parameters)
}

/// The measure with its name in tables, and the minimum size of each class of flows with the
/// class's name, largest first.
struct Classes {
    by: Measure,
    classes: [(&'static str, f64); 3],
}

const PACKETS: Classes = Classes {
    by: Measure::Packets,
    classes: [("1,000,000 packets", 1e6), ("100,000 packets", 1e5), ("10,000 packets", 1e4)],
};

const BYTES: Classes =
    Classes { by: Measure::Bytes, classes: [("1 GB", 1e9), ("100 MB", 1e8), ("10 MB", 1e7)] };

impl Classes {
    /// The class of a flow of this size: the first whose minimum it reaches.
    fn of(&self, size: f64) -> Option<&'static str> {
        self.classes.iter().find(|(_, least)| size >= *least).map(|(name, _)| *name)
    }
}
