//! Liu et al., "NitroSketch: robust and general sketch-based monitoring in software switches" (SIGCOMM
//! 2019).

mod approaches;
mod fig3;
mod modes;
mod paper;
mod table2;

pub(super) use approaches::{STRAWMEN, TABLE1};
pub(super) use fig3::{FIG3A, FIG3B};
pub(super) use modes::{CONVERGENCE, LOAD};
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
