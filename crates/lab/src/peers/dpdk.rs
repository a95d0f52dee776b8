//! Structures of an installed DPDK.

use std::sync::Arc;

use flowgauge_dpdk::Dpdk;
use flowgauge_dpdk_peers::{ARGUMENTS, Shape, Sketch, Table};

use super::{COUNT_MIN, Contender, EXACT_TABLE, Group, Peer, SAMPLED_COUNT_MIN};
use crate::failure::Failure;

const PROJECT: &str = "DPDK";

/// Bytes of the other sketches' counters; DPDK's have 64 bits each.
const SKETCH_BYTES: usize = 4 * 65_536 * 4;

/// Rows of the sketch, and of the weighted one on a processor with AVX-512.
const ROWS: usize = 5;
const WIDE_ROWS: usize = 8;

/// Heaviest keys it keeps; this cannot be disabled.
const TOP: u32 = 100;

/// The share of sampled rows, or of packets whose keys are looked up among the heaviest.
const SAMPLED: f32 = 0.01;

impl Peer for Sketch {
    fn begin(&mut self) {
        self.clear();
    }

    fn take(&mut self, keys: &[u64]) {
        self.add(keys);
    }

    fn memory_bytes(&self) -> usize {
        self.memory_bytes()
    }

    fn size(&self, key: u64) -> Option<f64> {
        Some(self.count(key) as f64)
    }

    fn flows(&self) -> Option<f64> {
        None
    }
}

impl Peer for Table {
    fn begin(&mut self) {
        self.clear();
    }

    fn take(&mut self, keys: &[u64]) {
        self.add(keys);
    }

    fn memory_bytes(&self) -> usize {
        self.memory_bytes()
    }

    fn size(&self, key: u64) -> Option<f64> {
        // A full table has no valid answers.
        (self.lost() == 0).then(|| self.count(key) as f64)
    }

    fn flows(&self) -> Option<f64> {
        None
    }
}

/// Adds them to their groups, for a stream of `flows` flows.
///
/// # Errors
/// When DPDK does not start, or refuses a structure.
pub(super) fn join(groups: &mut [Group], flows: usize) -> Result<(), Failure> {
    let dpdk = Dpdk::start(&ARGUMENTS.map(str::to_owned))
        .map_err(|error| Failure::Dpdk(error.to_string()))?;
    for group in groups {
        let contenders = &mut group.contenders;
        match group.purpose {
            COUNT_MIN => contenders.extend(count_min(&dpdk)?),
            SAMPLED_COUNT_MIN => contenders.push(sampled_count_min(&dpdk)?),
            EXACT_TABLE => contenders.push(table(&dpdk, flows)?),
            _ => {}
        }
    }
    Ok(())
}

/// Count-Min with every packet in every row, and the weighted one with vector instructions.
fn count_min(dpdk: &Arc<Dpdk>) -> Result<[Contender; 2], Failure> {
    let sketch = |rows| Shape { error: error(rows), sample: 1.0, top: TOP, weighted: false };
    let weighted = Shape { sample: SAMPLED, weighted: true, ..sketch(WIDE_ROWS) };
    Ok([
        of_sketch(dpdk, "rte_member sketch, with its top 100", sketch(ROWS))?,
        of_sketch(dpdk, "rte_member sketch of weights, with its top 100", weighted)?,
    ])
}

/// Count-Min of sampled rows.
fn sampled_count_min(dpdk: &Arc<Dpdk>) -> Result<Contender, Failure> {
    let error = error(ROWS) / SAMPLED;
    let shape = Shape { error, sample: SAMPLED, top: TOP, weighted: false };
    of_sketch(dpdk, "rte_member sketch, with its top 100", shape)
}

/// An exact counting table with as many entries as ours has buckets.
fn table(dpdk: &Arc<Dpdk>, flows: usize) -> Result<Contender, Failure> {
    let (name, entries) = ("rte_hash", (4 * flows).div_ceil(3).next_power_of_two());
    let table = Table::new(dpdk, entries as u32).ok_or_else(|| refused(name))?;
    Ok(Contender { project: PROJECT, name, peer: Box::new(table) })
}

/// The error for which DPDK chooses this many rows in the same memory.
fn error(rows: usize) -> f32 {
    4.0 / (SKETCH_BYTES / size_of::<u64>() / rows) as f32
}

fn of_sketch(dpdk: &Arc<Dpdk>, name: &'static str, shape: Shape) -> Result<Contender, Failure> {
    let sketch = Sketch::new(dpdk, shape).ok_or_else(|| refused(name))?;
    Ok(Contender { project: PROJECT, name, peer: Box::new(sketch) })
}

fn refused(name: &str) -> Failure {
    Failure::Dpdk(format!("it makes no {name}"))
}
