//! Opens the Kafka sinks of a configuration.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use flowgauge_engine::sink::Sink;

use super::position::Positions;
use super::producer::Producer;
use super::reports::Reports;
use super::snapshots::Snapshots;
use super::{Options, What};
use crate::failure::Failure;
use crate::lines::Lines;

/// The agent that sends.
pub(crate) struct From<'a> {
    /// Its name.
    pub(crate) agent: String,
    /// The hash of its configuration.
    pub(crate) hash: &'a str,
    /// Its folder.
    pub(crate) data: &'a Path,
    /// Set when the run ends.
    pub(crate) stop: &'a Arc<AtomicBool>,
}

/// Opens a sink for each kind of record. Brokers may be unreachable: the producers connect when
/// there is something to send.
pub(crate) fn open(
    options: &Options,
    from: &From<'_>,
    lines: Lines,
) -> Result<Vec<Box<dyn Sink>>, Failure> {
    let From { agent, hash, data, stop } = from;
    let mut sinks: Vec<Box<dyn Sink>> = Vec::new();
    let producer = |what| Producer::new(options, what, agent);
    if options.what.contains(&What::Report) {
        sinks.push(Box::new(Reports::new(producer("reports")?, lines, hash)));
    }
    if options.what.contains(&What::Snapshot) {
        let positions = Positions::open(data).map_err(Failure::Output)?;
        let (producer, journal) = (producer("snapshots")?, data.join("journal"));
        sinks.push(Box::new(Snapshots::new(producer, positions, journal, hash, stop)));
    }
    Ok(sinks)
}
