//! Network-wide reports: snapshots of many agents, merged by measurement and epoch.
//!
//! A [`Collector`] receives messages and emits reports; it knows neither Kafka nor a clock.
//! `docs/collect.md` describes its guarantees.

mod collector;
mod config;
#[cfg(feature = "kafka")]
mod consumer;
mod counts;
mod epoch;
mod known;
#[cfg(feature = "kafka")]
mod run;

pub use collector::{Ask, Collector, Fed, Limits, Message, Position};
pub use config::{AskOptions, CollectOptions, Configuration, SourceOptions, is_collector};
pub use counts::{Counts, Outcome, PublishedCounts};
pub use known::Known;
#[cfg(feature = "kafka")]
pub use run::run;
