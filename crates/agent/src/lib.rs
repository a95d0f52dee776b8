//! The agent: runs unattended from one configuration file, and delivers reports where operators
//! look.
//!
//! [`Configuration`] is the file. [`run()`] executes runs, each with one configuration. It reads
//! sources ([`replay`], an interface or flow records). Reports and snapshots leave through sinks:
//! `files`, [`ipfix`], [`kafka`], the Parquet archive, the [`console`], the `journal` of closed
//! epochs, and [`alert`]s. The [`sandbox`] confines the process to the files and system calls that
//! it needs.
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
