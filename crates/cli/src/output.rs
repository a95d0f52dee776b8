//! Where output goes.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use flowgauge_engine::sink::{CsvSink, JsonSink, Sink, TextSink};

use crate::args::{Format, Output};
use crate::failure::Failure;

/// Opens the file that `-o` names, or standard output. `inputs` must not be overwritten.
pub(crate) fn open(output: Option<&Path>, inputs: &[PathBuf]) -> Result<Box<dyn Write>, Failure> {
    let Some(path) = output.filter(|path| *path != Path::new("-")) else {
        return Ok(Box::new(io::stdout()));
    };
    if let Ok(target) = fs::canonicalize(path)
        && inputs.iter().any(|input| fs::canonicalize(input).is_ok_and(|input| input == target))
    {
        return Err(Failure::Usage(format!("-o {}: that is an input", path.display())));
    }
    let file = File::create(path)
        .map_err(|error| Failure::Failed(format!("-o {}: {error}", path.display())))?;
    Ok(Box::new(file))
}

/// The sink for a format; a list in the text shows at most `rows` items.
pub(crate) fn sink(format: Format, out: impl Write + 'static, rows: usize) -> Box<dyn Sink> {
    // Sinks flush at the end of each report.
    let out = BufWriter::new(out);
    match format {
        Format::Text => Box::new(TextSink::new(out, rows)),
        Format::Json => Box::new(JsonSink::new(out)),
        Format::Csv => Box::new(CsvSink::new(out)),
    }
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
