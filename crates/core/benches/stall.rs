//! The worst-case time of a batch of 256 packets while a table grows to a million flows.
//!
//! Measured in thread CPU time, with the memory touched before. This includes timer ticks of the
//! kernel, whose time a loop of arithmetic shows. The median of each batch over all growths
//! excludes ticks: it is the time of the table itself. Prints one line for each table. Fails if the
//! longest median is above the limit, or if the 99.99th percentile is, unless that of the
//! arithmetic is too.
#![expect(clippy::unwrap_used, reason = "a benchmark may stop at the first surprise")]

use std::fs;
use std::hint::black_box;

use flowgauge_core::batch::{BATCH_PACKETS, Batch};
use flowgauge_core::catalog;
use flowgauge_core::key::{FlowKey, Key16};
use flowgauge_core::summary::{Options, Summary};
use rustix::time::{ClockId, clock_gettime};

const FLOWS: u64 = 1_000_000;
/// Number of growths, such that ten batches exceed the 99.99th percentile.
const GROWTHS: u64 = 26;
const LIMIT_US: f64 = 50.0;

fn main() {
    println!(
        "table\tns a new flow\tmedian us\tlongest median us\t99.99 % us\tmost us\tinvoluntary switches"
    );
    let mut state = 1_u64;
    let mut arithmetic = Times::default();
    for _ in 0..GROWTHS {
        arithmetic.take(|_| {
            for _ in 0..10_000 {
                state = black_box(state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1));
            }
        });
    }
    let (_, arithmetic) = arithmetic.tell("arithmetic");
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
        // Touches all memory that the flows take.
        for start in (0..FLOWS).step_by(BATCH_PACKETS) {
            ingest(&mut *table, start);
        }
        let mut times = Times::default();
        for _ in 0..GROWTHS {
            // Clearing a table twice makes it small again.
            table.clear();
            ingest(&mut *table, 0);
            table.clear();
            times.take(|number| ingest(&mut *table, number * BATCH_PACKETS as u64));
        }
        let (itself, most) = times.tell(name);
        assert!(itself <= LIMIT_US, "{name} itself: {itself} us");
        assert!(most <= LIMIT_US || arithmetic > LIMIT_US, "{name}: {most} us");
    }
}

/// Times of batches in microseconds, and the number of involuntary context switches meanwhile.
#[derive(Default)]
struct Times {
    us: Vec<f64>,
    switches: u64,
}

impl Times {
    /// Measures a batch for each 256 flows.
    fn take(&mut self, mut batch: impl FnMut(u64)) {
        let switches_before = switches();
        for number in 0..FLOWS / BATCH_PACKETS as u64 {
            let before = seconds();
            batch(number);
            self.us.push((seconds() - before) * 1e6);
        }
        self.switches += switches() - switches_before;
    }

    /// Prints the times. Returns the longest median of a batch over all growths, and the 99.99th
    /// percentile.
    fn tell(mut self, name: &str) -> (f64, f64) {
        let batches = self.us.len() / GROWTHS as usize;
        let median = |batch| {
            let mut us: Vec<f64> = self.us.iter().copied().skip(batch).step_by(batches).collect();
            us.sort_by(f64::total_cmp);
            us[us.len() / 2]
        };
        let itself = (0..batches).map(median).fold(0.0, f64::max);
        self.us.sort_by(f64::total_cmp);
        let mean_ns = 1e3 * self.us.iter().sum::<f64>() / (self.us.len() * BATCH_PACKETS) as f64;
        let at = |share: f64| self.us[((self.us.len() - 1) as f64 * share) as usize];
        let [median, percentile, most] = [0.5, 0.9999, 1.0].map(at);
        let switches = self.switches;
        println!(
            "{name}\t{mean_ns:.1}\t{median:.1}\t{itself:.1}\t{percentile:.1}\t{most:.1}\t{switches}"
        );
        (itself, percentile)
    }
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

/// Number of involuntary context switches of this thread.
fn switches() -> u64 {
    let status = fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("nonvoluntary_ctxt_switches:"));
    line.and_then(|count| count.trim().parse().ok()).unwrap_or(0)
}
