//! Summaries of a bounded number of counters.
#![expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

mod misra_gries;
mod netflow;
mod refusals;
mod shared;
mod sketch_visor;
mod space_saving;
mod stream;
#[path = "../support/zipf.rs"]
mod zipf;
