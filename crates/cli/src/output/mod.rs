//! The outputs of a command.

mod last;
#[cfg(feature = "parquet")]
mod parquet;
mod place;
mod reports;
mod tables;

use std::env;
use std::fs::{self, File};
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use flowgauge_engine::sink::layout::Look;
use flowgauge_engine::sink::{Format as Writer, Html, Json, Line, Outlets, Sink, SinkError, Text};
use flowgauge_engine::{Config, EngineError, Outcome, Pace};
use terminal_size::{Width, terminal_size_of};

use crate::args::{Output, Run};
use crate::failure::{Failure, complain};
use crate::snapshots::{self, Save};
use crate::values::{Color, Destination, Format};
#[cfg(feature = "agent")]
pub(crate) use last::Last;
#[cfg(not(feature = "agent"))]
use last::Last;
use last::{Brief, Kept};

use place::To;
pub(crate) use place::{Place, refuse_input};
pub(crate) use reports::{Flags, INTERRUPTED};
use reports::{Reports, Retried, Whole};

#[cfg(feature = "parquet")]
use parquet::ParquetFiles;
use tables::TableFiles;

/// Most rows of a list in a text report.
const MOST_ROWS: usize = 10_000;

/// How long the outputs of a live run may take at its end.
const FINISH: Duration = Duration::from_secs(5);

/// The sinks of a run over `inputs`, each with its own flags. A replay replaces a regular file at
/// its end, a live run appends to it.
pub(crate) fn sinks(
    run: &Run,
    configs: &[Config],
    inputs: &[PathBuf],
    pace: Pace,
    flags: impl Fn() -> Result<Flags, Failure>,
) -> Result<Vec<Box<dyn Sink>>, Failure> {
    let destinations = run.destinations();
    for (at, one) in destinations.iter().enumerate() {
        if destinations[..at].iter().any(|other| one.is_same(other)) {
            let name = one.path.as_deref().map_or("standard output".into(), Path::to_string_lossy);
            return Err(Failure::Usage(format!(
                "two outputs go to {name}; name a different file for each"
            )));
        }
    }
    let text = |path: Option<&Path>| Text { rows: rows(configs), look: run.output.look(path) };
    let last = Last::default();
    if pace == Pace::Live {
        last.print_on_request(text(None))?;
    }
    let sink = |destination: &Destination| {
        let path = destination.path.as_deref();
        let Some(format) = destination.format else {
            return save(path.unwrap_or(Path::new("-")), configs, inputs);
        };
        let text = text(path);
        let sink = if pace == Pace::Live && run.is_brief() {
            page(Box::new(Brief { last: last.clone(), text }), path, inputs, pace, flags()?)?
        } else {
            reports((format, path), (text, tasks(configs)), inputs, pace, flags()?)?
        };
        Ok(match pace {
            Pace::Live => Box::new(Kept { last: last.clone(), sink: Box::new(Retried::new(sink)) }),
            Pace::Replay => sink,
        })
    };
    destinations.iter().map(sink).collect()
}

impl Run {
    /// Whether the reports of a live run go to a terminal and no format is given.
    fn is_brief(&self) -> bool {
        let Output { format, path, .. } = &self.output;
        format.is_none() && path.is_none() && self.sink.is_empty() && io::stdout().is_terminal()
    }
}

impl Destination {
    fn is_same(&self, other: &Self) -> bool {
        match (&self.path, &other.path) {
            (Some(one), Some(other)) => same(one, other),
            (one, other) => one == other,
        }
    }
}

/// The sink for reports on `tasks` of a run over `inputs`.
pub(crate) fn reports(
    (format, path): (Format, Option<&Path>),
    (text, tasks): (Text, Option<&[String]>),
    inputs: &[PathBuf],
    pace: Pace,
    flags: Flags,
) -> Result<Box<dyn Sink>, Failure> {
    let format: Box<dyn Writer> = match format {
        Format::Text => Box::new(text),
        Format::Line => Box::new(Line),
        Format::Json => Box::new(Json),
        Format::Html => Box::new(Html),
        Format::Csv => {
            let to = To::new(path, tasks, inputs)?;
            return Ok(Box::new(TableFiles::new(to, inputs, pace, flags)?));
        }
        Format::Parquet if pace == Pace::Live => {
            let message = "live cannot write parquet, whose files are complete only at the end; \
                           use csv or --save";
            return Err(Failure::Usage(message.to_owned()));
        }
        #[cfg(not(feature = "parquet"))]
        Format::Parquet => {
            let message = "this flowgauge was built without Parquet; use csv, or build it with \
                           'make agent' or the feature 'parquet'";
            return Err(Failure::Usage(message.to_owned()));
        }
        #[cfg(feature = "parquet")]
        Format::Parquet => {
            let to = To::new(path, tasks, inputs)?;
            return Ok(Box::new(ParquetFiles::new(to, inputs, flags)?));
        }
    };
    page(format, path, inputs, pace, flags)
}

/// The sink for reports that are written to a single place.
fn page(
    format: Box<dyn Writer>,
    path: Option<&Path>,
    inputs: &[PathBuf],
    pace: Pace,
    flags: Flags,
) -> Result<Box<dyn Sink>, Failure> {
    let place = Place::new(path, inputs, pace == Pace::Live)?;
    Ok(Box::new(Reports::new(format, place, pace, flags).map_err(EngineError::Sink)?))
}

/// Starts a thread for each sink.
pub(crate) fn outlets(pace: Pace, sinks: Vec<Box<dyn Sink>>) -> Result<Outlets, Failure> {
    Outlets::new(pace, sinks).map_err(|error| EngineError::Thread(error).into())
}

/// The sink of snapshots.
fn save(path: &Path, configs: &[Config], inputs: &[PathBuf]) -> Result<Box<dyn Sink>, Failure> {
    refuse_input("snapshots", path, inputs)?;
    let save = Save::new(path, configs)?;
    snapshots::warn(configs);
    Ok(Box::new(save))
}

/// Ends the outputs of a replay. A replaced file is put in place if there was anything to report.
pub(crate) fn finish(
    outlets: Outlets,
    run: Result<Outcome, EngineError>,
) -> Result<Outcome, Failure> {
    let outcome = run?;
    if outcome.total.epochs > 0 {
        end(outlets)?;
    }
    Ok(outcome)
}

/// Ends outputs that have received all items. One that its reader closed is no failure if another
/// is complete.
pub(crate) fn end(outlets: Outlets) -> Result<(), Failure> {
    let endings = outlets.finish(FINISH);
    let complete = endings.iter().any(|ending| ending.error.is_none());
    let errors = endings.into_iter().filter_map(|ending| ending.error);
    match errors.min_by_key(SinkError::is_closed) {
        Some(error) if !(complete && error.is_closed()) => Err(EngineError::Sink(error).into()),
        _ => Ok(()),
    }
}

/// Ends the outputs of a live run. Returns the outcome, and whether every report was written.
pub(crate) fn finish_live(
    outlets: Outlets,
    run: Result<Outcome, EngineError>,
) -> Result<(Outcome, bool), Failure> {
    let outcome = run.map_err(|error| match error {
        EngineError::Sink(SinkError::Closed { .. }) => Failure::Failed(error.to_string()),
        error => error.into(),
    })?;
    let mut complete = true;
    for ending in outlets.finish(FINISH) {
        complete &= ending.undelivered == 0 && ending.error.is_none();
        if let Some(error) = &ending.error {
            complain(&error.to_string());
        }
        if ending.undelivered > 0 {
            complain(&format!("reports that could not be written in time: {}", ending.undelivered));
        }
    }
    Ok((outcome, complete))
}

/// Most rows of a list in a text report: the largest `--top` of the measurements, within the limit
/// of a page.
fn rows(configs: &[Config]) -> usize {
    configs.iter().map(|config| config.top).max().unwrap_or_default().min(MOST_ROWS)
}

/// The tasks of the only measurement; `None` for the default tasks.
fn tasks(configs: &[Config]) -> Option<&[String]> {
    match configs {
        [only] => only.tasks.as_deref(),
        _ => None,
    }
}

/// Whether two paths name the same file, which need not exist yet.
pub(crate) fn same(one: &Path, other: &Path) -> bool {
    one == other || resolved(one).is_some_and(|path| Some(path) == resolved(other))
}

/// The absolute path behind all links.
fn resolved(path: &Path) -> Option<PathBuf> {
    fs::canonicalize(path).ok().or_else(|| {
        let folder = path.parent().filter(|folder| *folder != Path::new(""));
        Some(fs::canonicalize(folder.unwrap_or(Path::new("."))).ok()?.join(path.file_name()?))
    })
}

/// Opens the file that `-o` names, or standard output.
pub(crate) fn open(output: Option<&Path>) -> Result<Box<dyn Write + Send>, Failure> {
    let Some(path) = output.filter(|path| *path != Path::new("-")) else {
        return Ok(Box::new(io::stdout()));
    };
    let file = File::create(path)
        .map_err(|error| Failure::Failed(format!("cannot write {}: {error}", path.display())))?;
    Ok(Box::new(file))
}

/// Writes `text` to the file `output`, or to standard output.
pub(crate) fn write(output: Option<&Path>, text: &str) -> Result<(), Failure> {
    let mut place = Place::new(output, &[], false)?;
    let mut write = || {
        let mut out = Whole::new(place.open()?, usize::MAX)?;
        let result = out.write_all(text.as_bytes());
        out.end(result)?;
        place.complete(out.file())
    };
    write().map_err(|error| Failure::output(&place.name(), &error))
}

impl Output {
    /// Refuses formats of reports for `what`, which is not a report.
    pub(crate) fn text_or_json(&self, what: &str) -> Result<(), Failure> {
        match self.format.unwrap_or_default() {
            Format::Text | Format::Json => Ok(()),
            other => {
                let name = other.name();
                Err(Failure::Usage(format!("cannot write {what} as {name}; use json or text")))
            }
        }
    }
}

impl Output {
    /// The look of text on `path`, or on standard output.
    pub(crate) fn look(&self, path: Option<&Path>) -> Look {
        let standard = path.is_none_or(|path| path == Path::new("-"));
        let terminal = standard && io::stdout().is_terminal();
        let columns = terminal.then(|| terminal_size_of(io::stdout())).flatten();
        let columns = columns.map(|(Width(columns), _)| usize::from(columns).clamp(60, 200));
        let default = Look::default();
        Look {
            width: self.width.or(columns).unwrap_or(default.width),
            color: match self.color {
                Color::Always => true,
                Color::Never => false,
                Color::Auto => terminal && !is_set("NO_COLOR") && is_capable(),
            },
            ascii: !is_utf8(),
            services: !self.numeric,
        }
    }
}

/// Whether a variable is set and not empty, as <https://no-color.org> specifies.
fn is_set(name: &str) -> bool {
    env::var_os(name).is_some_and(|value| !value.is_empty())
}

fn is_capable() -> bool {
    env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// Whether the locale is UTF-8. The first of these variables that is set decides.
fn is_utf8() -> bool {
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find(|name| is_set(name));
    let locale = locale.and_then(|name| env::var(name).ok()).unwrap_or_default().to_lowercase();
    locale.ends_with("utf-8") || locale.ends_with("utf8")
}
