//! Reports as lines of JSON, the format of all outputs of an agent.

use std::io::{self, Write};
use std::sync::Arc;

use flowgauge_engine::report::{EpochReport, Gap, TotalReport};
use flowgauge_engine::sink::{Format, Json, visible_json};
use serde_json::{Map, Value};

use crate::names::Names;

/// Writes reports with the agent's name, the hash of its configuration, and address labels.
#[derive(Clone)]
pub(crate) struct Lines {
    head: String,
    names: Option<Arc<Names>>,
}

impl Lines {
    /// Lines of an agent.
    pub(crate) fn new(agent: &str, hash: &str, names: Option<Arc<Names>>) -> Self {
        let name = Value::from(agent);
        let head = format!("{{\"agent\":{name},\"configuration\":\"{hash}\",");
        Self { head, names }
    }

    /// Without labels, which would reveal something about the addresses.
    pub(crate) fn anonymous(self) -> Self {
        Self { names: None, ..self }
    }

    /// Writes a line of JSON after the common head.
    fn write(
        &self,
        line: &[u8],
        labels: Map<String, Value>,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        out.write_all(self.head.as_bytes())?;
        if !labels.is_empty() {
            write!(out, "\"labels\":{},", visible_json(Value::from(labels).to_string()))?;
        }
        out.write_all(line.strip_prefix(b"{").unwrap_or(line))
    }
}

impl Format for Lines {
    fn epoch(&self, report: &EpochReport, out: &mut dyn Write) -> io::Result<()> {
        let labels = self.names.as_ref().map(|names| names.labels(report));
        let mut line = Vec::new();
        Json.epoch(report, &mut line)?;
        self.write(&line, labels.unwrap_or_default(), out)
    }

    fn gap(&self, gap: &Gap, out: &mut dyn Write) -> io::Result<()> {
        let mut line = Vec::new();
        Json.gap(gap, &mut line)?;
        self.write(&line, Map::new(), out)
    }

    fn total(&self, report: &TotalReport, out: &mut dyn Write) -> io::Result<()> {
        let mut line = Vec::new();
        Json.total(report, &mut line)?;
        self.write(&line, Map::new(), out)
    }
}
