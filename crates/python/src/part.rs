//! Parts of captures, for other processes.

use std::fmt;
use std::path::{Path, PathBuf};

use flowgauge_capture::{Capture, Whole};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::error::Problem;

/// A part of a capture, by its position in the file, or the whole file. It can be pickled.
///
/// It holds no bytes of the file: the process that measures it opens the file under the same path.
///
/// >>> flowgauge.cut("capture.pcap", 4)
/// [Part('capture.pcap', offset=0, length=None)]
/// >>> part = flowgauge.Part("capture.pcap")
/// >>> flowgauge.analyze(part, task="top", seed=1).totals[0].dict()["account"]["read"]
/// 263
#[pyclass(frozen, eq, hash, module = "flowgauge")]
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Part {
    /// The file.
    #[pyo3(get)]
    path: PathBuf,
    /// Its first byte.
    #[pyo3(get)]
    offset: u64,
    /// How many bytes it has; `None` for all of the file.
    #[pyo3(get)]
    length: Option<u64>,
}

#[pymethods]
impl Part {
    #[new]
    #[pyo3(signature = (path, offset=0, length=None))]
    fn new(path: PathBuf, offset: u64, length: Option<u64>) -> PyResult<Self> {
        if offset > 0 && length.is_none() {
            let text = "give the length of the part, too";
            return Err(Problem::Option(text.to_owned()).into());
        }
        Ok(Self { path, offset, length })
    }

    fn __reduce__<'py>(
        slf: &Bound<'py, Self>,
    ) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyTuple>)> {
        let own = slf.get();
        let state = (own.path.clone(), own.offset, own.length).into_pyobject(slf.py())?;
        Ok((slf.get_type().into_any(), state))
    }

    fn __repr__(&self) -> String {
        self.to_string()
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let length = self.length.map_or("None".to_owned(), |length| length.to_string());
        write!(f, "Part('{}', offset={}, length={length})", self.path.display(), self.offset)
    }
}

impl Part {
    /// The engine's input. Reads the beginning of the file for the settings that precede the part.
    pub(crate) fn capture(self) -> Result<Capture, Problem> {
        let Some(length) = self.length else { return Ok(Capture::Path(self.path)) };
        let bytes = self.offset..self.offset.saturating_add(length);
        let part = flowgauge_capture::Part::at(&self.path, bytes);
        let refused = |error| Problem::Unreadable(format!("{self}: {error}"));
        part.map(Capture::Part).map_err(refused)
    }

    /// The file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it is the whole file.
    pub(crate) fn is_whole(&self) -> bool {
        self.length.is_none()
    }
}

impl From<PathBuf> for Part {
    fn from(path: PathBuf) -> Self {
        Self { path, offset: 0, length: None }
    }
}

/// Cuts a large capture into at most this many parts, at certain record boundaries. A capture
/// without certain boundaries, such as a compressed one, is one part.
///
/// Each part may be measured separately, and the snapshots merged. A part is proven correct if the
/// part before it was measured without a problem; after a problem, measure the file as a whole.
///
/// >>> flowgauge.cut("capture.pcap", 4)
/// [Part('capture.pcap', offset=0, length=None)]
#[pyfunction]
pub(crate) fn cut(py: Python<'_>, path: PathBuf, parts: usize) -> PyResult<Vec<Part>> {
    let found = py.detach(|| flowgauge_capture::cut(&path, parts));
    match found {
        Ok(parts) => {
            let part = |part: flowgauge_capture::Part| {
                let bytes = part.bytes();
                let length = Some(bytes.end - bytes.start);
                Part { path: path.clone(), offset: bytes.start, length }
            };
            Ok(parts.into_iter().map(part).collect())
        }
        Err(error @ (Whole::NoFile | Whole::Unreadable(_))) => {
            let text = format!("cannot cut {}: {error}", path.display());
            Err(Problem::Unreadable(text).into())
        }
        Err(_) => Ok(vec![path.into()]),
    }
}
