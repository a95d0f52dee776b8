//! The cells of sketches as columns of arrays, for databases.

use std::sync::Arc;

use arrow_array::builder::{Float64Builder, ListBuilder};
use arrow_array::{ArrayRef, RecordBatch, StringArray, TimestampNanosecondArray, UInt64Array};
use arrow_schema::{Field, Schema};
use flowgauge_engine::snapshot::{LaneCells, Snapshot};

use crate::error::Problem;

/// A row for each length of keys: what the sketch is of, its rows and columns, and its cells row by row.
pub(crate) fn table(snapshot: &Snapshot) -> Result<RecordBatch, Problem> {
    let (config, account) = (snapshot.config(), snapshot.account());
    let lanes = snapshot.cells();
    if lanes.is_empty() {
        return Err(Problem::Snapshot(format!(
            "cells are those of count-min, count-sketch and k-ary; this is {}",
            config.algorithm
        )));
    }
    // Of several epochs, the first start and the last end.
    let first = snapshot.coverage().iter().min_by_key(|one| one.bounds_ns.0);
    let end_ns = snapshot.coverage().iter().map(|one| one.bounds_ns.1).max();
    let texts = |text: &str| -> ArrayRef { Arc::new(StringArray::from(vec![text; lanes.len()])) };
    let numbers = |number: &dyn Fn(&LaneCells) -> u64| -> ArrayRef {
        Arc::new(UInt64Array::from_iter_values(lanes.iter().map(number)))
    };
    let times = |time_ns: Option<i64>| -> ArrayRef {
        let times = TimestampNanosecondArray::from(vec![time_ns; lanes.len()]);
        Arc::new(times.with_timezone("UTC"))
    };
    let mut cells = ListBuilder::new(Float64Builder::new());
    for lane in &lanes {
        cells.values().append_slice(&lane.cells);
        cells.append(true);
    }
    let columns: [(&str, ArrayRef); 13] = [
        ("measurement", texts(&config.name)),
        ("host", texts(first.map_or("", |one| &one.host))),
        ("epochs", numbers(&|_| snapshot.coverage().len() as u64)),
        ("start", times(first.map(|one| one.bounds_ns.0))),
        ("end", times(end_ns)),
        ("key", texts(&config.key.to_string())),
        ("algorithm", texts(&config.algorithm)),
        ("packets", numbers(&|_| account.keyed)),
        ("bytes", numbers(&|_| account.keyed_bytes)),
        ("key_bytes", numbers(&|lane| lane.key_bytes as u64)),
        ("rows", numbers(&|lane| lane.rows as u64)),
        ("columns", numbers(&|lane| lane.columns as u64)),
        ("cells", Arc::new(cells.finish())),
    ];
    let field =
        |(name, column): &(&str, ArrayRef)| Field::new(*name, column.data_type().clone(), true);
    let schema = Schema::new(columns.iter().map(field).collect::<Vec<_>>());
    let columns = columns.into_iter().map(|(_, column)| column).collect();
    RecordBatch::try_new(Arc::new(schema), columns)
        .map_err(|error| Problem::Failed(error.to_string()))
}
