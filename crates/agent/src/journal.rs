//! The journal: one file per closed epoch. The oldest make room for new ones.
//!
//! An epoch's snapshot is stored at `MEASUREMENT/DAY/START-LENGTH-RUN-EPOCH.fgs` in the journal's
//! folder, with start and length in nanoseconds and the run number in hexadecimal. It is written
//! under a temporary name, synced and renamed, so every file with the final name is complete.

use std::collections::VecDeque;
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::mem;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use flowgauge_engine::sink::{Item, Sink, SinkError, Takes, rfc3339};
use flowgauge_engine::snapshot::Saved;

use crate::Failure;
use crate::config::JournalOptions;
use crate::replay::now_ns;

/// Most epochs that are removed for their age whenever one is kept. A clock that is wrong for a while
/// must not cost all of them.
const TOO_OLD: usize = 16;

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
    /// The names of all measurements that have files.
    measurements: Vec<String>,
    /// The files, ordered by epoch start.
    kept: VecDeque<Kept>,
    counts: Arc<Counts>,
    /// For the next journal, and the number of this one.
    left: (KeptFiles, u64),
}

/// The file of an epoch. There may be a million, so it holds no path.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Kept {
    name: Name,
    bytes: u64,
    /// Its place among the measurements.
    measurement: u32,
}

/// What a journal knows of its files: to look at all of them takes seconds, in which the next run
/// would measure nothing. Only the latest journal leaves it.
#[derive(Clone, Default)]
pub(crate) struct KeptFiles(Arc<Mutex<Left>>);

#[derive(Default)]
struct Left {
    /// Number of journals opened so far.
    journals: u64,
    files: Option<(PathBuf, Vec<String>, VecDeque<Kept>)>,
}

impl KeptFiles {
    fn lock(&self) -> MutexGuard<'_, Left> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The name of an epoch's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Name {
    pub(crate) start_ns: i64,
    pub(crate) length_ns: u64,
    pub(crate) run: u64,
    pub(crate) epoch: u64,
}

impl Name {
    /// Parses `START-LENGTH-RUN-EPOCH.fgs`.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        let mut parts = name.strip_suffix(".fgs")?.rsplitn(4, '-');
        let epoch = parts.next()?.parse().ok()?;
        let run = u64::from_str_radix(parts.next()?, 16).ok()?;
        let length_ns = parts.next()?.parse().ok()?;
        // Before 1970, a start begins with a minus sign.
        let start_ns = parts.next()?.parse().ok()?;
        Some(Self { start_ns, length_ns, run, epoch })
    }

    /// The folder of its day.
    fn day(&self) -> String {
        rfc3339(self.start_ns)[..10].to_owned()
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { start_ns, length_ns, run, epoch } = self;
        write!(f, "{start_ns}-{length_ns}-{run:016x}-{epoch}.fgs")
    }
}

impl Journal {
    /// Opens the journal, creating its folder if needed. `left` has what the one before knew.
    pub(crate) fn open(
        folder: &Path,
        options: JournalOptions,
        left: &KeptFiles,
    ) -> Result<Self, Failure> {
        let failed = |error: io::Error| {
            Failure::Output(format!("cannot keep epochs in {}: {error}", folder.display()))
        };
        fs::create_dir_all(folder).map_err(failed)?;
        let (number, known) = {
            let mut left = left.lock();
            left.journals += 1;
            (left.journals, left.files.take().filter(|(of, ..)| of == folder))
        };
        let (folder, measurements, kept) = match known {
            Some(known) => known,
            None => look(folder).map_err(failed)?,
        };
        let (counts, left) = (Arc::new(Counts::default()), (left.clone(), number));
        let mut journal = Self { folder, options, measurements, kept, counts, left };
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

    /// Removes epochs that are too old, some at a time, then the oldest until there is room for
    /// `bytes` more.
    fn remove_old(&mut self, bytes: u64) {
        let oldest_ns = now_ns().saturating_sub_unsigned(self.options.keep.0);
        for _ in 0..TOO_OLD {
            if self.kept.front().is_none_or(|oldest| oldest.name.start_ns >= oldest_ns) {
                break;
            }
            self.remove_oldest();
        }
        while self.bytes() + bytes > self.options.max_size.0 && self.remove_oldest() {}
    }

    /// Removes the oldest epoch; `false` if there is none.
    fn remove_oldest(&mut self) -> bool {
        let Some(oldest) = self.kept.pop_front() else { return false };
        let path = self.path(&oldest);
        // The file may be gone already. A file that cannot be removed no longer counts.
        let _ = fs::remove_file(&path);
        // A day's folder is removed with its last epoch.
        let _ = path.parent().map(fs::remove_dir);
        self.counts.epochs.fetch_sub(1, Ordering::Relaxed);
        self.counts.bytes.fetch_sub(oldest.bytes, Ordering::Relaxed);
        self.counts.removed.fetch_add(1, Ordering::Relaxed);
        true
    }

    /// The path of an epoch.
    fn path(&self, kept: &Kept) -> PathBuf {
        let measurement = &self.measurements[kept.measurement as usize];
        self.folder.join(measurement).join(kept.name.day()).join(kept.name.to_string())
    }

    /// The place of a measurement, which may be new.
    fn measurement(&mut self, name: &str) -> u32 {
        let place = self.measurements.iter().position(|own| own == name);
        let place = place.unwrap_or_else(|| {
            self.measurements.push(name.to_owned());
            self.measurements.len() - 1
        });
        place as u32
    }

    fn keep(&mut self, saved: &Saved) -> io::Result<()> {
        let bytes = saved.bytes.len() as u64;
        self.remove_old(bytes);
        let (start_ns, end_ns) = saved.bounds_ns;
        let length_ns = end_ns.abs_diff(start_ns);
        let name = Name { start_ns, length_ns, run: saved.run, epoch: saved.epoch };
        let measurement = self.measurement(&saved.measurement);
        let kept = Kept { name, bytes, measurement };
        let path = self.path(&kept);
        let folder = path.parent().unwrap_or(&self.folder).to_owned();
        while let Err(error) = write(&folder, &path, &saved.bytes) {
            if !is_full(&error) || !self.remove_oldest() {
                return Err(error);
            }
        }
        let place = self.kept.partition_point(|kept| kept.name.start_ns <= start_ns);
        self.kept.insert(place, kept);
        self.counts.epochs.fetch_add(1, Ordering::Relaxed);
        self.counts.bytes.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        let (files, number) = &self.left;
        let mut left = files.lock();
        if left.journals == *number {
            let (measurements, kept) =
                (mem::take(&mut self.measurements), mem::take(&mut self.kept));
            left.files = Some((mem::take(&mut self.folder), measurements, kept));
        }
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

/// Whether there is no room on the disk.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
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

/// The files in a journal's folder.
fn look(folder: &Path) -> io::Result<(PathBuf, Vec<String>, VecDeque<Kept>)> {
    let (mut kept, mut measurements) = (Vec::new(), Vec::new());
    for path in folders(folder, "")? {
        let measurement = measurements.len() as u32;
        measurements.extend(path.file_name().map(|name| name.to_string_lossy().into_owned()));
        for day in folders(&path, "")? {
            collect(&day, measurement, &mut kept)?;
        }
    }
    kept.sort();
    Ok((folder.to_owned(), measurements, kept.into()))
}

/// Adds the epochs of a measurement's day, and removes files that a killed agent left unfinished.
fn collect(day: &Path, measurement: u32, kept: &mut Vec<Kept>) -> io::Result<()> {
    for entry in fs::read_dir(day)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == PART) {
            fs::remove_file(&path)?;
            continue;
        }
        let name = path.file_name().and_then(|name| Name::parse(name.to_str()?));
        if let Some(name) = name {
            kept.push(Kept { name, bytes: fs::metadata(&path)?.len(), measurement });
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
        let journal = Journal::open(&folder, options, &KeptFiles::default()).unwrap();
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
            assert!(journal.path(kept).is_file());
            kept.name.epoch.to_string()
        });
        names.collect()
    }

    #[test]
    fn names_are_parsed_and_an_epoch_takes_little_memory() {
        for name in [
            Name { start_ns: -5, length_ns: 7, run: u64::MAX, epoch: 0 },
            Name { start_ns: i64::MAX, length_ns: 0, run: 0xf, epoch: 12 },
        ] {
            assert_eq!(Name::parse(&name.to_string()), Some(name));
        }
        assert_eq!(Name::parse("5-7-f.fgs"), None);
        assert_eq!(Name::parse("5-7-f-1.part"), None);
        // As the documentation says.
        assert_eq!(size_of::<Kept>(), 48);
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
        let journal = Journal::open(&folder, options, &KeptFiles::default()).unwrap();
        assert_eq!(there(&journal), ["3"]);
        assert_eq!(journal.bytes(), 100);
        fs::remove_dir_all(folder).unwrap();
    }

    /// A clock that is wrong by a month takes a few, and then no more.
    #[test]
    fn a_wrong_clock_removes_few_epochs() {
        let (folder, mut journal) = journal("clock", 24, 1 << 20);
        for number in 0..40 {
            journal.keep(&epoch(number, 10)).unwrap();
        }
        journal.options.keep = Time(HOUR_NS.unsigned_abs());
        journal.keep(&epoch(40, 0)).unwrap();
        assert_eq!(there(&journal).len(), 40 - TOO_OLD + 1);
        for number in 41..44 {
            journal.keep(&epoch(number, 0)).unwrap();
        }
        assert_eq!(there(&journal), ["40", "41", "42", "43"]);
        fs::remove_dir_all(folder).unwrap();
    }

    /// What the one before knew, it need not look for; only the latest one leaves it.
    #[test]
    fn the_next_journal_knows_the_files() {
        let (folder, journal) = journal("left", 10, 1000);
        let (options, files) = (journal.options, KeptFiles::default());
        let open = || Journal::open(&folder, options, &files).unwrap();
        let mut first = open();
        first.keep(&epoch(0, 1)).unwrap();
        drop(first);
        // A file that nothing has told it of.
        let hidden = Name { start_ns: now_ns(), length_ns: 1, run: 7, epoch: 9 };
        let day = folder.join("main").join(hidden.day());
        fs::create_dir_all(&day).unwrap();
        fs::write(day.join(hidden.to_string()), []).unwrap();
        let second = open();
        assert_eq!(there(&second), ["0"]);
        assert_eq!(second.bytes(), 100);
        // While the second goes on, the third has to look.
        let third = open();
        assert_eq!(there(&third), ["0", "9"]);
        drop(second);
        drop(third);
        assert_eq!(there(&open()), ["0", "9"]);
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn unfinished_files_of_a_killed_agent_are_removed() {
        let (folder, mut journal) = journal("part", 10, 1000);
        journal.keep(&epoch(0, 0)).unwrap();
        let day = journal.path(&journal.kept[0]).parent().unwrap().to_owned();
        fs::write(day.join("9-9-0-9.part"), [0; 10]).unwrap();
        let journal = Journal::open(&folder, journal.options, &KeptFiles::default()).unwrap();
        assert_eq!(there(&journal), ["0"]);
        assert_eq!(fs::read_dir(day).unwrap().count(), 1);
        fs::remove_dir_all(folder).unwrap();
    }
}
