//! Captures in the order of their packets.

use std::path::{Path, PathBuf};

use flowgauge_engine::source::{Burst, Columns, Source};

use crate::captures::Captures;

/// Sorts several captures by their first packets. Captures without a packet, and those that cannot be
/// read, come last. Nothing is sorted where one of them cannot be read a second time.
pub fn in_order(files: &mut [PathBuf]) {
    let regular = |file: &PathBuf| file.metadata().is_ok_and(|metadata| metadata.is_file());
    if files.len() > 1 && files.iter().all(regular) {
        files.sort_by_cached_key(|file| first_ns(file).unwrap_or(i64::MAX));
    }
}

/// The time of the first packet in a capture.
fn first_ns(file: &Path) -> Option<i64> {
    let (mut capture, mut columns) = (Captures::open([file]), Columns::default());
    let mut burst = Burst::new(&mut columns);
    capture.poll(&mut burst).ok()?;
    burst.frames().times_ns().first().copied()
}
