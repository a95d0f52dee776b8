//! The Kafka sinks of reports and of snapshots, which resends missed ones from the journal.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use flowgauge_engine::sink::{Format, Item, Sink, SinkError, Takes, rfc3339, units};
use flowgauge_engine::snapshot::Saved;
use serde::{Deserialize, Serialize};

use super::producer::{Producer, Record};
use super::{Options, What};
use crate::journal::Name;
use crate::lines::Lines;
use crate::log::say;
use crate::{Failure, journal};

/// Sends each report, gap and total as a JSON object.
pub(super) struct Reports {
    producer: Producer,
    lines: Lines,
    configuration: String,
    line: Vec<u8>,
}

impl Reports {
    pub(super) fn new(producer: Producer, lines: Lines, configuration: &str) -> Self {
        Self { producer, lines, configuration: configuration.to_owned(), line: Vec::new() }
    }
}

impl Sink for Reports {
    fn takes(&self) -> Takes {
        Takes::Reports
    }

    fn deliver(&mut self, item: &Item) -> Result<(), SinkError> {
        let (kind, measurement, run, epoch) = match item {
            // The final report of an epoch repeats its updates.
            Item::Epoch(report) if report.update => return Ok(()),
            Item::Epoch(report) => ("epoch", &report.measurement, report.run, Some(report.epoch)),
            Item::Gap(gap) => ("gap", &gap.measurement, gap.run, Some(gap.epoch)),
            Item::Total(total) => ("total", &total.measurement, total.run, None),
            Item::Snapshot(_) => return Ok(()),
        };
        let network = match item {
            Item::Epoch(report) => report.network.as_ref().map(|network| &*network.id),
            _ => None,
        };
        self.line.clear();
        let written = self.lines.item(item, &mut self.line);
        written.map_err(|error| self.producer.error(error))?;
        self.producer.send(&Record {
            kind,
            network,
            measurement,
            run,
            epoch,
            bounds_ns: None,
            configuration: Some(&self.configuration),
            content_type: "application/json",
            payload: self.line.trim_ascii_end(),
        })
    }
}

/// The agent that sends.
pub(crate) struct From<'a> {
    /// Its name.
    pub(crate) agent: String,
    /// The hash of its configuration.
    pub(crate) hash: &'a str,
    /// Its folder.
    pub(crate) data: &'a Path,
    /// Set when the run ends.
    pub(crate) stop: &'a Arc<AtomicBool>,
}

/// A sink with its name.
type Named = (&'static str, Box<dyn Sink>);

/// Opens a sink for each kind of record. Brokers may be unreachable: the producers connect when
/// there is something to send.
pub(crate) fn open(
    options: &Options,
    from: &From<'_>,
    lines: Lines,
) -> Result<Vec<Named>, Failure> {
    let From { agent, hash, data, stop } = from;
    let mut sinks: Vec<Named> = Vec::new();
    let producer = |what| Producer::new(options, what, agent);
    if options.what.contains(&What::Report) {
        let reports = Reports::new(producer("reports")?, lines, hash);
        sinks.push(("kafka-reports", Box::new(reports)));
    }
    if options.what.contains(&What::Snapshot) {
        let positions = Positions::open(data).map_err(Failure::Output)?;
        let (producer, journal) = (producer("snapshots")?, data.join("journal"));
        let snapshots = Snapshots::new(producer, positions, journal, hash, stop);
        sinks.push(("kafka-snapshots", Box::new(snapshots)));
    }
    Ok(sinks)
}

/// Sends each closed epoch as stored. If an epoch does not directly follow the last acknowledged
/// one, it first sends the journal's epochs between them: those dropped while brokers were
/// unreachable, or left unsent by an earlier agent.
pub(super) struct Snapshots {
    producer: Producer,
    positions: Positions,
    journal: PathBuf,
    configuration: Arc<str>,
    /// Set when the run ends.
    stop: Arc<AtomicBool>,
}

impl Snapshots {
    pub(super) fn new(
        producer: Producer,
        positions: Positions,
        journal: PathBuf,
        configuration: &str,
        stop: &Arc<AtomicBool>,
    ) -> Self {
        let (configuration, stop) = (configuration.into(), Arc::clone(stop));
        Self { producer, positions, journal, configuration, stop }
    }

    /// Sends the missed epochs before this one.
    fn catch_up(&mut self, saved: &Saved) -> Result<(), SinkError> {
        let Saved { measurement, run, epoch, bounds_ns: (start_ns, _), .. } = saved;
        let Some(last) = self.positions.get(measurement) else {
            // From this epoch on all are sent, even if a restart comes before its acknowledgement.
            let begin = Position { start_ns: *start_ns, epoch: None };
            self.positions.set(measurement, begin);
            return Ok(());
        };
        if last.epoch.is_some_and(|(of, last)| of == *run && last + 1 == *epoch) {
            return Ok(());
        }
        let missed = missed(&self.journal, measurement, last, (*run, *epoch));
        let missed = missed.map_err(|error| self.producer.error(error))?;
        if !missed.is_empty() && !self.producer.is_failing() {
            let epochs = units::plural(missed.len() as u64, "epoch");
            say(&format!("sending {epochs} of '{measurement}' from the journal to Kafka"));
        }
        for kept in missed {
            if self.stop.load(Ordering::Relaxed) {
                let reason =
                    "the run ended before all missed epochs were sent; the next run sends them";
                return Err(self.producer.error(io::Error::new(ErrorKind::Interrupted, reason)));
            }
            let bytes = match fs::read(&kept.path) {
                Ok(bytes) => bytes,
                // The journal has removed it to make room.
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                Err(error) => return Err(self.producer.error(error)),
            };
            let position =
                Position { start_ns: kept.start_ns, epoch: Some((kept.run, kept.epoch)) };
            let end_ns = kept.start_ns.saturating_add(kept.length_ns);
            match self.send(measurement, position, end_ns, &bytes, None) {
                Ok(()) | Err(SinkError::Refused { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Sends a snapshot, and advances the position when it is acknowledged or can never be.
    fn send(
        &mut self,
        measurement: &str,
        position: Position,
        end_ns: i64,
        bytes: &[u8],
        configuration: Option<&str>,
    ) -> Result<(), SinkError> {
        let (run, epoch) = position.epoch.unzip();
        let sent = self.producer.send(&Record {
            kind: "snapshot",
            network: None,
            measurement,
            run,
            epoch,
            bounds_ns: Some((position.start_ns, end_ns)),
            configuration,
            content_type: "application/octet-stream",
            payload: bytes,
        });
        if let Ok(()) | Err(SinkError::Refused { .. }) = sent {
            self.positions.set(measurement, position);
        }
        sent
    }
}

impl Sink for Snapshots {
    fn takes(&self) -> Takes {
        Takes::Snapshots
    }

    fn deliver(&mut self, item: &Item) -> Result<(), SinkError> {
        let Item::Snapshot(saved) = item else { return Ok(()) };
        self.catch_up(saved)?;
        let (start_ns, end_ns) = saved.bounds_ns;
        let position = Position { start_ns, epoch: Some((saved.run, saved.epoch)) };
        let configuration = Arc::clone(&self.configuration);
        self.send(&saved.measurement, position, end_ns, &saved.bytes, Some(&configuration))
    }
}

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

/// The epoch at a path of the journal.
fn parse(path: PathBuf) -> Option<Kept> {
    let Name { start_ns, length_ns, run, epoch } = Name::parse(path.file_name()?.to_str()?)?;
    Some(Kept { start_ns, length_ns: length_ns.try_into().ok()?, epoch, run, path })
}

/// The file in the agent's folder.
const NAME: &str = "kafka.json";

/// The last acknowledged epoch of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Position {
    pub(super) start_ns: i64,
    /// Its run and epoch number; `None` before the first one.
    pub(super) epoch: Option<(u64, u64)>,
}

/// How long the file may lag behind: to write it durably takes longer than to send an epoch.
const LAG: Duration = Duration::from_secs(1);

/// The positions of all measurements. The file gets them at most once a second, and at the end: after a
/// kill, epochs that were acknowledged since are sent again.
pub(super) struct Positions {
    folder: PathBuf,
    /// By measurement.
    latest: BTreeMap<String, Position>,
    /// When the file was written.
    written: Option<Instant>,
    /// Whether the file lacks a position.
    lags: bool,
}

impl Positions {
    /// Reads the positions in this folder; a new folder has none.
    pub(super) fn open(folder: &Path) -> Result<Self, String> {
        let path = folder.join(NAME);
        let failed = |error: &dyn std::fmt::Display| {
            format!("cannot read the last acknowledged epochs in {}: {error}", path.display())
        };
        let latest = match fs::read(&path) {
            Ok(text) => serde_json::from_slice(&text).map_err(|error| failed(&error))?,
            Err(error) if error.kind() == ErrorKind::NotFound => BTreeMap::new(),
            Err(error) => return Err(failed(&error)),
        };
        Ok(Self { folder: folder.to_owned(), latest, written: None, lags: false })
    }

    /// The position of a measurement.
    pub(super) fn get(&self, measurement: &str) -> Option<Position> {
        self.latest.get(measurement).copied()
    }

    /// Advances the position. The first one of a measurement is in the file at once.
    pub(super) fn set(&mut self, measurement: &str, position: Position) {
        let is_first = self.latest.insert(measurement.to_owned(), position).is_none();
        self.lags = true;
        if is_first || self.written.is_none_or(|written| written.elapsed() >= LAG) {
            self.write();
        }
    }

    fn write(&mut self) {
        let text = serde_json::to_vec(&self.latest).unwrap_or_default();
        // If the write fails, for instance on a full disk, a restart sends some epochs twice.
        let _ = journal::write(&self.folder, &self.folder.join(NAME), &text);
        (self.written, self.lags) = (Some(Instant::now()), false);
    }
}

impl Drop for Positions {
    fn drop(&mut self) {
        if self.lags {
            self.write();
        }
    }
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

    #[test]
    fn positions_survive_a_restart_and_are_written_once_a_second() {
        let folder = std::env::temp_dir().join(format!("flowgauge-kafka-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let mut positions = Positions::open(&folder).unwrap();
        assert_eq!(positions.get("flows"), None);
        let begin = Position { start_ns: -5, epoch: None };
        let last = Position { start_ns: 7, epoch: Some((u64::MAX, 3)) };
        positions.set("flows", begin);
        positions.set("hosts", begin);
        let read = || {
            let positions = Positions::open(&folder).unwrap();
            (positions.get("flows"), positions.get("hosts"))
        };
        assert_eq!(read(), (Some(begin), Some(begin)));
        positions.written = Some(Instant::now() + 100 * LAG);
        for epoch in 0..=3 {
            positions.set("hosts", Position { start_ns: 7, epoch: Some((u64::MAX, epoch)) });
        }
        assert_eq!(read(), (Some(begin), Some(begin)), "the file is written once a second");
        positions.written = Instant::now().checked_sub(LAG);
        positions.set("flows", last);
        assert_eq!(read(), (Some(last), Some(last)));
        positions.written = Some(Instant::now() + 100 * LAG);
        positions.set("flows", begin);
        drop(positions);
        assert_eq!(read(), (Some(begin), Some(last)));
        fs::write(folder.join(NAME), "nonsense").unwrap();
        assert!(Positions::open(&folder).is_err());
        fs::remove_dir_all(folder).unwrap();
    }
}
