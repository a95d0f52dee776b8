//! The last day of a measurement, with one point per minute.

use std::collections::{BTreeMap, VecDeque};
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use flowgauge_core::summary::Estimate;
use flowgauge_core::task::{Report, Selection};
use flowgauge_core::terms::Measure;
use flowgauge_engine::report::EpochReport;
use flowgauge_engine::sink::rfc3339;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value, json};

use crate::journal::{self, is_full};
use crate::log::warn;

/// Length of a point. Epochs that begin in the same minute share a point.
pub(super) const STEP_NS: i64 = 60_000_000_000;

/// Minutes kept: one day.
const DAY: i64 = 24 * 60;

/// Maximum number of points, even if a clock is set back.
const POINTS: usize = 24 * 60;

/// The estimates of a point, in the order of [`Point::means`].
const ESTIMATES: [&str; 4] = ["flows", "entropy", "largest_share", "distinct"];

/// An estimate and its bounds, summed over epochs.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct Mean {
    epochs: u32,
    value: f64,
    low: f64,
    #[serde(deserialize_with = "bound")]
    high: f64,
}

/// An upper bound. JSON writes infinity as `null`.
fn bound<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or(f64::INFINITY))
}

impl Mean {
    fn add(&mut self, estimate: &Estimate) {
        self.epochs += 1;
        self.value += estimate.value;
        self.low += estimate.low;
        self.high += estimate.high;
    }

    /// The mean. JSON has no infinity, so `null` means no upper bound.
    fn json(&self) -> Option<Value> {
        let mean = |sum: f64| sum / f64::from(self.epochs);
        (self.epochs > 0).then(
            || json!({ "value": mean(self.value), "low": mean(self.low), "high": mean(self.high) }),
        )
    }
}

/// Sums over the epochs of one minute, or over one longer epoch.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(super) struct Point {
    start_ns: i64,
    end_ns: i64,
    epochs: u32,
    /// Observed time.
    seconds: f64,
    packets: u64,
    bytes: u64,
    lost: u64,
    means: [Mean; ESTIMATES.len()],
}

impl Point {
    /// The point of one epoch, or `None` if it has no packets.
    pub(super) fn of(report: &EpochReport) -> Option<Self> {
        let (start_ns, end_ns) = (report.start_ns?, report.end_ns?);
        let seconds = end_ns.saturating_sub(start_ns) as f64 / 1e9 * report.coverage;
        let keyed = report.keyed();
        let lost = report.account.lost + report.account.dropped.packets;
        let (packets, bytes) = (keyed.packets, keyed.bytes);
        let mut point =
            Self { start_ns, end_ns, epochs: 1, seconds, packets, bytes, lost, ..Self::default() };
        for (estimate, mean) in estimates(report).iter().zip(&mut point.means) {
            if let Some(estimate) = estimate {
                mean.add(estimate);
            }
        }
        Some(point)
    }

    pub(super) fn start_ns(&self) -> i64 {
        self.start_ns
    }

    pub(super) fn minute(&self) -> i64 {
        self.start_ns.div_euclid(STEP_NS)
    }

    /// Whether it lies in the day before `now_ns`. After a clock was set back, points in the future
    /// do not.
    pub(super) fn is_of_day_before(&self, now_ns: i64) -> bool {
        let minute = now_ns.div_euclid(STEP_NS);
        (minute - DAY < self.minute()) && self.minute() <= minute
    }

    fn add(&mut self, other: &Self) {
        self.end_ns = self.end_ns.max(other.end_ns);
        self.epochs += other.epochs;
        self.seconds += other.seconds;
        self.packets += other.packets;
        self.bytes += other.bytes;
        self.lost += other.lost;
        for (mean, more) in self.means.iter_mut().zip(&other.means) {
            mean.epochs += more.epochs;
            mean.value += more.value;
            mean.low += more.low;
            mean.high += more.high;
        }
    }

    pub(super) fn json(&self) -> Value {
        let mut point = Map::new();
        point.insert("start".to_owned(), rfc3339(self.start_ns).into());
        point.insert("end".to_owned(), rfc3339(self.end_ns).into());
        point.insert("epochs".to_owned(), self.epochs.into());
        point.insert("seconds".to_owned(), self.seconds.into());
        point.insert("packets".to_owned(), self.packets.into());
        point.insert("bytes".to_owned(), self.bytes.into());
        point.insert("lost".to_owned(), self.lost.into());
        for (name, mean) in ESTIMATES.into_iter().zip(&self.means) {
            if let Some(mean) = mean.json() {
                point.insert(name.to_owned(), mean);
            }
        }
        point.into()
    }
}

/// The estimates of a report, in the order of their names.
fn estimates(report: &EpochReport) -> [Option<Estimate>; ESTIMATES.len()] {
    let mut estimates = [None; ESTIMATES.len()];
    for (_, answer) in &report.tasks {
        let (place, estimate) = match answer {
            Report::Cardinality { flows } => (0, Some(*flows)),
            Report::Entropy { bits, .. } => (1, Some(*bits)),
            Report::Sizes { selection, items, .. } if *selection != Selection::Asked => {
                let share = items.first().and_then(|item| {
                    let weight = match report.by {
                        Measure::Packets => item.size.packets,
                        Measure::Bytes => item.size.bytes,
                    };
                    weight.and_then(|weight| share(&weight, item.share))
                });
                (2, share)
            }
            Report::Spread { items, .. } => (3, items.first().map(|item| item.distinct)),
            _ => continue,
        };
        estimates[place] = estimates[place].or(estimate);
    }
    estimates
}

/// The weight's share of all weight, as an estimate with bounds.
fn share(weight: &Estimate, share: f64) -> Option<Estimate> {
    let of = |bound: f64| bound / weight.value * share;
    (weight.value > 0.0).then(|| Estimate {
        value: share,
        low: of(weight.low),
        high: of(weight.high).min(1.0),
        confidence: weight.confidence,
    })
}

/// The points of a measurement, oldest first.
#[derive(Debug, Default)]
pub(super) struct History(VecDeque<Point>);

impl History {
    /// Adds a point to its minute, and drops points older than a day.
    pub(super) fn add(&mut self, point: &Point) {
        match self.0.back_mut() {
            Some(last) if last.minute() == point.minute() => last.add(point),
            _ => self.0.push_back(*point),
        }
        self.forget(point);
    }

    /// Like [`add`](Self::add), but replaces the newest point if it is of the same minute.
    pub(super) fn replace(&mut self, point: &Point) {
        match self.0.back_mut() {
            Some(last) if last.minute() == point.minute() => *last = *point,
            _ => self.0.push_back(*point),
        }
        self.forget(point);
    }

    /// Drops points older than a day before this point.
    fn forget(&mut self, point: &Point) {
        let first = point.minute() - DAY;
        while self.0.len() > POINTS || self.0.front().is_some_and(|oldest| oldest.minute() <= first)
        {
            self.0.pop_front();
        }
    }

    pub(super) fn newest(&self) -> Option<&Point> {
        self.0.back()
    }

    /// The points, oldest first.
    pub(super) fn points(&self) -> impl ExactSizeIterator<Item = &Point> {
        self.0.iter()
    }

    pub(super) fn json(&self) -> Value {
        self.0.iter().map(Point::json).collect()
    }
}

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
    /// `None` until it can be written.
    file: Option<File>,
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
        let mut past = Self { folder: folder.to_owned(), file: None, lines: 0, is_failing: false };
        match rewritten(folder, all) {
            Ok((file, lines)) => (past.file, past.lines) = (Some(file), lines),
            // The journal fills it, and frees only what it needs. Measuring goes on.
            Err(error) if is_full(&error) => past.fail(&error),
            Err(error) => return Err(error),
        }
        Ok((past, histories))
    }

    fn fail(&mut self, error: &io::Error) {
        if !self.is_failing {
            warn(&format!("cannot keep the last day in {}: {error}", self.folder.display()));
        }
        self.is_failing = true;
    }

    /// Saves a point that `histories` already contains. A write error is reported once.
    pub(super) fn keep<'a>(
        &mut self,
        measurement: &str,
        point: &Point,
        histories: impl Iterator<Item = (&'a str, &'a History)> + Clone,
    ) {
        match self.try_keep(measurement, point, histories) {
            Ok(()) => self.is_failing = false,
            Err(error) => self.fail(&error),
        }
    }

    fn try_keep<'a>(
        &mut self,
        measurement: &str,
        point: &Point,
        histories: impl Iterator<Item = (&'a str, &'a History)> + Clone,
    ) -> io::Result<()> {
        let useful: usize = histories.clone().map(|(_, history)| history.points().len()).sum();
        let file = self.file.as_mut().filter(|_| !self.is_failing);
        let Some(file) = file.filter(|_| self.lines <= (2 * useful).max(FEW)) else {
            let (file, lines) = rewritten(&self.folder, histories)?;
            (self.file, self.lines) = (Some(file), lines);
            return Ok(());
        };
        let mut line = Vec::new();
        Line { measurement, point: *point }.write(&mut line)?;
        self.lines += 1;
        file.write_all(&line)
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
pub(super) mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may panic")]

    use std::os::unix::fs::symlink;

    use super::*;
    use crate::journal::PART;

    const SECOND_NS: i64 = 1_000_000_000;

    /// An epoch of ten seconds whose packet count equals its start in seconds.
    pub(crate) fn epoch(second: i64) -> Point {
        let (start_ns, end_ns) = (second * SECOND_NS, (second + 10) * SECOND_NS);
        let packets = second.unsigned_abs();
        Point {
            start_ns,
            end_ns,
            epochs: 1,
            seconds: 10.0,
            packets,
            bytes: 2,
            lost: 1,
            ..Point::default()
        }
    }

    pub(crate) fn with_flows(second: i64, value: f64, low: f64, high: f64) -> Point {
        let mut point = epoch(second);
        point.means[0].add(&Estimate { value, low, high, confidence: None });
        point
    }

    #[test]
    fn epochs_of_a_minute_are_one_point() {
        let mut history = History::default();
        history.add(&with_flows(120, 10.0, 8.0, 12.0));
        history.add(&with_flows(130, 20.0, 10.0, 40.0));
        // A point without the estimate does not count for its mean.
        history.add(&epoch(170));
        history.add(&with_flows(180, 7.0, 7.0, f64::INFINITY));
        let points = history.json();
        assert_eq!(points.as_array().map(Vec::len), Some(2));
        let expected = json!({
            "start": "1970-01-01T00:02:00.000000000Z", "end": "1970-01-01T00:03:00.000000000Z",
            "epochs": 3, "seconds": 30.0, "packets": 420, "bytes": 6, "lost": 3,
            "flows": { "value": 15.0, "low": 9.0, "high": 26.0 },
        });
        assert_eq!(points[0], expected);
        assert_eq!(points[1]["flows"], json!({ "value": 7.0, "low": 7.0, "high": null }));
        assert!(points[1].get("entropy").is_none());
    }

    #[test]
    fn an_epoch_longer_than_a_minute_is_a_point() {
        let mut history = History::default();
        for start in [0, 300, 600] {
            history.add(&Point {
                end_ns: (start + 300) * SECOND_NS,
                seconds: 300.0,
                ..epoch(start)
            });
        }
        assert_eq!(history.0.len(), 3);
        assert_eq!(history.newest().map(|point| (point.epochs, point.packets)), Some((1, 600)));
    }

    #[test]
    fn a_day_is_kept() {
        let mut history = History::default();
        for minute in 0..2 * DAY {
            for second in [0, 10] {
                history.add(&epoch(60 * minute + second));
            }
        }
        assert_eq!(history.0.len(), POINTS);
        assert_eq!(history.0[0].start_ns, DAY * STEP_NS);
        // After a gap of an hour, points older than a day are gone.
        history.add(&epoch(60 * (2 * DAY + 60)));
        assert_eq!(history.0.len(), POINTS - 60);
        // A clock that was set back keeps the limit.
        for minute in 0..2 * DAY {
            history.add(&epoch(60 * minute));
        }
        assert!(history.0.len() <= POINTS);
    }

    #[test]
    fn bounds_of_a_share_are_those_of_its_weight() {
        let weight = Estimate { value: 50.0, low: 40.0, high: 500.0, confidence: Some(0.95) };
        let share = share(&weight, 0.5);
        assert_eq!(share.map(|share| (share.value, share.low, share.high)), Some((0.5, 0.4, 1.0)));
        assert!(super::share(&Estimate { value: 0.0, ..weight }, 0.0).is_none());
    }

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
        past.file.as_mut().unwrap().write_all(b"{\"measurement\":\"flo").unwrap();
        let (_, read) = Past::open(&folder, now_ns).unwrap();
        assert!(read["flows"].json() == expected);
        // Two days later, all points are too old.
        assert!(Past::open(&folder, 3 * now_ns).unwrap().1.is_empty());
        assert_eq!(fs::read(folder.join(NAME)).unwrap(), b"");
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_full_disk_costs_only_the_file() {
        let folder = folder("full");
        let (mut past, mut histories) = Past::open(&folder, 0).unwrap();
        histories.entry("flows".into()).or_default().add(&epoch(0));
        past.keep("flows", &epoch(0), all(&histories));
        symlink("/dev/full", folder.join(NAME).with_extension(PART)).unwrap();
        let (mut past, histories) = Past::open(&folder, 0).unwrap();
        assert!(past.is_failing && past.file.is_none());
        assert_eq!(histories["flows"].points().len(), 1);
        past.keep("flows", &epoch(0), all(&histories));
        assert!(!past.is_failing && past.file.is_some());
        assert_eq!(fs::read_to_string(folder.join(NAME)).unwrap().lines().count(), 1);
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
