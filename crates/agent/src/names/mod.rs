//! Address labels: names of prefixes from a file, and autonomous systems and countries from MaxMind
//! databases. No network lookups.

mod addresses;
mod databases;
mod prefixes;

use std::net::IpAddr;
use std::path::PathBuf;

use flowgauge_engine::report::EpochReport;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::failure::Failure;
use databases::Databases;
use prefixes::Prefixes;

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
    /// A file cannot be read or is damaged.
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
        addresses::visit(report, &mut |text, address| {
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
