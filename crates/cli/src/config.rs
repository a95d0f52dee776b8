//! From the command line to what the engine is asked to do.

use flowgauge_capture::filter::Filter;
use flowgauge_core::summary::Parameters;
use flowgauge_engine::{Config, EpochLength, Overrun};

use crate::args::{Format, Measurement};
use crate::failure::Failure;

/// The run that the options ask for.
pub(crate) fn config(measurement: &Measurement) -> Result<Config, Failure> {
    let asked = measurement.task.iter().flatten().any(|task| task == "flow-size");
    if asked == measurement.flow.is_empty() {
        return Err(Failure::Usage(
            "the task flow-size and the flows to measure go together: --task flow-size --flow …"
                .to_owned(),
        ));
    }
    let key = measurement.key;
    let flows = measurement.flow.iter().map(|flow| key.parse_flow(flow)).collect::<Result<_, _>>();
    let filter = measurement.filter.as_deref().map(Filter::new).transpose();
    if measurement.workers == 1
        && (measurement.shared
            || measurement.dispatch.is_some()
            || measurement.overrun == Overrun::Drop)
    {
        let message =
            "--shared, --dispatch and --overrun are for several workers; give --workers 2 or more";
        return Err(Failure::Usage(message.to_owned()));
    }
    if measurement.updates.is_some() && measurement.output.format == Format::Csv {
        let message =
            "csv is written at the end of the run, too late for --updates; use json or text";
        return Err(Failure::Usage(message.to_owned()));
    }
    Ok(Config {
        key,
        by: measurement.by,
        algorithm: measurement.algorithm.name.clone(),
        parameters: measurement.algorithm.parameters.clone(),
        accelerators: accelerators(measurement)?,
        memory_bytes: measurement.memory,
        tasks: measurement.task.clone(),
        epoch: measurement.epoch.unwrap_or(EpochLength::Whole),
        updates: measurement.updates.unwrap_or(EpochLength::Whole),
        threshold: measurement.threshold,
        spread: measurement.spread,
        spread_of: measurement.spread_of,
        top: measurement.top,
        forecast: measurement.forecast,
        hierarchy: measurement.hierarchy,
        flows: flows.map_err(|error| Failure::Usage(error.to_string()))?,
        inner: measurement.inner,
        filter: filter.map_err(|error| Failure::Usage(error.to_string()))?,
        limit: measurement.count,
        seed: measurement.seed,
        workers: measurement.workers,
        shared: measurement.shared,
        dispatch: measurement.dispatch,
        overrun: measurement.overrun,
        pin: measurement.pin,
        ..Config::default()
    })
}

/// The accelerators asked for; `none` stands alone.
fn accelerators(measurement: &Measurement) -> Result<Vec<(String, Parameters)>, Failure> {
    match &measurement.accelerator[..] {
        [one] if one.name == "none" && one.parameters == Parameters::default() => Ok(Vec::new()),
        all if all.iter().any(|one| one.name == "none") => Err(Failure::Usage(
            "--accelerator none has neither parameters nor another one beside it".to_owned(),
        )),
        all => Ok(all.iter().map(|one| (one.name.clone(), one.parameters.clone())).collect()),
    }
}
