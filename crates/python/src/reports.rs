//! The reports of a run.

use std::path::PathBuf;

use flowgauge_engine::sink::Item;
use flowgauge_kernel::Seed;
use pyo3::exceptions::{PyIndexError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyIterator, PyList, PyString};

use crate::error::Problem;
use crate::report::{Report, no_table};
use crate::snapshot::{MEMORY, Snapshot};
use crate::table::{Collected, Table};

/// What snapshots were made under, and the seed file that it came from.
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
    /// The reports among what left a run.
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

    /// The table of this name over all epochs. Where several measurements have it, name one of them.
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

    /// The closed epochs as snapshots, where they were asked for.
    #[getter]
    fn snapshots(&self, py: Python<'_>) -> PyResult<Vec<Snapshot>> {
        let (seed, seed_file) = &self.seed;
        let decode = |item: &Item| match item {
            Item::Snapshot(saved) => {
                Some(Snapshot::decode(&saved.bytes, MEMORY, *seed, seed_file.clone()))
            }
            Item::Epoch(_) | Item::Gap(_) | Item::Total(_) => None,
        };
        let all = py.detach(|| self.saved.iter().filter_map(decode).collect::<Result<_, _>>());
        all.map_err(Into::into)
    }

    fn __repr__(&self) -> String {
        format!("<flowgauge.Reports: {} epochs>", self.epochs.len())
    }
}
