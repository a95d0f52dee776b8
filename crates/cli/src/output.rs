//! Where output goes.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use flowgauge_engine::sink::{Csv, Json, Outlets, Sink, Text, Written};
use flowgauge_engine::{Config, EngineError, Outcome, Pace};

use crate::args::{Format, Output};
use crate::failure::Failure;

/// How long the outputs of a live run may take at its end.
const FINISH: Duration = Duration::from_secs(5);

/// Opens the file that `-o` names, or standard output. `inputs` must not be overwritten.
pub(crate) fn open(
    output: Option<&Path>,
    inputs: &[PathBuf],
) -> Result<Box<dyn Write + Send>, Failure> {
    let Some(path) = output.filter(|path| *path != Path::new("-")) else {
        return Ok(Box::new(io::stdout()));
    };
    if inputs.iter().any(|input| same(input, path)) {
        return Err(Failure::Usage(format!("-o {}: that is an input", path.display())));
    }
    let file = File::create(path).map_err(|error| {
        Failure::Failed(format!("{}: cannot be written: {error}", path.display()))
    })?;
    Ok(Box::new(file))
}

/// Whether two paths name one file, which need not be there yet.
pub(crate) fn same(one: &Path, other: &Path) -> bool {
    one == other || place(one).is_some_and(|place_of_one| Some(place_of_one) == place(other))
}

/// Where a path leads in the end.
fn place(path: &Path) -> Option<PathBuf> {
    fs::canonicalize(path).ok().or_else(|| {
        let folder = path.parent().filter(|folder| *folder != Path::new(""));
        Some(fs::canonicalize(folder.unwrap_or(Path::new("."))).ok()?.join(path.file_name()?))
    })
}

/// The sink for a format; a list in the text shows at most `rows` items.
pub(crate) fn sink(format: Format, out: impl Write + Send + 'static, rows: usize) -> Box<dyn Sink> {
    // It is flushed behind each report.
    let out = BufWriter::new(out);
    match format {
        Format::Text => Box::new(Written::new(Text { rows }, out)),
        Format::Json => Box::new(Written::new(Json, out)),
        Format::Csv => Box::new(Written::new(Csv, out)),
    }
}

/// Rows that a list of the text report shows at most: the most that any measurement asks for.
pub(crate) fn rows(configs: &[Config]) -> usize {
    configs.iter().map(|config| config.top).max().unwrap_or_default()
}

/// Starts a thread for each sink.
pub(crate) fn outlets(pace: Pace, sinks: Vec<Box<dyn Sink>>) -> Result<Outlets, Failure> {
    Outlets::new(pace, sinks).map_err(|error| EngineError::Thread(error).into())
}

/// Ends the outputs of a run.
pub(crate) fn finish(
    outlets: Outlets,
    run: Result<Outcome, EngineError>,
) -> Result<Outcome, Failure> {
    let outcome = run?;
    for ending in outlets.finish(FINISH) {
        ending.error.map_or(Ok(()), |error| Err(EngineError::Sink(error)))?;
    }
    Ok(outcome)
}

/// Writes all of `text` to where `output` says.
pub(crate) fn write(output: Option<&Path>, text: &str) -> Result<(), Failure> {
    let mut out = open(output, &[])?;
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .map_err(|error| Failure::output("the output", &error))
}

impl Output {
    /// Refuses CSV for `what`, which is no table.
    pub(crate) fn no_csv(&self, what: &str) -> Result<(), Failure> {
        match self.format {
            Format::Csv => {
                Err(Failure::Usage(format!("{what} is not written as csv; use json or text")))
            }
            Format::Text | Format::Json => Ok(()),
        }
    }
}
