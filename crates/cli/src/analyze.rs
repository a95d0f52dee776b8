//! `flowgauge analyze`: captures in, reports out.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use flowgauge_capture::{Captures, Files};
use flowgauge_engine::source::{Burst, Columns, Source, SourceError};
use flowgauge_engine::{EpochLength, Pace, Plan};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::args::Reading;
use crate::auto;
use crate::config::configs;
use crate::failure::{DAMAGED, FAILED, FINE, Failure, complain};
use crate::output::{self, Flags, INTERRUPTED};
use crate::progress::Bar;
use crate::signals;
use crate::tap::Tap;
use crate::verbose::Verbose;

/// Runs the command, and gives its exit code: that of the worst file.
pub(crate) fn run(reading: &Reading) -> Result<u8, Failure> {
    let files = in_order(reading.files.clone(), reading.as_given);
    if files.is_empty() {
        let message = "no capture given; name files, or '-' for standard input";
        return Err(Failure::Usage(message.to_owned()));
    }
    let run = &reading.run;
    let configs = auto::decided(configs(run, EpochLength::Whole)?, &files)?;
    let inputs: Vec<_> = files.iter().cloned().chain(run.inputs()).collect();
    let plan = Plan::several(configs.clone())?;
    let verbose = Verbose::begin(run, &configs, &plan);
    let mut bar = Bar::new(run.quiet);
    let stop = signals::stop(&[SIGINT, SIGTERM, SIGHUP])?;
    let flags = || Ok(Flags { interrupted: Arc::clone(&stop), ..Flags::default() });
    let sinks = output::sinks(run, &configs, &inputs, Pace::Replay, flags)?;
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
    let written = tap.finish();
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

/// Several captures in the order of their first packets, unless they are to stay as given. Captures
/// without a packet, and those that cannot be read, stay behind.
fn in_order(mut files: Vec<PathBuf>, as_given: bool) -> Vec<PathBuf> {
    let regular = |file: &PathBuf| file.metadata().is_ok_and(|metadata| metadata.is_file());
    if !as_given && files.len() > 1 && files.iter().all(regular) {
        files.sort_by_cached_key(|file| first_ns(file).unwrap_or(i64::MAX));
    }
    files
}

/// The time of the first packet in a capture.
fn first_ns(file: &Path) -> Option<i64> {
    let (mut capture, mut columns) = (Captures::open([file]), Columns::default());
    let mut burst = Burst::new(&mut columns);
    capture.poll(&mut burst).ok()?;
    burst.frames().times_ns().first().copied()
}
