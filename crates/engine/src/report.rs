//! What the engine hands to a sink.

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

/// One closed epoch, or an update: what is known so far of one that goes on.
#[derive(Clone, Debug)]
pub struct EpochReport {
    /// The name of the measurement.
    pub measurement: Arc<str>,
    /// The run, where its epochs are stored, by the number that their snapshots have.
    pub run: Option<u64>,
    /// Whether the epoch goes on. Its next report, an update or the last one, has all of this one
    /// in it again.
    pub update: bool,
    /// Number of the epoch, from 0; runs of empty epochs count.
    pub epoch: u64,
    /// Start in nanoseconds since the UNIX epoch: of a time epoch its boundary, else the first
    /// packet's time; `None` without a packet.
    pub start_ns: Option<i64>,
    /// End: of a time epoch its boundary, else, and in an update, the latest packet's time.
    pub end_ns: Option<i64>,
    /// The part of a time epoch that was observed: below 1 for the first and the last of a run, whose
    /// packets begin and end within it.
    pub coverage: f64,
    /// The key.
    pub key: KeySpec,
    /// The measure that `--by` names.
    pub by: Measure,
    /// The identity of the digest's seed, from which no secret follows.
    pub seed: SeedId,
    /// What became of the packets.
    pub account: Account,
    /// The keyed traffic, where a sampler before the headers read a sample of it: it is what thresholds
    /// and shares are of.
    pub traffic: Option<Traffic>,
    /// What measured them.
    pub summary: SummaryInfo,
    /// The answers in the order asked, each with its task's name.
    pub tasks: Vec<(&'static str, Report)>,
    /// How far sizes are off, where a slice of the flows is audited.
    pub audit: Option<Box<Audit>>,
    /// Traffic by protocol and port, where the key tells.
    pub breakdown: Option<Breakdown>,
    /// Traffic over time, where a task asks for it.
    pub series: Option<Box<Series>>,
    /// The agents whose snapshots were merged, in a network-wide report.
    pub network: Option<Box<Network>>,
    /// What was left out, and why; what else a reader must know.
    pub notes: Vec<String>,
    /// Items that the sink did not take, since the report before this one.
    pub undelivered: u64,
}

impl EpochReport {
    /// The keyed traffic, estimated where a sample of it was read.
    pub fn keyed(&self) -> Size {
        Traffic::keyed(self.traffic, &self.account)
    }

    /// Bytes of memory that the report takes, but for what is small and does not grow.
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

/// How far the summary's sizes are off in the slice of the flows that an exact table counts, too.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Audit {
    /// One flow in so many is in the slice.
    pub one_in: u32,
    /// The errors of their sizes.
    pub observed: Observed,
}

/// How complete a network-wide report is: which agents are in it, and which are not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Network {
    /// Tells the report from all others. Copies of a report share it.
    pub id: String,
    /// Snapshots that were merged. Of two reports of an epoch, the one with more corrects the other.
    pub revision: u64,
    /// Agents that are expected, or sent a snapshot of the epoch.
    pub agents: u64,
    /// Those whose snapshots were merged.
    pub reported: u64,
    /// Those that sent none.
    pub missing: Vec<String>,
    /// Snapshots that were not merged.
    pub left_out: Vec<LeftOut>,
    /// Snapshots of earlier epochs that came too late since the report before, by agent. Copies of a
    /// report may differ in it.
    pub late: Vec<(String, u64)>,
}

/// A snapshot that was not merged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOut {
    /// The agent that sent it.
    pub agent: String,
    /// What differs from the others, or is wrong: `seed`, `parameters`, `version`, `id`, `bytes` and so on.
    pub field: &'static str,
    /// What it is, and what it should be.
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
    /// The accelerators before it, the first of which meets the packets first, with a plus between
    /// them; "none" where there is none.
    pub accelerator: String,
    /// Bytes reserved for measuring, over all lanes.
    pub memory_bytes: usize,
    /// Its parameters, as the catalog names them; those of an accelerator behind its name and a dot.
    pub parameters: Vec<(String, Setting)>,
}

impl SummaryInfo {
    /// Whether it says when and how flows were seen.
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
    /// What may be of any of them.
    pub untracked: Size,
}

/// A run of empty epochs.
#[derive(Clone, Debug)]
pub struct Gap {
    /// The name of the measurement.
    pub measurement: Arc<str>,
    /// The run, where its epochs are stored.
    pub run: Option<u64>,
    /// Number of the first empty epoch.
    pub epoch: u64,
    /// How many there are.
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
    /// The run, where its epochs are stored.
    pub run: Option<u64>,
    /// The inputs, as named.
    pub files: Vec<String>,
    /// Epochs closed, empty ones in gaps not counted.
    pub epochs: u64,
    /// Time of the earliest packet.
    pub start_ns: Option<i64>,
    /// Time of the latest packet.
    pub end_ns: Option<i64>,
    /// The sum of the epochs' accounts.
    pub account: Account,
    /// The keyed traffic, where a sampler before the headers read a sample of it.
    pub traffic: Option<Traffic>,
    /// Records that the source accepted although their lengths contradict each other.
    pub irregular: u64,
    /// What the source counted; that of several queues added up.
    pub counters: Vec<Counter>,
    /// One line for each input that was damaged or could not be read.
    pub problems: Vec<String>,
    /// What else a reader must know.
    pub notes: Vec<String>,
    /// Items that the sink did not take, over the whole run.
    pub undelivered: u64,
}

impl TotalReport {
    /// A total without an epoch.
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

    /// Bytes of memory that the report takes, but for what is small and does not grow.
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
