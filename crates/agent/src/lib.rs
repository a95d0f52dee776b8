//! The agent: measures for years what one file asks for, and carries the answers where operators look.
#![forbid(unsafe_code)]

pub mod alert;
pub mod http;
pub mod prometheus;
