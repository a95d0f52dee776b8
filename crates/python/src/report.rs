//! A report: an epoch, an update of one, a run of empty epochs, or the end of a run.

use std::path::PathBuf;
use std::sync::OnceLock;

use flowgauge_core::unknown::suggestion;
use flowgauge_engine::sink::layout::Look;
use flowgauge_engine::sink::{Format, Item, Json, Text};
use flowgauge_kernel::Seed;
use pyo3::exceptions::{PyIndexError, PyKeyError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyIterator, PyList, PyString};

use crate::error::Problem;
use crate::snapshot::{MEMORY, Snapshot};
use crate::table::{Collected, Table};

/// Items per list in the text of a report.
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
    /// Created on first use.
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
    /// `epoch`, `update` (the state so far of an open epoch), `gap` (a run of empty epochs) or
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

/// The error for a missing table.
pub(crate) fn no_table<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> PyErr {
    PyKeyError::new_err(format!("unknown table '{name}'; {}", suggestion(name, known)))
}

/// The seed of snapshots, and the file it came from.
pub(crate) type SnapshotSeed = (Option<Seed>, Option<PathBuf>);

/// The reports of a run, as a sequence of its epochs.
///
/// A number gives the report of an epoch, a name the table of that name over all epochs.
///
/// >>> reports = flowgauge.analyze("capture.pcap", key="source", task="top", epoch="10s", seed=1)
/// >>> len(reports), reports["top"]
/// (4, <flowgauge.Table 'top': 17 rows, 13 columns>)
/// >>> [report.epoch for report in reports]
/// [0, 1, 2, 3]
/// >>> reports.totals[0].dict()["account"]["read"]
/// 263
#[pyclass(frozen, sequence, module = "flowgauge")]
pub(crate) struct Reports {
    epochs: Vec<Py<Report>>,
    gaps: Vec<Py<Report>>,
    totals: Vec<Py<Report>>,
    saved: Vec<Item>,
    seed: SnapshotSeed,
    problems: Vec<String>,
}

impl Reports {
    /// Collects the reports among the items of a run.
    pub(crate) fn new(
        py: Python<'_>,
        items: Vec<Item>,
        seed: SnapshotSeed,
        problems: Vec<String>,
    ) -> PyResult<Self> {
        let (mut epochs, mut gaps, mut totals, mut saved) = (vec![], vec![], vec![], vec![]);
        for item in items {
            let to = match &item {
                Item::Epoch(_) => &mut epochs,
                Item::Gap(_) => &mut gaps,
                Item::Total(_) => &mut totals,
                Item::Snapshot(_) => {
                    saved.push(item);
                    continue;
                }
            };
            to.push(Py::new(py, Report::new(item))?);
        }
        Ok(Self { epochs, gaps, totals, saved, seed, problems })
    }
}

#[pymethods]
impl Reports {
    fn __len__(&self) -> usize {
        self.epochs.len()
    }

    fn __getitem__(&self, py: Python<'_>, place: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        if let Ok(name) = place.cast::<PyString>() {
            return Ok(Py::new(py, self.table(py, name.to_str()?, None)?)?.into_any());
        }
        let Ok(at) = place.extract::<isize>() else {
            let message = "give the number of an epoch, or the name of a table";
            return Err(PyTypeError::new_err(message));
        };
        let at = if at < 0 { at + self.epochs.len().cast_signed() } else { at };
        let found = usize::try_from(at).ok().and_then(|at| self.epochs.get(at));
        let outside = || PyIndexError::new_err("there is no such epoch");
        Ok(found.ok_or_else(outside)?.clone_ref(py).into_any())
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyIterator>> {
        PyList::new(py, &self.epochs)?.try_iter()
    }

    /// The table with this name over all epochs. If several measurements have it, name one of them.
    #[pyo3(signature = (name, measurement=None))]
    fn table(&self, py: Python<'_>, name: &str, measurement: Option<&str>) -> PyResult<Table> {
        let items = self.epochs.iter().chain(&self.gaps).chain(&self.totals);
        let items: Vec<Item> = items.map(|report| report.get().item().clone()).collect();
        let mut tables = py.detach(|| Collected::of(&items))?;
        if let Some(measurement) = measurement {
            tables.retain(|(of, _)| of == measurement);
        }
        let of: Vec<_> = tables.iter().filter(|(_, table)| table.name() == name).collect();
        if let [(one, _), (other, _), ..] = of[..] {
            return Err(Problem::Option(format!(
                "'{name}' is a table of several measurements, such as '{one}' and '{other}'; name \
                 one of them"
            ))
            .into());
        }
        let at = tables.iter().position(|(_, table)| table.name() == name);
        let names = tables.iter().map(|(_, table)| table.name());
        let at = at.ok_or_else(|| no_table(name, names))?;
        Ok(tables.swap_remove(at).1)
    }

    /// Runs of empty epochs.
    #[getter]
    fn gaps(&self, py: Python<'_>) -> Vec<Py<Report>> {
        self.gaps.iter().map(|report| report.clone_ref(py)).collect()
    }

    /// The end of the run, of each measurement.
    #[getter]
    fn totals(&self, py: Python<'_>) -> Vec<Py<Report>> {
        self.totals.iter().map(|report| report.clone_ref(py)).collect()
    }

    /// One line for each input that was damaged or could not be read.
    #[getter]
    fn problems(&self) -> Vec<String> {
        self.problems.clone()
    }

    /// The closed epochs as snapshots, if they were requested.
    #[getter]
    fn snapshots(&self, py: Python<'_>) -> Vec<Snapshot> {
        let stored = |item: &Item| match item {
            Item::Snapshot(saved) => {
                let (name, bytes) = (saved.measurement.clone(), PyBytes::new(py, &saved.bytes));
                Some(Snapshot::stored(name, bytes.into(), MEMORY, self.seed.clone()))
            }
            Item::Epoch(_) | Item::Gap(_) | Item::Total(_) => None,
        };
        self.saved.iter().filter_map(stored).collect()
    }

    fn __repr__(&self) -> String {
        format!("<flowgauge.Reports: {} epochs>", self.epochs.len())
    }
}
