//! `flowgauge analyze`: captures in, reports out.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use flowgauge_capture::Files;
use flowgauge_engine::source::SourceError;
use flowgauge_engine::{EpochLength, Pace, Plan};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::args::Reading;
use crate::auto;
use crate::config::configs;
use crate::failure::{DAMAGED, FAILED, FINE, Failure, complain};
use crate::output::{self, Flags, INTERRUPTED};
use crate::progress::Bar;
use crate::signals;

/// Runs the command, and gives its exit code: that of the worst file.
pub(crate) fn run(reading: &Reading) -> Result<u8, Failure> {
    let files = reading.files();
    if files.is_empty() {
        let message = "no capture is named; give files, or '-' for standard input";
        return Err(Failure::Usage(message.to_owned()));
    }
    let run = &reading.run;
    let configs = auto::decided(configs(run, EpochLength::Whole)?, &files)?;
    let inputs: Vec<_> = files.iter().cloned().chain(run.inputs()).collect();
    let plan = Plan::several(configs.clone())?;
    let mut bar = Bar::new();
    let stop = signals::stop(&[SIGINT, SIGTERM, SIGHUP])?;
    let flags = || Ok(Flags { interrupted: Arc::clone(&stop), ..Flags::default() });
    let sinks = output::sinks(run, &configs, &inputs, Pace::Replay, flags)?;
    let sinks = sinks.into_iter().map(|sink| bar.around(sink)).collect();
    let mut outlets = output::outlets(Pace::Replay, sinks)?;
    let inputs = Files::new(files).until(Arc::clone(&stop));
    let run = flowgauge_engine::run_inputs(plan, &inputs, &mut outlets, &mut |source| {
        bar.tick(&source.progress());
    });
    let finished = output::finish(outlets, run);
    bar.finish();
    let problems = finished?.problems;
    for problem in &problems {
        complain(&problem.to_string());
    }
    if stop.load(Ordering::Relaxed) {
        complain(INTERRUPTED);
    }
    let unreadable = |problem: &SourceError| matches!(problem, SourceError::Unreadable(_));
    Ok(match problems.as_slice() {
        [] => FINE,
        problems if problems.iter().any(unreadable) => FAILED,
        _ => DAMAGED,
    })
}
