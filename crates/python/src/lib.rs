//! The Python package `flowgauge`: captures and columns in, reports as Arrow tables out.
//!
//! What Python sees is described in `python/flowgauge/_flowgauge.pyi`. Work runs detached from the
//! interpreter, so that other threads of the program go on meanwhile.
#![deny(unsafe_code)]
#![allow(clippy::doc_link_with_quotes, reason = "Python reads these texts, not rustdoc")]

mod analyze;
mod asked;
mod cells;
mod columns;
mod error;
mod meter;
mod options;
mod part;
mod report;
mod reports;
mod snapshot;
mod stream;
mod table;

use pyo3::prelude::*;

/// Measures network traffic in fixed memory.
#[pymodule]
mod _flowgauge {
    #[pymodule_export]
    use super::analyze::analyze;
    #[pymodule_export]
    use super::asked::{_asked, _check_collected, _time_ns};
    #[pymodule_export]
    use super::meter::Meter;
    #[pymodule_export]
    use super::part::{Part, cut};
    #[pymodule_export]
    use super::report::Report;
    #[pymodule_export]
    use super::reports::Reports;
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
