//! Snapshots: stored epochs that can be merged and queried.

use std::fs;
use std::path::PathBuf;
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use flowgauge_core::key::KeySpec;
use flowgauge_engine::Config;
use flowgauge_engine::seed;
use flowgauge_engine::sink::{Item, Sink, SinkError, Takes};
use flowgauge_engine::snapshot;
use flowgauge_options::{check_flows, values};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyDict, PyTuple};

use crate::error::Problem;
use crate::options;
use crate::report::{Report, SnapshotSeed};
use crate::table::{self, Table};

/// Default memory limit for the summaries of a snapshot, in bytes.
pub(crate) const MEMORY: usize = 1 << 30;

/// A closed epoch, or several merged ones: the data of 'flowgauge merge' and 'query'.
///
/// It can be pickled. Its bytes are those of a file of 'flowgauge analyze --save'. They may hold
/// the seed: keep it secret from senders of packets, or measure with a seed file.
///
/// >>> parts = flowgauge.analyze("capture.pcap", key="source", algorithm="count-min", memory="64KiB",
/// ...                           epoch="100p", snapshots=True, seed=1).snapshots
/// >>> whole = parts[0].merge(*parts[1:])
/// >>> whole
/// <flowgauge.Snapshot 'main': 3 epochs by source, count-min>
/// >>> whole.query("top").dict()["tasks"]["top"]["items"][0]["packets"]["value"]
/// 116
/// >>> again = flowgauge.Snapshot.load(bytes(whole))
#[pyclass(frozen, module = "flowgauge")]
pub(crate) struct Snapshot {
    measurement: String,
    held: Mutex<Held>,
    /// Memory limit of its summaries in bytes.
    memory: usize,
    seed: SnapshotSeed,
}

/// Most snapshots are only passed on, so their bytes are read when something is asked of them.
enum Held {
    Stored(Arc<PyBackedBytes>),
    Opened(Box<snapshot::Snapshot>),
}

impl Held {
    fn open(
        &mut self,
        memory: usize,
        seed: &SnapshotSeed,
    ) -> Result<&mut snapshot::Snapshot, Problem> {
        if let Self::Stored(bytes) = self {
            *self = Self::Opened(read(bytes, memory, seed)?);
        }
        match self {
            Self::Opened(opened) => Ok(opened),
            Self::Stored(_) => unreachable!("opened above"),
        }
    }
}

/// Reads the bytes of a snapshot, under its seed or the one in the seed file.
fn read(
    bytes: &[u8],
    memory: usize,
    (seed, seed_file): &SnapshotSeed,
) -> Result<Box<snapshot::Snapshot>, Problem> {
    let from_file =
        |file| seed::from_file(file).map_err(|error| Problem::Option(error.to_string()));
    let seed = match (seed, seed_file.as_deref()) {
        (None, Some(file)) => Some(from_file(file)?),
        (seed, _) => *seed,
    };
    let opened = snapshot::Snapshot::decode(bytes, memory, seed.as_ref());
    opened.map(Box::new).map_err(|error| Problem::Snapshot(error.to_string()))
}

impl Snapshot {
    /// A snapshot by its bytes, which are not read yet.
    pub(crate) fn stored(
        measurement: String,
        bytes: PyBackedBytes,
        memory: usize,
        seed: SnapshotSeed,
    ) -> Self {
        Self { measurement, held: Mutex::new(Held::Stored(Arc::new(bytes))), memory, seed }
    }

    /// Reads a snapshot, with the seed in a file if one is named.
    fn read(bytes: &[u8], memory: usize, seed_file: Option<PathBuf>) -> Result<Self, Problem> {
        let seed = (None, seed_file);
        let opened = read(bytes, memory, &seed)?;
        let measurement = opened.config().name.clone();
        Ok(Self { measurement, held: Mutex::new(Held::Opened(opened)), memory, seed })
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks the snapshot, which is read before.
    fn ask<R>(&self, ask: impl FnOnce(&mut snapshot::Snapshot) -> R) -> Result<R, Problem> {
        Ok(ask(self.lock().open(self.memory, &self.seed)?))
    }

    /// Calls `with` on the snapshots in this one and another, which are read before.
    fn with<R>(
        &self,
        other: &Self,
        with: impl FnOnce(&mut snapshot::Snapshot, &snapshot::Snapshot) -> R,
    ) -> Result<R, Problem> {
        // Locks in the order of addresses, so that two threads that ask crosswise do not deadlock.
        let (mut first, mut second);
        let (own_held, other_held) = if ptr::from_ref(self) < ptr::from_ref(other) {
            (first, second) = (self.lock(), other.lock());
            (&mut *first, &mut *second)
        } else {
            (second, first) = (other.lock(), self.lock());
            (&mut *first, &mut *second)
        };
        let (own, added) = thread::scope(|scope| {
            let added = scope.spawn(|| other_held.open(other.memory, &other.seed));
            (own_held.open(self.memory, &self.seed), added.join())
        });
        let failed =
            |_| Problem::Failed("reading a snapshot failed; please report this bug".to_owned());
        Ok(with(own?, added.map_err(failed)??))
    }
}

#[pymethods]
impl Snapshot {
    /// Reads a snapshot: a file by its path, or bytes.
    #[staticmethod]
    #[pyo3(signature = (source, *, memory=None, seed_file=None))]
    fn load(
        py: Python<'_>,
        source: &Bound<'_, PyAny>,
        memory: Option<&Bound<'_, PyAny>>,
        seed_file: Option<PathBuf>,
    ) -> PyResult<Self> {
        let memory = match memory {
            Some(memory) => {
                let refused = |reason| {
                    Problem::Option(format!("invalid value '{memory}' for memory: {reason}"))
                };
                values::size(memory.str()?.to_str()?).map_err(refused)?
            }
            None => MEMORY,
        };
        let (bytes, path) = match source.extract::<Vec<u8>>() {
            Ok(bytes) => (bytes, None),
            Err(_) => (Vec::new(), Some(source.extract::<PathBuf>()?)),
        };
        let loaded = py.detach(|| {
            let Some(path) = path else { return Self::read(&bytes, memory, seed_file) };
            let at = |problem: String| format!("{}: {problem}", path.display());
            let unreadable = |error| Problem::Unreadable(at(format!("cannot be read: {error}")));
            let bytes = fs::read(&path).map_err(unreadable)?;
            Self::read(&bytes, memory, seed_file).map_err(|problem| match problem {
                Problem::Snapshot(text) => Problem::Snapshot(at(text)),
                other => other,
            })
        });
        loaded.map_err(Into::into)
    }

    /// The name of the measurement.
    #[getter]
    fn measurement(&self) -> &str {
        &self.measurement
    }

    /// The key.
    #[getter]
    fn key(&self, py: Python<'_>) -> PyResult<String> {
        Ok(py.detach(|| self.ask(|opened| opened.config().key.to_string()))?)
    }

    /// The algorithm.
    #[getter]
    fn algorithm(&self, py: Python<'_>) -> PyResult<String> {
        Ok(py.detach(|| self.ask(|opened| opened.config().algorithm.clone()))?)
    }

    /// The epochs that it covers: host, run, epoch, start and end, and from when to when each was observed.
    #[getter]
    fn coverage<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        let covered = py.detach(|| self.ask(|opened| opened.coverage().to_vec()))?;
        let one = |covered: &snapshot::Coverage| {
            let dict = PyDict::new(py);
            dict.set_item("host", &covered.host)?;
            dict.set_item("run", covered.run)?;
            dict.set_item("epoch", covered.epoch)?;
            dict.set_item("start_ns", covered.bounds_ns.0)?;
            dict.set_item("end_ns", covered.bounds_ns.1)?;
            dict.set_item("observed_from_ns", covered.observed_ns.0)?;
            dict.set_item("observed_to_ns", covered.observed_ns.1)?;
            Ok(dict)
        };
        covered.iter().map(one).collect()
    }

    /// Merges other snapshots of the same measurement that cover other epochs into this one, and
    /// returns it.
    #[pyo3(signature = (*others))]
    fn merge<'py>(
        slf: Bound<'py, Self>,
        others: &Bound<'py, PyTuple>,
    ) -> PyResult<Bound<'py, Self>> {
        for other in others {
            let other = other.cast_into::<Self>()?;
            if other.is(&slf) {
                return Err(Problem::Snapshot(
                    "a snapshot cannot be merged with itself".to_owned(),
                )
                .into());
            }
            let (own, other) = (slf.get(), other.get());
            let merged = slf.py().detach(|| own.with(other, snapshot::Snapshot::merge))?;
            merged.map_err(|error| Problem::Snapshot(error.to_string()))?;
        }
        Ok(slf)
    }

    /// The first field in which the identity of another snapshot differs, with both values. `None`
    /// where they are of one group.
    fn _difference(&self, py: Python<'_>, other: &Self) -> PyResult<Option<String>> {
        let check = |own: &mut snapshot::Snapshot, other: &snapshot::Snapshot| {
            own.check_identity(other).err().map(|error| error.to_string())
        };
        Ok(py.detach(|| self.with(other, check))?)
    }

    /// Checks that all hosts whose epochs were merged measured at the same times, within this tolerance.
    #[pyo3(signature = (tolerance="0s"))]
    fn check_aligned(&self, py: Python<'_>, tolerance: &str) -> PyResult<()> {
        let within = values::time(tolerance).map_err(Problem::Option)?;
        let checked = py.detach(|| self.ask(|opened| opened.check_aligned(within)))?;
        checked.map_err(|error| Problem::Snapshot(error.to_string()).into())
    }

    /// Answers tasks from the snapshot.
    #[pyo3(signature = (task=None, *, key=None, flow=None, top=10))]
    fn query(
        &self,
        py: Python<'_>,
        task: Option<&Bound<'_, PyAny>>,
        key: Option<&str>,
        flow: Option<&Bound<'_, PyAny>>,
        top: usize,
    ) -> PyResult<Report> {
        let tasks = task.map(options::names).transpose()?;
        let flows = flow.map(options::texts).transpose()?.unwrap_or_default();
        let item = py.detach(|| self.answer(tasks, key, &flows, top))?;
        Ok(Report::new(item))
    }

    /// The cells of a linear sketch (count-min, count-sketch, k-ary), for databases: one row per
    /// key length in bytes, such as 4 for IPv4 and 16 for IPv6 by source. Cells of several
    /// snapshots can be added.
    fn cells(&self, py: Python<'_>) -> PyResult<Table> {
        let rows = py.detach(|| self.ask(|opened| table::cells(opened)))??;
        Ok(Table::new("cells", rows))
    }

    /// The registers of a distinct counter (hyperloglog, fm, linear-counting), for databases: one
    /// row per key length in bytes. Registers of hyperloglog merge by maximum; those of the others
    /// are bitmaps in 32-bit words, and merge by OR.
    fn registers(&self, py: Python<'_>) -> PyResult<Table> {
        let rows = py.detach(|| self.ask(|opened| table::registers(opened)))??;
        Ok(Table::new("registers", rows))
    }

    /// The cells that count a flow, numbered from 0, one in each row, each with 1 or -1 for a
    /// weight that is added or subtracted there; and the length of the flow's key in bytes. A flow
    /// is a text such as 'source=10.0.0.1'.
    fn places(&self, py: Python<'_>, flow: &str) -> PyResult<(usize, Vec<(usize, i8)>)> {
        let (key_bytes, places) = py.detach(|| self.ask(|opened| places(opened, flow)))??;
        let signed = |(place, is_subtracted)| (place, if is_subtracted { -1 } else { 1 });
        Ok((key_bytes, places.into_iter().map(signed).collect()))
    }

    /// Restores a pickled snapshot.
    #[staticmethod]
    fn _of(
        measurement: String,
        bytes: PyBackedBytes,
        memory: usize,
        seed_file: Option<PathBuf>,
    ) -> Self {
        Self::stored(measurement, bytes, memory, (None, seed_file))
    }

    fn __bytes__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let bytes = py.detach(|| match &*self.lock() {
            Held::Stored(bytes) => Ok(Arc::clone(bytes)),
            Held::Opened(opened) => Err(opened.encode()),
        });
        match bytes {
            Ok(stored) => Ok((&*stored).into_pyobject(py)?),
            Err(encoded) => Ok(PyBytes::new(py, &encoded)),
        }
    }

    /// Pickles the bytes, for other processes.
    fn __reduce__<'py>(
        slf: &Bound<'py, Self>,
    ) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyTuple>)> {
        let (py, own) = (slf.py(), slf.get());
        let load = slf.get_type().getattr("_of")?;
        let state = (&own.measurement, own.__bytes__(py)?, own.memory, own.seed.1.clone());
        Ok((load, state.into_pyobject(py)?))
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let text = |opened: &mut snapshot::Snapshot| {
            let Config { name, key, algorithm, .. } = opened.config();
            let epochs = opened.coverage().len();
            format!("<flowgauge.Snapshot '{name}': {epochs} epochs by {key}, {algorithm}>")
        };
        Ok(py.detach(|| self.ask(text))?)
    }
}

impl Snapshot {
    fn answer(
        &self,
        tasks: Option<Vec<String>>,
        key: Option<&str>,
        flows: &[String],
        top: usize,
    ) -> Result<Item, Problem> {
        let refused = |error: &dyn ToString| Problem::Option(error.to_string());
        check_flows(tasks.as_deref(), flows).map_err(Problem::Option)?;
        self.ask(|opened| {
            let key = match key {
                Some(key) => key.parse::<KeySpec>().map_err(|error| refused(&error))?,
                None => opened.config().key,
            };
            let flows = flows.iter().map(|flow| key.parse_flow(flow)).collect::<Result<_, _>>();
            let flows = flows.map_err(|error| refused(&error))?;
            let ask = |config: &mut Config| {
                config.tasks = tasks;
                config.top = top;
                config.key = key;
                config.flows = flows;
            };
            let mut kept = Kept::new(Takes::Reports);
            opened.query(ask, &mut kept)?;
            let item = kept.items.into_iter().find(|item| matches!(item, Item::Epoch(_)));
            item.ok_or_else(|| Problem::Failed("the snapshot gave no report".to_owned()))
        })?
    }
}

/// The cells of a flow, and the length of its key.
fn places(opened: &snapshot::Snapshot, flow: &str) -> Result<(usize, Vec<(usize, bool)>), Problem> {
    let flow = opened.config().key.parse_flow(flow);
    let flow = flow.map_err(|error| Problem::Option(error.to_string()))?;
    opened.places(&flow).ok_or_else(|| {
        let algorithm = &opened.config().algorithm;
        Problem::Snapshot(format!("{algorithm} has no cells for this flow"))
    })
}

/// A sink that keeps what it takes.
pub(crate) struct Kept {
    pub(crate) items: Vec<Item>,
    takes: Takes,
}

impl Kept {
    pub(crate) fn new(takes: Takes) -> Self {
        Self { items: Vec::new(), takes }
    }
}

impl Sink for Kept {
    fn takes(&self) -> Takes {
        self.takes
    }

    fn deliver(&mut self, item: &Item) -> Result<(), SinkError> {
        self.items.push(item.clone());
        Ok(())
    }
}
