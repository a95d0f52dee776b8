//! From the command line to the measurements that the engine is asked for.

use flowgauge_core::summary::Parameters;
use flowgauge_engine::seed::{self, SeedError};
use flowgauge_engine::{Config, EpochLength, Overrun};
use flowgauge_filter::Filter;
use flowgauge_kernel::Seed;

use crate::args::{Destination, Format, Measurement, Run};
use crate::failure::Failure;
use crate::measurements::{Named, measurements};

/// A measurement that was asked for, and what it asks of the engine.
pub(crate) struct Asked {
    pub(crate) measurement: Measurement,
    pub(crate) config: Config,
}

/// The measurements that the options ask for. An epoch that is not given is `epoch`.
pub(crate) fn configs(run: &Run, epoch: EpochLength) -> Result<Vec<Asked>, Failure> {
    if run.workers == 1 && (run.shared || run.dispatch.is_some() || run.overrun == Overrun::Drop) {
        let message =
            "--shared, --dispatch and --overrun are for several workers; give --workers 2 or more";
        return Err(Failure::Usage(message.to_owned()));
    }
    let all = measurements(run)?;
    let one = all.len() == 1;
    all.into_iter()
        .map(|named| {
            let Named { name, measurement } = named;
            let at = |message| match message {
                Failure::Usage(message) if !one => Failure::Usage(format!("{name}: {message}")),
                other => other,
            };
            let config = config(run, &name, &measurement, epoch).map_err(at)?;
            Ok(Asked { measurement, config })
        })
        .collect()
}

fn config(
    run: &Run,
    name: &str,
    measurement: &Measurement,
    epoch: EpochLength,
) -> Result<Config, Failure> {
    let defaults = Config::default();
    let asked = measurement.task.iter().flatten().any(|task| task == "flow-size");
    if asked == measurement.flow.is_empty() {
        return Err(Failure::Usage(
            "the task flow-size and the flows to measure go together: --task flow-size --flow …"
                .to_owned(),
        ));
    }
    let key = measurement.key.unwrap_or(defaults.key);
    let flows = measurement.flow.iter().map(|flow| key.parse_flow(flow)).collect::<Result<_, _>>();
    let filter = measurement.filter.as_deref().map(Filter::new).transpose();
    let csv = |output: &Destination| output.format == Some(Format::Csv);
    if measurement.updates.is_some() && run.destinations().iter().any(csv) {
        let message = "csv does not tell updates from epochs; use json or text with --updates";
        return Err(Failure::Usage(message.to_owned()));
    }
    let (algorithm, parameters) = match &measurement.algorithm {
        Some(spec) => (spec.name.clone(), spec.parameters.clone()),
        None => (defaults.algorithm, defaults.parameters),
    };
    Ok(Config {
        name: name.to_owned(),
        key,
        by: measurement.by.unwrap_or(defaults.by),
        algorithm,
        parameters,
        accelerators: accelerators(measurement)?,
        memory_bytes: measurement.memory.unwrap_or(defaults.memory_bytes),
        tasks: measurement.task.clone(),
        epoch: measurement.epoch.unwrap_or(epoch),
        updates: measurement.updates.unwrap_or(EpochLength::Whole),
        threshold: measurement.threshold.unwrap_or(defaults.threshold),
        spread: measurement.spread.unwrap_or(defaults.spread),
        spread_of: measurement.spread_of.unwrap_or(defaults.spread_of),
        top: measurement.top.unwrap_or(defaults.top),
        list_limit: if run.limit == 0 { usize::MAX } else { run.limit },
        forecast: measurement.forecast.unwrap_or(defaults.forecast),
        hierarchy: measurement.hierarchy.unwrap_or(defaults.hierarchy),
        flows: flows.map_err(|error| Failure::Usage(error.to_string()))?,
        inner: run.inner,
        filter: filter.map_err(|error| Failure::Usage(error.to_string()))?,
        limit: run.count,
        seed: seed(run)?,
        workers: run.workers,
        shared: run.shared,
        dispatch: run.dispatch,
        overrun: run.overrun,
        pin: run.pin,
        batch_packets: defaults.batch_packets,
        queues: defaults.queues,
        pace: defaults.pace,
        save: run.stores(),
    })
}

/// The seed asked for.
fn seed(run: &Run) -> Result<Option<Seed>, Failure> {
    match &run.seed_file {
        None => Ok(run.seed.map(Seed::number)),
        Some(path) => seed::from_file(path).map(Some).map_err(|error| match error {
            SeedError::Unreadable { .. } => Failure::Failed(error.to_string()),
            SeedError::Open { .. } | SeedError::Size { .. } => Failure::Usage(error.to_string()),
        }),
    }
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
