//! What a run is asked to do.

use flowgauge_capture::filter::Filter;
use flowgauge_core::batch::BATCH_PACKETS;
use flowgauge_core::key::{CanonicalKey, KeyKind, KeySpec};
use flowgauge_core::summary::{Measure, Parameters};
use flowgauge_core::task::{ForecastModel, Hierarchy, SpreadOf, Threshold};

/// Everything that a run is asked to do, with the defaults of the command line.
#[derive(Clone, Debug)]
pub struct Config {
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
    /// The tasks by name; those by default where `None`.
    pub tasks: Option<Vec<String>>,
    /// Where epochs end.
    pub epoch: EpochLength,
    /// For heavy hitters, changes and hierarchical heavy hitters.
    pub threshold: Threshold,
    /// Superspreaders and victims have more distinct peers than this.
    pub spread: u64,
    /// What a peer is.
    pub spread_of: SpreadOf,
    /// Items that `top` and `changes` list at most.
    pub top: usize,
    /// How `changes` forecasts.
    pub forecast: ForecastModel,
    /// Which prefixes `hierarchical` looks at.
    pub hierarchy: Hierarchy,
    /// The flows that `flow-size` is asked for.
    pub flows: Vec<CanonicalKey>,
    /// Whether tunnels are followed to the packet inside.
    pub inner: bool,
    /// Packets that it rejects are counted and not measured.
    pub filter: Option<Filter>,
    /// Stop after this many packets that passed the filter.
    pub limit: Option<u64>,
    /// The seed of the digest.
    pub seed: u64,
    /// Packets in a batch, 1 to 256. It changes the speed, never a report.
    pub batch_packets: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            key: KeyKind::FiveTuple.into(),
            by: Measure::Packets,
            algorithm: "linear-table".to_owned(),
            parameters: Parameters::default(),
            accelerators: Vec::new(),
            memory_bytes: 256 << 20,
            tasks: None,
            epoch: EpochLength::Whole,
            threshold: Threshold::Share(0.001),
            spread: 128,
            spread_of: SpreadOf::Endpoint,
            top: 10,
            forecast: ForecastModel::Ewma,
            hierarchy: Hierarchy::Bytes,
            flows: Vec::new(),
            inner: false,
            filter: None,
            limit: None,
            seed: 0,
            batch_packets: BATCH_PACKETS,
        }
    }
}

/// Where epochs end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EpochLength {
    /// One epoch for everything.
    Whole,
    /// After so many keyed packets.
    Packets(u64),
    /// At multiples of so many nanoseconds since the UNIX epoch, by packet time.
    Time(i64),
}
