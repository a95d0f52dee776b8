//! From the command line to the measurements that the engine is asked for.

use std::fs;
use std::path::Path;

use flowgauge_core::summary::Parameters;
use flowgauge_core::task::OVERVIEW;
use flowgauge_engine::seed::{self, SeedError};
use flowgauge_engine::{Config, EpochLength, Overrun};
use flowgauge_kernel::Seed;
use flowgauge_options::{MAIN, Measurement, Named};

use crate::args::{Destination, Format, Preset, Run};
use crate::failure::{Failure, complain};

/// A measurement that was asked for, and what it asks of the engine.
pub(crate) struct Asked {
    pub(crate) measurement: Measurement,
    pub(crate) config: Config,
}

/// The measurements that the options ask for. An epoch that is not given is `epoch`.
pub(crate) fn configs(run: &Run, epoch: EpochLength) -> Result<Vec<Asked>, Failure> {
    if run.workers == 1 && (run.shared || run.dispatch.is_some() || run.overrun == Overrun::Drop) {
        let message =
            "--shared, --dispatch and --overrun need several workers; give --workers 2 or more";
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

/// The measurements that the options ask for, in their order.
fn measurements(run: &Run) -> Result<Vec<Named>, Failure> {
    let mut all = match &run.config {
        Some(path) => read(path)?,
        None => Vec::new(),
    };
    for text in &run.measure {
        let named = flowgauge_options::parse(text);
        all.push(named.map_err(|reason| Failure::Usage(format!("--measure: {reason}")))?);
    }
    if all.is_empty() {
        let mut measurement = run.measurement.clone();
        if preset(run) == Preset::Overview {
            measurement.task = Some(OVERVIEW.map(str::to_owned).to_vec());
        }
        return Ok(vec![Named { name: MAIN.to_owned(), measurement }]);
    }
    for named in &mut all {
        named.measurement = named.measurement.clone().or(&run.measurement);
    }
    Ok(all)
}

/// The preset. Options that name a key, a task or an algorithm ask for that alone.
fn preset(run: &Run) -> Preset {
    let Measurement { key, task, algorithm, accelerator, .. } = &run.measurement;
    let plain = key.is_none() && task.is_none() && algorithm.is_none() && accelerator.is_empty();
    run.preset.unwrap_or(if plain { Preset::Overview } else { Preset::Flows })
}

/// The measurements of a YAML file.
fn read(path: &Path) -> Result<Vec<Named>, Failure> {
    let name = path.display();
    let text = fs::read_to_string(path)
        .map_err(|error| Failure::Failed(format!("cannot read {name}: {error}")))?;
    flowgauge_options::parse_yaml(&text)
        .map_err(|reason| Failure::Usage(format!("{name}: {reason}")))
}

fn config(
    run: &Run,
    name: &str,
    measurement: &Measurement,
    epoch: EpochLength,
) -> Result<Config, Failure> {
    let tables =
        |output: &Destination| matches!(output.format, Some(Format::Csv | Format::Parquet));
    if measurement.updates.is_some() && run.destinations().iter().any(tables) {
        let message = "csv and parquet cannot hold updates; use --format json or text with \
                       --updates";
        return Err(Failure::Usage(message.to_owned()));
    }
    let mut config = Config {
        list_limit: if run.limit == 0 { usize::MAX } else { run.limit },
        tunnels: run.tunnels(),
        limit: run.count,
        seed: seed(run)?,
        workers: run.workers,
        shared: run.shared,
        dispatch: run.dispatch,
        overrun: run.overrun,
        pin: run.pin,
        services: true,
        save: run.stores(),
        ..measurement.config(name, epoch).map_err(Failure::Usage)?
    };
    if measurement.algorithm.is_some() {
        return Ok(config);
    }
    if run.shared {
        // What several workers fill has no other state than counters.
        config.parameters = Parameters::default();
    }
    let Some((instead, chosen)) = flowgauge_engine::capable(&config) else { return Ok(config) };
    if !run.quiet {
        let tasks: Vec<_> = config.tasks.iter().flatten().map(String::as_str).collect();
        complain(&format!(
            "using --algorithm {chosen}: {} does not answer {} by {}",
            config.algorithm,
            tasks.join(", "),
            config.key
        ));
    }
    Ok(instead)
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
