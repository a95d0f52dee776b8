//! The configuration of a run.

use std::fmt;

use flowgauge_core::batch::BATCH_PACKETS;
use flowgauge_core::key::{CanonicalKey, KeyKind, KeySpec};
use flowgauge_core::packet::Tunnels;
use flowgauge_core::summary::Parameters;
use flowgauge_core::task::ForecastModel;
use flowgauge_core::terms::{Hierarchy, Measure, SpreadOf, Threshold};
use flowgauge_filter::Filter;
use flowgauge_kernel::Seed;

/// The configuration of one measurement and of its run, with the defaults of the command line.
///
/// ```
/// use flowgauge_core::key::KeyKind;
/// use flowgauge_core::summary::Parameters;
/// use flowgauge_engine::{Config, EpochLength, Plan};
///
/// let config = Config {
///     key: KeyKind::SOURCE.into(),
///     algorithm: "count-min".to_owned(),
///     parameters: Parameters::new([("rows", 4), ("columns", 1 << 10)]),
///     tasks: Some(vec!["top".to_owned()]),
///     epoch: EpochLength::Time(10_000_000_000),
///     memory_bytes: 4 << 20,
///     ..Config::default()
/// };
/// assert_eq!(Plan::new(config)?.explain().tasks, ["top"]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[expect(clippy::struct_excessive_bools, reason = "options, each independent of the others")]
#[derive(Clone, Debug)]
pub struct Config {
    /// The name of the measurement in its reports and in the names of its files. [`is_name`] must hold.
    pub name: String,
    /// The key.
    pub key: KeySpec,
    /// The measure of thresholds, shares and order.
    pub by: Measure,
    /// The name of the algorithm in the catalog.
    pub algorithm: String,
    /// Its parameters.
    pub parameters: Parameters,
    /// The accelerators in front of it by name, each with its parameters. The first one gets the
    /// packets first.
    pub accelerators: Vec<(String, Parameters)>,
    /// Memory limit in bytes, over all lanes and tasks.
    pub memory_bytes: usize,
    /// Audits one flow in this many, from 1 to 2²⁰: an exact table of these flows, in an eighth of
    /// the memory, shows in reports how far the summary's sizes are off.
    pub audit: Option<u32>,
    /// Whether the memory of summaries is faulted in and locked when it is reserved, so that no
    /// packet waits for a page. Reports note memory that the operating system refuses to lock.
    pub lock_memory: bool,
    /// The tasks by name; `None` for the default tasks.
    pub tasks: Option<Vec<String>>,
    /// Where epochs end.
    pub epoch: EpochLength,
    /// Interval between updates, which are reports of the open epoch; `Whole` for none. No update
    /// is made if no packet came since the last one.
    pub updates: EpochLength,
    /// The threshold of heavy hitters, changes and hierarchical heavy hitters.
    pub threshold: Threshold,
    /// Distinct-peer threshold of superspreaders and victims.
    pub spread: u64,
    /// What a peer is.
    pub spread_of: SpreadOf,
    /// Most items that `top` and `changes` list.
    pub top: usize,
    /// Most items of any list, [`usize::MAX`] for no limit. Reports count the items left out.
    pub list_limit: usize,
    /// The forecast model of `changes`.
    pub forecast: ForecastModel,
    /// The prefixes that `hierarchical` counts.
    pub hierarchy: Hierarchy,
    /// The flows whose sizes `flow-size` reports.
    pub flows: Vec<CanonicalKey>,
    /// Which packet of a tunnel is measured, and which packet's bytes count.
    pub tunnels: Tunnels,
    /// The filter. Packets that it rejects are counted as filtered and not measured.
    pub filter: Option<Filter>,
    /// Stop after this many packets that passed the filter.
    pub limit: Option<u64>,
    /// The seed of the digest; `None` to draw one from the operating system at start.
    pub seed: Option<Seed>,
    /// Packets in a batch, 1 to 256. It changes the speed but no report, unless whole batches are
    /// dispatched to several workers.
    pub batch_packets: usize,
    /// Number of worker threads, 1 to 256. Several workers each read and measure a part of the
    /// input, or the first reads for the others. One more thread closes the epochs.
    pub workers: usize,
    /// Number of meters, 1 to 256, each with its own packets on its own thread. More than one
    /// requires one worker, and time epochs or a single epoch.
    pub queues: usize,
    /// Whether packets are counted by protocol and service if no table of flows provides this.
    /// Costs about 2 ns a packet.
    pub services: bool,
    /// Whether closed epochs are also stored, as [`Item::Snapshot`](crate::sink::Item::Snapshot).
    pub save: bool,
    /// Whether meters wait for the closer.
    pub pace: Pace,
    /// Whether all workers fill one concurrent summary instead of one each: without a lock, but
    /// slower.
    pub shared: bool,
    /// Which worker measures a packet. By default its digest selects the worker; whole batches are
    /// dispatched if a sampler gets the packets first, or if all workers fill one summary.
    pub dispatch: Option<Dispatch>,
    /// What happens to packets when a worker's ring is full.
    pub overrun: Overrun,
    /// Whether each worker is pinned to its own core.
    pub pin: bool,
}

impl Config {
    /// The defaults with a known seed, for tests and comparisons.
    pub fn seeded(number: u64) -> Self {
        Self { seed: Some(Seed::number(number)), ..Self::default() }
    }
}

/// Whether a measurement may have this name: letters, digits, '-', '_' and '.', since it becomes a part
/// of file names.
///
/// ```
/// assert!(flowgauge_engine::is_name("web-1.top") && !flowgauge_engine::is_name("../web"));
/// ```
pub fn is_name(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
}

impl Default for Config {
    fn default() -> Self {
        Self {
            name: "main".to_owned(),
            key: KeyKind::FIVE_TUPLE.into(),
            by: Measure::Packets,
            algorithm: "linear-table".to_owned(),
            parameters: Parameters::default(),
            accelerators: Vec::new(),
            memory_bytes: 256 << 20,
            audit: None,
            lock_memory: false,
            tasks: None,
            epoch: EpochLength::Whole,
            updates: EpochLength::Whole,
            threshold: Threshold::Share(0.001),
            spread: 128,
            spread_of: SpreadOf::Address,
            top: 10,
            list_limit: 10_000,
            forecast: ForecastModel::Ewma,
            hierarchy: Hierarchy::Bytes,
            flows: Vec::new(),
            tunnels: Tunnels::Outer,
            filter: None,
            limit: None,
            seed: None,
            batch_packets: BATCH_PACKETS,
            workers: 1,
            queues: 1,
            pace: Pace::Replay,
            services: false,
            save: false,
            shared: false,
            dispatch: None,
            overrun: Overrun::Wait,
            pin: false,
        }
    }
}

/// Where epochs end, or the interval between updates.
///
/// ```
/// use flowgauge_capture::Captures;
/// use flowgauge_engine::{Config, EpochLength, Plan, report::EpochReport, run, sink::Each};
/// use flowgauge_synthetic::{Traffic, to_pcap_bytes};
///
/// let traffic = flowgauge_synthetic::Config { packets: 1_000, ..Default::default() };
/// let capture = to_pcap_bytes(Traffic::new(traffic)?);
/// let mut source = Captures::from_bytes("synthetic.pcap", capture);
/// let config = Config { epoch: EpochLength::Packets(400), memory_bytes: 1 << 20, ..Config::default() };
/// let mut packets = Vec::new();
/// let mut sink = Each(|report: &EpochReport| Ok(packets.push(report.account.keyed)));
/// run(Plan::new(config)?, &mut source, &mut sink, &mut |_| {})?;
/// assert_eq!(packets, [400, 400, 200]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EpochLength {
    /// One epoch for the whole input.
    Whole,
    /// After this many keyed packets.
    Packets(u64),
    /// At multiples of this many nanoseconds since the UNIX epoch, by packet time.
    Time(i64),
}

/// As on the command line, such as `whole`, `2000000p` or `500ms`.
impl fmt::Display for EpochLength {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Whole => write!(f, "whole"),
            Self::Packets(packets) => write!(f, "{packets}p"),
            Self::Time(ns) => {
                let (unit, size) = [("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000)]
                    .into_iter()
                    .find(|(_, size)| ns % size == 0)
                    .unwrap_or(("ns", 1));
                write!(f, "{}{unit}", ns / size)
            }
        }
    }
}

/// Which of several workers measures a packet.
///
/// ```
/// use flowgauge_engine::{Config, Dispatch, Plan};
///
/// let (workers, dispatch) = (2, Some(Dispatch::Queue));
/// let config = Config { workers, dispatch, memory_bytes: 4 << 20, ..Config::default() };
/// assert_eq!(Plan::new(config)?.explain().dispatch, Dispatch::Queue);
/// # Ok::<(), flowgauge_engine::EngineError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dispatch {
    /// The digest of its key selects the worker, so all packets of a flow go to one worker.
    Digest,
    /// Whole batches go to the workers in turn.
    Queue,
}

impl Dispatch {
    /// All variants by name.
    pub const ALL: [(&'static str, Self); 2] = [("digest", Self::Digest), ("queue", Self::Queue)];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, one)| *one == self).map_or("", |(name, _)| name)
    }
}

/// What happens to packets when a worker's ring is full.
///
/// ```
/// use flowgauge_engine::{Config, Overrun, Pace};
///
/// let live = Config { pace: Pace::Live, overrun: Overrun::Drop, ..Config::default() };
/// assert_ne!(live.overrun, Config::default().overrun);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overrun {
    /// The source waits.
    Wait,
    /// The packets are counted as dropped.
    Drop,
}

impl Overrun {
    /// All variants by name.
    pub const ALL: [(&'static str, Self); 2] = [("wait", Self::Wait), ("drop", Self::Drop)];
}

/// Whether meters wait for the closer, and the closer for the sinks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// A meter waits for free summaries, and the closer for sinks, so reports depend only on the
    /// packets.
    Replay,
    /// Nothing waits. While no summaries are free, an epoch continues into the next one, and its
    /// report says so. A sink that is not ready misses reports, and its next one says so.
    Live,
}
