//! The cost of measuring where packets are forwarded.

mod dpdk;
mod nitro;
mod ovs;
#[cfg(feature = "dpdk")]
mod pace;
#[cfg(feature = "dpdk")]
mod port;
mod skipper;
mod throughput;
mod today;
mod traffic;
mod zero_loss;

pub(super) use dpdk::DPDK;
pub(super) use nitro::NITRO_FIG2;
pub(super) use skipper::SKIPPER_FIG5;
pub(super) use throughput::{
    EMC_FEW, EMC_MANY, MEGAFLOW_FEW, MEGAFLOW_MANY, SIMPLE_FEW, SIMPLE_MANY,
};
pub(super) use today::TODAY;
pub(super) use zero_loss::ZERO_LOSS;

use super::preset::Preset;

/// The papers' switches and ours.
const VERSION: Preset = Preset::other(
    "switch",
    "Open vSwitch with DPDK, between ports of 10 or 40 Gbit/s",
    "Open vSwitch 3.1 with DPDK 22.11, from `net_pcap` to `net_null`",
    "this machine has no such ports",
);

/// Options for the minimum of a flow measurement: headers, keys, digests, and one bit of 64.
const DIGESTS: &str = "algorithm=linear-counting:bits=64 task=cardinality";

/// Why experiments at a DPDK port are left out.
#[cfg(not(feature = "dpdk"))]
const WITHOUT_DPDK: &str = "built without DPDK; 'make lab-dpdk' builds and runs it with DPDK";
