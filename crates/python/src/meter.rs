//! Meters: packets are pushed in, reports of epochs come out.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use flowgauge_core::packet::{Captured, Column, Frames, LinkType};
use flowgauge_engine::sink::{Item, Sink, SinkError};
use flowgauge_engine::{EngineError, EpochLength, Plan};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyDict;

use crate::analyze::named;
use crate::columns::{Columns, Copied, ROWS};
use crate::error::Problem;
use crate::options;
use crate::report::{Reports, SnapshotSeed};

/// Frames passed to a meter at once.
const BURST: usize = 256;

/// Measures packets that are pushed into it: frames, or columns of headers.
///
/// It takes measurements and options like `analyze`. `link` is pcap's number of the frames' link
/// type, 1 (Ethernet) by default. An epoch ends with the packets, or with `advance`; its report
/// arrives a little later, from another thread. Closing waits for the last reports. Threads may
/// share a meter; each call waits for those before it.
///
/// >>> with flowgauge.Meter("key=source task=top", epoch="10s", seed=1) as meter:
/// ...     meter.push_columns(source=[0x0A000001, 0x0A000002, 0x0A000001], length=100, time_ns=0)
/// >>> meter.reports()[0].dict()["tasks"]["top"]["items"][0]["key"]
/// {'source': '10.0.0.1'}
#[pyclass(frozen, module = "flowgauge")]
pub(crate) struct Meter {
    state: Mutex<State>,
    posted: Posted,
    seed: SnapshotSeed,
    link: LinkType,
}

/// Items that left the group and were not fetched yet.
#[derive(Clone, Default)]
struct Posted(Arc<Mutex<Vec<Item>>>);

/// An open meter, or what closed it.
struct State {
    meter: Option<Box<dyn flowgauge_engine::Meter>>,
    closer: Option<JoinHandle<Result<(), EngineError>>>,
    copied: Copied,
}

impl Posted {
    fn lock(&self) -> MutexGuard<'_, Vec<Item>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sink for Posted {
    fn deliver(&mut self, item: &Item) -> Result<(), SinkError> {
        self.lock().push(item.clone());
        Ok(())
    }
}

#[pymethods]
impl Meter {
    /// Opens a meter, and reserves all its memory.
    #[new]
    #[pyo3(signature = (measure=None, *, link=1, snapshots=false, **options))]
    fn new(
        py: Python<'_>,
        measure: Option<&Bound<'_, PyAny>>,
        link: u16,
        snapshots: bool,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let running = options::running(measure, options)?;
        let opened = py.detach(|| {
            let asked = running.configs(EpochLength::Whole, snapshots)?;
            let why =
                "needs packets to try algorithms on, which a meter does not have at its start";
            let configs = asked.iter().map(|asked| named(asked, why));
            let configs = configs.collect::<Result<Vec<_>, _>>()?;
            let seed = configs.first().and_then(|config| config.seed);
            let (mut meters, group) = Plan::several(configs)?.build()?;
            let posted = Posted::default();
            let mut sink = posted.clone();
            let closer = thread::Builder::new().name("flowgauge".to_owned()).spawn(move || {
                for total in group.close(&mut sink)?.totals {
                    sink.deliver(&Item::Total(Arc::new(total)))?;
                }
                Ok(())
            });
            let closer = Some(closer.map_err(EngineError::Thread)?);
            let state = State { meter: meters.pop(), closer, copied: Copied::default() };
            let seed = (seed, running.seed_file);
            Ok(Self { state: Mutex::new(state), posted, seed, link: LinkType(link) })
        });
        opened.map_err(|problem: Problem| problem.into())
    }

    /// Measures frames: one, or several in the order of their times.
    ///
    /// `time_ns` is the time of all frames or of each, in nanoseconds since the UNIX epoch, by
    /// default now; `length` is the bytes on the wire, by default the length of the frame.
    #[pyo3(signature = (frames, time_ns=None, length=None))]
    fn push(
        &self,
        py: Python<'_>,
        frames: &Bound<'_, PyAny>,
        time_ns: Option<&Bound<'_, PyAny>>,
        length: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let frames: Vec<PyBackedBytes> = match frames.extract() {
            Ok(one) => vec![one],
            Err(_) => frames.try_iter()?.map(|one| Ok(one?.extract()?)).collect::<PyResult<_>>()?,
        };
        let times_ns = match time_ns {
            Some(time_ns) => of_each(time_ns, frames.len(), "times")?,
            None => vec![now_ns(py)?; frames.len()],
        };
        let wires = match length {
            Some(length) => of_each(length, frames.len(), "lengths")?,
            None => {
                frames.iter().map(|frame| u32::try_from(frame.len()).unwrap_or(u32::MAX)).collect()
            }
        };
        let pushed = py.detach(|| {
            self.with(|meter, _| {
                let link = Column::Same(self.link);
                let bursts =
                    frames.chunks(BURST).zip(wires.chunks(BURST)).zip(times_ns.chunks(BURST));
                for ((frames, wires), times_ns) in bursts {
                    let bytes: Vec<_> =
                        frames.iter().map(|frame| Captured::from(&frame[..])).collect();
                    meter.push(Frames::new(&bytes, wires, link, Column::Each(times_ns)));
                }
            })
        });
        pushed.map_err(Into::into)
    }

    /// Measures packets given as columns of header fields, such as NumPy arrays.
    ///
    /// Columns are `source`, `destination`, `source_port`, `destination_port`, `protocol`, `length`
    /// (bytes on the wire) and `time_ns`: one value for all packets, or an array with one for each.
    /// IPv4 addresses are numbers, or 4 bytes each; IPv6 addresses are 16 bytes each. Missing
    /// columns count as 0, and a missing time as now. Arrays of uint32, uint16, uint8, uint32 and
    /// int64 are read without conversion. A measurement with a filter counts these packets as
    /// filtered.
    #[pyo3(signature = (**columns))]
    fn push_columns(&self, py: Python<'_>, columns: Option<&Bound<'_, PyDict>>) -> PyResult<()> {
        let columns = Columns::new(py, columns)?;
        for first in (0..columns.len()).step_by(ROWS) {
            let mut copied = std::mem::take(&mut self.lock().copied);
            columns.copy(first, &mut copied)?;
            py.detach(|| {
                self.with(|meter, kept| {
                    copied.push(meter);
                    *kept = copied;
                })
            })?;
        }
        Ok(())
    }

    /// Closes the epochs that end before this time.
    fn advance(&self, py: Python<'_>, time_ns: i64) -> PyResult<()> {
        let advanced = py.detach(|| self.with(|meter, _| meter.advance(time_ns)));
        advanced.map_err(Into::into)
    }

    /// The reports since the last call.
    fn reports(&self, py: Python<'_>) -> PyResult<Reports> {
        let items = std::mem::take(&mut *self.posted.lock());
        Reports::new(py, items, self.seed.clone(), Vec::new())
    }

    /// Ends the open epoch, and waits for the last reports.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let closed = py.detach(|| {
            let mut state = self.lock();
            if let Some(meter) = state.meter.take() {
                meter.finish();
            }
            state.end()
        });
        closed.map_err(Into::into)
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_raised))]
    fn __exit__(&self, py: Python<'_>, _raised: &Bound<'_, pyo3::types::PyTuple>) -> PyResult<()> {
        self.close(py)
    }
}

impl Meter {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `work` on the open meter.
    fn with(
        &self,
        work: impl FnOnce(&mut dyn flowgauge_engine::Meter, &mut Copied),
    ) -> Result<(), Problem> {
        let mut state = self.lock();
        let State { meter, copied, .. } = &mut *state;
        let meter =
            meter.as_mut().ok_or_else(|| Problem::Option("the meter is closed".to_owned()))?;
        work(&mut **meter, copied);
        // A meter is also done when its limit is reached; only a missing group is a failure.
        if meter.is_done() && state.closer.as_ref().is_some_and(JoinHandle::is_finished) {
            state.meter = None;
            return state.end();
        }
        Ok(())
    }
}

impl State {
    /// Waits for the closing thread, and returns its error, if any.
    fn end(&mut self) -> Result<(), Problem> {
        match self.closer.take().map(JoinHandle::join) {
            None | Some(Ok(Ok(()))) => Ok(()),
            Some(Ok(Err(error))) => Err(error.into()),
            Some(Err(_)) => {
                let message = "the thread 'flowgauge' failed; please report this bug";
                Err(Problem::Failed(message.to_owned()))
            }
        }
    }
}

/// One value per frame, from as many or from a single one.
fn of_each<'py, T>(value: &Bound<'py, PyAny>, frames: usize, what: &str) -> PyResult<Vec<T>>
where
    T: Copy + for<'a> FromPyObject<'a, 'py, Error = PyErr>,
{
    if let Ok(one) = value.extract::<T>() {
        return Ok(vec![one; frames]);
    }
    let all: Vec<T> = value.try_iter()?.map(|one| one?.extract()).collect::<PyResult<_>>()?;
    if all.len() != frames {
        let message = format!("there are {frames} frames and {} {what}", all.len());
        return Err(PyValueError::new_err(message));
    }
    Ok(all)
}

/// The system time.
fn now_ns(py: Python<'_>) -> PyResult<i64> {
    py.import("time")?.getattr("time_ns")?.call0()?.extract()
}
