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
use flowgauge_engine::sink::{Item, Sink, SinkError, Takes, rfc3339};
use flowgauge_parquet::Table;

use crate::Failure;
use crate::config::ArchiveOptions;
use crate::journal::{PART, folders};
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
}

/// An incomplete file.
struct Open {
    table: Table<File>,
    columns: Vec<Column>,
    path: PathBuf,
    /// Rows from this time on go to another file.
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
        Ok(Self { options, open, current: None, start_ns: 0 })
    }

    /// Completes the files of a measurement whose period is over at `start_ns`, or all files.
    fn complete(&mut self, over: Option<(&str, i64)>) -> io::Result<()> {
        let is_over = |(_, measurement): &(String, String), open: &Open| {
            over.is_none_or(|(of, start_ns)| of == measurement && start_ns >= open.until_ns)
        };
        let over = self.open.iter().filter(|(id, open)| is_over(id, open));
        let ids: Vec<_> = over.map(|(id, _)| id.clone()).collect();
        if ids.is_empty() {
            return Ok(());
        }
        let mut result = Ok(());
        for id in ids {
            if let Some(open) = self.open.remove(&id) {
                result = result.and(open.complete());
            }
        }
        if let Some(keep) = self.options.keep {
            let oldest_ns = now_ns().saturating_sub_unsigned(keep.0);
            result = result.and(clean(&self.options.path, Some(&rfc3339(oldest_ns)[..10])));
        }
        result
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
    fn complete(mut self) -> io::Result<()> {
        self.table.finish()?.sync_all()?;
        fs::rename(self.path.with_extension(PART), &self.path)
    }
}

impl Tables for Archive {
    fn table(&mut self, measurement: &str, name: &str, columns: &[Column]) -> io::Result<()> {
        let id = (name.to_owned(), measurement.to_owned());
        // A reload may have changed the table's columns.
        if self.open.get(&id).is_some_and(|open| open.columns != columns)
            && let Some(open) = self.open.remove(&id)
        {
            open.complete()?;
        }
        if !self.open.contains_key(&id) {
            let path = self.path(name, measurement);
            path.parent().map_or(Ok(()), fs::create_dir_all)?;
            let table = Table::new(File::create(path.with_extension(PART))?, columns)?;
            let rotate_ns = i64::try_from(self.options.rotate.0).unwrap_or(i64::MAX).max(1);
            let until_ns = (self.start_ns.div_euclid(rotate_ns) + 1).saturating_mul(rotate_ns);
            self.open.insert(id.clone(), Open { table, columns: columns.to_vec(), path, until_ns });
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
        let mut write = || {
            self.complete(Some((measurement, self.start_ns)))?;
            tables::write(item, self)?;
            let own = self.open.iter_mut().filter(|((_, of), _)| **of == **measurement);
            let mut full = own.filter(|(_, open)| open.table.kept_rows() >= GROUP);
            full.try_for_each(|(_, open)| open.table.end_group())
        };
        let written = write();
        if written.is_err() {
            // A file that failed midway cannot be completed. Its epochs are in the journal.
            self.open.retain(|(_, of), _| **of != **measurement);
        }
        written.map_err(|error| SinkError::new(&self.options.path.display().to_string(), error))
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
