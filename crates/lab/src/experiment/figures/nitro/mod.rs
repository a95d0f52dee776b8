//! Liu et al., "NitroSketch: robust and general sketch-based monitoring in software switches" (SIGCOMM
//! 2019).

mod convergence;
mod fig3a;
mod fig3b;
mod load;
mod paper;
mod strawmen;
mod table1;
mod table2;

pub(super) use convergence::CONVERGENCE;
pub(super) use fig3a::FIG3A;
pub(super) use fig3b::FIG3B;
pub(super) use load::LOAD;
pub(super) use strawmen::STRAWMEN;
pub(super) use table1::TABLE1;
pub(super) use table2::TABLE2;

use crate::experiment::{Preset, epoch};

const TRAFFIC: Preset = Preset::other(
    "traffic",
    "CAIDA, packets of 64 bytes",
    "generated like a backbone's, or `--keys FILE`",
    "the trace is not free to hand on",
);
const EPOCH: Preset = Preset::of("packets", "not named", epoch, "`--quick` is for every day");
const HASHES: Preset = Preset::other(
    "hashes",
    "xxHash32 for each row",
    "that in the paper's sketches, written in the lab; one digest for all rows in the engine's",
    "the claims are about the former, users have the latter",
);
const SWITCH: Preset = Preset::other(
    "where",
    "in Open vSwitch with DPDK, on one core of a 40 Gbit/s testbed",
    "structures alone, from memory",
    "`switch/nitro-fig2` measures them in the switch",
);
