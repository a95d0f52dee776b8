//! What options ask for, before anything runs.

use flowgauge_core::task;
use flowgauge_engine::{EpochLength, Plan};
use flowgauge_options::values;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::analyze::named;
use crate::error::Problem;
use crate::options;

/// A measurement, and what its snapshots are asked.
#[derive(IntoPyObject)]
pub(crate) struct Asked {
    measurement: String,
    /// The tasks; those by default where `None`.
    task: Option<Vec<String>>,
    flow: Vec<String>,
    top: usize,
}

/// Checks options for measurements whose parts are merged: all that a run would refuse, and what merged
/// snapshots cannot answer.
#[pyfunction]
#[pyo3(signature = (measure=None, **options))]
pub(crate) fn _asked(
    py: Python<'_>,
    measure: Option<&Bound<'_, PyAny>>,
    options: Option<&Bound<'_, PyDict>>,
) -> PyResult<Vec<Asked>> {
    let running = options::running(measure, options)?;
    let asked = py.detach(|| {
        let asked = running.configs(EpochLength::Whole, true)?;
        let why = "may choose another one for each part, and these do not merge";
        let configs = asked.iter().map(|asked| named(asked, why));
        let configs = configs.collect::<Result<Vec<_>, _>>()?;
        for config in &configs {
            let named = config.tasks.iter().flatten().filter_map(|name| task::find(name).ok());
            if let Some(entry) = named.into_iter().find(|entry| entry.timeline) {
                return Err(Problem::Option(format!(
                    "{}: it needs the times of packets, which snapshots do not store",
                    entry.name
                )));
            }
            if config.epoch != EpochLength::Whole || config.updates != EpochLength::Whole {
                let text = "parts are merged to one epoch; leave out epoch and updates";
                return Err(Problem::Option(text.to_owned()));
            }
        }
        let all = asked.into_iter().zip(&configs).map(|(asked, config)| Asked {
            measurement: config.name.clone(),
            task: config.tasks.clone(),
            flow: asked.measurement.flow,
            top: config.top,
        });
        let all = all.collect();
        Plan::several(configs)?;
        Ok(all)
    });
    asked.map_err(|problem: Problem| problem.into())
}

/// Checks tasks that reports of merged epochs are to answer.
#[pyfunction]
pub(crate) fn _check_collected(tasks: &Bound<'_, PyAny>) -> PyResult<()> {
    for name in options::names(tasks)? {
        let entry = task::find(&name).map_err(|error| Problem::Option(error.to_string()))?;
        let reason = match entry.name {
            "changes" => "compares an epoch with those before it, which are not kept",
            _ if entry.timeline => "needs the times of packets, which snapshots do not store",
            _ => continue,
        };
        return Err(Problem::Option(format!("'{name}' {reason}; leave it out")).into());
    }
    Ok(())
}

/// Nanoseconds of a time such as '10s'.
#[pyfunction]
pub(crate) fn _time_ns(time: &str) -> PyResult<u64> {
    let refused = |reason| Problem::Option(format!("invalid time '{time}': {reason}"));
    values::time(time).map_err(|reason| refused(reason).into())
}
