//! The flowgauge engine: from packet source to report.
#![forbid(unsafe_code)]

pub mod account;
pub mod auto;
mod breakdown;
mod builder;
mod clock;
mod close;
mod config;
mod crew;
mod engine;
mod error;
mod joined;
mod lanes;
mod parts;
mod plan;
mod reader;
pub mod report;
pub mod sink;
mod summaries;
mod swaps;

pub use config::{Config, Dispatch, EpochLength, Overrun};
pub use crew::Cores;
pub use engine::Outcome;
pub use error::{Able, EngineError};
pub use plan::{Explanation, LaneExplanation, Plan};
pub use reader::Packets;
pub use swaps::{Swaps, Waits};
