//! One report: an epoch, an update of one, a run of empty epochs, or the end of a run.

use std::sync::OnceLock;

use flowgauge_core::unknown::suggestion;
use flowgauge_engine::sink::layout::Look;
use flowgauge_engine::sink::{Format, Item, Json, Text};
use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;

use crate::error::Problem;
use crate::table::{Collected, Table};

/// Items of each list that the text of a report shows.
const ROWS: usize = 10;

/// What was measured in one epoch. Printed, it is the text report of the command.
///
/// >>> report = flowgauge.analyze("capture.pcap", key="source", task="top", seed=1)[0]
/// >>> report
/// <flowgauge.Report 'main': epoch 0>
/// >>> report["top"]
/// <flowgauge.Table 'top': 7 rows, 13 columns>
/// >>> report.dict()["account"]["keyed"]
/// 259
#[pyclass(frozen, module = "flowgauge")]
pub(crate) struct Report {
    item: Item,
    /// Made when the first one is asked for.
    tables: OnceLock<Vec<Py<Table>>>,
}

impl Report {
    pub(crate) fn new(item: Item) -> Self {
        Self { item, tables: OnceLock::new() }
    }

    pub(crate) fn item(&self) -> &Item {
        &self.item
    }

    fn written(&self, py: Python<'_>, format: &(dyn Format + Sync)) -> PyResult<String> {
        py.detach(|| {
            let mut bytes = Vec::new();
            let written = format.item(&self.item, &mut bytes);
            written.map_err(|error| Problem::Failed(error.to_string()))?;
            Ok(String::from_utf8_lossy(&bytes).into_owned())
        })
        .map_err(|problem: Problem| problem.into())
    }

    fn all(&self, py: Python<'_>) -> PyResult<&[Py<Table>]> {
        if self.tables.get().is_none() {
            let tables = py.detach(|| Collected::of([&self.item]))?;
            let tables = tables.into_iter().map(|(_, table)| Py::new(py, table));
            let _ = self.tables.set(tables.collect::<PyResult<_>>()?);
        }
        Ok(self.tables.get().map_or(&[], Vec::as_slice))
    }
}

#[pymethods]
impl Report {
    /// `epoch`, `update` (what is known so far of an epoch that goes on), `gap` (a run of empty epochs) or
    /// `total` (the end of a run).
    #[getter]
    fn kind(&self) -> &'static str {
        match &self.item {
            Item::Epoch(report) if report.update => "update",
            Item::Epoch(_) => "epoch",
            Item::Gap(_) => "gap",
            Item::Snapshot(_) => "snapshot",
            Item::Total(_) => "total",
        }
    }

    /// The name of the measurement.
    #[getter]
    fn measurement(&self) -> &str {
        match &self.item {
            Item::Epoch(report) => &report.measurement,
            Item::Gap(gap) => &gap.measurement,
            Item::Snapshot(saved) => &saved.measurement,
            Item::Total(report) => &report.measurement,
        }
    }

    /// The number of the epoch, from 0; `None` for the total of a run.
    #[getter]
    fn epoch(&self) -> Option<u64> {
        match &self.item {
            Item::Epoch(report) => Some(report.epoch),
            Item::Gap(gap) => Some(gap.epoch),
            Item::Snapshot(_) | Item::Total(_) => None,
        }
    }

    /// The start, in nanoseconds since the UNIX epoch; `None` without a packet.
    #[getter]
    fn start_ns(&self) -> Option<i64> {
        match &self.item {
            Item::Epoch(report) => report.start_ns,
            Item::Gap(gap) => Some(gap.start_ns),
            Item::Snapshot(_) => None,
            Item::Total(report) => report.start_ns,
        }
    }

    /// The end, in nanoseconds since the UNIX epoch; `None` without a packet.
    #[getter]
    fn end_ns(&self) -> Option<i64> {
        match &self.item {
            Item::Epoch(report) => report.end_ns,
            Item::Gap(gap) => Some(gap.end_ns),
            Item::Snapshot(_) => None,
            Item::Total(report) => report.end_ns,
        }
    }

    /// The names of the tables that the report has.
    #[getter]
    fn tables(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        let all = self.all(py)?;
        Ok(all.iter().map(|table| table.get().name().to_owned()).collect())
    }

    fn __getitem__(&self, py: Python<'_>, name: &str) -> PyResult<Py<Table>> {
        let all = self.all(py)?;
        let found = all.iter().find(|table| table.get().name() == name);
        let names = all.iter().map(|table| table.get().name());
        found.map(|table| table.clone_ref(py)).ok_or_else(|| no_table(name, names))
    }

    fn __contains__(&self, py: Python<'_>, name: &str) -> PyResult<bool> {
        Ok(self.all(py)?.iter().any(|table| table.get().name() == name))
    }

    /// The report as the line of JSON that the command prints.
    fn json(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.written(py, &Json)?.trim_end().to_owned())
    }

    /// The report as a dictionary, with the fields of its JSON.
    fn dict(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let loads = py.import("json")?.getattr("loads")?;
        Ok(loads.call1((self.json(py)?,))?.unbind())
    }

    fn __str__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.written(py, &Text { rows: ROWS, look: Look::default() })?.trim_end().to_owned())
    }

    fn __repr__(&self) -> String {
        let name = self.measurement();
        match self.epoch() {
            Some(epoch) => format!("<flowgauge.Report '{name}': {} {epoch}>", self.kind()),
            None => format!("<flowgauge.Report '{name}': {}>", self.kind()),
        }
    }
}

/// Says that there is no such table.
pub(crate) fn no_table<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> PyErr {
    PyKeyError::new_err(format!("unknown table '{name}'; {}", suggestion(name, known)))
}
