//! Measures captures, and checks what a run is asked for.

use std::io::{self, Read};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use flowgauge_capture::{Captures, Files, Streams, in_order};
use flowgauge_core::task;
use flowgauge_engine::auto::{Sample, choose};
use flowgauge_engine::sink::Takes;
use flowgauge_engine::source::Inputs;
use flowgauge_engine::{Config, EngineError, EpochLength, Outcome, Plan, run_inputs};
use flowgauge_options::{Asked, values};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyDict;

use crate::error::{CaptureWarning, Problem};
use crate::options;
use crate::part::Part;
use crate::report::Reports;
use crate::snapshot::Kept;

/// Interval between checks for signals such as Ctrl-C.
const PATIENCE: Duration = Duration::from_millis(100);

/// Measures captures (pcap or pcapng, plain, gzip or zstd), and returns their reports.
///
/// Options are those of 'flowgauge analyze', with underscores instead of dashes: key, task, filter,
/// algorithm, memory, epoch, workers, seed and so on. `measure` holds several measurements, as
/// texts such as 'web: key=source task=top' or as a dictionary of their options by name; options
/// outside it apply to every measurement that does not set them. `snapshots` stores closed epochs
/// too.
///
/// Captures are paths, parts of files from `cut`, or open binary files such as streams of fsspec.
/// Open files are read once, in the given order.
///
/// A damaged or unreadable capture raises a CaptureWarning, and the rest is measured.
///
/// >>> reports = flowgauge.analyze("capture.pcap", key="source", task=["top", "entropy"], seed=1)
/// >>> reports[0].tables
/// ['epochs', 'top', 'entropy', 'protocols', 'ports', 'notes']
/// >>> reports[0].dict()["tasks"]["top"]["items"][0]["key"]
/// {'source': '172.16.238.131'}
/// >>> flowgauge.analyze("capture.pcap", key="sorce")
/// Traceback (most recent call last):
///   ...
/// flowgauge.errors.OptionError: invalid value 'sorce' for '--key <KEY>': unknown key 'sorce'; did you mean 'source'?
#[pyfunction]
#[pyo3(signature = (paths, measure=None, *, as_given=false, snapshots=false, **options))]
pub(crate) fn analyze(
    py: Python<'_>,
    paths: &Bound<'_, PyAny>,
    measure: Option<&Bound<'_, PyAny>>,
    as_given: bool,
    snapshots: bool,
    options: Option<&Bound<'_, PyDict>>,
) -> PyResult<Reports> {
    let takes = if snapshots { Takes::All } else { Takes::Reports };
    measured(py, paths, measure, as_given, takes, options)
}

/// As `analyze`, for snapshots without reports, so that no task is answered.
#[pyfunction]
#[pyo3(signature = (paths, measure=None, **options))]
pub(crate) fn _snapshots(
    py: Python<'_>,
    paths: &Bound<'_, PyAny>,
    measure: Option<&Bound<'_, PyAny>>,
    options: Option<&Bound<'_, PyDict>>,
) -> PyResult<Reports> {
    measured(py, paths, measure, false, Takes::Snapshots, options)
}

fn measured(
    py: Python<'_>,
    paths: &Bound<'_, PyAny>,
    measure: Option<&Bound<'_, PyAny>>,
    as_given: bool,
    takes: Takes,
    options: Option<&Bound<'_, PyDict>>,
) -> PyResult<Reports> {
    let captures = captures(paths)?;
    let running = options::running(measure, options)?;
    let stop = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&stop);
    let (working, mut ended) = channel::<()>();
    let run = thread::Builder::new().name("flowgauge".to_owned()).spawn(move || {
        // Dropped when the work ends.
        let _working = working;
        let (inputs, files) = inputs(captures, as_given, flag)?;
        let asked = running.configs(EpochLength::Whole, takes != Takes::Reports)?;
        let configs = asked.into_iter().map(|asked| decided(asked, &files));
        let configs = configs.collect::<Result<Vec<_>, _>>()?;
        let seed = configs.first().and_then(|config| config.seed);
        let plan = Plan::several(configs)?;
        let mut kept = Kept::new(takes);
        let outcome = run_inputs(plan, &*inputs, &mut kept, &mut |_| {})?;
        Ok::<_, Problem>((outcome, kept, (seed, running.seed_file)))
    });
    let run = run.map_err(|error| Problem::from(EngineError::Thread(error)))?;
    let mut interrupted = None;
    loop {
        let (waited, receiver) = py.detach(move || (ended.recv_timeout(PATIENCE), ended));
        ended = receiver;
        if waited != Err(RecvTimeoutError::Timeout) {
            break;
        }
        if let Err(signal) = py.check_signals() {
            stop.store(true, Ordering::Relaxed);
            interrupted = Some(signal);
        }
    }
    let ended = py.detach(|| run.join());
    if let Some(signal) = interrupted {
        return Err(signal);
    }
    let defect = |_| {
        let message = "the thread 'flowgauge' failed; please report this bug";
        Problem::Failed(message.to_owned())
    };
    let (outcome, kept, seed) = ended.map_err(defect)??;
    let problems = problems(py, &outcome, kept.items.is_empty())?;
    Reports::new(py, kept.items, seed, problems)
}

/// Captures to measure.
enum Given {
    Files(Vec<Part>),
    Streams(Vec<(String, Box<dyn Read + Send>)>),
}

/// One or several captures, each a path or a part, or open files.
fn captures(paths: &Bound<'_, PyAny>) -> PyResult<Given> {
    let (mut files, mut streams) = (Vec::new(), Vec::new());
    let mut take = |capture: &Bound<'_, PyAny>| {
        if let Ok(part) = capture.cast::<Part>() {
            files.push(part.get().clone());
        } else if let Some((name, stream)) = Stream::of(capture)? {
            streams.push((name, Box::new(stream) as Box<dyn Read + Send>));
        } else {
            files.push(capture.extract::<PathBuf>()?.into());
        }
        Ok::<_, PyErr>(())
    };
    if let Err(refused) = take(paths) {
        let Ok(several) = paths.try_iter() else { return Err(refused) };
        several.into_iter().try_for_each(|capture| take(&capture?))?;
    }
    let message = match (files.is_empty(), streams.is_empty()) {
        (false, true) => return Ok(Given::Files(files)),
        (true, false) => return Ok(Given::Streams(streams)),
        (true, true) => "no capture given; name files, or '-' for standard input",
        (false, false) => "paths and open files cannot be mixed; give one or the other",
    };
    Err(Problem::Option(message.to_owned()).into())
}

/// The inputs, ordered by their first packets if all are files, and these files.
fn inputs(
    given: Given,
    as_given: bool,
    stop: Arc<AtomicBool>,
) -> Result<(Box<dyn Inputs>, Vec<PathBuf>), Problem> {
    let captures = match given {
        Given::Files(captures) => captures,
        Given::Streams(streams) => return Ok((Box::new(Streams::new(streams, stop)), Vec::new())),
    };
    let mut files: Vec<_> = captures.iter().map(|one| one.path().to_owned()).collect();
    if !as_given && captures.iter().all(Part::is_whole) {
        in_order(&mut files);
        return Ok((Box::new(Files::new(files.clone()).until(stop)), files));
    }
    let captures = captures.into_iter().map(Part::capture).collect::<Result<_, _>>()?;
    Ok((Box::new(Files::of(captures).until(stop)), files))
}

/// The configuration. If the algorithm is `auto`, it is chosen by trials on the first packets of
/// the files, or on backbone traffic, as in the command.
fn decided(asked: Asked, files: &[PathBuf]) -> Result<Config, Problem> {
    let Some(wanted) = asked.wanted()? else { return Ok(asked.config) };
    let again = |file: &&PathBuf| file.metadata().is_ok_and(|metadata| metadata.is_file());
    let sample = files.iter().find(again).map(|file| Sample::of(&mut Captures::open([file])));
    let sample = match sample.filter(|sample| !sample.is_empty()) {
        Some(sample) => sample,
        None => Sample::backbone().map_err(|error| Problem::Failed(error.to_string()))?,
    };
    Ok(choose(&asked.config, wanted, sample)?.config)
}

/// The configuration, where `why` is the reason that an algorithm cannot be chosen automatically.
pub(crate) fn named(asked: &Asked, why: &str) -> Result<Config, Problem> {
    match asked.wanted()? {
        None => Ok(asked.config.clone()),
        Some(_) => Err(Problem::Option(format!(
            "'{}': algorithm=auto {why}; name an algorithm",
            asked.config.name
        ))),
    }
}

/// The problems of the inputs; each raises a warning. It is an error if nothing could be read.
fn problems(py: Python<'_>, outcome: &Outcome, is_empty: bool) -> PyResult<Vec<String>> {
    let problems: Vec<_> = outcome.problems.iter().map(ToString::to_string).collect();
    if outcome.total.epochs == 0 && !problems.is_empty() || is_empty {
        return Err(Problem::Unreadable(problems.join("; ")).into());
    }
    let category = py.get_type::<CaptureWarning>();
    for problem in &problems {
        let text = std::ffi::CString::new(problem.replace('\0', " ")).unwrap_or_default();
        PyErr::warn(py, &category, &text, 1)?;
    }
    Ok(problems)
}

/// Minimum bytes to request from a file, since each call waits for the interpreter.
const PIECE: usize = 1 << 20;

/// An object with a method `read`, such as an open file or a stream of fsspec.
pub(crate) struct Stream {
    file: Py<PyAny>,
    piece: Option<PyBackedBytes>,
    /// Bytes of the piece that were consumed.
    read: usize,
}

impl Stream {
    /// The stream and its name, if the object is one.
    pub(crate) fn of(file: &Bound<'_, PyAny>) -> PyResult<Option<(String, Self)>> {
        if !file.hasattr("read")? {
            return Ok(None);
        }
        let name = file.getattr("name").or_else(|_| file.getattr("path"));
        let name = name.and_then(|name| name.str()?.extract::<String>());
        let stream = Self { file: file.clone().unbind(), piece: None, read: 0 };
        Ok(Some((name.unwrap_or_else(|_| "stream".to_owned()), stream)))
    }

    fn next(&self) -> PyResult<PyBackedBytes> {
        Python::attach(|py| {
            let bytes = self.file.bind(py).call_method1("read", (PIECE,))?;
            Ok(bytes.extract()?)
        })
    }
}

impl Read for Stream {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        if self.piece.as_ref().is_none_or(|piece| piece.len() == self.read) {
            self.piece = Some(self.next().map_err(|error| io::Error::other(error.to_string()))?);
            self.read = 0;
        }
        let left = self.piece.as_ref().map_or(&[][..], |piece| &piece[self.read..]);
        let taken = left.len().min(to.len());
        to[..taken].copy_from_slice(&left[..taken]);
        self.read += taken;
        Ok(taken)
    }
}

/// A checked measurement, and what its snapshots are to answer.
#[derive(IntoPyObject)]
pub(crate) struct Checked {
    measurement: String,
    /// The tasks; `None` for the default.
    task: Option<Vec<String>>,
    flow: Vec<String>,
    top: usize,
}

/// Checks options of measurements whose parts will be merged: everything a run would reject, and
/// what merged snapshots cannot answer.
#[pyfunction]
#[pyo3(signature = (measure=None, **options))]
pub(crate) fn _asked(
    py: Python<'_>,
    measure: Option<&Bound<'_, PyAny>>,
    options: Option<&Bound<'_, PyDict>>,
) -> PyResult<Vec<Checked>> {
    let running = options::running(measure, options)?;
    let asked = py.detach(|| {
        let asked = running.configs(EpochLength::Whole, true)?;
        let why = "may choose another one for each part, and these do not merge";
        let configs = asked.iter().map(|asked| named(asked, why));
        let configs = configs.collect::<Result<Vec<_>, _>>()?;
        for config in &configs {
            let named = config.tasks.iter().flatten().filter_map(|name| task::find(name).ok());
            for entry in named {
                let reason = match entry.name {
                    "changes" => "it compares epochs, and parts are merged to one epoch",
                    _ if entry.timeline => {
                        "it needs the times of packets, which snapshots do not store"
                    }
                    _ => continue,
                };
                return Err(Problem::Option(format!("{}: {reason}", entry.name)));
            }
            if config.epoch != EpochLength::Whole || config.updates != EpochLength::Whole {
                let text = "parts are merged to one epoch; leave out epoch and updates";
                return Err(Problem::Option(text.to_owned()));
            }
        }
        let all = asked.into_iter().zip(&configs).map(|(asked, config)| Checked {
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

/// Checks tasks for reports of merged epochs.
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

/// Nanoseconds in a time such as '10s'.
#[pyfunction]
pub(crate) fn _time_ns(time: &str) -> PyResult<u64> {
    let refused = |reason| Problem::Option(format!("invalid time '{time}': {reason}"));
    values::time(time).map_err(|reason| refused(reason).into())
}
