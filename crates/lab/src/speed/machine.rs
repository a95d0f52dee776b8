//! The machine, in a line.

use std::fs;
use std::thread;

use flowgauge_kernel::Isa;

/// Model and number of processors, and the instruction set in use.
pub(super) fn describe() -> String {
    let cpus = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpus.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let model = model.map_or("unknown processor", |(_, model)| model.trim());
    let cores = thread::available_parallelism().map_or(1, usize::from);
    format!("{model}, {cores} cores, instruction set {}", Isa::best())
}
