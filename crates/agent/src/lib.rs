//! The agent: measures for years what one file asks for, and carries the answers where operators look.
//!
//! [`Configuration`] is the file. [`run()`] begins one run after another, each under one configuration:
//! sources are read ([`replay`], an interface or flow records), and reports and snapshots leave through
//! sinks: `files`, [`ipfix`], [`kafka`], the archive of Parquet, the [`console`], the `journal` of closed
//! epochs, and [`alert`]s. The [`sandbox`] keeps a process to the places and calls that this takes.
#![forbid(unsafe_code)]

mod agent;
pub mod alert;
mod anonymize;
mod archive;
pub mod collect;
pub mod config;
pub mod console;
mod data;
mod dpdk;
mod failure;
pub mod feed;
mod files;
mod flow;
mod host;
pub mod http;
pub mod ipfix;
pub mod journal;
pub mod kafka;
mod lines;
pub mod log;
mod names;
mod outputs;
pub mod prometheus;
pub mod replay;
pub mod sandbox;
mod secret;
mod supervision;
pub mod top;

pub use agent::{Origin, SOCKET, run};
pub use config::Configuration;
pub use failure::Failure;
