//! The reports that the engine hands to sinks.

use std::sync::Arc;

use flowgauge_core::audit::Observed;
use flowgauge_core::key::KeySpec;
use flowgauge_core::summary::Setting;
use flowgauge_core::task::Report;
use flowgauge_core::terms::{Measure, Size};
use flowgauge_core::timeline::Series;
use flowgauge_kernel::SeedId;

use crate::account::Account;
pub use crate::sampling::Traffic;
use crate::source::Counter;

/// The report of a closed epoch, or an update: the report of the open epoch so far.
///
/// ```
/// use flowgauge_capture::Captures;
/// use flowgauge_core::task::Report;
/// use flowgauge_engine::{Config, Plan, report::EpochReport, run, sink::Each};
/// use flowgauge_synthetic::{Traffic, to_pcap_bytes};
///
/// let traffic = flowgauge_synthetic::Config { packets: 1_000, ..Default::default() };
/// let mut source = Captures::from_bytes("demo.pcap", to_pcap_bytes(Traffic::new(traffic)?));
/// let mut reports = Vec::new();
/// let mut sink = Each(|report: &EpochReport| Ok(reports.push(report.clone())));
/// let plan = Plan::new(Config { memory_bytes: 1 << 20, ..Config::default() })?;
/// run(plan, &mut source, &mut sink, &mut |_| {})?;
/// let answer = reports[0].tasks.iter().find(|(name, _)| *name == "cardinality");
/// let Some((_, Report::Cardinality { flows })) = answer else { panic!("a default task") };
/// assert!((1.0..=1_000.0).contains(&flows.value));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct EpochReport {
    /// The name of the measurement.
    pub measurement: Arc<str>,
    /// The number of the run in its snapshots, if its epochs are stored.
    pub run: Option<u64>,
    /// Whether the epoch is still open. Its next report includes everything in this one.
    pub update: bool,
    /// Number of the epoch, from 0; runs of empty epochs count.
    pub epoch: u64,
    /// Start in nanoseconds since the UNIX epoch: the boundary of a time epoch, otherwise the time
    /// of the first packet; `None` without a packet.
    pub start_ns: Option<i64>,
    /// End: the boundary of a time epoch; in other epochs and in updates the time of the latest
    /// packet.
    pub end_ns: Option<i64>,
    /// The part of a time epoch that was observed: below 1 for the first and the last epoch of a
    /// run, in which the packets begin or end.
    pub coverage: f64,
    /// Number of queues that did not deliver this epoch in time: their packets count in the next one.
    pub missing: usize,
    /// The key.
    pub key: KeySpec,
    /// The measure that `--by` names.
    pub by: Measure,
    /// The identity of the digest's seed. It reveals no secret.
    pub seed: SeedId,
    /// What became of the packets.
    pub account: Account,
    /// The estimated keyed traffic, if a sampler before headers read a sample of it. Thresholds and
    /// shares refer to it.
    pub traffic: Option<Traffic>,
    /// The summary that measured them.
    pub summary: SummaryInfo,
    /// The answers in the order of the tasks, each with its task's name.
    pub tasks: Vec<(&'static str, Report)>,
    /// How far sizes are off, if a slice of the flows is audited.
    pub audit: Option<Box<Audit>>,
    /// Traffic by protocol and port, if the key has them or packets are counted by service.
    pub breakdown: Option<Breakdown>,
    /// Traffic over time, if a task asks for it.
    pub series: Option<Box<Series>>,
    /// The agents whose snapshots were merged, in a network-wide report.
    pub network: Option<Box<Network>>,
    /// Notes: what was left out and why, and what else a reader must know.
    pub notes: Vec<String>,
    /// Items that the sink did not take since the previous report.
    pub undelivered: u64,
}

impl EpochReport {
    /// The keyed traffic, estimated if a sample of it was read.
    pub fn keyed(&self) -> Size {
        Traffic::keyed(self.traffic, &self.account)
    }

    /// Bytes of memory that the report takes, without small parts of constant size.
    pub fn memory_bytes(&self) -> usize {
        let tasks = self.tasks.iter().map(|(_, report)| report.memory_bytes());
        let series = self.series.as_ref().map_or(0, |series| series.memory_bytes());
        let network = self.network.as_ref().map_or(0, |network| network.memory_bytes());
        size_of::<Self>() + tasks.sum::<usize>() + text_bytes(&self.notes) + series + network
    }
}

/// Bytes of memory that these texts take.
fn text_bytes(texts: &[String]) -> usize {
    texts.iter().map(|text| size_of::<String>() + text.len()).sum()
}

/// How far the summary's sizes are off in the slice of flows that an exact table counts too.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Audit {
    /// One flow in this many is in the slice.
    pub one_in: u32,
    /// The errors of their sizes.
    pub observed: Observed,
}

/// How complete a network-wide report is: which agents are in it, and which are not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Network {
    /// Identifies the report. Copies of a report have the same one.
    pub id: String,
    /// Number of merged snapshots. Of two reports of an epoch, the one with more snapshots corrects
    /// the other.
    pub revision: u64,
    /// Agents that are expected or that sent a snapshot of the epoch.
    pub agents: u64,
    /// Agents whose snapshots were merged.
    pub reported: u64,
    /// Agents that sent none.
    pub missing: Vec<String>,
    /// Snapshots that were not merged.
    pub left_out: Vec<LeftOut>,
    /// Snapshots of earlier epochs that came too late since the previous report, by agent. Copies
    /// of a report may differ here.
    pub late: Vec<(String, u64)>,
}

/// A snapshot that was not merged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOut {
    /// The agent that sent it.
    pub agent: String,
    /// The field that differs from the others, or is wrong: `seed`, `parameters`, `version`, `id`,
    /// `bytes` and so on.
    pub field: &'static str,
    /// Its value, and the expected one.
    pub reason: String,
}

impl Network {
    /// Bytes of memory that it takes.
    fn memory_bytes(&self) -> usize {
        let left_out = self.left_out.iter();
        let left_out =
            left_out.map(|one| size_of::<LeftOut>() + one.agent.len() + one.reason.len());
        let late = self.late.iter().map(|(agent, _)| size_of::<(String, u64)>() + agent.len());
        size_of::<Self>() + text_bytes(&self.missing) + left_out.chain(late).sum::<usize>()
    }
}

/// The summary that measured an epoch.
#[derive(Clone, Debug)]
pub struct SummaryInfo {
    /// Its name in the catalog.
    pub algorithm: &'static str,
    /// The accelerators in front of it, joined by plus signs, "none" if there are none. The first
    /// one gets the packets first.
    pub accelerator: String,
    /// Bytes reserved for the summaries of all lanes.
    pub memory_bytes: usize,
    /// Its parameters, as the catalog names them. Those of an accelerator are prefixed with its
    /// name and a dot.
    pub parameters: Vec<(String, Setting)>,
}

impl SummaryInfo {
    /// Whether it records when and how flows were seen.
    pub fn is_detailed(&self) -> bool {
        let detail = Setting::Word("detail");
        self.parameters.iter().any(|(name, value)| name == "state" && *value == detail)
    }
}

/// Traffic by protocol, and by protocol and port, heaviest first.
#[derive(Clone, Debug, Default)]
pub struct Breakdown {
    /// IP protocol and its size.
    pub protocols: Vec<(u8, Size)>,
    /// Protocol, service port (the lower of both) and its size; the heaviest only.
    pub ports: Vec<(u8, u16, Size)>,
    /// Untracked traffic, which may belong to any of them.
    pub untracked: Size,
}

/// A run of empty epochs.
#[derive(Clone, Debug)]
pub struct Gap {
    /// The name of the measurement.
    pub measurement: Arc<str>,
    /// The number of the run, if its epochs are stored.
    pub run: Option<u64>,
    /// Number of the first empty epoch.
    pub epoch: u64,
    /// Number of empty epochs.
    pub epochs: u64,
    /// Start of the first.
    pub start_ns: i64,
    /// End of the last.
    pub end_ns: i64,
}

/// The end of a run: sums over all epochs and files.
#[derive(Clone, Debug)]
pub struct TotalReport {
    /// The name of the measurement.
    pub measurement: Arc<str>,
    /// The number of the run, if its epochs are stored.
    pub run: Option<u64>,
    /// The inputs, as named.
    pub files: Vec<String>,
    /// Epochs closed, without the empty ones in gaps.
    pub epochs: u64,
    /// Time of the earliest packet.
    pub start_ns: Option<i64>,
    /// Time of the latest packet.
    pub end_ns: Option<i64>,
    /// The sum of the epochs' accounts.
    pub account: Account,
    /// The estimated keyed traffic, if a sampler before headers read a sample of it.
    pub traffic: Option<Traffic>,
    /// Records that the source accepted although their lengths contradict each other.
    pub irregular: u64,
    /// The counters of the source, or their sums over several queues.
    pub counters: Vec<Counter>,
    /// One line for each input that was damaged or could not be read.
    pub problems: Vec<String>,
    /// Notes: what else a reader must know.
    pub notes: Vec<String>,
    /// Items that the sink did not take in the whole run.
    pub undelivered: u64,
}

impl TotalReport {
    /// A total of no epochs.
    pub fn new(measurement: Arc<str>) -> Self {
        Self {
            measurement,
            run: None,
            files: Vec::new(),
            epochs: 0,
            start_ns: None,
            end_ns: None,
            account: Account::default(),
            traffic: None,
            irregular: 0,
            counters: Vec::new(),
            problems: Vec::new(),
            notes: Vec::new(),
            undelivered: 0,
        }
    }

    /// Bytes of memory that the report takes, without small parts of constant size.
    pub fn memory_bytes(&self) -> usize {
        let texts = [&self.files, &self.problems, &self.notes];
        size_of::<Self>() + texts.into_iter().map(|texts| text_bytes(texts)).sum::<usize>()
    }

    /// Adds an epoch with the times of its earliest and latest packet.
    pub(crate) fn add(
        &mut self,
        account: &Account,
        traffic: Option<Traffic>,
        times_ns: Option<(i64, i64)>,
    ) {
        self.epochs += 1;
        self.account.add(account);
        self.traffic = Traffic::both(self.traffic, traffic);
        if let Some((earliest_ns, latest_ns)) = times_ns {
            self.start_ns = Some(self.start_ns.map_or(earliest_ns, |start| start.min(earliest_ns)));
            self.end_ns = Some(self.end_ns.map_or(latest_ns, |end| end.max(latest_ns)));
        }
    }
}
