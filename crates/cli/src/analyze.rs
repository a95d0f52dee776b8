//! `flowgauge analyze`: captures in, reports out.

use std::path::PathBuf;

use flowgauge_capture::{CaptureError, Captures};
use flowgauge_engine::Plan;

use crate::args::Measurement;
use crate::auto;
use crate::config::config;
use crate::failure::{DAMAGED, FAILED, FINE, Failure, complain};
use crate::output;
use crate::progress::Bar;

/// Runs the command, and gives its exit code: that of the worst file.
pub(crate) fn run(measurement: &Measurement) -> Result<u8, Failure> {
    let files: Vec<PathBuf> = measurement.read.iter().chain(&measurement.files).cloned().collect();
    if files.is_empty() {
        let message = "no capture is named; give files, or '-' for standard input";
        return Err(Failure::Usage(message.to_owned()));
    }
    let mut config = config(measurement)?;
    if let Some(choice) = auto::chosen(&config, measurement, &files)? {
        complain(&auto::line(&choice));
        config = choice.config;
    }
    let plan = Plan::new(config)?;
    let mut bar = Bar::new();
    let out = output::open(measurement.output.output.as_deref(), &files)?;
    let mut sink = output::sink(measurement.output.format, bar.around(out), measurement.top);
    let mut captures = Captures::open(&files);
    let run = plan.run(&mut captures, &mut *sink, &mut |source| bar.tick(&source.progress()));
    bar.finish();
    let problems = run?.problems;
    for problem in &problems {
        complain(&problem.to_string());
    }
    let unreadable = |problem: &CaptureError| matches!(problem, CaptureError::Unreadable { .. });
    Ok(match problems.as_slice() {
        [] => FINE,
        problems if problems.iter().any(unreadable) => FAILED,
        _ => DAMAGED,
    })
}
