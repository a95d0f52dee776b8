//! What a run is asked to do.

use flowgauge_core::batch::BATCH_PACKETS;
use flowgauge_core::key::{CanonicalKey, KeyKind, KeySpec};
use flowgauge_core::packet::Tunnels;
use flowgauge_core::summary::Parameters;
use flowgauge_core::task::ForecastModel;
use flowgauge_core::terms::{Hierarchy, Measure, SpreadOf, Threshold};
use flowgauge_filter::Filter;
use flowgauge_kernel::Seed;

/// Everything that a run is asked to do, with the defaults of the command line.
#[expect(clippy::struct_excessive_bools, reason = "options, each independent of the others")]
#[derive(Clone, Debug)]
pub struct Config {
    /// The name of the measurement, which its reports carry.
    pub name: String,
    /// The key.
    pub key: KeySpec,
    /// The measure of thresholds, shares and order.
    pub by: Measure,
    /// The name of the algorithm in the catalog.
    pub algorithm: String,
    /// Its parameters.
    pub parameters: Parameters,
    /// The accelerators before it by name, the first of which meets the packets first, each with its
    /// parameters.
    pub accelerators: Vec<(String, Parameters)>,
    /// Bytes reserved for measuring, over all lanes and tasks.
    pub memory_bytes: usize,
    /// An exact table of one flow in so many stands beside the summaries, in an eighth of the memory: reports
    /// say how far the sizes of these flows are off. From 1 to 2²⁰.
    pub audit: Option<u32>,
    /// Whether the memory of summaries is faulted in and locked when it is reserved, so that no packet
    /// waits for a page. What the operating system refuses to lock is noted in reports.
    pub lock_memory: bool,
    /// The tasks by name; those by default where `None`.
    pub tasks: Option<Vec<String>>,
    /// Where epochs end.
    pub epoch: EpochLength,
    /// After how much of an epoch, again and again, it is answered what is known of it so far:
    /// `Whole` for not before its end. Where there was no packet since the last time, nothing is.
    pub updates: EpochLength,
    /// For heavy hitters, changes and hierarchical heavy hitters.
    pub threshold: Threshold,
    /// Superspreaders and victims have more distinct peers than this.
    pub spread: u64,
    /// What a peer is.
    pub spread_of: SpreadOf,
    /// Items that `top` and `changes` list at most.
    pub top: usize,
    /// Items that any list has at most, [`usize::MAX`] for any number: what is left out is counted.
    pub list_limit: usize,
    /// How `changes` forecasts.
    pub forecast: ForecastModel,
    /// Which prefixes `hierarchical` looks at.
    pub hierarchy: Hierarchy,
    /// The flows that `flow-size` is asked for.
    pub flows: Vec<CanonicalKey>,
    /// Which packet of a tunnel is measured, and whose bytes it counts.
    pub tunnels: Tunnels,
    /// Packets that it rejects are counted and not measured.
    pub filter: Option<Filter>,
    /// Stop after this many packets that passed the filter.
    pub limit: Option<u64>,
    /// The seed of the digest; where `None`, it is drawn from the operating system at start.
    pub seed: Option<Seed>,
    /// Packets in a batch, 1 to 256. It changes the speed, never a report, unless whole batches are
    /// dispatched to several workers.
    pub batch_packets: usize,
    /// Threads, 1 to 256. Of several, each reads and measures a part of the input, or else the first
    /// one reads for the others, and one more closes the epochs.
    pub workers: usize,
    /// Meters, each with packets of its own on a thread of its own, 1 to 256; more than one goes with one
    /// worker, and with epochs by time or a single one.
    pub queues: usize,
    /// Whether packets are counted by protocol and service where no table of flows tells them: some 2 ns
    /// a packet.
    pub services: bool,
    /// Whether closed epochs are stored, too: [`Item::Snapshot`](crate::sink::Item::Snapshot).
    pub save: bool,
    /// Whether meters wait for the closer.
    pub pace: Pace,
    /// Whether all of them fill one summary instead of one each. They do so without a lock, and slower.
    pub shared: bool,
    /// Which of them measures a packet; by default the one that its digest says. Where a sampler meets
    /// the packets first, or all fill one summary, each gets whole batches.
    pub dispatch: Option<Dispatch>,
    /// What happens to packets that a worker has no time for.
    pub overrun: Overrun,
    /// Whether each worker stays on a core of its own.
    pub pin: bool,
}

impl Config {
    /// The defaults under a seed that is known: for tests and comparisons.
    pub fn seeded(number: u64) -> Self {
        Self { seed: Some(Seed::number(number)), ..Self::default() }
    }
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

/// Where epochs end, and updates within them are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EpochLength {
    /// One epoch for everything.
    Whole,
    /// After so many keyed packets of the epoch.
    Packets(u64),
    /// At multiples of so many nanoseconds since the UNIX epoch, by packet time.
    Time(i64),
}

/// Which of several workers measures a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dispatch {
    /// That which the digest of its key says: all packets of a flow go to one worker.
    Digest,
    /// That which the number of one-bits of its source address says, as in InstaMeasure: likewise.
    Source,
    /// Whole batches go to one worker after another.
    Queue,
}

impl Dispatch {
    /// All of them, by name.
    pub const ALL: [(&'static str, Self); 3] =
        [("digest", Self::Digest), ("source", Self::Source), ("queue", Self::Queue)];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, one)| *one == self).map_or("", |(name, _)| name)
    }
}

/// What happens to packets that a worker has no time for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overrun {
    /// The source waits.
    Wait,
    /// They are counted as dropped.
    Drop,
}

impl Overrun {
    /// All of them, by name.
    pub const ALL: [(&'static str, Self); 2] = [("wait", Self::Wait), ("drop", Self::Drop)];
}

/// Whether a run waits for what it depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// A meter waits for free summaries, and the closer for sinks, so that reports depend on the
    /// packets alone.
    Replay,
    /// Nothing waits: while no summaries are free, an epoch goes on into the next one, and its report
    /// says so; a sink that is not ready misses reports, and its next one says so.
    Live,
}
