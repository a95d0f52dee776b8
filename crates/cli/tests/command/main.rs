//! The command as a user meets it.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod analyze;
mod book;
mod catalog;
mod cut;
#[cfg(feature = "dpdk")]
mod dpdk;
mod formats;
mod generate;
mod limits;
mod list;
mod live;
mod live_outputs;
mod outputs;
mod picture;
mod refusals;
mod run;
mod seed;
mod stored;
mod tap;
mod tasks;
