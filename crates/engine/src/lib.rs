//! The flowgauge engine: from packet source to report.
#![forbid(unsafe_code)]

pub mod account;
mod apart;
pub mod auto;
mod breakdown;
mod builder;
mod clock;
mod close;
mod closing;
mod config;
mod crew;
mod error;
mod gathering;
mod group;
mod intake;
mod joined;
mod meter;
mod outline;
mod parts;
mod plan;
pub mod report;
mod run;
mod sampling;
pub mod seed;
mod several;
pub mod sink;
pub mod snapshot;
pub mod source;
mod summaries;
mod swaps;
mod thinned;
mod turns;

pub use config::{Config, Dispatch, EpochLength, Overrun, Pace};
pub use crew::Cores;
pub use error::{Able, EngineError};
pub use group::{Closed, Group};
pub use meter::Meter;
pub use outline::{answered, capable};
pub use plan::{Explanation, LaneExplanation, Plan};
pub use run::{Outcome, run, run_inputs, run_queues};
pub use sampling::Arrivals;
pub use swaps::{Swaps, Waits};
