//! Epochs in the journal that were not sent.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use flowgauge_engine::sink::rfc3339;

use super::position::Position;

/// An epoch in the journal.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Kept {
    pub(super) start_ns: i64,
    pub(super) length_ns: i64,
    pub(super) epoch: u64,
    pub(super) run: u64,
    pub(super) path: PathBuf,
}

/// A measurement's epochs to resend, in time order: those that began at the position's start or
/// later. Excludes the position's own epoch, and `(run, epoch)` and later epochs of that run.
/// Epochs of several runs may begin at the same time, so those at the position's start are included
/// again.
pub(super) fn missed(
    journal: &Path,
    measurement: &str,
    after: Position,
    before: (u64, u64),
) -> io::Result<Vec<Kept>> {
    let first = format!("{:.10}", rfc3339(after.start_ns));
    let mut missed = Vec::new();
    for day in entries(&journal.join(measurement))? {
        if day.file_name().is_none_or(|name| *name.to_string_lossy() < *first) {
            continue;
        }
        for path in entries(&day)? {
            let Some(kept) = parse(path) else { continue };
            let id = (kept.run, kept.epoch);
            let is_later = kept.run == before.0 && kept.epoch >= before.1;
            if kept.start_ns >= after.start_ns && Some(id) != after.epoch && !is_later {
                missed.push(kept);
            }
        }
    }
    missed.sort();
    Ok(missed)
}

/// The paths in a folder; none if the journal removed it or has not created it yet.
fn entries(folder: &Path) -> io::Result<Vec<PathBuf>> {
    match fs::read_dir(folder) {
        Ok(entries) => entries.map(|entry| Ok(entry?.path())).collect(),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// Parses a journal path `START-LENGTH-RUN-EPOCH.fgs`.
fn parse(path: PathBuf) -> Option<Kept> {
    let name = path.file_name()?.to_str()?.strip_suffix(".fgs")?;
    let mut parts = name.rsplitn(4, '-');
    let epoch = parts.next()?.parse().ok()?;
    let run = u64::from_str_radix(parts.next()?, 16).ok()?;
    let length_ns = parts.next()?.parse().ok()?;
    // Before 1970, a start begins with a minus sign.
    let start_ns = parts.next()?.parse().ok()?;
    Some(Kept { start_ns, length_ns, epoch, run, path })
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;

    #[test]
    fn epochs_behind_the_position_are_missed_in_the_order_of_time() {
        const DAY_NS: i64 = 86_400_000_000_000;
        let journal = std::env::temp_dir().join(format!("flowgauge-missed-{}", std::process::id()));
        let keep = |start_ns: i64, run: u64, epoch: u64| {
            let day = journal.join("flows").join(&rfc3339(start_ns)[..10]);
            fs::create_dir_all(&day).unwrap();
            fs::write(day.join(format!("{start_ns}-10-{run:016x}-{epoch}.fgs")), []).unwrap();
            fs::write(day.join(format!("{start_ns}-10-{run:016x}-{epoch}.part")), []).unwrap();
        };
        for (start_ns, run, epoch) in [
            (-20, 9, 0),
            (-10, 9, 1),
            (DAY_NS, 9, 2),
            (2 * DAY_NS, 9, 10),
            (2 * DAY_NS, 1, 0),
            (3 * DAY_NS, 1, 1),
            (4 * DAY_NS, 1, 2),
            (5 * DAY_NS, 1, 3),
        ] {
            keep(start_ns, run, epoch);
        }
        let ids = |after, before| -> Vec<_> {
            let missed = missed(&journal, "flows", after, before).unwrap();
            missed.iter().map(|kept| (kept.run, kept.epoch)).collect()
        };
        let after = Position { start_ns: -10, epoch: Some((9, 1)) };
        assert_eq!(ids(after, (1, 2)), [(9, 2), (1, 0), (9, 10), (1, 1)]);
        let begin = Position { start_ns: -20, epoch: None };
        assert_eq!(ids(begin, (9, 2)), [(9, 0), (9, 1), (1, 0), (1, 1), (1, 2), (1, 3)]);
        assert!(super::missed(&journal, "other", begin, (0, 0)).unwrap().is_empty());
        fs::remove_dir_all(journal).unwrap();
    }
}
