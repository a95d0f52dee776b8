//! The agent's configuration file and its overrides.

mod source;
mod value;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};

use flowgauge_engine::sink::visible;
use flowgauge_engine::{Config, EpochLength, Pace, Plan};
use flowgauge_options::{Entries, complaint};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

pub use source::{
    Engine, InterfaceOptions, RecordsAddress, RecordsOptions, ReplayOptions, SourceOptions,
};
pub use value::{Queues, Size, Time};

use crate::Failure;
use crate::alert::Rule;
use crate::anonymize::Method;
use crate::console;
use crate::ipfix::Collector;
use crate::kafka;
use crate::log;
use crate::names::NamesOptions;
use crate::prometheus;

/// Prefix of the environment variables that override the file.
const PREFIX: &str = "FLOWGAUGE__";

/// Default epoch length.
const EPOCH: EpochLength = EpochLength::Time(10_000_000_000);

/// Most bytes of a measurement's name. The journal adds up to 90 to it, and a file's name has 255.
const LONGEST_NAME: usize = 128;

/// An agent's configuration, checked.
///
/// ```
/// use flowgauge_agent::Configuration;
///
/// let path = std::env::temp_dir().join(format!("agent-{}.yaml", std::process::id()));
/// let text = "agent: { name: edge, data: data }\n\
///     sources: [{ interface: eth0 }]\n\
///     measurements: { web: { key: source, filter: tcp port 443 } }\n";
/// std::fs::write(&path, text)?;
/// let configuration = Configuration::read(&path, &["measurements.web.top=5".to_owned()])?;
/// std::fs::remove_file(path)?;
/// assert_eq!(configuration.agent.name(), "edge");
/// assert_eq!(configuration.measurements[0].top, 5);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Configuration {
    /// The agent's own part of the file.
    pub agent: AgentOptions,
    /// Where packets come from.
    pub sources: Vec<SourceOptions>,
    /// The measurements, with the queues of the sources.
    pub measurements: Vec<Config>,
    /// Where reports go.
    pub sinks: Sinks,
    /// Conditions over reports, with the programs or web hooks to notify.
    pub alerts: BTreeMap<String, Rule>,
    /// Files with labels of addresses.
    pub names: NamesOptions,
    /// The first digits of a hash of all settings, which reports carry.
    pub hash: String,
}

/// A configuration file, as `docs/agent.schema.json` describes it.
#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct File {
    /// The agent itself.
    #[serde(default)]
    agent: AgentOptions,
    /// Where packets come from.
    sources: Vec<SourceOptions>,
    /// Measurements by name. Each packet is read once for all of them.
    measurements: Entries,
    /// Where reports go.
    #[serde(default)]
    sinks: Sinks,
    /// Conditions over reports by name, and programs or web hooks that hear of them.
    #[serde(default)]
    alerts: BTreeMap<String, Rule>,
    /// Files that tell of addresses, for reports as JSON, the console and `flowgauge top`.
    #[serde(default)]
    names: NamesOptions,
}

/// The agent's own part of the file.
#[derive(Clone, Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct AgentOptions {
    /// Name in reports and messages; by default the host's.
    name: Option<String>,
    /// User that the agent becomes, where root starts it; then it is no longer root.
    pub user: Option<String>,
    /// Folder of the journal and the seed.
    pub data: PathBuf,
    /// File with the seed, which only its owner may read; by default one that the agent draws for itself
    /// in its folder. Snapshots of several agents merge only if all have the same.
    pub seed: Option<PathBuf>,
    /// How long closed epochs are kept.
    pub journal: JournalOptions,
    /// How lines on standard error are written: `text`, the default, or `json`.
    pub log: log::Format,
    /// Arguments for DPDK as its own programs take them, such as `--no-huge`.
    #[serde(rename = "dpdk-args")]
    pub dpdk_args: String,
}

impl Default for AgentOptions {
    fn default() -> Self {
        Self {
            name: None,
            user: None,
            data: PathBuf::from("data"),
            seed: None,
            journal: JournalOptions::default(),
            log: log::Format::default(),
            dpdk_args: String::new(),
        }
    }
}

impl AgentOptions {
    /// The name in reports and messages.
    pub fn name(&self) -> String {
        let host = || fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        self.name.clone().unwrap_or_else(|| host().trim().to_owned())
    }
}

/// How long closed epochs are kept. The oldest go first.
#[derive(Clone, Copy, Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct JournalOptions {
    /// Age, such as `30d`.
    pub keep: Time,
    /// Bytes of all of them, such as `20GiB`.
    pub max_size: Size,
}

impl Default for JournalOptions {
    fn default() -> Self {
        Self { keep: Time(30 * 86_400 * 1_000_000_000), max_size: Size(20 << 30) }
    }
}

/// Where reports go.
#[derive(Clone, Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Sinks {
    /// Makes addresses anonymous in all that leaves the agent, but for the journal.
    pub anonymize: Option<Method>,
    /// Files of lines.
    pub files: Option<FilesOptions>,
    /// Tables as Parquet files.
    pub parquet: Option<ArchiveOptions>,
    /// Metrics for Prometheus.
    pub prometheus: Option<prometheus::Options>,
    /// The console.
    pub console: Option<console::Options>,
    /// Records to a collector of IPFIX.
    pub ipfix: Option<IpfixOptions>,
    /// Reports and snapshots to Apache Kafka.
    pub kafka: Option<kafka::Options>,
}

impl Sinks {
    /// Checks the options of all sinks.
    pub(crate) fn check(&self) -> Result<(), String> {
        if let Some(files) = &self.files {
            crate::files::check(files)?;
        }
        if let Some(kafka) = &self.kafka {
            kafka.check(self.anonymize).map_err(|reason| format!("sinks.kafka{reason}"))?;
        }
        if let Some(options) = &self.prometheus {
            options.access().check("prometheus")?;
        }
        if let Some(options) = &self.console {
            options.access().check("console")?;
        }
        Ok(())
    }
}

/// Tables as Parquet files, by table, measurement and day.
#[derive(Clone, Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ArchiveOptions {
    /// Folder, such as `archive/`.
    pub path: PathBuf,
    /// Time after which a new file begins, such as `1h`; files of it can be read only behind it.
    #[serde(default = "hour")]
    pub rotate: Time,
    /// Age at which the files of a day are removed, such as `30d`; never by default.
    pub keep: Option<Time>,
    /// Makes addresses anonymous in what this sink gets.
    #[serde(default)]
    pub anonymize: Option<Method>,
}

fn hour() -> Time {
    Time(3_600_000_000_000)
}

/// Files of lines, a new one whenever the time in its name changes.
#[derive(Clone, Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct FilesOptions {
    /// `json` or `line`.
    #[serde(default)]
    pub format: FileFormat,
    /// Path, with the epoch's start (UTC) as strftime writes it, such as `reports/%Y%m%d.jsonl`.
    pub path: String,
    /// Age at which a file is removed, such as `7d`; never by default.
    pub keep: Option<Time>,
    /// Makes addresses anonymous in what this sink gets.
    #[serde(default)]
    pub anonymize: Option<Method>,
}

/// Records to a collector of IPFIX.
#[derive(Clone, Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct IpfixOptions {
    /// The collector, such as `udp://127.0.0.1:4739` or `tcp://[::1]:4739`.
    #[cfg_attr(test, schemars(with = "String"))]
    pub to: Collector,
    /// Observation domain, which tells this agent from others of the same address.
    #[serde(default = "domain")]
    pub domain: u32,
    /// Number of the enterprise under which entropy and prefixes are exported; they are not without it.
    pub enterprise: Option<NonZeroU32>,
    /// Makes addresses anonymous in what this sink gets.
    #[serde(default)]
    pub anonymize: Option<Method>,
}

fn domain() -> u32 {
    1
}

/// How reports stand in files.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum FileFormat {
    /// One object a line.
    #[default]
    Json,
    /// One line of text an epoch.
    Line,
}

impl Configuration {
    /// Reads a file. Environment variables and `sets`, each `PATH=VALUE`, override its fields.
    ///
    /// # Errors
    /// When the file cannot be read or is invalid; the message names the line if it can.
    pub fn read(path: &Path, sets: &[String]) -> Result<Self, Failure> {
        read(path, sets, Self::checked)
    }

    /// Builds the configuration from a file's fields, if they are valid.
    fn checked(file: File, hash: String) -> Result<Self, String> {
        let File { agent, sources, measurements, sinks, alerts, names } = file;
        if sources.is_empty() {
            return Err(
                "sources is empty; name an interface, a capture to replay, or a port for flow \
                 records"
                    .to_owned(),
            );
        }
        check_interfaces(&sources)?;
        let queues = sources.iter().map(SourceOptions::queues).sum();
        let measurements = measurements.named()?.into_iter().map(|named| {
            let config = named.measurement.config(&named.name, EPOCH);
            let config = config.map_err(|reason| format!("{}: {reason}", named.name))?;
            if named.name.len() > LONGEST_NAME {
                return Err(format!(
                    "measurement '{}': its name has {} bytes; {LONGEST_NAME} fit in names of files",
                    named.name,
                    named.name.len()
                ));
            }
            if named.name.starts_with('.') {
                return Err(format!(
                    "measurement '{}': its folder in the journal would be hidden, or another one; \
                     begin its name with a letter",
                    named.name
                ));
            }
            if matches!(config.epoch, EpochLength::Whole) {
                return Err(format!(
                    "{}: an agent never ends, so 'epoch: whole' would never report; write a time",
                    named.name
                ));
            }
            let config = Config { queues, pace: Pace::Live, services: true, save: true, ..config };
            Ok(flowgauge_engine::capable(&config).map_or(config, |(instead, _)| instead))
        });
        let measurements: Vec<_> = measurements.collect::<Result<_, _>>()?;
        if measurements.is_empty() {
            return Err("measurements is empty; name one".to_owned());
        }
        sinks.check()?;
        let places = [
            ("files", sinks.files.as_ref().map(|files| Path::new(&files.path))),
            ("parquet", sinks.parquet.as_ref().map(|archive| &*archive.path)),
        ];
        for (sink, path) in places {
            if path.is_some_and(|path| is_own(path, &agent.data)) {
                return Err(format!(
                    "sinks.{sink}.path: the agent keeps its own data there; name another place"
                ));
            }
        }
        for (name, rule) in &alerts {
            rule.check(&measurements).map_err(|reason| format!("alerts.{name}: {reason}"))?;
        }
        Ok(Self { agent, sources, measurements, sinks, alerts, names, hash })
    }

    /// The plan of all measurements, with its memory reserved.
    ///
    /// # Errors
    /// When measurements are invalid, or names cannot be read.
    pub fn plan(&self) -> Result<Plan, Failure> {
        self.names.read()?;
        Plan::several(self.measurements.clone()).map_err(|error| Failure::Usage(error.to_string()))
    }
}

/// Whether a path is, or is in, what an agent keeps in its folder.
fn is_own(path: &Path, data: &Path) -> bool {
    let [Ok(path), Ok(data)] = [path, data].map(std::path::absolute) else { return false };
    let inside = path.strip_prefix(data).ok().and_then(|inside| inside.components().next());
    inside.is_some_and(|first| {
        let own = ["seed", "seed.part", "lock", "journal", "console.jsonl"];
        own.iter().any(|own| first.as_os_str() == *own)
    })
}

/// Checks that no interface is read twice by an engine. AF_XDP takes packets ahead of AF_PACKET, so
/// packets do not count twice between the two.
fn check_interfaces(sources: &[SourceOptions]) -> Result<(), String> {
    let mut seen = BTreeSet::new();
    let interfaces = sources.iter().filter_map(|source| match source {
        SourceOptions::Interface(options) => Some(options),
        SourceOptions::Replay(_) | SourceOptions::Records(_) => None,
    });
    for InterfaceOptions { interface, engine, .. } in interfaces {
        if !seen.insert((*engine, &**interface)) {
            return Err(format!(
                "sources: interface '{}' is named twice, so its packets would count twice; name it once",
                visible(interface)
            ));
        }
    }
    let others = seen.iter().filter(|(engine, _)| *engine == Engine::AfPacket).count() > 1;
    if others && seen.contains(&(Engine::AfPacket, "any")) {
        return Err(
            "sources: 'any' already measures all interfaces; leave out the others".to_owned()
        );
    }
    Ok(())
}

/// Reads a file. Environment variables and `sets`, each `PATH=VALUE`, override its fields. `check`
/// receives the fields and the first digits of a hash of all settings.
///
/// # Errors
/// When the file cannot be read or is invalid; the message names the line if it can.
pub(crate) fn read<F: DeserializeOwned, T>(
    path: &Path,
    sets: &[String],
    check: impl FnOnce(F, String) -> Result<T, String>,
) -> Result<T, Failure> {
    let name = visible(&path.to_string_lossy()).into_owned();
    let text = fs::read_to_string(path)
        .map_err(|error| Failure::Failed(format!("cannot read {name}: {error}")))?;
    let variables = std::env::vars().filter_map(|(variable, value)| {
        let path = variable.strip_prefix(PREFIX)?;
        Some((path.to_lowercase().replace("__", ".").replace('_', "-"), value))
    });
    let mut overrides: Vec<_> = variables.collect();
    overrides.sort();
    for set in sets {
        let (path, value) = set
            .split_once('=')
            .ok_or_else(|| Failure::Usage(format!("invalid --set '{set}'; write PATH=VALUE")))?;
        overrides.push((path.to_owned(), value.to_owned()));
    }
    let parsed = parse(&text, &overrides).and_then(|(file, hash)| check(file, hash));
    parsed.map_err(|reason| Failure::Usage(format!("{name}: {reason}")))
}

/// Parses a text with overrides by path; returns the fields and their hash.
fn parse<F: DeserializeOwned>(
    text: &str,
    overrides: &[(String, String)],
) -> Result<(F, String), String> {
    let mut value: Value = serde_saphyr::from_str(text).map_err(|error| complaint(&error))?;
    // The file is parsed alone first: only then can an error name its line.
    let mut file: F = serde_saphyr::from_str(text).map_err(|error| complaint(&error))?;
    if !overrides.is_empty() {
        for (path, new) in overrides {
            set(&mut value, path, new)?;
        }
        let text = value.to_string();
        file = serde_saphyr::from_str(&text).map_err(|error| {
            let reason = complaint(&error);
            let reason = reason.split_once("line 1: ").map_or(&*reason, |(_, reason)| reason);
            let paths: Vec<_> = overrides.iter().map(|(path, _)| &**path).collect();
            format!("with {} set: {reason}", paths.join(", "))
        })?;
    }
    let hash = blake3::hash(value.to_string().as_bytes()).to_hex()[..16].to_owned();
    Ok((file, hash))
}

/// Sets the field at a path of dotted names to a value in YAML.
fn set(file: &mut Value, path: &str, new: &str) -> Result<(), String> {
    let new = serde_saphyr::from_str(new).unwrap_or_else(|_| Value::from(new));
    let mut at = file;
    for name in path.split('.') {
        at = match at {
            Value::Array(list) => {
                let len = list.len();
                let item = name.parse::<usize>().ok().and_then(|number| list.get_mut(number));
                item.ok_or_else(|| format!("'{path}': no item {name} in a list of {len}"))?
            }
            Value::Null | Value::Object(_) => {
                if at.is_null() {
                    *at = Value::Object(serde_json::Map::new());
                }
                match at {
                    Value::Object(fields) => fields.entry(name).or_insert(Value::Null),
                    other => other,
                }
            }
            _ => return Err(format!("'{path}': '{name}' would be a field of a single value")),
        };
    }
    *at = new;
    Ok(())
}

#[cfg(test)]
pub(crate) mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;

    #[test]
    fn the_schema_of_a_file_is_committed() {
        is_committed("agent.schema.json", schemars::schema_for!(File));
    }

    /// Why a text is refused.
    fn refused(text: &str) -> Option<String> {
        parse(text, &[]).and_then(|(file, hash)| Configuration::checked(file, hash)).err()
    }

    #[test]
    fn what_cannot_work_is_refused() {
        let file = |source: &str, name: &str, sinks: &str| {
            refused(&format!(
                "agent: {{ data: ./d }}\nsources: [{{ {source} }}]\n\
                 measurements: {{ {name}: {{}} }}\nsinks: {{ {sinks} }}\n"
            ))
        };
        let (replay, long) = ("replay: a.pcap", "a".repeat(LONGEST_NAME));
        assert_eq!(file(replay, &long, "files: { path: d/reports/seed }"), None);
        for (source, name, sinks, reason) in [
            ("replay: a.pcap, times: 0", "main", "", "invalid times '0'"),
            ("interface: ''", "main", "", "interface is empty"),
            ("interface: a, queues: -1", "main", "", "expected a number, at least 0, or a text"),
            (replay, &*format!("a{long}"), "", "its name has 129 bytes; 128 fit"),
            (replay, "main", "files: { path: d/seed }", "sinks.files.path: the agent keeps"),
            (replay, "main", "files: { path: ././d/console.jsonl }", "sinks.files.path: "),
            (replay, "main", "parquet: { path: d/journal/a }", "sinks.parquet.path: the agent"),
        ] {
            let found = file(source, name, sinks).unwrap_or_default();
            assert!(found.contains(reason), "{source}, {name}, {sinks}: '{found}'");
        }
    }

    #[test]
    fn an_interface_is_read_once() {
        let check = |sources: &str| {
            refused(&format!("sources: [{sources}]\nmeasurements: {{ main: {{}} }}\n"))
        };
        let twice =
            check("{ interface: a }, { interface: b }, { interface: a, queues: 2 }").unwrap();
        assert!(twice.contains("interface 'a' is named twice"), "{twice}");
        let any = check("{ interface: any }, { interface: a }").unwrap();
        assert!(any.contains("'any' already measures all interfaces"), "{any}");
        let xdp = "{ interface: a, engine: af-xdp, takes-traffic: true }";
        assert_eq!(check(&format!("{{ interface: a }}, {{ interface: b }}, {xdp}")), None);
        assert_eq!(check(&format!("{{ interface: any }}, {xdp}")), None);
    }

    /// Compares a schema with the file in `docs`. `FLOWGAUGE_GOLDEN=write` writes the file instead,
    /// after an intended change.
    pub(crate) fn is_committed(name: &str, schema: schemars::Schema) {
        let schema = serde_json::to_value(schema).unwrap();
        let text = format!("{}\n", serde_json::to_string_pretty(&schema).unwrap());
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name);
        if std::env::var_os("FLOWGAUGE_GOLDEN").is_some_and(|value| value == "write") {
            fs::write(&path, &text).unwrap();
        }
        assert_eq!(fs::read_to_string(path).unwrap(), text);
    }
}
