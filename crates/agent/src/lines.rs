//! Reports as lines of JSON, the format of all outputs of an agent.

use std::io::{self, Write};
use std::sync::Arc;

use flowgauge_core::key::{CanonicalKey, Field, Fields, KeyKind, KeySpec};
use flowgauge_core::task::{Finding, HierarchyItem, Side};
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

/// The fields of a flow's key, such as `10.0.0.1 > 10.0.0.2 source_port=443 destination_port=50000 protocol=6`.
pub(crate) fn key(spec: KeySpec, key: &CanonicalKey) -> String {
    fields(spec, &spec.fields(key.as_bytes()))
}

/// An address that is listed by itself, whatever the key is.
pub(crate) fn address(spec: KeySpec, side: Side, address: &CanonicalKey) -> String {
    fields(spec, &spec.alone(side.address()).fields(address.as_bytes()))
}

/// A prefix, or a pair of them.
pub(crate) fn prefix(item: &HierarchyItem) -> String {
    let one = |address: &CanonicalKey, bits: u8| {
        let fields = KeySpec::from(KeyKind::SOURCE).fields(address.as_bytes());
        fields.source.map_or_else(String::new, |address| format!("{address}/{bits}"))
    };
    let source = one(&item.source, item.source_bits);
    match &item.destination {
        Some((address, bits)) => format!("{source} > {}", one(address, *bits)),
        None => source,
    }
}

/// The kind of a finding, and its hosts.
pub(crate) fn finding(item: &Finding) -> String {
    let host = |word: &str, key: Option<&CanonicalKey>| {
        let address = KeySpec::from(KeyKind::SOURCE).fields(key?.as_bytes()).source?;
        Some(format!("{word} {address}"))
    };
    let from = host("from", item.source.as_ref());
    let to = host("to", item.destination.as_ref());
    let words = [Some(item.kind.name().to_owned()), from, to];
    words.into_iter().flatten().collect::<Vec<_>>().join(" ")
}

fn fields(spec: KeySpec, fields: &Fields) -> String {
    let address = |field: Field, address: Option<std::net::IpAddr>| {
        address.map(|address| match spec.prefix_of(field, address) {
            Some(bits) => format!("{address}/{bits}"),
            None => address.to_string(),
        })
    };
    let named = |name: &str, value: Option<String>| value.map(|value| format!("{name}={value}"));
    let number = |value: Option<u16>| value.map(|value| value.to_string());
    let parts = [
        address(Field::Source, fields.source),
        address(Field::Destination, fields.destination).map(|address| format!("> {address}")),
        address(Field::Host, fields.host),
        named("source_port", number(fields.source_port)),
        named("destination_port", number(fields.destination_port)),
        named("protocol", number(fields.protocol.map(u16::from))),
        named("vlan", number(fields.vlan)),
        named("tcp_flags", fields.tcp_flags.map(|flags| flags.to_string())),
        named("source_mac", fields.source_mac.map(|mac| mac.to_string())),
        named("destination_mac", fields.destination_mac.map(|mac| mac.to_string())),
        named("mac", fields.mac.map(|mac| mac.to_string())),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(" ").trim_start_matches("> ").to_owned()
}
