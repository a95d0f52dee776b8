//! Flow records as a source of packets: NetFlow 5 and 9, IPFIX and sFlow 5 over UDP.
//!
//! A [`Collector`] reads datagrams. Each record of P packets and B bytes, sampled 1 in N, is lent out as
//! P × N packets whose lengths add up to B × N: one frame that is built once, lent again and again. A
//! [`Records`] source is a collector behind a UDP socket.
//!
//! Datagrams come from anywhere, so that all that is kept of them is limited: exporters, their
//! observation domains, samplers, templates and fields. The least recently used goes first.
#![forbid(unsafe_code)]

mod account;
mod collector;
mod cursor;
mod element;
mod exporter;
mod flowset;
mod frame;
mod netflow5;
mod queue;
mod record;
mod sflow;
mod source;
mod template;

pub use account::{Account, Count};
pub use collector::{Collector, EXPORTERS};
pub use queue::{Lent, MOST_PACKETS};
pub use source::{Accounts, BindError, Records};
