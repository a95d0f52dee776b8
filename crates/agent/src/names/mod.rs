//! Address labels: names of prefixes from a file, and autonomous systems and countries from MaxMind
//! databases. No network lookups.

mod databases;

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use databases::Databases;
use flowgauge_core::key::{CanonicalKey, Field, Fields, KeyKind, KeySpec};
use flowgauge_core::task::{Report, Side};
use flowgauge_engine::report::EpochReport;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::Failure;

/// Files that tell of addresses.
#[derive(Clone, Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct NamesOptions {
    /// A file with a prefix and its name on each line, such as `192.0.2.0/24 office`.
    pub prefixes: Option<PathBuf>,
    /// Databases in MaxMind's format with autonomous systems, countries or both.
    pub databases: Vec<PathBuf>,
}

/// The label of an address.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
struct Label<'a> {
    /// The name of the longest matching prefix.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    /// The number of the autonomous system.
    #[serde(rename = "as", skip_serializing_if = "Option::is_none")]
    autonomous_system: Option<u32>,
    /// The organization of the autonomous system.
    #[serde(rename = "as_name", skip_serializing_if = "Option::is_none")]
    organization: Option<&'a str>,
    /// The two-letter country code.
    #[serde(skip_serializing_if = "Option::is_none")]
    country: Option<&'a str>,
}

/// Prefix names and databases in memory.
#[derive(Debug)]
pub(crate) struct Names {
    prefixes: Prefixes,
    databases: Databases,
}

impl NamesOptions {
    /// Reads the files, if any are configured.
    ///
    /// # Errors
    /// When a file cannot be read or is damaged.
    pub(crate) fn read(&self) -> Result<Option<Names>, Failure> {
        if self.prefixes.is_none() && self.databases.is_empty() {
            return Ok(None);
        }
        let prefixes = self.prefixes.as_deref().map(Prefixes::read).transpose()?;
        let databases = Databases::read(&self.databases)?;
        Ok(Some(Names { prefixes: prefixes.unwrap_or_default(), databases }))
    }
}

impl Names {
    /// The label of an address.
    fn label(&self, address: IpAddr) -> Label<'_> {
        Label { name: self.prefixes.name(address), ..self.databases.label(address) }
    }

    /// The labels of all addresses in a report, by the text that the report uses.
    pub(crate) fn labels(&self, report: &EpochReport) -> Map<String, Value> {
        let mut labels = Map::new();
        visit(report, &mut |text, address| {
            if labels.contains_key(&text) {
                return;
            }
            let label = self.label(address);
            if label != Label::default() {
                // A label always serializes to an object.
                labels.insert(text, serde_json::to_value(label).unwrap_or_default());
            }
        });
        labels
    }
}

/// Receives an address and the text that the report uses for it.
type Visit<'a> = dyn FnMut(String, IpAddr) + 'a;

/// Visits each address of a report's lists, possibly more than once.
fn visit(report: &EpochReport, visit: &mut Visit<'_>) {
    let spec = report.key;
    for (_, answer) in &report.tasks {
        let mut key = |key: &CanonicalKey| of_fields(spec, &spec.fields(key.as_bytes()), visit);
        match answer {
            Report::Sizes { items, .. } => items.iter().for_each(|item| key(&item.key)),
            Report::Changes { items, .. } => items.iter().for_each(|item| key(&item.key)),
            Report::Quantiles { keys, .. } => keys.iter().for_each(|(_, flow)| key(flow)),
            Report::Addresses { side, items, .. } => {
                for item in items {
                    alone(spec, *side, &item.address, visit);
                }
            }
            Report::Spread { side, items, .. } => {
                for item in items {
                    alone(spec, *side, &item.address, visit);
                }
            }
            Report::Findings { items, .. } => items.iter().for_each(|item| {
                let source = item.source.as_ref().and_then(address);
                let destination = item.destination.as_ref().and_then(address);
                of_fields(spec, &Fields { source, destination, ..Fields::default() }, visit);
            }),
            Report::Hierarchical { items, .. } => items.iter().for_each(|item| {
                let ends = [Some((item.source, item.source_bits)), item.destination];
                for (prefix, bits) in ends.into_iter().flatten() {
                    // The prefix of all addresses has no label.
                    if let Some(address) = address(&prefix).filter(|_| bits > 0) {
                        visit(format!("{address}/{bits}"), address);
                    }
                }
            }),
            Report::Cardinality { .. }
            | Report::Entropy { .. }
            | Report::SizeDistribution { .. } => {}
        }
    }
}

/// An item that is a single address, whatever the key is.
fn alone(spec: KeySpec, side: Side, address: &CanonicalKey, visit: &mut Visit<'_>) {
    of_fields(spec, &spec.alone(side.address()).fields(address.as_bytes()), visit);
}

fn of_fields(spec: KeySpec, fields: &Fields, visit: &mut Visit<'_>) {
    let all = [
        (Field::Source, fields.source),
        (Field::Destination, fields.destination),
        (Field::Host, fields.host),
    ];
    for (field, address) in all {
        let Some(address) = address else { continue };
        let text = match spec.prefix_of(field, address) {
            Some(bits) => format!("{address}/{bits}"),
            None => address.to_string(),
        };
        visit(text, address);
    }
}

fn address(key: &CanonicalKey) -> Option<IpAddr> {
    KeySpec::from(KeyKind::SOURCE).fields(key.as_bytes()).source
}

/// Names by prefix length and prefix bits, in IPv6 form.
#[derive(Debug, Default)]
struct Prefixes(BTreeMap<u8, HashMap<u128, String>>);

/// Bits before an IPv4 address in its IPv6 form.
const MAPPED: u8 = 96;

impl Prefixes {
    /// Reads a file.
    ///
    /// # Errors
    /// When the file cannot be read, or a line lacks a prefix or a name.
    fn read(path: &Path) -> Result<Self, Failure> {
        let text = fs::read_to_string(path).map_err(|error| {
            Failure::Usage(format!("names.prefixes: cannot read {}: {error}", path.display()))
        })?;
        Self::parse(&text).map_err(|(line, reason)| {
            Failure::Usage(format!("names.prefixes: {}: line {line}: {reason}", path.display()))
        })
    }

    fn parse(text: &str) -> Result<Self, (usize, String)> {
        let mut prefixes = Self::default();
        for (line, number) in text.lines().zip(1..) {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let wrong = |reason: &str| (number, format!("{reason}; write '192.0.2.0/24 office'"));
            let (prefix, name) = line
                .split_once(char::is_whitespace)
                .ok_or_else(|| wrong("a prefix and its name are missing"))?;
            let (bits, start) =
                parsed(prefix).ok_or_else(|| wrong(&format!("'{prefix}' is not a prefix")))?;
            prefixes.0.entry(bits).or_default().insert(start, name.trim().to_owned());
        }
        Ok(prefixes)
    }

    /// The name of the longest prefix that contains an address.
    fn name(&self, address: IpAddr) -> Option<&str> {
        let bits = mapped(address);
        self.0
            .iter()
            .rev()
            .find_map(|(length, names)| names.get(&masked(bits, *length)))
            .map(String::as_str)
    }
}

/// The length and bits of a prefix. A plain address is a prefix of full length.
fn parsed(text: &str) -> Option<(u8, u128)> {
    let (address, bits) = match text.split_once('/') {
        Some((address, bits)) => (address, Some(bits.parse::<u8>().ok()?)),
        None => (text, None),
    };
    let address: IpAddr = address.parse().ok()?;
    let (most, before) = if address.is_ipv4() { (32, MAPPED) } else { (128, 0) };
    let bits = before + bits.unwrap_or(most).min(most + 1);
    (bits <= 128).then(|| (bits, masked(mapped(address), bits)))
}

fn mapped(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
        IpAddr::V6(address) => address.to_bits(),
    }
}

/// Clears all but the first bits of an address.
fn masked(address: u128, bits: u8) -> u128 {
    match 128 - u32::from(bits) {
        128 => 0,
        zeros => address >> zeros << zeros,
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;

    #[test]
    fn the_longest_prefix_gives_its_name() {
        let text = "# names\n10.0.0.0/8 all sites\n\n10.1.0.0/16\tnorth\n10.1.2.3  printer \n\
                    ::/0 the rest\n2001:db8::/32 documentation\n";
        let names = Prefixes::parse(text).unwrap();
        let name = |address: &str| names.name(address.parse().unwrap()).unwrap_or_default();
        assert_eq!(name("10.9.0.1"), "all sites");
        assert_eq!(name("10.1.255.1"), "north");
        assert_eq!(name("10.1.2.3"), "printer");
        assert_eq!(name("10.1.2.4"), "north");
        assert_eq!(name("2001:db8::1"), "documentation");
        assert_eq!(name("2001:db9::1"), "the rest");
        assert_eq!(Prefixes::default().name("10.0.0.1".parse().unwrap()), None);
    }

    #[test]
    fn a_line_that_makes_no_sense_is_named() {
        for (text, reason) in [
            ("10.0.0.0/8 a\n10.0.0.0/33 b\n", (2, "'10.0.0.0/33' is not a prefix")),
            ("2001:db8::/129 b", (1, "'2001:db8::/129' is not a prefix")),
            ("10.0.0.0/8", (1, "a prefix and its name are missing")),
            ("office 10.0.0.0/8", (1, "'office' is not a prefix")),
            ("10.0.0.0/-1 a", (1, "'10.0.0.0/-1' is not a prefix")),
        ] {
            let (line, refused) = Prefixes::parse(text).unwrap_err();
            assert_eq!(line, reason.0, "{text}");
            assert_eq!(refused, format!("{}; write '192.0.2.0/24 office'", reason.1));
        }
    }
}
