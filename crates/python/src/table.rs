//! Tables of reports in Arrow's form, which other packages read without a copy.

use std::ffi::CStr;
use std::io;
use std::sync::Arc;

use arrow_array::builder::{
    ArrayBuilder, Float64Builder, StringBuilder, TimestampNanosecondBuilder, UInt64Builder,
};
use arrow_array::ffi::FFI_ArrowSchema;
use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::{ArrayRef, RecordBatch, RecordBatchIterator};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef, TimeUnit};
use flowgauge_engine::sink::Item;
use flowgauge_engine::sink::tables::{self, Column, Kind, Tables, Value};
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use crate::error::Problem;

/// The names of capsules, which the PyCapsule interface of Arrow gives them.
const STREAM: &CStr = c"arrow_array_stream";
const SCHEMA: &CStr = c"arrow_schema";

/// A table of a report, in Arrow's columns.
///
/// Packages that read Arrow streams take it without a copy: pyarrow.table, pandas.DataFrame.from_arrow,
/// polars.DataFrame. Columns are those of the command's Parquet files.
///
/// >>> table = flowgauge.analyze("capture.pcap", key="source", task="top", seed=1)["top"]
/// >>> table
/// <flowgauge.Table 'top': 7 rows, 13 columns>
/// >>> import pyarrow
/// >>> pyarrow.table(table).column("packets").to_pylist()
/// [116.0, 78.0, 27.0, 16.0, 15.0, 6.0, 1.0]
#[pyclass(frozen, module = "flowgauge")]
pub(crate) struct Table {
    name: String,
    rows: RecordBatch,
}

impl Table {
    pub(crate) fn new(name: &str, rows: RecordBatch) -> Self {
        Self { name: name.to_owned(), rows }
    }
}

#[pymethods]
impl Table {
    /// Its name.
    #[getter]
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The names of its columns.
    #[getter]
    fn columns(&self) -> Vec<String> {
        self.rows.schema().fields().iter().map(|field| field.name().clone()).collect()
    }

    fn __len__(&self) -> usize {
        self.rows.num_rows()
    }

    /// The table as a stream of one batch, for packages that read Arrow. Its columns are not copied.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        // A producer may leave a wish for other types to the consumer.
        drop(requested_schema);
        let rows = RecordBatchIterator::new([Ok(self.rows.clone())], self.rows.schema());
        let stream = FFI_ArrowArrayStream::new(Box::new(rows));
        PyCapsule::new_with_value(py, stream, STREAM)
    }

    /// The names and types of its columns, for packages that read Arrow.
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        let schema = FFI_ArrowSchema::try_from(self.rows.schema().as_ref())
            .map_err(|error| failed(&error))?;
        PyCapsule::new_with_value(py, schema, SCHEMA)
    }

    fn __repr__(&self) -> String {
        let (rows, columns) = (self.rows.num_rows(), self.rows.num_columns());
        format!("<flowgauge.Table '{}': {rows} rows, {columns} columns>", self.name)
    }
}

fn failed(error: &ArrowError) -> Problem {
    Problem::Failed(error.to_string())
}

/// Tables that are being filled, by measurement and name.
#[derive(Default)]
pub(crate) struct Collected {
    tables: Vec<Filling>,
    /// The one that rows go to.
    open: usize,
}

struct Filling {
    measurement: String,
    name: String,
    schema: SchemaRef,
    columns: Vec<Builder>,
}

enum Builder {
    Text(StringBuilder),
    Whole(UInt64Builder),
    Real(Float64Builder),
    Time(TimestampNanosecondBuilder),
}

impl Collected {
    /// The tables of these reports: those of the same measurement and name are one.
    pub(crate) fn of<'a>(
        items: impl IntoIterator<Item = &'a Item>,
    ) -> Result<Vec<(String, Table)>, Problem> {
        let mut collected = Self::default();
        for item in items {
            let written = tables::write(item, &mut collected);
            written.map_err(|error| Problem::Failed(error.to_string()))?;
        }
        collected.tables.into_iter().map(Filling::end).collect()
    }
}

impl Tables for Collected {
    fn table(&mut self, measurement: &str, name: &str, columns: &[Column]) -> io::Result<()> {
        let is_same = |one: &Filling| one.measurement == measurement && one.name == name;
        self.open = self.tables.iter().position(is_same).unwrap_or_else(|| {
            self.tables.push(Filling::new(measurement, name, columns));
            self.tables.len() - 1
        });
        Ok(())
    }

    fn row(&mut self, values: &[Value]) -> io::Result<()> {
        let columns = &mut self.tables[self.open].columns;
        columns.iter_mut().zip(values).for_each(|(column, value)| column.push(value));
        Ok(())
    }
}

impl Filling {
    fn new(measurement: &str, name: &str, columns: &[Column]) -> Self {
        let field = |column: &Column| Field::new(column.name.as_ref(), kind(column.kind), true);
        let fields: Vec<_> = columns.iter().map(field).collect();
        Self {
            measurement: measurement.to_owned(),
            name: name.to_owned(),
            schema: Arc::new(Schema::new(fields)),
            columns: columns.iter().map(|column| Builder::new(column.kind)).collect(),
        }
    }

    fn end(self) -> Result<(String, Table), Problem> {
        let columns = self.columns.into_iter().map(Builder::end).collect();
        let rows = RecordBatch::try_new(self.schema, columns).map_err(|error| failed(&error))?;
        Ok((self.measurement, Table { name: self.name, rows }))
    }
}

/// The type of a column.
fn kind(kind: Kind) -> DataType {
    match kind {
        Kind::Text => DataType::Utf8,
        Kind::Whole => DataType::UInt64,
        Kind::Real => DataType::Float64,
        Kind::Time => DataType::Timestamp(TimeUnit::Nanosecond, Some("UTC".into())),
    }
}

impl Builder {
    fn new(of: Kind) -> Self {
        match of {
            Kind::Text => Self::Text(StringBuilder::new()),
            Kind::Whole => Self::Whole(UInt64Builder::new()),
            Kind::Real => Self::Real(Float64Builder::new()),
            Kind::Time => {
                Self::Time(TimestampNanosecondBuilder::new().with_data_type(kind(Kind::Time)))
            }
        }
    }

    fn push(&mut self, value: &Value) {
        match (self, value) {
            (Self::Text(to), Value::Text(text)) => to.append_option(text.as_ref()),
            (Self::Whole(to), Value::Whole(number)) => to.append_option(*number),
            (Self::Real(to), Value::Real(number)) => to.append_option(*number),
            (Self::Time(to), Value::Time(ns)) => to.append_option(*ns),
            // The values of a row have the kinds of its columns.
            (Self::Text(to), _) => to.append_null(),
            (Self::Whole(to), _) => to.append_null(),
            (Self::Real(to), _) => to.append_null(),
            (Self::Time(to), _) => to.append_null(),
        }
    }

    fn end(self) -> ArrayRef {
        match self {
            Self::Text(mut column) => ArrayBuilder::finish(&mut column),
            Self::Whole(mut column) => ArrayBuilder::finish(&mut column),
            Self::Real(mut column) => ArrayBuilder::finish(&mut column),
            Self::Time(mut column) => ArrayBuilder::finish(&mut column),
        }
    }
}
