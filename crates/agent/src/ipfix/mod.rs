//! IPFIX export of reports (RFC 7011) over UDP or TCP.
//!
//! The encoder is our own: a message is only a header and sets. Existing crates bring the whole
//! registry, in a build that may load it from a network, and we need thirty elements.

mod collector;
mod element;
mod exporter;
mod messages;
mod record;
mod records;
#[cfg(test)]
mod tests;

pub use collector::{Collector, Transport};
pub(crate) use exporter::Exporter;
