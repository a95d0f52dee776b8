//! CPU time.

use rustix::time::{ClockId, clock_gettime};

/// CPU time of this thread in seconds.
pub(crate) fn thread_seconds() -> f64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as f64 + now.tv_nsec as f64 * 1e-9
}
