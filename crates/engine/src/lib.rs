//! The flowgauge engine: from packet source to report.
#![forbid(unsafe_code)]

pub mod account;
pub mod auto;
mod builder;
mod clock;
mod close;
mod config;
mod crew;
mod error;
mod intake;
mod meter;
mod outline;
mod plan;
pub mod report;
mod run;
mod sampling;
pub mod seed;
pub mod sink;
pub mod snapshot;
pub mod source;
mod summaries;
mod swaps;

pub use close::{Closed, Group};
pub use config::{Config, Dispatch, EpochLength, Overrun, Pace};
pub use crew::Cores;
pub use error::{Able, EngineError};
pub use meter::Meter;
pub use outline::{answered, capable};
pub use plan::{Explanation, LaneExplanation, Plan};
pub use run::{Outcome, run, run_inputs, run_queues};
pub use sampling::Arrivals;
pub use swaps::{Swaps, Waits};
