//! The flowgauge engine: from packet source to report.
#![forbid(unsafe_code)]

pub mod account;
pub mod report;
pub mod sink;
