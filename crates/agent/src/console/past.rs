//! The points of the last day, saved in the agent's folder to survive restarts.
//!
//! A point is appended when its minute is over, and at the end of a run. If several lines are of
//! one minute, the last one counts. The file is rewritten once half of its lines are superseded.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::history::{History, Point};
use crate::journal;
use crate::log::warn;

/// The file name in the agent's folder.
const NAME: &str = "console.jsonl";

/// A file with fewer lines is never rewritten.
const FEW: usize = 1000;

/// A line of the file.
#[derive(Serialize, Deserialize)]
struct Line<M> {
    measurement: M,
    point: Point,
}

impl<M: Serialize> Line<M> {
    fn write(&self, to: &mut Vec<u8>) -> io::Result<()> {
        serde_json::to_writer(&mut *to, self)?;
        to.push(b'\n');
        Ok(())
    }
}

/// Histories by measurement.
pub(super) type Histories = BTreeMap<Arc<str>, History>;

/// The file, open for appending.
pub(crate) struct Past {
    folder: PathBuf,
    file: File,
    /// Number of lines, or `usize::MAX` if the last line may be unfinished.
    lines: usize,
    /// Whether the last write failed.
    is_failing: bool,
}

impl Past {
    /// Opens the file, creating it if needed, and returns its points of the day before `now_ns`.
    /// Ignores a line that a killed agent left unfinished.
    pub(super) fn open(folder: &Path, now_ns: i64) -> io::Result<(Self, Histories)> {
        let path = folder.join(NAME);
        let text = match fs::read(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
            read => read?,
        };
        let mut histories = Histories::new();
        for line in text.split(|byte| *byte == b'\n') {
            if let Ok(Line { measurement, point }) = serde_json::from_slice::<Line<Box<str>>>(line)
                && point.is_of_day_before(now_ns)
            {
                histories.entry(measurement.into()).or_default().replace(&point);
            }
        }
        let all = histories.iter().map(|(name, history)| (&**name, history));
        let (file, lines) = rewritten(folder, all)?;
        Ok((Self { folder: folder.to_owned(), file, lines, is_failing: false }, histories))
    }

    /// Saves a point that `histories` already contains. A write error is reported once.
    pub(super) fn keep<'a>(
        &mut self,
        measurement: &str,
        point: &Point,
        histories: impl Iterator<Item = (&'a str, &'a History)> + Clone,
    ) {
        let kept = self.try_keep(measurement, point, histories);
        if let Err(error) = &kept
            && !self.is_failing
        {
            warn(&format!("cannot keep the last day in {}: {error}", self.folder.display()));
        }
        self.is_failing = kept.is_err();
    }

    fn try_keep<'a>(
        &mut self,
        measurement: &str,
        point: &Point,
        histories: impl Iterator<Item = (&'a str, &'a History)> + Clone,
    ) -> io::Result<()> {
        let useful: usize = histories.clone().map(|(_, history)| history.points().len()).sum();
        if self.is_failing || self.lines > (2 * useful).max(FEW) {
            (self.file, self.lines) = rewritten(&self.folder, histories)?;
            return Ok(());
        }
        let mut line = Vec::new();
        Line { measurement, point: *point }.write(&mut line)?;
        self.lines += 1;
        self.file.write_all(&line)
    }
}

/// Rewrites the file with these points.
fn rewritten<'a>(
    folder: &Path,
    histories: impl Iterator<Item = (&'a str, &'a History)>,
) -> io::Result<(File, usize)> {
    let (mut text, mut lines) = (Vec::new(), 0);
    for (measurement, history) in histories {
        for point in history.points() {
            Line { measurement, point: *point }.write(&mut text)?;
            lines += 1;
        }
    }
    let path = folder.join(NAME);
    journal::write(folder, &path, &text)?;
    Ok((OpenOptions::new().append(true).open(path)?, lines))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may panic")]

    use super::super::history::tests::{epoch, with_flows};
    use super::*;

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("flowgauge-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    fn all(histories: &Histories) -> impl Iterator<Item = (&str, &History)> + Clone {
        histories.iter().map(|(name, history)| (&**name, history))
    }

    #[test]
    fn a_restart_finds_the_last_day() {
        let folder = folder("past");
        let now_ns = 89_999 * 1_000_000_000;
        let (mut past, mut histories) = Past::open(&folder, now_ns).unwrap();
        assert!(histories.is_empty());
        // A day and an hour, then a minute that continues after a restart.
        let flows = histories.entry("flows".into()).or_default();
        for second in (0..90_000).step_by(60) {
            flows.add(&with_flows(second, 7.0, 6.0, f64::INFINITY));
            past.keep("flows", &flows.newest().copied().unwrap(), [("flows", &*flows)].into_iter());
        }
        let (mut past, mut read) = Past::open(&folder, now_ns).unwrap();
        assert!(read["flows"].json() == histories["flows"].json());
        assert_eq!(read["flows"].points().len(), 24 * 60);
        let newest = read.get_mut("flows").unwrap();
        newest.add(&epoch(90_000 - 50));
        let (point, expected) = (*newest.newest().unwrap(), newest.json());
        past.keep("flows", &point, all(&read));
        // As if killed in the middle of a line.
        past.file.write_all(b"{\"measurement\":\"flo").unwrap();
        let (_, read) = Past::open(&folder, now_ns).unwrap();
        assert!(read["flows"].json() == expected);
        // Two days later, all points are too old.
        assert!(Past::open(&folder, 3 * now_ns).unwrap().1.is_empty());
        assert_eq!(fs::read(folder.join(NAME)).unwrap(), b"");
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn the_file_does_not_grow() {
        let folder = folder("tidy");
        let (mut past, _) = Past::open(&folder, 0).unwrap();
        let mut histories = Histories::new();
        histories.entry("flows".into()).or_default().add(&epoch(0));
        let point = epoch(0);
        for _ in 0..10 * FEW {
            past.keep("flows", &point, all(&histories));
        }
        let lines = fs::read_to_string(folder.join(NAME)).unwrap().lines().count();
        assert!((1..=FEW + 1).contains(&lines), "{lines} lines");
        fs::remove_dir_all(folder).unwrap();
    }
}
