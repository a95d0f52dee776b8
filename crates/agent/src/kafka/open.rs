//! The sinks that a file asks for.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use flowgauge_engine::sink::Sink;

use super::position::Positions;
use super::producer::Producer;
use super::reports::Reports;
use super::snapshots::Snapshots;
use super::{Options, What};
use crate::config::Configuration;
use crate::failure::Failure;
use crate::lines::Lines;

/// Opens a sink for all that is sent. Brokers may be away: they are sought when there is something to send.
pub(crate) fn open(
    options: &Options,
    configuration: &Configuration,
    lines: Lines,
    data: &Path,
    stop: &Arc<AtomicBool>,
) -> Result<Vec<Box<dyn Sink>>, Failure> {
    let agent = &configuration.agent;
    let mut sinks: Vec<Box<dyn Sink>> = Vec::new();
    let producer = |what| Producer::new(options, what, &agent.name());
    if options.what.contains(&What::Report) {
        sinks.push(Box::new(Reports::new(producer("reports")?, lines, &configuration.hash)));
    }
    if options.what.contains(&What::Snapshot) {
        let positions = Positions::open(data).map_err(Failure::Output)?;
        let (producer, journal) = (producer("snapshots")?, data.join("journal"));
        let hash = &configuration.hash;
        sinks.push(Box::new(Snapshots::new(producer, positions, journal, hash, stop)));
    }
    Ok(sinks)
}
