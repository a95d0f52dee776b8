//! Reports as Parquet files: one table per task.
//!
//! Rows are stored in `TABLE/measurement=NAME/day=YYYY-MM-DD/TIME.parquet` in the archive's folder,
//! the usual layout of partitioned tables. A row group holds one epoch or several. A file is written
//! under a temporary name and renamed when complete, so every file with the final name is readable.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use flowgauge_engine::sink::tables::{self, Column, Tables, Value};
use flowgauge_engine::sink::{Item, Sink, SinkError, Takes, rfc3339, units};
use flowgauge_parquet::Table;

use crate::Failure;
use crate::config::ArchiveOptions;
use crate::journal::{PART, folders};
use crate::log::warn;
use crate::replay::now_ns;

/// Fewest rows of a row group, except for the last one of a file. Until the end of a file, a group
/// takes about 1 kB of memory per column, as much as 50 values.
const GROUP: usize = 1000;

/// Writes tables of reports.
pub(crate) struct Archive {
    options: ArchiveOptions,
    /// Open files, by table and measurement.
    open: BTreeMap<(String, String), Open>,
    /// The table being written.
    current: Option<(String, String)>,
    /// Start of the epoch being written.
    start_ns: i64,
    /// Epochs in files that broke off since the last [`Sink::lost`].
    lost: u64,
}

/// By how much a correction may come late.
const LATEST_NS: i64 = 3_600_000_000_000;

/// An incomplete file.
struct Open {
    table: Table<File>,
    columns: Vec<Column>,
    path: PathBuf,
    /// Epochs and gaps delivered since it was opened.
    epochs: u64,
    /// Rows before this time are of a clock that was set back. They go to another file, as do those
    /// from `until_ns` on.
    from_ns: i64,
    until_ns: i64,
}

impl Archive {
    /// Opens the archive and creates its folder. Removes unfinished files that a killed agent left,
    /// since they cannot be read.
    pub(crate) fn open(options: &ArchiveOptions) -> Result<Self, Failure> {
        let folder = &options.path;
        let prepared = fs::create_dir_all(folder).and_then(|()| clean(folder, None));
        prepared.map_err(|error| {
            Failure::Output(format!("cannot write to {}: {error}", folder.display()))
        })?;
        let (open, options) = (BTreeMap::new(), options.clone());
        Ok(Self { options, open, current: None, start_ns: 0, lost: 0 })
    }

    /// Completes the files of a measurement whose period is over at `start_ns`, or all files.
    fn complete(&mut self, over: Option<(&str, i64)>) -> io::Result<()> {
        let is_over = |(_, measurement): &(String, String), open: &Open| {
            over.is_none_or(|(of, start_ns)| {
                of == measurement && !(open.from_ns..open.until_ns).contains(&start_ns)
            })
        };
        let over = self.open.iter().filter(|(id, open)| is_over(id, open));
        let ids: Vec<_> = over.map(|(id, _)| id.clone()).collect();
        if ids.is_empty() {
            return Ok(());
        }
        let mut result = Ok(());
        // The tables of a measurement hold the same epochs.
        let mut lost = BTreeMap::<String, u64>::new();
        for id in ids {
            let Some(open) = self.open.remove(&id) else { continue };
            let epochs = open.epochs;
            if let Err(error) = open.complete() {
                let lost = lost.entry(id.1).or_default();
                *lost = epochs.max(*lost);
                result = result.and(Err(error));
            }
        }
        for (measurement, epochs) in lost {
            self.lose(&measurement, epochs);
        }
        if let Some(keep) = self.options.keep {
            let oldest_ns = now_ns().saturating_sub_unsigned(keep.0);
            result = result.and(clean(&self.options.path, Some(&rfc3339(oldest_ns)[..10])));
        }
        result
    }

    /// Counts epochs whose file broke off. The journal still has them.
    fn lose(&mut self, measurement: &str, epochs: u64) {
        if epochs > 0 {
            let epochs = units::plural(epochs, "epoch");
            let folder = self.options.path.display();
            warn(&format!("{folder}: {epochs} of '{measurement}' lost with unfinished files"));
        }
        self.lost += epochs;
    }

    /// Writes an epoch or a gap to the tables of its measurement. If that fails, removes their
    /// files: one that failed midway cannot be completed.
    fn write(&mut self, item: &Item, measurement: &str) -> io::Result<()> {
        let written = tables::write(item, self).and_then(|()| self.end_groups(measurement));
        let own = self.open.iter_mut().filter(|((_, of), _)| of == measurement);
        if written.is_ok() {
            own.for_each(|(_, open)| open.epochs += 1);
        } else {
            let ids: Vec<_> = own.map(|(id, _)| id.clone()).collect();
            let lost = ids.iter().filter_map(|id| self.open.remove(id)).map(Open::remove).max();
            self.lose(measurement, lost.unwrap_or(0));
        }
        written
    }

    /// Writes the rows of tables that have enough for a group.
    fn end_groups(&mut self, measurement: &str) -> io::Result<()> {
        let own = self.open.iter_mut().filter(|((_, of), _)| of == measurement);
        let mut full = own.filter(|(_, open)| open.table.kept_rows() >= GROUP);
        full.try_for_each(|(_, open)| open.table.end_group())
    }

    /// An unused path for rows from the start of this epoch on.
    fn path(&self, table: &str, measurement: &str) -> PathBuf {
        let time = rfc3339(self.start_ns);
        let folder = self.options.path.join(table).join(format!("measurement={measurement}"));
        let folder = folder.join(format!("day={}", &time[..10]));
        let name = time[11..23].replace([':', '.'], "");
        let names = (0..).map(|number| match number {
            0 => folder.join(format!("{name}.parquet")),
            number => folder.join(format!("{name}-{number}.parquet")),
        });
        names.into_iter().find(|path| !path.exists()).unwrap_or_default()
    }
}

impl Open {
    /// Completes the file. If that fails, removes it.
    fn complete(mut self) -> io::Result<()> {
        let part = self.path.with_extension(PART);
        let finished = self.table.finish().and_then(File::sync_all);
        let completed = finished.and_then(|()| fs::rename(&part, &self.path));
        if completed.is_err() {
            self.remove();
        }
        completed
    }

    /// Removes the unfinished file, which takes up space. Returns the number of its epochs.
    fn remove(self) -> u64 {
        // The next agent removes what cannot be removed now.
        let _ = fs::remove_file(self.path.with_extension(PART));
        self.epochs
    }
}

impl Tables for Archive {
    fn table(&mut self, measurement: &str, name: &str, columns: &[Column]) -> io::Result<()> {
        let id = (name.to_owned(), measurement.to_owned());
        // A reload may have changed the table's columns.
        if self.open.get(&id).is_some_and(|open| open.columns != columns)
            && let Some(open) = self.open.remove(&id)
        {
            let epochs = open.epochs;
            open.complete().inspect_err(|_| self.lose(measurement, epochs))?;
        }
        if !self.open.contains_key(&id) {
            let path = self.path(name, measurement);
            path.parent().map_or(Ok(()), fs::create_dir_all)?;
            let table = Table::new(File::create(path.with_extension(PART))?, columns)?;
            let rotate_ns = i64::try_from(self.options.rotate.0).unwrap_or(i64::MAX).max(1);
            let until_ns = (self.start_ns.div_euclid(rotate_ns) + 1).saturating_mul(rotate_ns);
            let from_ns = self.start_ns.saturating_sub(rotate_ns.max(LATEST_NS));
            let columns = columns.to_vec();
            let open = Open { table, columns, path, epochs: 0, from_ns, until_ns };
            self.open.insert(id.clone(), open);
        }
        self.current = Some(id);
        Ok(())
    }

    fn row(&mut self, values: &[Value]) -> io::Result<()> {
        let open = self.current.as_ref().and_then(|id| self.open.get_mut(id));
        open.map_or(Ok(()), |open| open.table.row(values))
    }
}

impl Sink for Archive {
    fn takes(&self) -> Takes {
        Takes::Reports
    }

    fn deliver(&mut self, item: &Item) -> Result<(), SinkError> {
        let (measurement, start_ns) = match item {
            Item::Epoch(report) if !report.update => (&report.measurement, report.start_ns),
            Item::Gap(gap) => (&gap.measurement, Some(gap.start_ns)),
            Item::Epoch(_) | Item::Snapshot(_) | Item::Total(_) => return Ok(()),
        };
        self.start_ns = start_ns.unwrap_or_else(now_ns);
        let completed = self.complete(Some((measurement, self.start_ns)));
        let written = completed.and_then(|()| self.write(item, measurement));
        written.map_err(|error| SinkError::new(&self.options.path.display().to_string(), error))
    }

    fn lost(&mut self) -> u64 {
        std::mem::take(&mut self.lost)
    }

    fn finish(&mut self) -> Result<(), SinkError> {
        let completed = self.complete(None);
        completed.map_err(|error| SinkError::new(&self.options.path.display().to_string(), error))
    }
}

/// Removes unfinished files in the day folders, or with `before`, the folders of earlier days.
fn clean(archive: &Path, before: Option<&str>) -> io::Result<()> {
    for table in folders(archive, "")? {
        for measurement in folders(&table, "measurement=")? {
            for day in folders(&measurement, "day=")? {
                let name = day.file_name().unwrap_or_default().to_string_lossy();
                match before {
                    Some(before) if *name < *format!("day={before}") => fs::remove_dir_all(&day)?,
                    Some(_) => {}
                    None => remove_parts(&day)?,
                }
            }
        }
    }
    Ok(())
}

fn remove_parts(day: &Path) -> io::Result<()> {
    for entry in fs::read_dir(day)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == PART) {
            fs::remove_file(path)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may panic")]

    use std::os::unix::fs::symlink;
    use std::sync::Arc;

    use flowgauge_capture::Captures;
    use flowgauge_engine::report::EpochReport;
    use flowgauge_engine::sink::Each;
    use flowgauge_engine::{Config, EpochLength, Plan};
    use flowgauge_synthetic::{Traffic, to_pcap_bytes};

    use super::*;
    use crate::config::Time;

    /// Reports of three epochs with 500 listed flows each.
    fn reports() -> Vec<Item> {
        let traffic =
            flowgauge_synthetic::Config { packets: 30_000, rate: 10_000, ..Default::default() };
        let tasks = Some(["top", "cardinality"].map(str::to_owned).to_vec());
        let epoch = EpochLength::Time(1_000_000_000);
        let config = Config { epoch, tasks, top: 500, ..Config::seeded(1) };
        let mut source =
            Captures::from_bytes("traffic", to_pcap_bytes(Traffic::new(traffic).unwrap()));
        let mut reports = Vec::new();
        let mut keep = Each(|report: &EpochReport| {
            reports.push(Item::Epoch(Arc::new(report.clone())));
            Ok(())
        });
        let plan = Plan::new(config).unwrap();
        flowgauge_engine::run(plan, &mut source, &mut keep, &mut |_| {}).unwrap();
        reports
    }

    /// An archive whose table of the largest flows has no room on its disk.
    fn full(name: &str, first: &Item) -> (PathBuf, Archive, PathBuf) {
        let folder = std::env::temp_dir().join(format!("flowgauge-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        let rotate = Time(3_600_000_000_000);
        let options = ArchiveOptions { path: folder.clone(), rotate, keep: None, anonymize: None };
        let mut archive = Archive::open(&options).unwrap();
        let Item::Epoch(report) = first else { panic!("no report") };
        archive.start_ns = report.start_ns.unwrap();
        let part = archive.path("top", &report.measurement).with_extension(PART);
        fs::create_dir_all(part.parent().unwrap()).unwrap();
        symlink("/dev/full", &part).unwrap();
        (folder, archive, part)
    }

    /// Whether a file is there, also one that links to a device.
    fn is_there(path: &Path) -> bool {
        path.symlink_metadata().is_ok()
    }

    #[test]
    fn epochs_of_a_file_that_cannot_be_completed_are_counted_and_the_file_goes() {
        let reports = reports();
        let (folder, mut archive, part) = full("complete", &reports[0]);
        archive.deliver(&reports[0]).unwrap();
        assert!(is_there(&part) && archive.lost() == 0);
        assert!(archive.finish().is_err());
        assert!(!is_there(&part));
        assert_eq!((archive.lost(), archive.lost()), (1, 0));
        // The other table is complete.
        let days = folders(&folder.join("cardinality/measurement=main"), "day=").unwrap();
        let files: Vec<_> = fs::read_dir(&days[0]).unwrap().collect();
        assert_eq!(files.len(), 1);
        assert!(files[0].as_ref().unwrap().path().extension().unwrap() == "parquet");
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn epochs_of_a_file_that_breaks_off_are_counted_and_the_next_one_is_written() {
        let reports = reports();
        let (folder, mut archive, part) = full("write", &reports[0]);
        archive.deliver(&reports[0]).unwrap();
        // Two epochs are enough for a group.
        assert!(archive.deliver(&reports[1]).is_err());
        assert!(!is_there(&part));
        assert_eq!(archive.lost(), 1, "the second epoch is tried again");
        archive.deliver(&reports[1]).unwrap();
        archive.deliver(&reports[2]).unwrap();
        archive.finish().unwrap();
        assert_eq!(archive.lost(), 0);
        fs::remove_dir_all(folder).unwrap();
    }

    /// A correction that comes late does not complete them.
    #[test]
    fn a_clock_that_is_set_back_completes_the_files() {
        let reports = reports();
        let folder = std::env::temp_dir().join(format!("flowgauge-back-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        let rotate = Time(1_000_000_000);
        let options = ArchiveOptions { path: folder.clone(), rotate, keep: None, anonymize: None };
        let mut archive = Archive::open(&options).unwrap();
        let earlier = |minutes: i64| {
            let Item::Epoch(report) = &reports[0] else { panic!("no report") };
            let mut report = EpochReport::clone(report);
            report.start_ns = report.start_ns.map(|start_ns| start_ns - minutes * 60_000_000_000);
            Item::Epoch(Arc::new(report))
        };
        let complete = || {
            let days = folders(&folder.join("top/measurement=main"), "day=").unwrap();
            let files = days.iter().flat_map(|day| fs::read_dir(day).unwrap());
            files
                .filter(|file| file.as_ref().unwrap().path().extension().unwrap() == "parquet")
                .count()
        };
        for (minutes, files) in [(0, 0), (50, 0), (120, 1), (121, 1)] {
            archive.deliver(&earlier(minutes)).unwrap();
            assert_eq!(complete(), files, "{minutes}");
        }
        archive.finish().unwrap();
        assert_eq!(complete(), 2);
        fs::remove_dir_all(folder).unwrap();
    }
}
