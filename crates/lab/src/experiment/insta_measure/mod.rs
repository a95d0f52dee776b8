//! Jang et al., "InstaMeasure: instant per-flow detection using large in-DRAM working set of active
//! flows" (ICDCS 2019).

mod csm;
mod detection;
mod errors;
mod heavy;
mod regulation;
mod run;
mod scatter;
mod speed;
mod table;
mod vector;
mod vectors;
mod wild;

pub(super) use csm::CSM;
pub(super) use detection::FIG9B;
pub(super) use errors::{FIG10, FIG11};
pub(super) use heavy::FIG14;
pub(super) use regulation::{FIG1, FIG7};
pub(super) use scatter::FIG13;
pub(super) use speed::FIG9A;
pub(super) use table::WSAF;
pub(super) use vectors::FIG8;
pub(super) use wild::{FIG6, FIG12};

use flowgauge_core::summary::instant::Regulator;
use flowgauge_synthetic::{Config, Size, Traffic};

use super::Failure;
use super::preset::Preset;
use super::setting::{Mix, Setting};
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
    let (size, seed) = (Size::Imix, setting.seed);
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
    if setting.packets < Setting::full().packets { 16 } else { 64 }
}
