//! Writes tables of reports as Parquet files.
#![forbid(unsafe_code)]

use std::io::{self, Write};
use std::sync::Arc;

use flowgauge_engine::sink::tables::{Column, Kind, Value};
use parquet::basic::{LogicalType, Repetition, TimeUnit, Type as Physical};
use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::Type;

/// Number of rows written as a group.
const GROUP: usize = 8192;

/// Writes one table. The file is readable once [`Self::finish`] has returned.
///
/// Memory: up to 8,192 rows, and about 1 kB per column for each group of rows written, until the end
/// of the file.
///
/// ```
/// use flowgauge_engine::sink::tables::{Column, Kind, Value};
/// use flowgauge_parquet::Table;
///
/// let columns = [("host", Kind::Text), ("packets", Kind::Whole)];
/// let columns = columns.map(|(name, kind)| Column { name: name.into(), kind });
/// let mut table = Table::new(Vec::new(), &columns)?;
/// table.row(&[Value::Text(Some("10.0.0.1".to_owned())), Value::Whole(Some(7))])?;
/// table.row(&[Value::Text(None), Value::Whole(Some(3))])?;
/// let file = table.finish()?;
/// assert!(file.starts_with(b"PAR1") && file.ends_with(b"PAR1"));
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct Table<W: Write + Send> {
    writer: SerializedFileWriter<W>,
    columns: Vec<Kept>,
    rows: usize,
}

/// The values of a column that are not written yet. A level is 1 for a value and 0 for none.
struct Kept {
    levels: Vec<i16>,
    values: Values,
}

enum Values {
    Whole(Vec<i64>),
    Real(Vec<f64>),
    Text(Vec<ByteArray>),
}

impl<W: Write + Send> Table<W> {
    /// Begins a table with these columns.
    ///
    /// # Errors
    /// When writing fails.
    pub fn new(to: W, columns: &[Column]) -> io::Result<Self> {
        let fields = columns.iter().map(|column| field(column).map(Arc::new));
        let fields = fields.collect::<Result<_, _>>().map_err(io_error)?;
        let schema = Type::group_type_builder("table").with_fields(fields).build();
        let schema = Arc::new(schema.map_err(io_error)?);
        let properties = Arc::new(WriterProperties::builder().build());
        let writer = SerializedFileWriter::new(to, schema, properties);
        let columns = columns.iter().map(|column| Kept::new(column.kind)).collect();
        Ok(Self { writer: writer.map_err(io_error)?, columns, rows: 0 })
    }

    /// Adds a row with a value for each column.
    ///
    /// # Errors
    /// When writing fails.
    pub fn row(&mut self, values: &[Value]) -> io::Result<()> {
        for (kept, value) in self.columns.iter_mut().zip(values) {
            kept.push(value);
        }
        self.rows += 1;
        if self.rows == GROUP { self.end_group() } else { Ok(()) }
    }

    /// Number of rows that are not written yet.
    pub fn kept_rows(&self) -> usize {
        self.rows
    }

    /// Writes the kept rows as a group.
    ///
    /// # Errors
    /// When writing fails.
    pub fn end_group(&mut self) -> io::Result<()> {
        self.flush().map_err(io_error)
    }

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

    /// Writes the remaining rows and the end of the file. No rows may be added afterwards.
    ///
    /// # Errors
    /// When writing fails.
    pub fn finish(&mut self) -> io::Result<&W> {
        self.end_group()?;
        self.writer.finish().map_err(io_error)?;
        Ok(self.writer.inner())
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

/// The schema of a column: whole numbers are unsigned; times are in nanoseconds and UTC.
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
