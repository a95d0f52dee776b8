//! Sends snapshots to Kafka, including missed ones from the journal.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use flowgauge_engine::sink::{Item, Sink, SinkError, Takes, units};
use flowgauge_engine::snapshot::Saved;

use super::missed::missed;
use super::position::{Position, Positions};
use super::producer::{Producer, Record};
use crate::log::say;

/// Sends each closed epoch as stored. If an epoch does not directly follow the last acknowledged
/// one, it first sends the journal's epochs between them: those dropped while brokers were
/// unreachable, or left unsent by an earlier agent.
pub(super) struct Snapshots {
    producer: Producer,
    positions: Positions,
    journal: PathBuf,
    configuration: Arc<str>,
    /// Set when the run ends.
    stop: Arc<AtomicBool>,
}

impl Snapshots {
    pub(super) fn new(
        producer: Producer,
        positions: Positions,
        journal: PathBuf,
        configuration: &str,
        stop: &Arc<AtomicBool>,
    ) -> Self {
        let (configuration, stop) = (configuration.into(), Arc::clone(stop));
        Self { producer, positions, journal, configuration, stop }
    }

    /// Sends the missed epochs before this one.
    fn catch_up(&mut self, saved: &Saved) -> Result<(), SinkError> {
        let Saved { measurement, run, epoch, bounds_ns: (start_ns, _), .. } = saved;
        let Some(last) = self.positions.get(measurement) else {
            // From this epoch on all are sent, even if a restart comes before its acknowledgement.
            let begin = Position { start_ns: *start_ns, epoch: None };
            self.positions.set(measurement, begin);
            return Ok(());
        };
        if last.epoch.is_some_and(|(of, last)| of == *run && last + 1 == *epoch) {
            return Ok(());
        }
        let missed = missed(&self.journal, measurement, last, (*run, *epoch));
        let missed = missed.map_err(|error| self.producer.error(error))?;
        if !missed.is_empty() && !self.producer.is_failing() {
            let epochs = units::plural(missed.len() as u64, "epoch");
            say(&format!("sending {epochs} of '{measurement}' from the journal to Kafka"));
        }
        for kept in missed {
            if self.stop.load(Ordering::Relaxed) {
                let reason =
                    "the run ended before all missed epochs were sent; the next run sends them";
                return Err(self.producer.error(io::Error::new(ErrorKind::Interrupted, reason)));
            }
            let bytes = match fs::read(&kept.path) {
                Ok(bytes) => bytes,
                // The journal has removed it to make room.
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                Err(error) => return Err(self.producer.error(error)),
            };
            let position =
                Position { start_ns: kept.start_ns, epoch: Some((kept.run, kept.epoch)) };
            let end_ns = kept.start_ns.saturating_add(kept.length_ns);
            match self.send(measurement, position, end_ns, &bytes, None) {
                Ok(()) | Err(SinkError::Refused { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Sends a snapshot, and advances the position when it is acknowledged or can never be.
    fn send(
        &mut self,
        measurement: &str,
        position: Position,
        end_ns: i64,
        bytes: &[u8],
        configuration: Option<&str>,
    ) -> Result<(), SinkError> {
        let (run, epoch) = position.epoch.unzip();
        let sent = self.producer.send(&Record {
            kind: "snapshot",
            network: None,
            measurement,
            run,
            epoch,
            bounds_ns: Some((position.start_ns, end_ns)),
            configuration,
            content_type: "application/octet-stream",
            payload: bytes,
        });
        if let Ok(()) | Err(SinkError::Refused { .. }) = sent {
            self.positions.set(measurement, position);
        }
        sent
    }
}

impl Sink for Snapshots {
    fn takes(&self) -> Takes {
        Takes::Snapshots
    }

    fn deliver(&mut self, item: &Item) -> Result<(), SinkError> {
        let Item::Snapshot(saved) = item else { return Ok(()) };
        self.catch_up(saved)?;
        let (start_ns, end_ns) = saved.bounds_ns;
        let position = Position { start_ns, epoch: Some((saved.run, saved.epoch)) };
        let configuration = Arc::clone(&self.configuration);
        self.send(&saved.measurement, position, end_ns, &saved.bytes, Some(&configuration))
    }
}
