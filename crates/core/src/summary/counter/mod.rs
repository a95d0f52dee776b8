//! A bounded number of counters, each for a flow at a time, or for many at once.

mod capacity;
mod csm;
mod fast_path;
mod halves;
mod index;
mod misra_gries;
mod monitor;
mod netflow;
mod queue;
mod random;
mod sampled;
mod sketch_visor;
mod space_saving;
mod steps;
mod stream_summary;
mod sweep;
mod tournament;
mod tracked;

pub use csm::SharedCounters;
pub use misra_gries::MisraGries;
pub use netflow::NetFlow;
pub use sketch_visor::SketchVisor;
pub use space_saving::SpaceSaving;
pub use stream_summary::StreamSummary;

pub(super) use capacity::{PARAMETERS, counters};
pub(super) use monitor::{Monitor, Monitored, excess, size};
pub(crate) use random::Sampler;
pub(super) use sampled::{CONFIDENCE, Z};
