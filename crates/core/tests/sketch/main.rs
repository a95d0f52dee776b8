//! Sketches of many rows against plain models, and their errors over many seeds.
#![expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

mod error;
mod model;
mod support;
#[path = "../support/zipf.rs"]
mod zipf;
