//! Tables as CSV, each in its own file, or a single one.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

use flowgauge_engine::sink::tables::{self, Column, Tables, Value};
use flowgauge_engine::sink::{Item, Sink, SinkError, Takes, csv};
use flowgauge_engine::{EngineError, Pace};

use super::place::{Place, To, make, sink_error};
use super::reports::{Flags, KEPT, Whole};
use crate::failure::Failure;

/// Writes the tables of reports as CSV. Each table of an item is written completely or not at all.
pub(crate) struct TableFiles {
    to: To,
    inputs: Vec<PathBuf>,
    pace: Pace,
    flags: Flags,
    /// The files by path; the path of standard output is empty.
    files: BTreeMap<PathBuf, TableFile>,
    /// The file of the current table.
    open: Option<PathBuf>,
    /// Tables of the item begun in this attempt, and tables written in this or an earlier attempt.
    begun: usize,
    written: usize,
}

struct TableFile {
    place: Place,
    out: Whole,
    /// Whether the file has its header line.
    headed: bool,
}

impl TableFiles {
    /// Creates the folder, or opens the only file.
    pub(crate) fn new(
        to: To,
        inputs: &[PathBuf],
        pace: Pace,
        flags: Flags,
    ) -> Result<Self, Failure> {
        let (inputs, files) = (inputs.to_vec(), BTreeMap::new());
        let mut tables = Self { to, inputs, pace, flags, files, open: None, begun: 0, written: 0 };
        match &tables.to {
            To::Folder(folder) => make(folder)?,
            To::One(_, path) => {
                let path = path.clone().unwrap_or_default();
                let place = tables.place(&path)?;
                if !place.waits() {
                    let opened = tables.file(place);
                    let file =
                        opened.map_err(|error| EngineError::Sink(sink_error(&path, error)))?;
                    tables.files.insert(path, file);
                }
            }
        }
        Ok(tables)
    }

    fn place(&self, path: &Path) -> Result<Place, Failure> {
        let named = (path != Path::new("")).then_some(path);
        Place::new(named, &self.inputs, self.pace == Pace::Live)
    }

    fn file(&self, mut place: Place) -> io::Result<TableFile> {
        let kept = if self.pace == Pace::Live { usize::MAX } else { KEPT };
        let out = Whole::new(place.open()?, kept)?;
        Ok(TableFile { place, out, headed: false })
    }

    /// The file of the current table.
    fn opened(&mut self) -> Option<&mut TableFile> {
        self.files.get_mut(self.open.as_ref()?)
    }

    /// Ends the current table.
    fn end(&mut self) -> io::Result<()> {
        if let Some(file) = self.opened() {
            file.out.end(Ok(()))?;
            file.headed = true;
            self.written = self.begun;
        }
        self.open = None;
        Ok(())
    }
}

impl TableFile {
    /// Writes the header line, unless the file has it.
    fn head(&mut self, columns: &[Column]) -> io::Result<()> {
        if self.headed {
            return Ok(());
        }
        let mut header = Vec::new();
        csv::header(columns, &mut header)?;
        let first = match &self.place {
            Place::Added(path) => first_line(path)?,
            Place::Standard | Place::Replaced(_) | Place::Special(_) => Vec::new(),
        };
        match first.as_slice() {
            [] => self.out.write_all(&header),
            line if line == header => Ok(()),
            _ => Err(io::Error::other(
                "it has different columns; move it away, or name another file",
            )),
        }
    }
}

impl Tables for TableFiles {
    fn table(&mut self, measurement: &str, name: &str, columns: &[Column]) -> io::Result<()> {
        self.end()?;
        let Some(path) = self.to.path(measurement, name, "csv") else { return Ok(()) };
        self.begun += 1;
        if self.begun <= self.written {
            return Ok(());
        }
        self.open = Some(path.clone());
        if !self.files.contains_key(&path) {
            let place = self.place(&path).map_err(|failure| io::Error::other(failure.message()))?;
            let file = self.file(place)?;
            self.files.insert(path, file);
        }
        self.opened().map_or(Ok(()), |file| file.head(columns))
    }

    fn row(&mut self, values: &[Value]) -> io::Result<()> {
        self.opened().map_or(Ok(()), |file| csv::row(values, &mut file.out))
    }
}

impl Sink for TableFiles {
    fn takes(&self) -> Takes {
        Takes::Reports
    }

    fn deliver(&mut self, item: &Item) -> Result<(), SinkError> {
        if self.flags.reopen() {
            // Standard output stays open and keeps its header.
            self.files.retain(|path, _| path == Path::new(""));
        }
        self.begun = 0;
        let item = self.flags.noted(item);
        let delivered = tables::write(&item, self).and_then(|()| self.end());
        let Err(error) = delivered else {
            self.written = 0;
            return Ok(());
        };
        let path = self.open.take().unwrap_or_default();
        // Remove the part of this table that was written; a live run opens the file again.
        let error = match self.files.get_mut(&path) {
            Some(file) => file.out.end(Err(error)),
            None => Err(error),
        };
        if self.pace == Pace::Live && path != Path::new("") {
            self.files.remove(&path);
        }
        error.map_err(|error| sink_error(&path, error))
    }

    fn finish(&mut self) -> Result<(), SinkError> {
        for (path, file) in &mut self.files {
            let done = file.place.complete(file.out.file());
            done.map_err(|error| sink_error(path, error))?;
        }
        Ok(())
    }
}

/// The first line of a file; empty if the file is.
fn first_line(path: &Path) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    BufReader::new(fs::File::open(path)?).read_until(b'\n', &mut line)?;
    Ok(line)
}
