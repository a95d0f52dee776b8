//! The machine: what it is, how steady it is, its time and its memory.

use std::hint::black_box;
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use std::{fs, thread};

use bytemuck::Zeroable;
use flowgauge_kernel::{Isa, Zeroed, cycles};
use rustix::time::{ClockId, clock_gettime};

/// Processor model and count, and the instruction set in use.
pub(crate) fn describe() -> String {
    let cpus = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpus.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let model = model.map_or("unknown processor", |(_, model)| model.trim());
    let cores = thread::available_parallelism().map_or(1, usize::from);
    format!("{model}, {cores} cores, instruction set {}", Isa::best())
}

/// A value that the system reports for the first core.
fn of_core(file: &str) -> Option<String> {
    let path = format!("/sys/devices/system/cpu/cpu0/{file}");
    Some(fs::read_to_string(path).ok()?.trim().to_owned())
}

/// Values of the first core's data caches, nearest first.
fn of_caches<const FILES: usize>(files: [&str; FILES]) -> Vec<[String; FILES]> {
    let cache = |index: usize| {
        let of = |file: &str| of_core(&format!("cache/index{index}/{file}"));
        let told = files.map(|file| of(file).unwrap_or_default());
        (of("type")? != "Instruction").then_some(told)
    };
    (0..8).filter_map(cache).collect()
}

/// Data caches of the first core, nearest first, and its frequency governor.
pub(crate) fn caches() -> String {
    let caches = of_caches(["level", "size"]).into_iter();
    let caches: Vec<String> = caches.map(|[level, size]| format!("L{level} {size}")).collect();
    let caches = if caches.is_empty() { "not readable".to_owned() } else { caches.join(", ") };
    let governor = of_core("cpufreq/scaling_governor");
    format!("caches {caches}; governor {}", governor.as_deref().unwrap_or("not readable"))
}

/// Bytes and ways of the first core's data caches, nearest first; empty if unreadable.
pub(crate) fn cache_sizes() -> Vec<(usize, usize)> {
    let caches = of_caches(["size", "ways_of_associativity"]).into_iter();
    let sizes = caches.map(|[size, ways]| {
        let kilobytes: usize = size.strip_suffix('K')?.parse().ok()?;
        Some((kilobytes << 10, ways.parse().ok().filter(|ways| *ways > 0)?))
    });
    sizes.collect::<Option<_>>().unwrap_or_default()
}

/// Resident memory of this process in MB; NaN if unknown.
pub(crate) fn resident_mb() -> f64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse().ok());
    kilobytes.map_or(f64::NAN, |kilobytes: f64| kilobytes / 1024.0)
}

/// Nanoseconds per tick of the time-stamp counter, measured once over 20 ms.
pub(crate) fn ns_per_cycle() -> f64 {
    static TICK: OnceLock<f64> = OnceLock::new();
    *TICK.get_or_init(|| {
        let (start, ticks) = (Instant::now(), cycles());
        while start.elapsed() < Duration::from_millis(20) {}
        start.elapsed().as_nanos() as f64 / (cycles() - ticks) as f64
    })
}

/// How unsteady the machine is. Runs the same arithmetic of about 50 µs 200 times; returns how much
/// longer than the best run the median and the 99th percentile took, as shares.
pub(crate) fn noise() -> (f64, f64) {
    let work = || {
        let start = cycles();
        black_box((0..50_000_u64).fold(1_u64, |x, i| black_box(x.wrapping_mul(i | 1))));
        (cycles() - start) as f64
    };
    let mut times: Vec<f64> = (0..200).map(|_| work()).collect();
    times.sort_by(f64::total_cmp);
    let over = |at: usize| times[at] / times[0] - 1.0;
    (over(100), over(198))
}

/// CPU time of this thread in seconds.
pub(crate) fn thread_seconds() -> f64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as f64 + now.tv_nsec as f64 * 1e-9
}

/// A zeroed array in huge pages, like the tables of the engine and of DPDK.
///
/// # Panics
/// When there is no memory, as a vector does.
pub(crate) fn zeroed<T: Zeroable>(items: usize) -> Zeroed<T> {
    match Zeroed::new(items) {
        Ok(memory) => memory,
        Err(error) => panic!("{items} items of {} bytes: {error}", size_of::<T>()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_is_measured() {
        assert!((0.05..=2.0).contains(&ns_per_cycle()), "{}", ns_per_cycle());
        let (median, slow) = noise();
        assert!(median >= 0.0 && slow >= median);
        assert!(caches().contains("governor"));
    }
}
