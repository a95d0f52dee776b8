//! Reports in files. A new file starts whenever the time in the name changes.

use std::fs::{self, File, FileType, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use flowgauge_engine::sink::{Format, Item, Line, Sink, SinkError, Takes};
use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::Failure;
use crate::config::{FileFormat, FilesOptions};
use crate::lines::Lines;
use crate::replay::now_ns;

/// Rejects a path with a conversion that strftime does not know.
pub(crate) fn check(options: &FilesOptions) -> Result<(), String> {
    named(&options.path, 0).map_err(|error| format!("sinks.files.path: {error}"))?;
    if options.keep.is_some() && !options.path.contains('%') {
        return Err("sinks.files.keep needs a time in sinks.files.path, such as %Y%m%d".to_owned());
    }
    Ok(())
}

/// The path of the file for a point in time.
fn named(path: &str, time_ns: i64) -> Result<PathBuf, jiff::Error> {
    let time = Timestamp::from_nanosecond(time_ns.into())?.to_zoned(TimeZone::UTC);
    jiff::fmt::strtime::format(path, &time).map(PathBuf::from)
}

/// The folder that contains all files of a path.
pub(crate) fn folder(path: &str) -> PathBuf {
    PathBuf::from(divided(path).0)
}

/// The folder that contains all files of a path, and the pattern of their paths in it.
fn divided(path: &str) -> (&str, &str) {
    let fixed = &path[..path.find('%').unwrap_or(path.len())];
    fixed.rfind('/').map_or((".", path), |slash| (&path[..slash.max(1)], &path[slash + 1..]))
}

/// Writes reports to files.
pub(crate) struct Files {
    options: FilesOptions,
    format: Box<dyn Format>,
    open: Option<(PathBuf, File)>,
    line: Vec<u8>,
}

impl Files {
    /// Opens the file for the current time.
    pub(crate) fn open(options: &FilesOptions, lines: Lines) -> Result<Self, Failure> {
        let format: Box<dyn Format> = match options.format {
            FileFormat::Json => Box::new(lines),
            FileFormat::Line => Box::new(Line),
        };
        let options = options.clone();
        let mut files = Self { options, format, open: None, line: Vec::new() };
        let path = files.path(now_ns());
        files.switch(&path).map_err(|error| {
            Failure::Output(format!("cannot write to {}: {error}", path.display()))
        })?;
        Ok(files)
    }

    fn path(&self, time_ns: i64) -> PathBuf {
        named(&self.options.path, time_ns).unwrap_or_default()
    }

    /// Switches to the file at `path` unless it is open already, and removes files that are too
    /// old.
    fn switch(&mut self, path: &Path) -> io::Result<()> {
        if self.open.as_ref().is_some_and(|(open, _)| open == path) {
            return Ok(());
        }
        self.open = None;
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        let mut file = OpenOptions::new().read(true).append(true).create(true).open(path)?;
        mend(&mut file)?;
        self.open = Some((path.to_owned(), file));
        self.remove_old(path);
        Ok(())
    }

    /// Removes other files than this one that match the path and were last written too long ago,
    /// and folders that are empty then.
    fn remove_old(&self, path: &Path) {
        let Some(keep) = self.options.keep else { return };
        let (folder, pattern) = divided(&self.options.path);
        let own = path.strip_prefix(folder).unwrap_or(path);
        for file in files(Path::new(folder), pattern.matches('/').count()) {
            let Ok(name) = file.strip_prefix(folder) else { continue };
            let written = file.metadata().and_then(|metadata| metadata.modified());
            let age = written.ok().and_then(|time| SystemTime::now().duration_since(time).ok());
            let is_old = age.is_some_and(|age| age > Duration::from_nanos(keep.0));
            if is_old && name != own && is_named(pattern, &name.to_string_lossy()) {
                // A file that cannot be removed is tried again with the next one.
                let _ = fs::remove_file(&file);
                let inner = name.ancestors().skip(1).filter(|inner| *inner != Path::new(""));
                inner.for_each(|inner| drop(fs::remove_dir(Path::new(folder).join(inner))));
            }
        }
    }

    fn write(&mut self, item: &Item, path: &Path) -> io::Result<()> {
        self.line.clear();
        self.format.item(item, &mut self.line)?;
        self.switch(path)?;
        let Some((_, file)) = &mut self.open else { return Ok(()) };
        let before = file.metadata()?.len();
        let written = file.write_all(&self.line);
        if written.is_err() {
            // Readers must not see part of a line.
            let _ = file.set_len(before);
            self.open = None;
        }
        written
    }
}

impl Sink for Files {
    fn takes(&self) -> Takes {
        Takes::Reports
    }

    fn deliver(&mut self, item: &Item) -> Result<(), SinkError> {
        let time_ns = match item {
            Item::Epoch(report) => report.start_ns,
            Item::Gap(gap) => Some(gap.start_ns),
            Item::Snapshot(_) | Item::Total(_) => None,
        };
        let path = self.path(time_ns.unwrap_or_else(now_ns));
        self.write(item, &path).map_err(|error| SinkError::new(&path.display().to_string(), error))
    }

    fn finish(&mut self) -> Result<(), SinkError> {
        let Some((path, file)) = &self.open else { return Ok(()) };
        file.sync_all().map_err(|error| SinkError::new(&path.display().to_string(), error))
    }
}

/// The files that are this many folders below a folder.
fn files(folder: &Path, depth: usize) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let is = |entry: &fs::DirEntry, wanted: fn(&FileType) -> bool| {
        entry.file_type().is_ok_and(|kind| wanted(&kind))
    };
    if depth == 0 {
        let files = entries.filter(|entry| is(entry, FileType::is_file));
        return files.map(|entry| entry.path()).collect();
    }
    let folders = entries.filter(|entry| is(entry, FileType::is_dir));
    folders.flat_map(|entry| files(&entry.path(), depth - 1)).collect()
}

/// Whether a name matches the pattern for some time.
fn is_named(pattern: &str, name: &str) -> bool {
    jiff::fmt::strtime::parse(pattern, name).is_ok()
}

/// Cuts off an incomplete line that a killed agent left at the end.
fn mend(file: &mut File) -> io::Result<()> {
    const STEP: u64 = 1 << 16;
    let length = file.metadata()?.len();
    let (mut end, mut bytes) = (length, Vec::new());
    while end > 0 {
        let start = end.saturating_sub(STEP);
        file.seek(SeekFrom::Start(start))?;
        bytes.clear();
        (&*file).take(end - start).read_to_end(&mut bytes)?;
        if let Some(place) = bytes.iter().rposition(|byte| *byte == b'\n') {
            end = start + place as u64 + 1;
            break;
        }
        end = start;
    }
    if end < length { file.set_len(end) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;
    use crate::config::Time;

    #[test]
    fn a_torn_line_is_cut_off() {
        let path = std::env::temp_dir().join(format!("flowgauge-torn-{}", std::process::id()));
        let long = "x".repeat(200_000);
        for (before, after) in [
            (String::new(), 0),
            ("a\nb\n".to_owned(), 4),
            ("a\nb".to_owned(), 2),
            ("torn".to_owned(), 0),
            (format!("a\n{long}"), 2),
            (format!("a\n{long}\n"), 200_003),
        ] {
            fs::write(&path, before).unwrap();
            let mut file = OpenOptions::new().read(true).append(true).open(&path).unwrap();
            mend(&mut file).unwrap();
            assert_eq!(fs::metadata(&path).unwrap().len(), after);
        }
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn names_are_told_from_those_of_other_files() {
        assert_eq!(named("a/%Y%m%d.jsonl", 0).ok(), Some(PathBuf::from("a/19700101.jsonl")));
        assert!(named("%!", 0).is_err());
        for (pattern, name, is_ours) in [
            ("%Y%m%d.jsonl", "20261125.jsonl", true),
            ("a-%Y-%m-%dT%H.jsonl", "a-2026-11-25T07.jsonl", true),
            ("%Y%m%d.jsonl", "notes.jsonl", false),
            ("%Y%m%d.jsonl", "20261125-copy.jsonl", false),
            ("%Y%m%d.jsonl", "20261325.jsonl", false),
            ("a-%Y%m%d.jsonl", "b-20261125.jsonl", false),
            ("%Y%m/%d.jsonl", "202611/25.jsonl", true),
            ("%Y%m/%d.jsonl", "202611/notes.jsonl", false),
        ] {
            assert_eq!(is_named(pattern, name), is_ours, "{name}");
        }
    }

    #[test]
    fn old_files_go_from_every_folder_of_the_path() {
        let root = std::env::temp_dir().join(format!("flowgauge-keep-{}", std::process::id()));
        let _ = fs::remove_dir_all(&root);
        let path = format!("{}/a/%Y/%m/%d.jsonl", root.display());
        assert_eq!(divided(&path), (&*format!("{}/a", root.display()), "%Y/%m/%d.jsonl"));
        let there = |name: &str| root.join("a").join(name);
        for name in ["2025/01/01.jsonl", "2025/02/01.jsonl", "2025/02/notes", "2026/01/01.jsonl"] {
            fs::create_dir_all(there(name).parent().unwrap()).unwrap();
            let file = File::create(there(name)).unwrap();
            let old = SystemTime::now() - Duration::from_secs(86_400);
            file.set_modified(if name.starts_with("2025") { old } else { SystemTime::now() })
                .unwrap();
        }
        let keep = Some(Time(3_600_000_000_000));
        let options = FilesOptions { format: FileFormat::Line, path, keep, anonymize: None };
        let mut files = Files { options, format: Box::new(Line), open: None, line: Vec::new() };
        files.switch(&there("2026/01/02.jsonl")).unwrap();
        assert!(!there("2025/01").exists() && !there("2025/02/01.jsonl").exists());
        assert!(there("2025/02/notes").exists() && there("2026/01/01.jsonl").exists());
        assert!(there("2026/01/02.jsonl").exists());
        fs::remove_dir_all(root).unwrap();
    }
}
