//! Tables as Parquet, each in its own file, or a single one.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use flowgauge_engine::sink::tables::{self, Column, Tables, Value};
use flowgauge_engine::sink::{Item, Sink, SinkError, Takes};
use flowgauge_parquet::Table;

use super::place::{Place, To, make, sink_error};
use super::reports::Flags;
use crate::failure::Failure;

/// Writes the tables of the reports of a replay.
pub(crate) struct ParquetFiles {
    to: To,
    inputs: Vec<PathBuf>,
    flags: Flags,
    files: BTreeMap<PathBuf, ParquetFile>,
    /// The file of the current table.
    open: Option<PathBuf>,
}

struct ParquetFile {
    place: Place,
    table: Table<File>,
}

impl ParquetFiles {
    pub(crate) fn new(to: To, inputs: &[PathBuf], flags: Flags) -> Result<Self, Failure> {
        match &to {
            To::Folder(folder) => make(folder)?,
            To::One(_, Some(path)) => {
                let mut place = Place::new(Some(path), inputs, false)?;
                place.open().map_err(|error| Failure::output(&place.name(), &error))?;
            }
            To::One(_, None) => {
                let message = "parquet is binary; name a file or a directory with -o";
                return Err(Failure::Usage(message.to_owned()));
            }
        }
        let inputs = inputs.to_vec();
        Ok(Self { to, inputs, flags, files: BTreeMap::new(), open: None })
    }

    fn opened(&mut self) -> Option<&mut ParquetFile> {
        self.files.get_mut(self.open.as_ref()?)
    }
}

impl Tables for ParquetFiles {
    fn table(&mut self, measurement: &str, name: &str, columns: &[Column]) -> io::Result<()> {
        self.open = self.to.path(measurement, name, "parquet");
        let Some(path) = self.open.clone() else { return Ok(()) };
        if !self.files.contains_key(&path) {
            let place = Place::new(Some(&path), &self.inputs, false);
            let place = place.map_err(|failure| io::Error::other(failure.message()))?;
            self.files.insert(path, ParquetFile::new(place, columns)?);
        }
        Ok(())
    }

    fn row(&mut self, values: &[Value]) -> io::Result<()> {
        self.opened().map_or(Ok(()), |file| file.table.row(values))
    }
}

impl ParquetFile {
    fn new(mut place: Place, columns: &[Column]) -> io::Result<Self> {
        let table = Table::new(place.open()?, columns)?;
        Ok(Self { place, table })
    }

    fn complete(&mut self) -> io::Result<()> {
        self.place.complete(self.table.finish()?)
    }
}

impl Sink for ParquetFiles {
    fn takes(&self) -> Takes {
        Takes::Reports
    }

    fn deliver(&mut self, item: &Item) -> Result<(), SinkError> {
        let written = tables::write(&self.flags.noted(item), self);
        written.map_err(|error| sink_error(self.open.as_deref().unwrap_or(Path::new("")), error))
    }

    fn finish(&mut self) -> Result<(), SinkError> {
        for (path, file) in &mut self.files {
            file.complete().map_err(|error| sink_error(path, error))?;
        }
        Ok(())
    }
}
