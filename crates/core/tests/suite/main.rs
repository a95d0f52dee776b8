//! The crate's tests, in one program, so that shared code is compiled and linked once. Only the laws
//! have a program of their own, which runs on each instruction set.
#![expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]
#![expect(clippy::float_cmp, reason = "numbers that are whole are compared as such")]
#![expect(unreachable_pub, reason = "a test has no public side")]

use std::env;

use rustix::time::{ClockId, clock_gettime};

mod accelerated;
mod concurrent;
mod counter;
mod distinct;
mod elastic;
mod flow_radar;
mod flows;
mod hierarchy;
mod hostile;
mod instant;
mod key;
mod packet;
mod recover;
mod sketch;
#[allow(dead_code, reason = "the law tests use more of it")]
#[path = "../laws/stream.rs"]
mod stream;
mod summary;
mod table;
mod task;
mod univmon;
mod zipf;

/// Whether the long forms of tests run.
fn long() -> bool {
    let long = env::var_os("FLOWGAUGE_LONG").is_some();
    if !long {
        println!("the long form is left out: FLOWGAUGE_LONG=1 runs it, best with --release");
    }
    long
}

/// The number of seeds of a statistical test.
fn seeds() -> u64 {
    if long() { 256 } else { 32 }
}

/// The CPU time of this thread in seconds, which other load does not lengthen.
fn seconds() -> f64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as f64 + now.tv_nsec as f64 * 1e-9
}
