//! Converts Python arguments to options of the command line.

use clap::{Arg, Args, Command, FromArgMatches};
use flowgauge_core::unknown::suggestion;
use flowgauge_options::{MAIN, Running, sentence};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyList, PyMapping, PyString, PyTuple};

use crate::error::Problem;

/// The configuration for these measurements and options.
pub(crate) fn running(
    measure: Option<&Bound<'_, PyAny>>,
    options: Option<&Bound<'_, PyDict>>,
) -> PyResult<Running> {
    let command = Running::augment_args(Command::new("flowgauge").no_binary_name(true));
    let mut arguments = Vec::new();
    for text in measure.map(measures).transpose()?.unwrap_or_default() {
        arguments.push(format!("--measure={text}"));
    }
    for (name, value) in options.into_iter().flatten() {
        let name: String = name.extract()?;
        let known = command.get_arguments().map(|option| option.get_id().as_str());
        let Some(option) = command.get_arguments().find(|option| *option.get_id() == *name) else {
            let known = suggestion(&name, known);
            return Err(Problem::Option(format!("unknown option '{name}'; {known}")).into());
        };
        arguments.extend(given(option, &value)?);
    }
    let running = command
        .try_get_matches_from(arguments)
        .and_then(|matches| Running::from_arg_matches(&matches));
    running.map_err(|error| Problem::Option(sentence(&error)).into())
}

/// An option in the form of the command line; empty if the value is `None` or `False`.
fn given(option: &Arg, value: &Bound<'_, PyAny>) -> PyResult<Vec<String>> {
    let dashed = match (option.get_long(), option.get_short()) {
        (Some(long), _) => format!("--{long}"),
        (None, short) => format!("-{}", short.unwrap_or_default()),
    };
    if value.is_none() {
        return Ok(Vec::new());
    }
    if let Ok(is_set) = value.cast::<PyBool>() {
        return Ok(if is_set.is_true() { vec![dashed] } else { Vec::new() });
    }
    let mut values = texts(value)?;
    if option.get_value_delimiter().is_some() {
        values = vec![values.join(",")];
    }
    Ok(values.into_iter().map(|value| format!("{dashed}={value}")).collect())
}

/// Measurements in the form of `--measure`, from a text, a dictionary of options, or several of
/// both.
fn measures(measure: &Bound<'_, PyAny>) -> PyResult<Vec<String>> {
    if let Ok(text) = measure.cast::<PyString>() {
        let lines = text.to_str()?.lines().map(str::trim).filter(|line| !line.is_empty());
        return Ok(lines.map(named).collect());
    }
    if let Ok(several) = measure.cast::<PyMapping>() {
        let one = |item: Bound<'_, PyAny>| {
            let (name, options): (String, Bound<'_, PyAny>) = item.extract()?;
            Ok(format!("{name}: {}", words(&options)?))
        };
        return several.items()?.iter().map(one).collect();
    }
    let several = measure.try_iter().map_err(|_| {
        let message =
            "give measure as a text, several texts, or options by the name of a measurement";
        PyTypeError::new_err(message)
    })?;
    let mut all = Vec::new();
    for one in several {
        all.extend(measures(&one?)?);
    }
    Ok(all)
}

/// A measurement with its name, which may be omitted if there is only one.
fn named(text: &str) -> String {
    let is_named = text.split_whitespace().next().is_some_and(|first| first.ends_with(':'));
    if is_named { text.to_owned() } else { format!("{MAIN}: {text}") }
}

/// Options of a measurement as words separated by spaces.
fn words(options: &Bound<'_, PyAny>) -> PyResult<String> {
    if let Ok(text) = options.cast::<PyString>() {
        return Ok(text.to_str()?.to_owned());
    }
    let mut words = Vec::new();
    for item in options.cast::<PyMapping>()?.items()?.iter() {
        let (name, value): (String, Bound<'_, PyAny>) = item.extract()?;
        if value.is_none() {
            continue;
        }
        let name = name.replace('_', "-");
        let mut values = texts(&value)?;
        if name == "task" {
            values = vec![values.join(",")];
        }
        words.extend(values.into_iter().map(|value| format!("{name}={}", quoted(&value))));
    }
    Ok(words.join(" "))
}

/// A quoted value, so that blanks do not end it.
fn quoted(value: &str) -> String {
    format!("'{}'", value.replace('\'', "'\"'\"'"))
}

/// The texts of a value or of several.
pub(crate) fn texts(value: &Bound<'_, PyAny>) -> PyResult<Vec<String>> {
    let text = |one: Bound<'_, PyAny>| one.str()?.extract::<String>();
    if value.is_instance_of::<PyList>() || value.is_instance_of::<PyTuple>() {
        return value.try_iter()?.map(|one| text(one?)).collect();
    }
    Ok(vec![text(value.clone())?])
}

/// Names; a text may hold several, separated by commas.
pub(crate) fn names(value: &Bound<'_, PyAny>) -> PyResult<Vec<String>> {
    let all = texts(value)?;
    Ok(all.iter().flat_map(|text| text.split(',')).map(|name| name.trim().to_owned()).collect())
}
