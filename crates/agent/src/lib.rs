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
pub mod deliveries;
pub mod feed;
mod files;
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
mod resolve;
mod retry;
pub mod sandbox;
mod sources;
mod supervision;
pub mod top;

pub use agent::{Origin, SOCKET, reserve, run};
pub use config::Configuration;

/// Why an agent does not start, or stops.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The file or an option is invalid.
    #[error("{0}")]
    Usage(String),
    /// Something failed.
    #[error("{0}")]
    Failed(String),
    /// A source cannot be opened at the start.
    #[error("{0}")]
    Source(String),
    /// An output cannot be written at the start.
    #[error("{0}")]
    Output(String),
}

impl Failure {
    /// The exit code: 1 for a failure, 2 for wrong usage, 4 for a source that cannot be opened, 5
    /// for an output that cannot be written.
    pub fn code(&self) -> u8 {
        match self {
            Self::Failed(_) => 1,
            Self::Usage(_) => 2,
            Self::Source(_) => 4,
            Self::Output(_) => 5,
        }
    }
}

/// Whether a text is a name or an address with a port; an IPv6 address needs brackets.
pub(crate) fn has_port(text: &str) -> bool {
    let Some((name, port)) = text.rsplit_once(':') else { return false };
    let is_bracketed = name.starts_with('[') && name.ends_with(']');
    let is_name = !name.is_empty() && (is_bracketed || !name.contains([':', '/', '@']));
    let is_one = !name.contains([',', ' ']);
    is_name && is_one && matches!(port.parse::<u16>(), Ok(1..))
}
