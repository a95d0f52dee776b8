//! Output of the comparison: tab-separated and Markdown tables.

use std::fmt::Write as _;
use std::fs;
use std::io::{self, Write};
use std::path::Path;

use crate::experiment::short;
use crate::failure::Failure;
use crate::machine;

/// The result of one structure.
pub(super) struct Row {
    pub(super) purpose: &'static str,
    pub(super) project: &'static str,
    pub(super) name: &'static str,
    pub(super) memory_bytes: usize,
    /// Million updates per second.
    pub(super) mups: f64,
    /// Root mean square and maximum of the relative errors.
    pub(super) errors: Option<(f64, f64)>,
}

/// Prints the table; with a path, writes it there with a Markdown version beside it.
///
/// # Errors
/// A file cannot be written.
pub(super) fn write(rows: &[Row], about: &str, output: Option<&Path>) -> Result<(), Failure> {
    let tabs = tabs(rows);
    io::stdout().lock().write_all(tabs.as_bytes()).map_err(Failure::of("standard output"))?;
    let Some(path) = output else { return Ok(()) };
    let write =
        |path: &Path, text: &str| fs::write(path, text).map_err(Failure::of(path.display()));
    write(path, &tabs)?;
    write(&path.with_extension("md"), &markdown(rows, about))
}

fn tabs(rows: &[Row]) -> String {
    let mut text =
        "purpose\tproject\tstructure\tmemory_bytes\tmillion_updates_per_s\trms_percent\tworst_percent\n"
            .to_owned();
    for Row { purpose, project, name, memory_bytes, mups, errors } in rows {
        let errors = errors.map_or_else(
            || "\t".to_owned(),
            |(rms, worst)| format!("{}\t{}", short(100.0 * rms), short(100.0 * worst)),
        );
        let mups = short(*mups);
        let _ = writeln!(text, "{purpose}\t{project}\t{name}\t{memory_bytes}\t{mups}\t{errors}");
    }
    text
}

fn markdown(rows: &[Row], about: &str) -> String {
    let mut text = "| structure | memory | million updates/s | error (RMS) | error (worst) |\n\
                    |---|---:|---:|---:|---:|\n"
        .to_owned();
    let mut last = "";
    for Row { purpose, project, name, memory_bytes, mups, errors } in rows {
        if last != *purpose {
            let _ = writeln!(text, "| **{purpose}** | | | | |");
            last = purpose;
        }
        let percent = |error: Option<f64>| {
            error.map_or("-".to_owned(), |error| format!("{} %", short(100.0 * error)))
        };
        let (rms, worst) = (percent(errors.map(|e| e.0)), percent(errors.map(|e| e.1)));
        let kib = memory_bytes.div_ceil(1024);
        let mups = short(*mups);
        let _ = writeln!(text, "| {project} `{name}` | {kib} KiB | {mups} | {rms} | {worst} |");
    }
    let _ = write!(
        text,
        "\n{about}; one core, CPU time, keys of eight bytes from memory. Errors are of the sizes of the \
         large flows, or of the number of flows. The exact table counts bytes beside packets, the maps \
         packets alone. {}; {}.\n",
        machine::describe(),
        machine::caches()
    );
    text
}
