//! Signals: the first one ends a run with its report, the second one ends it at once.

use std::fs;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::SIGHUP;
use signal_hook::flag;

use crate::failure::Failure;

/// A flag that the first of these signals sets; the next one ends the process. A HUP that is
/// ignored under `nohup` stays ignored.
pub(crate) fn stop(signals: &[i32]) -> Result<Arc<AtomicBool>, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in signals.iter().copied().filter(|signal| *signal != SIGHUP || !ignored(*signal)) {
        let ends = flag::register_conditional_default(signal, Arc::clone(&stop));
        let registered = ends.and_then(|_| flag::register(signal, Arc::clone(&stop)));
        registered.map_err(|error| failure(&error))?;
    }
    Ok(stop)
}

/// A flag that each HUP sets, to have outputs opened again.
pub(crate) fn reopen() -> Result<Arc<AtomicBool>, Failure> {
    let reopen = Arc::new(AtomicBool::new(false));
    flag::register(SIGHUP, Arc::clone(&reopen)).map_err(|error| failure(&error))?;
    Ok(reopen)
}

fn failure(error: &io::Error) -> Failure {
    Failure::Failed(format!("signals: {error}"))
}

/// Whether the process was started with the signal ignored.
fn ignored(signal: i32) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.unwrap_or_default() >> (signal - 1) & 1 == 1
}
