//! How long a batch of 256 packets takes at worst while a table grows to a million flows.
//!
//! In thread CPU time, with the memory touched before. The kernel's timer ticks on the thread count, too:
//! a loop of arithmetic shows how long they take. Prints one line for each table, and fails where the
//! 99.99th percentile is above the limit, unless that of the arithmetic is, too.
#![expect(clippy::unwrap_used, reason = "a benchmark may stop at the first surprise")]

use std::fs;
use std::hint::black_box;

use flowgauge_core::batch::{BATCH_PACKETS, Batch};
use flowgauge_core::catalog;
use flowgauge_core::key::{FlowKey, Key16};
use flowgauge_core::summary::{Options, Summary};
use rustix::time::{ClockId, clock_gettime};

const FLOWS: u64 = 1_000_000;
const LIMIT_US: f64 = 50.0;

fn main() {
    println!("table\tmedian us\t99.99 % us\tmost us\tinvoluntary switches");
    let mut state = 1_u64;
    let arithmetic = times("arithmetic", |_| {
        for _ in 0..10_000 {
            state = black_box(state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1));
        }
    });
    if arithmetic > LIMIT_US {
        println!("nothing is asserted: this machine stops arithmetic for {arithmetic:.0} us");
    }
    for name in ["linear-table", "indirect-table", "cuckoo-4"] {
        let options = Options::new(256 << 20, 1).for_keys(13);
        let mut table = catalog::build::<Key16>(name, &options).unwrap();
        let mut batch = Batch::new();
        let mut ingest = |table: &mut dyn Summary<Key16>, start: u64| {
            for flow in start..start + BATCH_PACKETS as u64 {
                batch.push(key(flow), 64, 0);
            }
            table.ingest(&mut batch);
            batch.clear();
        };
        // Touches all memory that the flows take; a table that was cleared twice is small again.
        for start in (0..FLOWS).step_by(BATCH_PACKETS) {
            ingest(&mut *table, start);
        }
        table.clear();
        ingest(&mut *table, 0);
        table.clear();
        let most = times(name, |number| ingest(&mut *table, number * BATCH_PACKETS as u64));
        assert!(most <= LIMIT_US || arithmetic > LIMIT_US, "{name}: {most} us");
    }
}

/// The 99.99th percentile in microseconds of what `batch` takes, a batch for each 256 flows.
fn times(name: &str, mut batch: impl FnMut(u64)) -> f64 {
    let before = switches();
    let mut times: Vec<f64> = (0..FLOWS / BATCH_PACKETS as u64)
        .map(|number| {
            let before = seconds();
            batch(number);
            (seconds() - before) * 1e6
        })
        .collect();
    let switches = switches() - before;
    times.sort_by(f64::total_cmp);
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
    println!("{name}\t{:.1}\t{:.1}\t{:.1}\t{switches}", at(0.5), at(0.9999), at(1.0));
    at(0.9999)
}

/// The key of a flow.
fn key(flow: u64) -> Key16 {
    let mut bytes = [0; 13];
    bytes[..8].copy_from_slice(&flow.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
    Key16::from_canonical(&bytes).unwrap()
}

fn seconds() -> f64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as f64 + now.tv_nsec as f64 * 1e-9
}

/// Times that the kernel took the core away from this thread.
fn switches() -> u64 {
    let status = fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("nonvoluntary_ctxt_switches:"));
    line.and_then(|count| count.trim().parse().ok()).unwrap_or(0)
}
