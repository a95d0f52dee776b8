//! The flowgauge engine: from packet source to report.
#![forbid(unsafe_code)]

pub mod account;
pub mod auto;
mod breakdown;
mod clock;
mod config;
mod engine;
mod error;
mod lanes;
mod plan;
pub mod report;
pub mod sink;

pub use config::{Config, EpochLength};
pub use engine::{Outcome, Packets};
pub use error::{Able, EngineError};
pub use plan::{Explanation, LaneExplanation, Plan};
