//! Reports and snapshots to Apache Kafka: each record at least once, with an id.
//!
//! Reports and snapshots are two sinks, each with its own producer, so that neither waits for the
//! other. A record is delivered once the brokers acknowledge it. Snapshots that were not
//! acknowledged are resent from the journal. `docs/kafka.md` describes the records.

mod options;

#[cfg(feature = "kafka")]
pub(crate) mod producer;
#[cfg(feature = "kafka")]
mod sinks;

#[cfg(all(test, feature = "kafka"))]
mod tests;

pub use options::{Mechanism, Options, Sasl, Tls, What};
#[cfg(feature = "kafka")]
pub(crate) use sinks::{From, open};
