//! Tables of reports in Arrow format, which other packages read without a copy.

use std::ffi::CStr;
use std::io;
use std::sync::Arc;

use arrow_array::builder::{
    ArrayBuilder, Float64Builder, ListBuilder, StringBuilder, TimestampNanosecondBuilder,
    UInt32Builder, UInt64Builder,
};
use arrow_array::ffi::FFI_ArrowSchema;
use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::{
    ArrayRef, RecordBatch, RecordBatchIterator, StringArray, TimestampNanosecondArray, UInt64Array,
};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef, TimeUnit};
use flowgauge_engine::sink::Item;
use flowgauge_engine::sink::tables::{self, Column, Kind, Tables, Value};
use flowgauge_engine::snapshot::Snapshot;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use crate::error::Problem;

/// Names of capsules in Arrow's PyCapsule interface.
const STREAM: &CStr = c"arrow_array_stream";
const SCHEMA: &CStr = c"arrow_schema";

/// A table of a report, in Arrow's columns.
///
/// Packages that read Arrow streams use it without a copy: pyarrow.table,
/// pandas.DataFrame.from_arrow, polars.DataFrame. Columns are those of the command's Parquet files.
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
        // A producer may ignore the requested types.
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

/// Tables being filled, by measurement and name.
#[derive(Default)]
pub(crate) struct Collected {
    tables: Vec<Filling>,
    /// The table that rows are added to.
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
    /// The tables of these reports. Tables with the same measurement and name are combined.
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

/// The Arrow type of a column.
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
            // The values of a row match the kinds of the columns.
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

/// One row per key length: the snapshot's identity, the sketch's rows and columns, and its cells by
/// row.
pub(crate) fn cells(snapshot: &Snapshot) -> Result<RecordBatch, Problem> {
    let lanes = snapshot.cells();
    if lanes.is_empty() {
        return Err(no_such(snapshot, "cells are those of count-min, count-sketch and k-ary"));
    }
    let mut cells = ListBuilder::new(Float64Builder::new());
    for lane in &lanes {
        cells.values().append_slice(&lane.cells);
        cells.append(true);
    }
    let own: [(&str, ArrayRef); 4] = [
        ("key_bytes", numbers(lanes.iter().map(|lane| lane.key_bytes))),
        ("rows", numbers(lanes.iter().map(|lane| lane.rows))),
        ("columns", numbers(lanes.iter().map(|lane| lane.columns))),
        ("cells", Arc::new(cells.finish())),
    ];
    table(snapshot, lanes.len(), own)
}

/// One row per key length: the snapshot's identity, and the distinct counter's registers.
pub(crate) fn registers(snapshot: &Snapshot) -> Result<RecordBatch, Problem> {
    let lanes = snapshot.registers();
    if lanes.is_empty() {
        let text = "registers are those of hyperloglog, fm and linear-counting";
        return Err(no_such(snapshot, text));
    }
    // ClickHouse needs elements that cannot be null.
    let mut registers = ListBuilder::new(UInt32Builder::new()).with_field(Field::new(
        "item",
        DataType::UInt32,
        false,
    ));
    for (_, lane) in &lanes {
        registers.values().append_slice(lane);
        registers.append(true);
    }
    let own: [(&str, ArrayRef); 2] = [
        ("key_bytes", numbers(lanes.iter().map(|(key_bytes, _)| *key_bytes))),
        ("registers", Arc::new(registers.finish())),
    ];
    table(snapshot, lanes.len(), own)
}

fn no_such(snapshot: &Snapshot, what: &str) -> Problem {
    Problem::Snapshot(format!("{what}; this is {}", snapshot.config().algorithm))
}

fn numbers(of: impl Iterator<Item = usize>) -> ArrayRef {
    Arc::new(UInt64Array::from_iter_values(of.map(|number| number as u64)))
}

/// Rows with the snapshot's identity and further columns.
fn table<const N: usize>(
    snapshot: &Snapshot,
    rows: usize,
    own: [(&str, ArrayRef); N],
) -> Result<RecordBatch, Problem> {
    let (config, account) = (snapshot.config(), snapshot.account());
    // For several epochs, the first start and the last end.
    let first = snapshot.coverage().iter().min_by_key(|one| one.bounds_ns.0);
    let end_ns = snapshot.coverage().iter().map(|one| one.bounds_ns.1).max();
    let texts = |text: &str| -> ArrayRef { Arc::new(StringArray::from(vec![text; rows])) };
    let counts = |count: u64| -> ArrayRef { Arc::new(UInt64Array::from(vec![count; rows])) };
    let times = |time_ns: Option<i64>| -> ArrayRef {
        let times = TimestampNanosecondArray::from(vec![time_ns; rows]);
        Arc::new(times.with_timezone("UTC"))
    };
    let shared: [(&str, ArrayRef); 9] = [
        ("measurement", texts(&config.name)),
        ("host", texts(first.map_or("", |one| &one.host))),
        ("epochs", counts(snapshot.coverage().len() as u64)),
        ("start", times(first.map(|one| one.bounds_ns.0))),
        ("end", times(end_ns)),
        ("key", texts(&config.key.to_string())),
        ("algorithm", texts(&config.algorithm)),
        ("packets", counts(account.keyed)),
        ("bytes", counts(account.keyed_bytes)),
    ];
    let columns: Vec<_> = shared.into_iter().chain(own).collect();
    let field =
        |(name, column): &(&str, ArrayRef)| Field::new(*name, column.data_type().clone(), true);
    let schema = Schema::new(columns.iter().map(field).collect::<Vec<_>>());
    let columns = columns.into_iter().map(|(_, column)| column).collect();
    RecordBatch::try_new(Arc::new(schema), columns)
        .map_err(|error| Problem::Failed(error.to_string()))
}
