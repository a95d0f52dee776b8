//! Tables as Parquet, each in a file of its own, or one alone.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use flowgauge_engine::sink::tables::{self, Column, Kind, Tables, Value};
use flowgauge_engine::sink::{Item, Sink, SinkError, Takes};
use parquet::basic::{LogicalType, Repetition, TimeUnit, Type as Physical};
use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::Type;

use super::place::Place;
use super::reports::Flags;
use super::to::{self, To, sink_error};
use crate::failure::Failure;

/// Rows of a table that are kept until they are written as a group.
const GROUP: usize = 8192;

/// Writes the tables of the reports of a replay.
pub(crate) struct ParquetFiles {
    to: To,
    inputs: Vec<PathBuf>,
    flags: Flags,
    files: BTreeMap<PathBuf, ParquetFile>,
    /// The file of the table that was begun.
    open: Option<PathBuf>,
}

struct ParquetFile {
    place: Place,
    writer: SerializedFileWriter<File>,
    columns: Vec<Kept>,
    rows: usize,
}

/// The values of a column that are not written yet; a level is 1 where there is a value, else 0.
struct Kept {
    levels: Vec<i16>,
    values: Values,
}

enum Values {
    Whole(Vec<i64>),
    Real(Vec<f64>),
    Text(Vec<ByteArray>),
}

impl ParquetFiles {
    pub(crate) fn new(to: To, inputs: &[PathBuf], flags: Flags) -> Result<Self, Failure> {
        match &to {
            To::Folder(folder) => to::make(folder)?,
            To::One(_, Some(path)) => {
                let place = Place::new(Some(path), inputs, false)?;
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
        self.opened().map_or(Ok(()), |file| file.row(values))
    }
}

impl ParquetFile {
    fn new(place: Place, columns: &[Column]) -> io::Result<Self> {
        let fields = columns.iter().map(|column| field(column).map(Arc::new));
        let fields = fields.collect::<Result<_, _>>().map_err(io_error)?;
        let schema = Type::group_type_builder("table").with_fields(fields).build();
        let schema = Arc::new(schema.map_err(io_error)?);
        let properties = Arc::new(WriterProperties::builder().build());
        let writer = SerializedFileWriter::new(place.open()?, schema, properties);
        let columns = columns.iter().map(|column| Kept::new(column.kind)).collect();
        Ok(Self { place, writer: writer.map_err(io_error)?, columns, rows: 0 })
    }

    fn row(&mut self, values: &[Value]) -> io::Result<()> {
        for (kept, value) in self.columns.iter_mut().zip(values) {
            kept.push(value);
        }
        self.rows += 1;
        if self.rows == GROUP { self.flush().map_err(io_error) } else { Ok(()) }
    }

    /// Writes the rows that are kept as a group.
    fn flush(&mut self) -> Result<(), ParquetError> {
        if self.rows == 0 {
            return Ok(());
        }
        let mut group = self.writer.next_row_group()?;
        for Kept { levels, values } in &mut self.columns {
            let Some(mut column) = group.next_column()? else { break };
            let defined = Some(levels.as_slice());
            match values {
                Values::Whole(whole) => {
                    column.typed::<Int64Type>().write_batch(whole, defined, None)?;
                    whole.clear();
                }
                Values::Real(real) => {
                    column.typed::<DoubleType>().write_batch(real, defined, None)?;
                    real.clear();
                }
                Values::Text(text) => {
                    column.typed::<ByteArrayType>().write_batch(text, defined, None)?;
                    text.clear();
                }
            }
            levels.clear();
            column.close()?;
        }
        group.close()?;
        self.rows = 0;
        Ok(())
    }

    fn complete(&mut self) -> io::Result<()> {
        self.flush().and_then(|()| self.writer.finish().map(drop)).map_err(io_error)?;
        match &self.place {
            Place::Replaced(replacement) => {
                self.writer.inner().sync_all()?;
                replacement.complete()
            }
            Place::Standard | Place::Added(_) | Place::Special(_) => Ok(()),
        }
    }
}

impl Kept {
    fn new(kind: Kind) -> Self {
        let values = match kind {
            Kind::Text => Values::Text(Vec::new()),
            Kind::Whole | Kind::Time => Values::Whole(Vec::new()),
            Kind::Real => Values::Real(Vec::new()),
        };
        Self { levels: Vec::new(), values }
    }

    fn push(&mut self, value: &Value) {
        match (&mut self.values, value) {
            (Values::Text(kept), Value::Text(Some(text))) => kept.push(text.as_str().into()),
            (Values::Whole(kept), Value::Whole(Some(number))) => kept.push(number.cast_signed()),
            (Values::Whole(kept), Value::Time(Some(ns))) => kept.push(*ns),
            (Values::Real(kept), Value::Real(Some(number))) => kept.push(*number),
            _ => return self.levels.push(0),
        }
        self.levels.push(1);
    }
}

/// A column of the schema: whole numbers are unsigned, and times have nanoseconds and are UTC.
fn field(column: &Column) -> Result<Type, ParquetError> {
    let (physical, logical) = match column.kind {
        Kind::Text => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
        Kind::Whole => (Physical::INT64, Some(LogicalType::integer(64, false))),
        Kind::Real => (Physical::DOUBLE, None),
        Kind::Time => (Physical::INT64, Some(LogicalType::timestamp(true, TimeUnit::NANOS))),
    };
    Type::primitive_type_builder(&column.name, physical)
        .with_logical_type(logical)
        .with_repetition(Repetition::OPTIONAL)
        .build()
}

fn io_error(error: ParquetError) -> io::Error {
    match error {
        ParquetError::External(error) => match error.downcast::<io::Error>() {
            Ok(error) => *error,
            Err(error) => io::Error::other(error),
        },
        error => io::Error::other(error),
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
