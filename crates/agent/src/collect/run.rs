//! The loop of a collector: one run after another, each with one configuration.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use flowgauge_engine::report::EpochReport;
use flowgauge_engine::sink::{Item, Outlets, Sink};
use flowgauge_engine::snapshot::Snapshot;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::config::Configuration;
use super::consumer::{Change, Consumer, Parts, Polled, parts, place};
use super::counts::PublishedCounts;
use super::{Collector, Fed, Outcome, Position};
use crate::Failure;
use crate::agent::Origin;
use crate::alert::Board;
use crate::console::Console;
use crate::data::Data;
use crate::deliveries::DeliveryLog;
use crate::http::Server;
use crate::journal;
use crate::kafka;
use crate::lines::Lines;
use crate::log::{say, warn};
use crate::outputs::{Content, Outputs};
use crate::prometheus::Metrics;
use crate::replay::now_ns;
use crate::retry::Retry;
use crate::sandbox::Sandbox;
use crate::supervision::{self, Watchdog};

/// Interval between checks for signals.
const LOOK: Duration = Duration::from_millis(50);

/// Time between two commits.
const COMMIT: Duration = Duration::from_secs(1);

/// Time that the outputs of a run have to finish.
const FINISH: Duration = Duration::from_secs(5);

/// Maximum number of pairs of agent and field that are logged, each once.
const NAMED: usize = 1000;

/// The file with learned agents in the collector's folder.
const AGENTS: &str = "agents.json";

/// Collects until INT or TERM. HUP makes it read its file again; a valid file takes effect at once.
/// `more` supplies sinks in addition to those of the file. `sandbox` is the sandbox that the
/// process has entered, if any.
///
/// If neither the new file nor the old one can be used at a reload, it tries the old one again until it
/// can.
///
/// # Errors
/// When the file is invalid, or an input or output cannot be opened at the start.
pub fn run(
    origin: &Origin,
    more: &dyn Fn() -> Vec<Box<dyn Sink>>,
    sandbox: Option<&Sandbox>,
) -> Result<(), Failure> {
    let failed = |error: std::io::Error| Failure::Failed(format!("signals: {error}"));
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).map_err(failed)?;
    let mut configuration = Configuration::read(origin)?;
    let mut before = None;
    // None until the first run.
    let mut retry: Option<Retry> = None;
    loop {
        let started = Running::start(&configuration, more());
        let mut running = match (started, before.take()) {
            (Ok(running), _) => running,
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
                        if let Some(next) = again(origin, sandbox) {
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
        retry = Some(Retry::new("collecting"));
        supervision::ready();
        let next = loop {
            let mut pending = signals.pending().peekable();
            if let Some(signal) = pending.peek() {
                if *signal != SIGHUP {
                    supervision::stopping();
                    break None;
                }
                if let Some(next) = again(origin, sandbox) {
                    break Some(next);
                }
            }
            running.step();
        };
        running.end();
        match next {
            Some(next) => before = Some(std::mem::replace(&mut configuration, next)),
            None => return Ok(()),
        }
    }
}

/// Reads the file again; `None` if the new one is invalid.
fn again(origin: &Origin, sandbox: Option<&Sandbox>) -> Option<Configuration> {
    let read = Configuration::read(origin).and_then(|next| {
        sandbox.map_or(Ok(()), |sandbox| sandbox.check_collector(&next, &origin.path))?;
        next.seed().map(|_| next)
    });
    read.map_err(|error| warn(&format!("keeping the configuration: {error}"))).ok()
}

/// A run with one configuration.
struct Running {
    consumer: Consumer,
    collector: Collector,
    outlets: Outlets,
    log: DeliveryLog,
    /// Dropping them with the run stops them.
    _servers: Vec<Server>,
    data: Data,
    watchdog: Watchdog,
    counts: PublishedCounts,
    lag: Lag,
    committed: Vec<Position>,
    kept: String,
    looked: Instant,
    /// Pairs of agent and field that the log has named.
    named: BTreeSet<(String, &'static str)>,
}

impl Running {
    /// Opens the outputs and joins the group.
    fn start(configuration: &Configuration, more: Vec<Box<dyn Sink>>) -> Result<Self, Failure> {
        let data = Data::open(&configuration.collect.data)?;
        let seed = configuration.seed()?;
        let names = configuration.names.read()?.map(Arc::new);
        let name = &configuration.collect.name;
        let lines = Lines::new(name, &configuration.hash, names);
        let options = &configuration.sinks;
        let mut to = Outputs::new(options, lines, &configuration.collect.seed)?;
        for sink in more {
            to.add("last-reports", sink, Content::Report(None));
        }
        let measurements: Vec<_> = configuration.measurements.keys().cloned().collect();
        to.write(options, &measurements)?;
        let (watchdog, counts) = (Watchdog::new(), PublishedCounts::default());
        if let Some(options) = &options.kafka {
            let (agent, hash) = (name.clone(), &configuration.hash);
            let from = kafka::From { agent, hash, data: &data.folder, stop: &Arc::default() };
            let lines = to.lines(options.anonymize);
            for (name, sink) in kafka::open(options, &from, lines)? {
                to.add(name, sink, Content::Report(options.anonymize));
            }
        }
        if let Some(prometheus) = &options.prometheus {
            let metrics = Metrics::of_network(prometheus.series, counts.clone());
            to.scrape(prometheus, metrics, watchdog.health())?;
        }
        if let Some(options) = &options.console {
            let health = watchdog.health();
            let (name, board) = (name.clone(), Board::default());
            let console = Console::new(name, measurements, board, health.clone(), to.deliveries());
            to.show(options, console, health, &data.folder)?;
        }
        let (outlets, log, servers) = to
            .start()
            .map_err(|error| Failure::Failed(format!("cannot start a thread: {error}")))?;
        let mut known = configuration.known();
        let kept = std::fs::read_to_string(data.folder.join(AGENTS)).unwrap_or_default();
        known.remember(&kept);
        let limits = configuration.limits();
        let collector = Collector::new(limits, Some(seed), configuration.asks(), known);
        let consumer = Consumer::new(&configuration.kafka)?;
        let group = &configuration.kafka.group;
        say(&format!("collecting from {} as one of the group '{group}'", consumer.input));
        Ok(Self {
            consumer,
            collector,
            outlets,
            log,
            _servers: servers,
            data,
            watchdog,
            counts,
            lag: Lag::default(),
            committed: Vec::new(),
            kept,
            looked: Instant::now(),
            named: BTreeSet::new(),
        })
    }

    /// Processes the next message, and reports what is due.
    fn step(&mut self) {
        let Self { consumer, collector, outlets, lag, named, .. } = self;
        let polled = consumer.poll(LOOK);
        for change in consumer.changes() {
            rebalance(change, consumer, collector, lag);
        }
        let mut emit = |report: EpochReport, _: &Snapshot| {
            // A closed output must not keep the others from their reports.
            if let Err(error) = outlets.deliver(&Item::Epoch(Arc::new(report))) {
                warn(&error.to_string());
            }
        };
        let now_ns = now_ns();
        let mut reported = Ok(());
        match polled {
            Some(Ok(Polled::Message(message))) => {
                let (partition, offset) = place(&message);
                lag.answers(&consumer.input);
                lag.behind.insert(partition);
                if let Some(parts) = parts(&message) {
                    let fed = collector.feed(&parts.message(&message), now_ns);
                    tell(named, &parts, &fed);
                    reported = collector.close_complete(now_ns, &mut emit);
                } else {
                    collector.pass(partition, offset);
                }
            }
            Some(Ok(Polled::End(partition))) => {
                lag.answers(&consumer.input);
                lag.behind.remove(&partition);
            }
            Some(Err(problem)) => lag.fails(&consumer.input, &problem),
            None => {}
        }
        if lag.is_none() && reported.is_ok() {
            reported = collector.advance(now_ns, &mut emit);
        }
        if let Err(error) = reported
            && named.insert((error.to_string(), "report"))
        {
            warn(&format!("an epoch is not reported: {error}"));
        }
        if self.looked.elapsed() >= COMMIT {
            self.looked = Instant::now();
            self.keep(false);
        }
        self.watchdog.look();
        self.log.look();
    }

    /// Commits positions, and saves the learned agents. Nothing is committed while an output still
    /// has queued reports.
    fn keep(&mut self, last: bool) {
        self.counts.set(self.collector.counts());
        let agents = self.collector.known().learned_agents();
        if agents != self.kept {
            let (folder, path) = (&self.data.folder, self.data.folder.join(AGENTS));
            // If the write fails, for instance on a full disk, agents are learned again after a
            // restart.
            let _ = journal::write(folder, &path, agents.as_bytes());
            self.kept = agents;
        }
        if !self.outlets.is_idle() {
            return;
        }
        let positions = self.collector.positions();
        if positions != self.committed && self.consumer.commit(&positions, last).is_ok() {
            self.committed = positions;
        }
    }

    /// Lets the outputs finish. The next run reads open epochs again.
    fn end(mut self) {
        let deadline = Instant::now() + FINISH;
        while !self.outlets.is_idle() && Instant::now() < deadline {
            std::thread::sleep(LOOK);
        }
        self.keep(true);
        for ending in self.outlets.finish(FINISH) {
            if let Some(error) = ending.error {
                warn(&error.to_string());
            }
            if ending.undelivered > 0 {
                warn(&format!("reports that could not be written: {}", ending.undelivered));
            }
        }
        let counts = self.collector.counts();
        let merged = counts.of(Outcome::Merged);
        let others = Outcome::ALL.into_iter().filter(|one| *one != Outcome::Merged);
        let others = others.filter(|one| counts.of(*one) > 0);
        let others = others.map(|one| format!(", {} {}", counts.of(one), one.words()));
        say(&format!("{merged} snapshots merged{}", others.collect::<String>()));
    }
}

/// Tracks whether messages may be left to read.
#[derive(Default)]
struct Lag {
    /// Partitions that may have unread messages.
    behind: BTreeSet<i32>,
    has_partitions: bool,
    /// Whether the brokers do not answer.
    is_failing: bool,
}

impl Lag {
    /// Whether all messages so far were read. While messages are left or the brokers are
    /// unreachable, missing agents may have reported.
    fn is_none(&self) -> bool {
        self.has_partitions && self.behind.is_empty() && !self.is_failing
    }

    fn answers(&mut self, input: &str) {
        if std::mem::take(&mut self.is_failing) {
            say(&format!("reading {input} again"));
        }
    }

    fn fails(&mut self, input: &str, problem: &str) {
        if !std::mem::replace(&mut self.is_failing, true) {
            warn(&format!("cannot read {input}: {problem}; trying again"));
        }
    }
}

/// Starts assigned partitions, and gives up revoked ones.
fn rebalance(change: Change, consumer: &Consumer, collector: &mut Collector, lag: &mut Lag) {
    match change {
        Change::Assigned(partitions) => {
            lag.has_partitions |= !partitions.is_empty();
            let floors = consumer.floors(&partitions).unwrap_or_else(|error| {
                let input = &consumer.input;
                warn(&format!("{input}: {error}: old epochs may be reported again"));
                partitions.iter().map(|partition| (*partition, String::new())).collect()
            });
            for (partition, floors) in floors {
                collector.assign(partition, &floors);
                lag.behind.insert(partition);
            }
        }
        Change::Revoked(partitions) => {
            for partition in partitions {
                collector.revoke(partition);
                lag.behind.remove(&partition);
            }
        }
    }
}

/// Logs rejected snapshots, each agent and field once.
fn tell(named: &mut BTreeSet<(String, &'static str)>, parts: &Parts, fed: &Fed) {
    let Parts { agent, of, .. } = parts;
    let (name, what, message) = match (fed.outcome, &fed.why) {
        (Outcome::LeftOut, Some((field, reason))) => {
            let message = format!("snapshots of agent '{agent}' are left out, {field}: {reason}");
            (agent.clone(), *field, message)
        }
        (Outcome::Conflict, _) => {
            let message = format!("agent '{agent}' sent a snapshot again with different bytes");
            (agent.clone(), "id", message)
        }
        (Outcome::Late, _) => {
            let message = format!("snapshots of agent '{agent}' come too late");
            (agent.clone(), "late", message)
        }
        (Outcome::NotCollected, _) => {
            let name = of.as_ref().map_or("?", |(name, _)| name);
            let message =
                format!("measurement '{name}' is not collected; name it in 'measurements'");
            (name.to_owned(), "measurement", message)
        }
        _ => return,
    };
    if named.len() < NAMED && named.insert((name, what)) {
        warn(&message);
    }
}
