//! Reports as IPFIX (RFC 7011), to a collector over UDP or TCP.
//!
//! The encoder is our own: a message is a header and sets, and the crates that write them bring the
//! whole registry with a build that may load it from a network, for the thirty elements that we use.

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
