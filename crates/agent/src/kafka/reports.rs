//! Sends reports to Kafka as JSON.

use flowgauge_engine::sink::{Format, Item, Sink, SinkError, Takes};

use super::producer::{Producer, Record};
use crate::lines::Lines;

/// Sends each report, gap and total as a JSON object.
pub(super) struct Reports {
    producer: Producer,
    lines: Lines,
    configuration: String,
    line: Vec<u8>,
}

impl Reports {
    pub(super) fn new(producer: Producer, lines: Lines, configuration: &str) -> Self {
        Self { producer, lines, configuration: configuration.to_owned(), line: Vec::new() }
    }
}

impl Sink for Reports {
    fn takes(&self) -> Takes {
        Takes::Reports
    }

    fn deliver(&mut self, item: &Item) -> Result<(), SinkError> {
        let (kind, measurement, run, epoch) = match item {
            // The final report of an epoch repeats its updates.
            Item::Epoch(report) if report.update => return Ok(()),
            Item::Epoch(report) => ("epoch", &report.measurement, report.run, Some(report.epoch)),
            Item::Gap(gap) => ("gap", &gap.measurement, gap.run, Some(gap.epoch)),
            Item::Total(total) => ("total", &total.measurement, total.run, None),
            Item::Snapshot(_) => return Ok(()),
        };
        let network = match item {
            Item::Epoch(report) => report.network.as_ref().map(|network| &*network.id),
            _ => None,
        };
        self.line.clear();
        let written = self.lines.item(item, &mut self.line);
        written.map_err(|error| self.producer.error(error))?;
        self.producer.send(&Record {
            kind,
            network,
            measurement,
            run,
            epoch,
            bounds_ns: None,
            configuration: Some(&self.configuration),
            content_type: "application/json",
            payload: self.line.trim_ascii_end(),
        })
    }
}
