//! Flow records as a source of packets: NetFlow 5 and 9, IPFIX and sFlow 5 over UDP.
//!
//! A [`Collector`] reads datagrams. It lends out each record of P packets and B bytes, sampled 1 in
//! N, as P × N packets whose lengths add up to B × N; all of them share one frame. A [`Records`]
//! source is a collector behind a UDP socket.
//!
//! Anyone can send datagrams, so all state is limited: exporters, their ports, observation
//! domains, samplers, templates and fields. The least recently used goes first.
#![forbid(unsafe_code)]

mod account;
mod collector;
mod cursor;
mod exporter;
mod netflow;
mod queue;
mod record;
mod sflow;
mod source;
mod template;

pub use account::{Account, Count};
pub use collector::{Collector, EXPORTERS};
pub use queue::{Lent, MOST_PACKETS};
pub use source::{Accounts, BindError, KeptPorts, Records};
