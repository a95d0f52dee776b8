//! The cells and registers of summaries as columns of arrays, for databases.

use std::sync::Arc;

use arrow_array::builder::{Float64Builder, ListBuilder, UInt32Builder};
use arrow_array::{ArrayRef, RecordBatch, StringArray, TimestampNanosecondArray, UInt64Array};
use arrow_schema::{DataType, Field, Schema};
use flowgauge_engine::snapshot::Snapshot;

use crate::error::Problem;

/// A row for each length of keys: what a linear sketch is of, its rows and columns, and its cells row by row.
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

/// A row for each length of keys: what a distinct counter is of, and its registers.
pub(crate) fn registers(snapshot: &Snapshot) -> Result<RecordBatch, Problem> {
    let lanes = snapshot.registers();
    if lanes.is_empty() {
        let text = "registers are those of hyperloglog, fm and linear-counting";
        return Err(no_such(snapshot, text));
    }
    // ClickHouse computes with elements that cannot be null.
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

/// Rows of what the snapshot is of, with columns of their own.
fn table<const N: usize>(
    snapshot: &Snapshot,
    rows: usize,
    own: [(&str, ArrayRef); N],
) -> Result<RecordBatch, Problem> {
    let (config, account) = (snapshot.config(), snapshot.account());
    // Of several epochs, the first start and the last end.
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
