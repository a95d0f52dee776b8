//! Resident memory stays the same while threads fill and empty the reserved heap.
//!
//! It has its own `main`, since a heap is reserved before the process has threads.

use std::fs;
use std::hint::black_box;
use std::thread;

use flowgauge_kernel::reserve_heap;

const RESERVED: usize = 64 << 20;

fn resident_bytes() -> Option<usize> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(1024 * line.split_whitespace().next()?.parse::<usize>().ok()?)
}

/// Holds up to 5 MB in blocks of 1 to 100 kB, ten times.
fn fill_and_empty() {
    for _ in 0..10 {
        let blocks: Vec<_> =
            (0..100).map(|block| vec![1u8; 1000 * (1 + block * 37 % 100)]).collect();
        drop(black_box(blocks));
    }
}

fn main() {
    if !cfg!(all(target_os = "linux", target_env = "gnu")) {
        println!("skipped: only glibc has such a heap");
        return;
    }
    reserve_heap(RESERVED);
    let reserved = resident_bytes().expect("Linux reports it");
    assert!(reserved >= RESERVED, "{reserved} bytes are resident");
    thread::scope(|scope| (0..8).for_each(|_| drop(scope.spawn(fill_and_empty))));
    let resident = resident_bytes().expect("Linux reports it");
    assert!(resident <= reserved + reserved / 100, "{reserved} bytes became {resident}");
}
