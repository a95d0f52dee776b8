//! The command as its users see it.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod analyze;
mod book;
mod captures;
mod catalog;
#[cfg(feature = "dpdk")]
mod dpdk;
mod formats;
mod list;
mod live;
mod live_outputs;
mod network;
mod outputs;
#[cfg(feature = "parquet")]
mod parquet;
mod refusals;
mod run;
mod seed;
mod stored;
mod tasks;
