//! Metrics for Prometheus in OpenMetrics text format.
//!
//! The number of series depends only on the configuration: lists become series by rank, and flows
//! are named in labels only within a fixed budget. `docs/prometheus.md` describes every metric.

mod families;
mod samples;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use flowgauge_engine::account::Account;
use flowgauge_engine::report::{EpochReport, TotalReport};
use flowgauge_engine::sink::{Item, Sink, SinkError, Takes};
use flowgauge_engine::source::Counter;
use flowgauge_records::Accounts;
use serde::Deserialize;

use crate::alert::Board;
use crate::anonymize::Method;
use crate::collect::PublishedCounts;
use crate::deliveries::Deliveries;
use crate::http::{Access, listen};
use crate::journal::Counts;
use samples::Flows;
use samples::Sample;

pub use families::classic;
pub use families::families;

/// Where metrics are served, and how many series may name flows.
#[derive(Clone, Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Options {
    /// Address and port, such as `127.0.0.1:9469`.
    #[serde(deserialize_with = "listen")]
    #[cfg_attr(test, schemars(with = "String"))]
    pub listen: SocketAddr,
    /// File with the token that clients present as `Authorization: Bearer`; needed where the address is
    /// not of this host alone.
    #[serde(default)]
    pub token_file: Option<PathBuf>,
    /// Series that name flows at most.
    #[serde(default = "series")]
    pub series: usize,
    /// Makes addresses anonymous in what this sink gets.
    #[serde(default)]
    pub anonymize: Option<Method>,
}

impl Options {
    /// The address and the token.
    pub fn access(&self) -> Access {
        Access { listen: self.listen, token_file: self.token_file.clone() }
    }
}

fn series() -> usize {
    2_000
}

/// A sink that keeps totals and the last report of each measurement as metrics. Clones share their
/// state.
///
/// ```
/// use flowgauge_agent::alert::Board;
/// use flowgauge_agent::prometheus::Metrics;
/// use flowgauge_capture::Captures;
/// use flowgauge_engine::{Config, Plan, run};
/// use flowgauge_synthetic::{Config as Traffic, Traffic as Packets, to_pcap_bytes};
///
/// let metrics = Metrics::new(100, Board::default(), Default::default());
/// let traffic = Packets::new(Traffic { packets: 1_000, ..Traffic::default() })?;
/// let mut source = Captures::from_bytes("demo.pcap", to_pcap_bytes(traffic));
/// let plan = Plan::new(Config::seeded(1))?;
/// run(plan, &mut source, &mut metrics.clone(), &mut |_| {})?;
/// let text = metrics.encode();
/// assert!(text.contains("flowgauge_packets_total{measurement=\"main\"} 1000"), "{text}");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Metrics {
    store: Arc<Mutex<Store>>,
    board: Board,
    journal: Option<Arc<Counts>>,
    deliveries: Deliveries,
    exporters: Vec<Accounts>,
    collected: Option<PublishedCounts>,
}

#[derive(Debug)]
struct Store {
    flows: Flows,
    measured: BTreeMap<Arc<str>, Measured>,
}

/// Epochs of a network that may still be corrected.
const CORRECTED: usize = 1000;

/// The totals of a measurement, and its last epoch.
#[derive(Debug, Default)]
struct Measured {
    /// The sum of all epochs, except those of a network that may still be corrected.
    account: Account,
    /// The correctable epochs, by start.
    recent: BTreeMap<i64, Account>,
    /// The start of the latest epoch of a network that `account` includes.
    past_ns: Option<i64>,
    epochs: u64,
    empty_epochs: u64,
    undelivered: u64,
    counters: Vec<Counter>,
    /// The gauges of the last closed epoch.
    gauges: Vec<Sample>,
}

impl Metrics {
    /// No metrics yet. At most `series` series name flows; alerts come from `board`, kept epochs
    /// from `journal`.
    pub fn new(series: usize, board: Board, journal: Arc<Counts>) -> Self {
        Self { journal: Some(journal), ..Self::empty(series, board) }
    }

    /// Metrics of network-wide reports, with the counts of their collector.
    pub fn of_network(series: usize, collected: PublishedCounts) -> Self {
        Self { collected: Some(collected), ..Self::empty(series, Board::default()) }
    }

    fn empty(series: usize, board: Board) -> Self {
        let store = Store { flows: Flows::new(series), measured: BTreeMap::new() };
        let store = Arc::new(Mutex::new(store));
        let (journal, deliveries, exporters) = (None, Deliveries::default(), Vec::new());
        Self { store, board, journal, deliveries, exporters, collected: None }
    }

    /// Adds the accounts of flow-record exporters.
    #[must_use]
    pub fn with_exporters(self, exporters: Vec<Accounts>) -> Self {
        Self { exporters, ..self }
    }

    /// Adds the states of the sinks.
    #[must_use]
    pub fn with_deliveries(self, deliveries: Deliveries) -> Self {
        Self { deliveries, ..self }
    }

    /// All metrics in OpenMetrics text format.
    pub fn encode(&self) -> String {
        families::encode(self)
    }

    /// All current samples.
    fn samples(&self) -> Vec<Sample> {
        let store = self.store.lock().unwrap_or_else(PoisonError::into_inner);
        let mut samples = Vec::new();
        for (name, measured) in &store.measured {
            measured.totals(name, &mut samples);
            samples.extend_from_slice(&measured.gauges);
        }
        samples.push(Sample::new("flowgauge_flow_series", &[], store.flows.len() as f64));
        samples::alerts(&self.board, &mut samples);
        samples::deliveries(&self.deliveries, &mut samples);
        if let Some(journal) = &self.journal {
            samples::journal(journal, &mut samples);
        }
        if let Some(collected) = &self.collected {
            samples::collected(&collected.get(), &mut samples);
        }
        samples::exporters(&self.exporters, &mut samples);
        samples
    }
}

impl Store {
    fn of(&mut self, measurement: &Arc<str>) -> &mut Measured {
        self.measured.entry(Arc::clone(measurement)).or_default()
    }

    fn epoch(&mut self, report: &EpochReport, now: Instant) {
        let (measured, start_ns) = (self.of(&report.measurement), report.start_ns.unwrap_or(0));
        measured.undelivered += report.undelivered;
        if report.network.is_some() {
            if measured.past_ns.is_some_and(|past_ns| start_ns <= past_ns) {
                return;
            }
            let latest_ns = measured.recent.last_key_value().map(|(start_ns, _)| *start_ns);
            let before = measured.recent.insert(start_ns, report.account.clone());
            measured.epochs += u64::from(before.is_none());
            if measured.recent.len() > CORRECTED
                && let Some((start_ns, oldest)) = measured.recent.pop_first()
            {
                measured.account.add(&oldest);
                measured.past_ns = Some(start_ns);
            }
            if latest_ns.is_some_and(|latest_ns| start_ns < latest_ns) {
                // The gauges belong to a later epoch.
                return;
            }
        } else {
            measured.account.add(&report.account);
            measured.epochs += 1;
        }
        let gauges = samples::epoch(report, &mut self.flows, now);
        self.of(&report.measurement).gauges = gauges;
    }

    fn total(&mut self, report: &TotalReport) {
        self.of(&report.measurement).counters.clone_from(&report.counters);
    }
}

impl Sink for Metrics {
    fn takes(&self) -> Takes {
        Takes::Reports
    }

    fn deliver(&mut self, item: &Item) -> Result<(), SinkError> {
        let mut store = self.store.lock().unwrap_or_else(PoisonError::into_inner);
        match item {
            // A mid-epoch update does not count: the epoch's final report includes it.
            Item::Epoch(report) if !report.update => store.epoch(report, Instant::now()),
            Item::Gap(gap) => store.of(&gap.measurement).empty_epochs += gap.epochs,
            Item::Total(report) => store.total(report),
            Item::Epoch(_) | Item::Snapshot(_) => {}
        }
        Ok(())
    }
}
