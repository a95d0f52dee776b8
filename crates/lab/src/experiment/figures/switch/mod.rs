//! The cost of measuring where packets are forwarded, with repeating packets.

mod dpdk;
mod ovs;
mod papers;
#[cfg(feature = "dpdk")]
mod port;
mod throughput;

pub(super) use dpdk::{DPDK, ZERO_LOSS};
pub(super) use papers::{NITRO_FIG2, SKIPPER_FIG5};
pub(super) use throughput::{
    EMC_FEW, EMC_MANY, MEGAFLOW_FEW, MEGAFLOW_MANY, SIMPLE_FEW, SIMPLE_MANY, TODAY,
};

use std::cmp::Reverse;
use std::hash::Hash;

use flowgauge_synthetic::{Config, Packet, Profile, Size, Traffic};
use hashbrown::HashMap;

use crate::experiment::Preset;
use crate::failure::Failure;

/// The papers' switches and ours.
const VERSION: Preset = Preset::other(
    "switch",
    "Open vSwitch with DPDK, between ports of 10 or 40 Gbit/s",
    "Open vSwitch 3.1 with DPDK 22.11, from `net_pcap` to `net_null`",
    "this machine has no such ports",
);

/// Options for the minimum of a flow measurement: headers, keys, digests, and one bit of 64.
const DIGESTS: &str = "algorithm=linear-counting:bits=4096 task=cardinality";

/// Why experiments at a DPDK port are left out.
#[cfg(not(feature = "dpdk"))]
fn without_dpdk() -> Failure {
    Failure::Skipped("built without DPDK; 'make lab-dpdk' builds and runs it with DPDK".to_owned())
}

/// Number of largest flows with errors in tables.
const LARGEST: usize = 20;

/// Draws packets of 64 bytes, or of another size, from at most this many flows with Zipf shares.
fn draw(packets: u64, flows: u64, bytes: u32, seed: u64) -> Result<Vec<Packet>, Failure> {
    let (profile, size) = (Profile::Zipf { flows, skew: 1.0 }, Size::Fixed(bytes));
    Ok(Traffic::new(Config { packets, profile, size, seed, ..Config::default() })?.collect())
}

/// The number of flows by a key, and the largest with their shares of all packets.
fn largest<K: Copy + Eq + Hash + Ord>(
    packets: &[Packet],
    key: impl Fn(&Packet) -> K,
) -> (usize, Vec<(K, f64)>) {
    let mut sizes = HashMap::new();
    for packet in packets {
        *sizes.entry(key(packet)).or_insert(0_u64) += 1;
    }
    let mut sizes: Vec<_> = sizes.into_iter().collect();
    sizes.sort_unstable_by_key(|(key, size)| (Reverse(*size), *key));
    let (flows, all) = (sizes.len(), packets.len() as f64);
    let largest = sizes.into_iter().take(LARGEST).map(|(key, size)| (key, size as f64 / all));
    (flows, largest.collect())
}

/// The root mean square of relative size errors, given true shares of this many packets.
fn error(
    sizes: impl Iterator<Item = f64>,
    shares: impl ExactSizeIterator<Item = f64>,
    packets: f64,
) -> f64 {
    let count = shares.len() as f64;
    let squares = sizes.zip(shares).map(|(size, share)| (size / (share * packets) - 1.0).powi(2));
    (squares.sum::<f64>() / count).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_flows_come_first_and_errors_are_of_their_sizes() {
        let Ok(packets) = draw(10_000, 100, 64, 1) else { panic!("the traffic is sound") };
        let (flows, largest) = largest(&packets, |packet| packet.key);
        assert_eq!((flows, largest.len()), (100, LARGEST));
        assert!(largest.is_sorted_by(|one, next| one.1 >= next.1));
        let shares = [0.5, 0.25];
        let error = |sizes: [f64; 2]| error(sizes.into_iter(), shares.into_iter(), 100.0);
        assert!(error([50.0, 25.0]) < 1e-12);
        assert!((error([100.0, 25.0]) - 0.5_f64.sqrt()).abs() < 1e-12);
    }
}
