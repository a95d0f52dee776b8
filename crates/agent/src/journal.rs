//! The journal: one file per closed epoch. The oldest make room for new ones.
//!
//! An epoch's snapshot is stored at `MEASUREMENT/DAY/START-LENGTH-RUN-EPOCH.fgs` in the journal's
//! folder, with start and length in nanoseconds and the run number in hexadecimal. It is written
//! under a temporary name, synced and renamed, so every file with the final name is complete.

use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use flowgauge_engine::sink::{Item, Sink, SinkError, Takes, rfc3339};
use flowgauge_engine::snapshot::Saved;

use crate::Failure;
use crate::config::JournalOptions;
use crate::replay::now_ns;

/// Extension of an incomplete file.
pub(crate) const PART: &str = "part";

/// Counts of the journal's epochs.
#[derive(Debug, Default)]
pub struct Counts {
    /// Epochs kept.
    pub epochs: AtomicU64,
    /// Their bytes.
    pub bytes: AtomicU64,
    /// Epochs removed because of age or to make room.
    pub removed: AtomicU64,
}

/// A sink that keeps closed epochs.
pub(crate) struct Journal {
    folder: PathBuf,
    options: JournalOptions,
    /// The files, ordered by epoch start.
    kept: VecDeque<Kept>,
    counts: Arc<Counts>,
}

/// The file of an epoch.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Kept {
    start_ns: i64,
    path: PathBuf,
    bytes: u64,
}

impl Journal {
    /// Opens the journal, creating its folder if needed.
    pub(crate) fn open(folder: &Path, options: JournalOptions) -> Result<Self, Failure> {
        let failed = |error: io::Error| {
            Failure::Output(format!("cannot keep epochs in {}: {error}", folder.display()))
        };
        fs::create_dir_all(folder).map_err(failed)?;
        let mut kept = Vec::new();
        for measurement in folders(folder, "").map_err(failed)? {
            for day in folders(&measurement, "").map_err(failed)? {
                collect(&day, &mut kept).map_err(failed)?;
            }
        }
        kept.sort();
        let counts = Arc::new(Counts::default());
        let mut journal = Self { folder: folder.to_owned(), options, kept: kept.into(), counts };
        let bytes = journal.kept.iter().map(|kept| kept.bytes).sum();
        journal.counts.epochs.store(journal.kept.len() as u64, Ordering::Relaxed);
        journal.counts.bytes.store(bytes, Ordering::Relaxed);
        journal.remove_old(0);
        Ok(journal)
    }

    /// The counts of its epochs.
    pub(crate) fn counts(&self) -> Arc<Counts> {
        Arc::clone(&self.counts)
    }

    fn bytes(&self) -> u64 {
        self.counts.bytes.load(Ordering::Relaxed)
    }

    /// Removes epochs that are too old, then the oldest until there is room for `bytes` more.
    fn remove_old(&mut self, bytes: u64) {
        let oldest_ns = now_ns().saturating_sub_unsigned(self.options.keep.0);
        while let Some(oldest) = self.kept.front() {
            let is_full = self.bytes() + bytes > self.options.max_size.0;
            if oldest.start_ns >= oldest_ns && !is_full {
                break;
            }
            self.remove_oldest();
        }
    }

    /// Removes the oldest epoch; `false` if there is none.
    fn remove_oldest(&mut self) -> bool {
        let Some(Kept { path, bytes, .. }) = self.kept.pop_front() else { return false };
        // The file may be gone already. A file that cannot be removed no longer counts.
        let _ = fs::remove_file(&path);
        // A day's folder is removed with its last epoch.
        let _ = path.parent().map(fs::remove_dir);
        self.counts.epochs.fetch_sub(1, Ordering::Relaxed);
        self.counts.bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.counts.removed.fetch_add(1, Ordering::Relaxed);
        true
    }

    fn keep(&mut self, saved: &Saved) -> io::Result<()> {
        let bytes = saved.bytes.len() as u64;
        self.remove_old(bytes);
        let (start_ns, end_ns) = saved.bounds_ns;
        let day = rfc3339(start_ns)[..10].to_owned();
        let folder = self.folder.join(&saved.measurement).join(day);
        let name = format!(
            "{start_ns}-{}-{:016x}-{}.fgs",
            end_ns.abs_diff(start_ns),
            saved.run,
            saved.epoch
        );
        let path = folder.join(name);
        while let Err(error) = write(&folder, &path, &saved.bytes) {
            let is_full = matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded);
            if !is_full || !self.remove_oldest() {
                return Err(error);
            }
        }
        let place = self.kept.partition_point(|kept| kept.start_ns <= start_ns);
        self.kept.insert(place, Kept { start_ns, path, bytes });
        self.counts.epochs.fetch_add(1, Ordering::Relaxed);
        self.counts.bytes.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }
}

impl Sink for Journal {
    fn takes(&self) -> Takes {
        Takes::Snapshots
    }

    fn deliver(&mut self, item: &Item) -> Result<(), SinkError> {
        let Item::Snapshot(saved) = item else { return Ok(()) };
        let kept = self.keep(saved);
        kept.map_err(|error| SinkError::new(&self.folder.display().to_string(), error))
    }
}

/// Writes a file atomically and durably; only its owner can read it.
pub(crate) fn write(folder: &Path, path: &Path, bytes: &[u8]) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let beside = path.with_extension(PART);
    let written = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&beside)
        .and_then(|mut file| file.write_all(bytes).and_then(|()| file.sync_all()))
        .and_then(|()| fs::rename(&beside, path))
        .and_then(|()| File::open(folder)?.sync_all());
    if written.is_err() {
        // It would take up space, which may be what is missing.
        let _ = fs::remove_file(&beside);
    }
    written
}

/// Subfolders whose names start with `begin`.
pub(crate) fn folders(of: &Path, begin: &str) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(of)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() && entry.file_name().to_string_lossy().starts_with(begin) {
            found.push(entry.path());
        }
    }
    Ok(found)
}

/// Adds the epochs of a day, and removes files that a killed agent left unfinished.
fn collect(day: &Path, kept: &mut Vec<Kept>) -> io::Result<()> {
    for entry in fs::read_dir(day)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == PART) {
            fs::remove_file(&path)?;
            continue;
        }
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        // Before 1970, a start begins with a minus sign.
        let Some(start) = name.char_indices().skip(1).find(|(_, c)| *c == '-') else { continue };
        if let Ok(start_ns) = name[..start.0].parse() {
            let bytes = fs::metadata(&path)?.len();
            kept.push(Kept { start_ns, path, bytes });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;
    use crate::config::{Size, Time};

    const HOUR_NS: i64 = 3_600_000_000_000;

    /// A journal in a new folder that keeps this many hours and bytes.
    fn journal(name: &str, hours: u64, bytes: u64) -> (PathBuf, Journal) {
        let folder = std::env::temp_dir().join(format!("flowgauge-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        let options =
            JournalOptions { keep: Time(hours * HOUR_NS.unsigned_abs()), max_size: Size(bytes) };
        let journal = Journal::open(&folder, options).unwrap();
        (folder, journal)
    }

    /// An epoch of 100 bytes that began this many hours ago.
    fn epoch(number: u64, hours_ago: i64) -> Saved {
        let start_ns = now_ns() - hours_ago * HOUR_NS;
        Saved {
            measurement: "main".to_owned(),
            run: 7,
            epoch: number,
            bounds_ns: (start_ns, start_ns + 1_000_000_000),
            is_secret: false,
            bytes: vec![0; 100],
        }
    }

    /// The numbers of the epochs on disk.
    fn there(journal: &Journal) -> Vec<String> {
        let names = journal.kept.iter().map(|kept| {
            assert!(kept.path.is_file());
            let name = kept.path.file_stem().unwrap().to_string_lossy().into_owned();
            name.rsplit('-').next().unwrap().to_owned()
        });
        names.collect()
    }

    #[test]
    fn old_epochs_make_room() {
        let (folder, mut journal) = journal("room", 10, 250);
        for (number, hours_ago) in [(0, 11), (1, 5), (2, 4), (3, 3)] {
            journal.keep(&epoch(number, hours_ago)).unwrap();
        }
        assert_eq!(there(&journal), ["2", "3"]);
        assert_eq!(journal.counts.removed.load(Ordering::Relaxed), 2);
        // The next agent finds them, and removes those too old by then.
        drop(journal);
        let options = JournalOptions {
            keep: Time(3 * HOUR_NS.unsigned_abs() + HOUR_NS.unsigned_abs() / 2),
            max_size: Size(250),
        };
        let journal = Journal::open(&folder, options).unwrap();
        assert_eq!(there(&journal), ["3"]);
        assert_eq!(journal.bytes(), 100);
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn unfinished_files_of_a_killed_agent_are_removed() {
        let (folder, mut journal) = journal("part", 10, 1000);
        journal.keep(&epoch(0, 0)).unwrap();
        let day = journal.kept[0].path.parent().unwrap().to_owned();
        fs::write(day.join("9-9-0-9.part"), [0; 10]).unwrap();
        let journal = Journal::open(&folder, journal.options).unwrap();
        assert_eq!(there(&journal), ["0"]);
        assert_eq!(fs::read_dir(day).unwrap().count(), 1);
        fs::remove_dir_all(folder).unwrap();
    }
}
