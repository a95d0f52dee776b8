//! `flowgauge analyze`: captures in, reports out.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use flowgauge_capture::{Files, in_order};
use flowgauge_engine::report::EpochReport;
use flowgauge_engine::sink::Each;
use flowgauge_engine::source::SourceError;
use flowgauge_engine::{EpochLength, Pace, Plan};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::args::Reading;
use crate::config;
use crate::config::configs;
use crate::failure::{DAMAGED, FAILED, FINE, Failure, complain};
use crate::output::{self, Flags, INTERRUPTED};
use crate::progress::Bar;
use crate::progress::Verbose;
use crate::signals;
use crate::tap::Tap;

/// Runs the command; returns the exit code of the worst file.
pub(crate) fn run(reading: &Reading) -> Result<u8, Failure> {
    let mut files = reading.files.clone();
    if !reading.as_given {
        in_order(&mut files);
    }
    if files.is_empty() {
        let message = "no capture given; name files, or '-' for standard input";
        return Err(Failure::Usage(message.to_owned()));
    }
    let run = &reading.run;
    let configs = config::decided(configs(run, EpochLength::Whole)?, &files)?;
    let inputs: Vec<_> = files.iter().cloned().chain(run.inputs()).collect();
    let plan = Plan::several(configs.clone())?;
    let verbose = Verbose::begin(run, &configs, &plan);
    let mut bar = Bar::new(run.quiet);
    let stop = signals::stop(&[SIGINT, SIGTERM, SIGHUP])?;
    let flags = || Ok(Flags { interrupted: Arc::clone(&stop), ..Flags::default() });
    let mut sinks = output::sinks(run, &configs, &inputs, Pace::Replay, flags)?;
    if run.write.is_some() {
        // The packets are complete, too, when the reader of the reports is gone.
        sinks.push(Box::new(Each(|_: &EpochReport| Ok(()))));
    }
    let sinks = sinks.into_iter().map(|sink| bar.around(sink)).collect();
    let mut outlets = output::outlets(Pace::Replay, sinks)?;
    let tap = Tap::new(run, &configs, &inputs)?;
    let inputs = tap.on(Files::new(files).until(Arc::clone(&stop)));
    let outcome = flowgauge_engine::run_inputs(plan, &inputs, &mut outlets, &mut |source| {
        bar.tick(&source.progress());
    });
    let finished = output::finish(outlets, outcome);
    bar.finish();
    let outcome = finished?;
    let written = tap.finish(outcome.problems.is_empty());
    if let Some(verbose) = verbose {
        verbose.end(&outcome);
    }
    let problems = outcome.problems;
    for problem in &problems {
        complain(&problem.to_string());
    }
    if stop.load(Ordering::Relaxed) {
        complain(INTERRUPTED);
    }
    let unreadable = |problem: &SourceError| matches!(problem, SourceError::Unreadable(_));
    Ok(match problems.as_slice() {
        _ if !written => FAILED,
        [] => FINE,
        problems if problems.iter().any(unreadable) => FAILED,
        _ => DAMAGED,
    })
}
