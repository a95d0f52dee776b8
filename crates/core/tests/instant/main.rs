//! Accuracy of RCC, InstaMeasure and FlowRegulator against exact counts.
#![expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

mod accelerator;
mod accuracy;
mod bounds;
mod detection;
mod lab;
mod table;
#[path = "../support/zipf.rs"]
mod zipf;
