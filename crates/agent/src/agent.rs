//! The loop of an agent: one run after another, each under one configuration.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use flowgauge_engine::sink::{QUEUE_BYTES, Sink, units};
use flowgauge_engine::source::SourceError;
use flowgauge_engine::{EngineError, EpochLength, Outcome, seed};
use flowgauge_kernel::reserve_heap;
use flowgauge_records::KeptPorts;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::Failure;
use crate::alert::{Alerts, OfRun};
use crate::config::{Configuration, Engine, SourceOptions};
use crate::console::Console;
use crate::data::Data;
use crate::deliveries::DeliveryLog;
use crate::feed::Feed;
use crate::http::Server;
use crate::journal::{Journal, KeptFiles};
#[cfg(feature = "kafka")]
use crate::kafka;
use crate::lines::Lines;
use crate::log::{say, warn};
use crate::outputs::{Content, Outputs};
use crate::prometheus::Metrics;
use crate::replay::now_ns;
use crate::retry::Retry;
use crate::sandbox::{Helper, Sandbox};
use crate::sources::{Opened, open};
use crate::supervision::{self, Watchdog};

/// Interval between checks for signals and for the end of the run.
const LOOK: Duration = Duration::from_millis(20);

/// Time that the outputs of a run have to finish.
const FINISH: Duration = Duration::from_secs(5);

/// The socket in the agent's folder that `flowgauge top` reads.
pub const SOCKET: &str = "socket";

/// The path of an agent's configuration file, and its overrides.
pub struct Origin {
    /// The file.
    pub path: PathBuf,
    /// Overrides, each `PATH=VALUE`.
    pub sets: Vec<String>,
}

impl Origin {
    /// Reads the file with the overrides.
    ///
    /// # Errors
    /// As [`Configuration::read`].
    pub fn read(&self) -> Result<Configuration, Failure> {
        Configuration::read(&self.path, &self.sets)
    }
}

/// Reserves the heap of an agent with this configuration, so that delayed sinks do not raise its
/// resident memory. Call it before the process has threads.
///
/// Sinks share what their queues hold. There is room for a full queue of snapshots, which the journal
/// has while the disk is busy, and a full queue of reports. Kafka's queues fill while no broker is
/// reachable, and hold older items than the others.
pub fn reserve(configuration: &Configuration) {
    let kafka = configuration.sinks.kafka.as_ref().map_or(0, |kafka| kafka.what.len());
    reserve_heap((2 + kafka) * QUEUE_BYTES);
}

/// Runs an agent until INT, TERM or the end of all sources. HUP makes it read its file again; a
/// valid file takes effect at the end of an epoch. `more` supplies sinks in addition to those of
/// the file. `sandbox` is the sandbox that the process has entered, if any.
///
/// Sources and outputs must open at the start. If neither the new file nor the old one can be opened
/// at a reload, it tries the old one again until it can.
///
/// # Errors
/// When the file is invalid, a source or an output cannot be opened at the start, or a thread fails.
pub fn run(
    origin: &Origin,
    more: &dyn Fn() -> Vec<Box<dyn Sink>>,
    sandbox: Option<&Sandbox>,
) -> Result<(), Failure> {
    let failed = |error: io::Error| Failure::Failed(format!("signals: {error}"));
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).map_err(failed)?;
    let mut configuration = origin.read()?;
    let helper = sandbox.and_then(Sandbox::helper);
    let alerts = Alerts::start(configuration.alerts.clone(), helper.cloned());
    let alerts = Arc::new(Mutex::new(alerts.map_err(|error| no_thread(&error))?));
    let (mut before, kept) = (None, Kept::default());
    // None until the first run.
    let mut retry: Option<Retry> = None;
    loop {
        let started = Data::open(&configuration.agent.data).and_then(|data| {
            Ok((Running::start(&configuration, &data, &alerts, more(), (helper, &kept))?, data))
        });
        let (mut running, _data) = match (started, before.take()) {
            (Ok(started), _) => started,
            (Err(error), Some(before)) => {
                warn(&format!("keeping the configuration: {error}"));
                configuration = before;
                continue;
            }
            (Err(error), None) => {
                let Some(retry) = &mut retry else { return Err(error) };
                match retry.wait(&error, &mut signals) {
                    None => {}
                    Some(SIGHUP) => {
                        if let Some(next) = again(origin, &configuration, None, sandbox) {
                            before = Some(std::mem::replace(&mut configuration, next));
                        }
                    }
                    Some(_) => {
                        supervision::stopping();
                        return Ok(());
                    }
                }
                continue;
            }
        };
        retry = Some(Retry::new("measuring"));
        say(&format!(
            "measuring {} ({})",
            sources(&configuration),
            units::plural(configuration.measurements.len() as u64, "measurement")
        ));
        supervision::ready();
        let (mut next, mut ends) = (None, false);
        while !running.thread.is_finished() {
            // Asked before the signals are read, so that a new file waits for an end that comes later.
            if running.is_at_end(&configuration) && next.is_some() {
                running.stop.store(true, Ordering::Relaxed);
            }
            for signal in signals.pending() {
                if signal != SIGHUP {
                    supervision::stopping();
                    running.stop.store(true, Ordering::Relaxed);
                    (next, ends) = (None, true);
                } else if !ends {
                    next = again(origin, &configuration, next, sandbox);
                }
            }
            running.watchdog.look();
            running.log.look();
            thread::sleep(LOOK);
        }
        match (running.end(), next) {
            (Ok(()), Some(next)) => before = Some(std::mem::replace(&mut configuration, next)),
            (Err(Failure::Source(problem)), Some(next)) => {
                warn(&problem);
                before = Some(std::mem::replace(&mut configuration, next));
            }
            (ended, _) => return ended,
        }
    }
}

/// Reads the file again. If the new one is invalid, the current configuration stays in force.
fn again(
    origin: &Origin,
    now: &Configuration,
    before: Option<Configuration>,
    sandbox: Option<&Sandbox>,
) -> Option<Configuration> {
    let read = origin.read().and_then(|next| {
        if now.sources.iter().any(|source| source.is_by(Engine::Dpdk)) {
            return Err(Failure::Usage(
                "DPDK opens ports once in a process; restart to change the configuration"
                    .to_owned(),
            ));
        }
        sandbox.map_or(Ok(()), |sandbox| sandbox.check(&next, &origin.path))?;
        next.plan().map(|_| next)
    });
    match read {
        Ok(next) => {
            say(&format!("configuration {} takes effect at the end of an epoch", next.hash));
            Some(next)
        }
        Err(error) => {
            warn(&format!("keeping the configuration: {error}"));
            before
        }
    }
}

/// The names of all sources.
fn sources(configuration: &Configuration) -> String {
    let names = configuration.sources.iter().map(|source| match source {
        SourceOptions::Interface(interface) => interface.interface.clone(),
        SourceOptions::Replay(replay) => replay.replay.display().to_string(),
        SourceOptions::Records(records) => format!("flow records at udp://{}", records.records.0),
    });
    names.collect::<Vec<_>>().join(", ")
}

/// What one run leaves to the next.
#[derive(Default)]
struct Kept {
    ports: KeptPorts,
    files: KeptFiles,
}

/// A run with one configuration.
struct Running {
    thread: JoinHandle<Result<Outcome, EngineError>>,
    stop: Arc<AtomicBool>,
    watchdog: Watchdog,
    log: DeliveryLog,
    /// Dropping them with the run stops them.
    _servers: Vec<Server>,
    /// End of the current epoch of the measurement with the longest epochs.
    ends_ns: i64,
}

impl Running {
    /// Opens sources and outputs, and starts measuring: with the helper of the sandbox, and with what
    /// the run before has kept.
    fn start(
        configuration: &Configuration,
        data: &Data,
        alerts: &Arc<Mutex<Alerts>>,
        more: Vec<Box<dyn Sink>>,
        (helper, kept): (Option<&Helper>, &Kept),
    ) -> Result<Self, Failure> {
        let stop = Arc::new(AtomicBool::new(false));
        let secret = configuration.agent.seed.clone().map_or_else(|| data.seed(), Ok)?;
        let seed = seed::from_file(&secret);
        let seed = seed.map_err(|error| Failure::Failed(error.to_string()))?;
        let mut configs = configuration.measurements.clone();
        for config in &mut configs {
            config.seed = Some(seed);
        }
        let plan = flowgauge_engine::Plan::several(configs)
            .map_err(|error| Failure::Usage(error.to_string()))?;
        let mut watchdog = Watchdog::new();
        let Configuration { agent, sources, .. } = configuration;
        let Opened { queues, exporters } =
            open(sources, &agent.dpdk_args, &stop, helper, &kept.ports)?;
        let sources = queues.into_iter().map(|source| watchdog.watch(source)).collect();
        let journal = data.folder.join("journal");
        let journal = Journal::open(&journal, configuration.agent.journal, &kept.files)?;
        let kept = journal.counts();
        say(&format!(
            "keeping epochs in {} ({} there)",
            data.folder.display(),
            units::plural(kept.epochs.load(Ordering::Relaxed), "epoch")
        ));
        let names = configuration.names.read()?.map(Arc::new);
        let lines = Lines::new(&configuration.agent.name(), &configuration.hash, names);
        let options = &configuration.sinks;
        let mut to = Outputs::new(options, lines, &secret)?;
        to.add("journal", Box::new(journal), Content::AsMeasured);
        for sink in more {
            to.add("last-reports", sink, Content::Report(None));
        }
        let feed = Feed::open(&data.folder.join(SOCKET), to.lines(None))?;
        to.add("socket", Box::new(feed), Content::Report(None));
        let names: Vec<_> =
            configuration.measurements.iter().map(|config| config.name.clone()).collect();
        to.write(options, &names)?;
        #[cfg(feature = "kafka")]
        if let Some(options) = &options.kafka {
            let (agent, hash) = (configuration.agent.name(), &configuration.hash);
            let from = kafka::From { agent, hash, data: &data.folder, stop: &stop };
            let lines = to.lines(options.anonymize);
            for (name, sink) in kafka::open(options, &from, lines)? {
                to.add(name, sink, Content::Report(options.anonymize));
            }
        }
        let board = alerts.lock().unwrap_or_else(PoisonError::into_inner).board();
        to.add("alerts", Box::new(OfRun(Arc::clone(alerts))), Content::Report(None));
        if let Some(prometheus) = &options.prometheus {
            let metrics = Metrics::new(prometheus.series, board.clone(), Arc::clone(&kept));
            to.scrape(prometheus, metrics.with_exporters(exporters), watchdog.health())?;
        }
        if let Some(options) = &options.console {
            let (agent, health) = (configuration.agent.name(), watchdog.health());
            let console = Console::new(agent, names, board, health.clone(), to.deliveries());
            to.show(options, console, health, &data.folder)?;
        }
        let (mut outlets, log, servers) = to.start().map_err(|error| no_thread(&error))?;
        // Nothing can fail now that would bring the old rules back.
        alerts
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .reload(configuration.alerts.clone(), &configuration.measurements);
        let run = move || {
            let outcome = flowgauge_engine::run_queues(plan, sources, &mut outlets)?;
            for ending in outlets.finish(FINISH) {
                if let Some(error) = ending.error {
                    warn(&error.to_string());
                }
                if ending.undelivered > 0 {
                    warn(&format!("reports that could not be written: {}", ending.undelivered));
                }
            }
            Ok(outcome)
        };
        let thread = thread::Builder::new()
            .name("run".to_owned())
            .spawn(run)
            .map_err(|error| no_thread(&error))?;
        let ends_ns = end_of_epochs(configuration, now_ns());
        Ok(Self { thread, stop, watchdog, log, _servers: servers, ends_ns })
    }

    /// Whether an epoch of the longest measurement has just ended. Measurements whose epoch length
    /// divides it end an epoch at the same time.
    fn is_at_end(&mut self, configuration: &Configuration) -> bool {
        let now_ns = now_ns();
        let is_at_end = now_ns >= self.ends_ns;
        self.ends_ns = end_of_epochs(configuration, now_ns);
        is_at_end
    }

    /// Waits for the run to end. A capture that cannot be read is an error if there was nothing else.
    fn end(self) -> Result<(), Failure> {
        let outcome = self.thread.join().unwrap_or_else(|_| {
            Err(EngineError::Panicked {
                thread: "run".to_owned(),
                message: "no reason given".to_owned(),
            })
        });
        let outcome = outcome.map_err(|error| Failure::Failed(error.to_string()))?;
        let account = &outcome.total.account;
        let mut unreadable = None;
        for problem in &outcome.problems {
            match problem {
                SourceError::Unreadable(_) if account.read == 0 => unreadable = Some(problem),
                _ => warn(&problem.to_string()),
            }
        }
        say(&format!(
            "{} packets read, {} lost, {} measured",
            account.read, account.lost, account.keyed
        ));
        unreadable.map_or(Ok(()), |problem| Err(Failure::Source(problem.to_string())))
    }
}

fn no_thread(error: &io::Error) -> Failure {
    Failure::Failed(format!("cannot start a thread: {error}"))
}

/// The end of the longest measurement's epoch that contains `time_ns`.
fn end_of_epochs(configuration: &Configuration, time_ns: i64) -> i64 {
    let lengths = configuration.measurements.iter().filter_map(|config| match config.epoch {
        EpochLength::Time(length_ns) => Some(length_ns),
        EpochLength::Packets(_) | EpochLength::Whole => None,
    });
    lengths.max().map_or(time_ns, |length_ns| (time_ns.div_euclid(length_ns) + 1) * length_ns)
}
