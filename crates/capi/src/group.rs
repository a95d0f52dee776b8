//! Groups of meters: opened from text, identified by numbers, never by addresses.

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use flowgauge_core::accelerator::is_before_headers;
use flowgauge_core::packet::Tunnels;
use flowgauge_core::summary::BuildErrorKind;
use flowgauge_engine::sink::{Item, Outlets, Sink};
use flowgauge_engine::{
    Closed, Config, EngineError, EpochLength, Explanation, Group, Pace, Plan, seed,
};
use flowgauge_kernel::{Seed, is_available};
use flowgauge_options::{MAIN, Named, parse, parse_yaml};
use rustix::process::{Pid, getpid};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::error::Problem;
use crate::meter::{Health, Slot};
use crate::report::{Calls, Mailbox, Posts, Taker};
use crate::{FG_ECLOSED, FG_EDEAD, FG_EFAILED, FG_EOPTIONS, FG_OK, fg_group};

static OPEN: Mutex<BTreeMap<usize, Arc<Opened>>> = Mutex::new(BTreeMap::new());
static NEXT: AtomicUsize = AtomicUsize::new(1);

/// Time that the sink has at the end of a live group: `fg_close` waits for it.
const LONG: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// The settings to open a group with.
pub(crate) struct Asked<'a> {
    pub(crate) options: Option<&'a str>,
    pub(crate) yaml: Option<&'a str>,
    pub(crate) seed_file: Option<&'a Path>,
    pub(crate) seed: Option<u64>,
    pub(crate) queues: usize,
    pub(crate) pace: Pace,
    pub(crate) inner: bool,
    pub(crate) save: bool,
    pub(crate) taker: Option<Taker>,
}

/// An open group.
pub(crate) struct Opened {
    slots: Vec<&'static Slot>,
    health: Arc<Health>,
    mailbox: Option<Arc<Mailbox>>,
    closer: Mutex<Option<JoinHandle<()>>>,
    /// The process with the group's threads.
    process: Pid,
}

impl Asked<'_> {
    /// The requested measurements.
    fn configs(&self) -> Result<Vec<Config>, Problem> {
        let refused = |reason| Problem::new(FG_EOPTIONS, reason);
        let named = match (self.options, self.yaml) {
            (Some(_), Some(_)) => {
                return Err(refused("give options or yaml, not both".to_owned()));
            }
            (None, Some(yaml)) => parse_yaml(yaml).map_err(refused)?,
            (options, None) => lines(options.unwrap_or_default()).map_err(refused)?,
        };
        let seed = self.seed_file.map(seed::from_file).transpose();
        let seed =
            seed.map_err(|error| refused(error.to_string()))?.or(self.seed.map(Seed::number));
        let epoch = match self.pace {
            Pace::Live => EpochLength::Time(10_000_000_000),
            Pace::Replay => EpochLength::Whole,
        };
        let config = |named: &Named| {
            let Named { name, measurement } = named;
            let auto = measurement.algorithm.as_ref().is_some_and(|spec| spec.name == "auto");
            if auto || measurement.error.is_some() || measurement.rate.is_some() {
                return Err(refused(format!(
                    "'{name}': algorithm=auto, error and rate are for the command; name an algorithm"
                )));
            }
            let config = measurement.config(name, epoch).map_err(refused)?;
            if self.pace == Pace::Live && config.updates != EpochLength::Whole {
                return Err(refused(format!(
                    "'{name}': an update makes its meter wait: leave out updates, or use FG_REPLAY"
                )));
            }
            let finds = config.tasks.iter().flatten().any(|task| task == "findings");
            if self.pace == Pace::Live && finds {
                return Err(refused(format!(
                    "'{name}': findings make a push allocate and run for milliseconds: leave the task \
                     out, or use FG_REPLAY"
                )));
            }
            Ok(Config {
                seed,
                queues: self.queues,
                pace: self.pace,
                lock_memory: self.pace == Pace::Live,
                tunnels: if self.inner { Tunnels::Inner } else { Tunnels::Outer },
                save: self.save,
                // Counting them costs each packet time, which a switch does not have.
                services: self.pace == Pace::Replay,
                ..config
            })
        };
        named.iter().map(config).collect()
    }
}

/// Parses measurements, one per line, in the form of `--measure`. A line without a name is called
/// `main`.
fn lines(options: &str) -> Result<Vec<Named>, String> {
    let mut lines: Vec<_> = options.lines().filter(|line| !line.trim().is_empty()).collect();
    if lines.is_empty() {
        lines.push("");
    }
    let one = |line: &str| {
        let is_named = line.split_whitespace().next().is_some_and(|first| first.ends_with(':'));
        if is_named { parse(line.trim()) } else { parse(&format!("{MAIN}: {line}")) }
    };
    lines.into_iter().map(one).collect()
}

/// Opens a group; returns its handle.
pub(crate) fn open(asked: &Asked<'_>) -> Result<*mut fg_group, Problem> {
    let configs = asked.configs()?;
    let samples = configs.iter().all(|config| is_before_headers(&config.accelerators));
    let timed: Vec<_> = configs.iter().map(|config| config.epoch != EpochLength::Whole).collect();
    if asked.pace == Pace::Live {
        check_memory(&configs)?;
    }
    let plan = Plan::several(configs).map_err(|error| failed(&error))?;
    // The only set of summaries has to come back from the closing thread.
    let lends = |(explanation, timed): (Explanation, bool)| timed && explanation.sets == 1;
    if asked.pace == Pace::Live && plan.measurements().zip(timed).any(lends) {
        let text =
            c"a table with forecasts makes its meter wait where an epoch ends: use FG_REPLAY";
        return Err(Problem::fixed(FG_EOPTIONS, text));
    }
    let (meters, group) = plan.build().map_err(|error| failed(&error))?;
    let health = Arc::new(Health::default());
    let mailbox = asked.taker.is_none().then(Arc::<Mailbox>::default);
    let sink: Box<dyn Sink> = match (&mailbox, asked.taker) {
        (None, Some(taker)) => Box::new(Calls { taker, bytes: Vec::new() }),
        (mailbox, _) => Box::new(Posts(mailbox.clone().unwrap_or_default())),
    };
    let closer = {
        let (health, mailbox, pace) = (Arc::clone(&health), mailbox.clone(), asked.pace);
        // Read here, so that the program may restrict them for this call only.
        let cores = sched_getaffinity(Some(getpid())).ok();
        thread::Builder::new().name("flowgauge".to_owned()).spawn(move || {
            stand_aside(cores);
            let closed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                close_epochs(group, sink, pace)
            }));
            match closed {
                Ok(Ok(())) => {}
                Ok(Err(error)) => health.die(error.to_string()),
                Err(panic) => health.die(crate::error::words(&*panic)),
            }
            if let Some(mailbox) = mailbox {
                mailbox.end();
            }
        })
    };
    let closer = closer.map_err(|error| failed(&EngineError::Thread(error)))?;
    let waits = asked.pace == Pace::Replay;
    let open = |meter| Slot::open(meter, Arc::clone(&health), samples, waits);
    let slots = meters.into_iter().map(open).collect();
    let closer = Mutex::new(Some(closer));
    let opened = Arc::new(Opened { slots, health, mailbox, closer, process: getpid() });
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    OPEN.lock().unwrap_or_else(PoisonError::into_inner).insert(number, opened);
    Ok(std::ptr::without_provenance_mut(number))
}

/// Rejects measurements that exceed the machine's memory, before memory is touched. Otherwise the
/// program would be killed instead of continuing without measuring.
fn check_memory(configs: &[Config]) -> Result<(), Problem> {
    let reserving = |config: &Config| Config { lock_memory: false, ..config.clone() };
    let plan = Plan::several(configs.iter().map(reserving).collect());
    let plan = plan.map_err(|error| failed(&error))?;
    let bytes = plan.measurements().map(|explanation| explanation.summary.memory_bytes).sum();
    if is_available(bytes) {
        return Ok(());
    }
    let text =
        format!("the group needs {bytes} bytes of memory, more than is available; ask for less");
    Err(Problem::new(FG_EFAILED, text))
}

fn failed(error: &EngineError) -> Problem {
    let code = match error {
        EngineError::Refused(_) | EngineError::Thread(_) | EngineError::Seed(_) => FG_EFAILED,
        EngineError::Build(error) if matches!(error.kind(), BuildErrorKind::Refused { .. }) => {
            FG_EFAILED
        }
        _ => FG_EOPTIONS,
    };
    Problem::new(code, error.to_string())
}

/// Lets this thread run on these cores instead of the core of a polling thread that opened the
/// group, and leaves the program's signals to its own threads. Threads started from here inherit
/// both.
fn stand_aside(cores: Option<CpuSet>) {
    if let Some(cores) = cores {
        let _ = sched_setaffinity(None, &cores);
    }
    let mut all = MaybeUninit::uninit();
    // SAFETY: `sigfillset` fills the set that the other call reads; neither fails with these arguments.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), std::ptr::null_mut());
    }
}

/// Closes the epochs of a group until its meters have ended.
fn close_epochs(group: Group, sink: Box<dyn Sink>, pace: Pace) -> Result<(), EngineError> {
    let mut outlets = Outlets::new(pace, vec![sink]).map_err(EngineError::Thread)?;
    let Closed { totals, swaps } = group.close(&mut outlets)?;
    for mut total in totals {
        total.notes.extend(swaps.note());
        outlets.deliver(&Item::Total(Arc::new(total)))?;
    }
    match outlets.finish(LONG).pop().and_then(|ending| ending.error) {
        Some(error) => Err(error.into()),
        None => Ok(()),
    }
}

/// The group of a handle.
pub(crate) fn of(handle: *const fg_group) -> Result<Arc<Opened>, Problem> {
    let open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    open.get(&handle.addr()).cloned().ok_or_else(|| gone(handle))
}

fn gone(handle: *const fg_group) -> Problem {
    if handle.is_null() {
        return Problem::argument(c"the group is NULL");
    }
    Problem::fixed(FG_ECLOSED, c"the group was closed")
}

/// Closes a group: ends its meters, and waits for the last reports.
pub(crate) fn close(handle: *const fg_group) -> Result<c_int, Problem> {
    let opened = OPEN.lock().unwrap_or_else(PoisonError::into_inner).remove(&handle.addr());
    let opened = opened.ok_or_else(|| gone(handle))?;
    if opened.process != getpid() {
        let text =
            c"the group belongs to the process that opened it: its threads are not in this one";
        return Err(Problem::fixed(FG_EDEAD, text));
    }
    if let Some(mailbox) = &opened.mailbox {
        mailbox.close();
    }
    Slot::close_all(&opened.slots);
    let closer = opened.closer.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(closer) = closer {
        let _ = closer.join();
    }
    opened.slots.iter().for_each(|slot| slot.rest());
    opened.health.check().map(|()| FG_OK)
}

impl Opened {
    /// The slot of a queue.
    pub(crate) fn slot(&self, queue: usize) -> Option<&'static Slot> {
        self.slots.get(queue).copied()
    }

    /// Packets pushed to its meters that could not be measured.
    pub(crate) fn dropped(&self) -> u64 {
        self.slots.iter().map(|slot| slot.dropped()).sum()
    }

    /// The mailbox of its reports; `None` if a function takes them.
    pub(crate) fn mailbox(&self) -> Option<&Mailbox> {
        self.mailbox.as_deref()
    }
}
