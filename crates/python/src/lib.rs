//! The Python package `flowgauge`: captures and columns in, reports as Arrow tables out.
//!
//! `python/flowgauge/_flowgauge.pyi` describes the Python interface. Work runs detached from the
//! interpreter, so that other Python threads can run.
#![deny(unsafe_code)]
#![allow(clippy::doc_link_with_quotes, reason = "Python reads these texts, not rustdoc")]

mod analyze;
mod columns;
mod error;
mod meter;
mod options;
mod part;
mod report;
mod snapshot;
mod table;

use pyo3::prelude::*;

/// Measures network traffic in fixed memory.
#[pymodule]
mod _flowgauge {
    #[pymodule_export]
    use super::analyze::{_asked, _check_collected, _snapshots, _time_ns, analyze};
    #[pymodule_export]
    use super::meter::Meter;
    #[pymodule_export]
    use super::part::{Part, cut};
    #[pymodule_export]
    use super::report::{Report, Reports};
    #[pymodule_export]
    use super::snapshot::Snapshot;
    #[pymodule_export]
    use super::table::Table;
    use pyo3::prelude::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
