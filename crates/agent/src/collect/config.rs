//! The collector's file.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use flowgauge_core::task;
use flowgauge_engine::seed;
use flowgauge_engine::sink::units;
use flowgauge_kernel::Seed;
use serde::Deserialize;
use serde_json::Value;

use super::{Ask, Known, Limits};
use crate::Failure;
use crate::agent::Origin;
use crate::config::{self, Sinks, Size, Time};
use crate::kafka::{self, Sasl, Tls, What};
use crate::log;
use crate::names::NamesOptions;

/// Tasks that merged snapshots cannot answer, and the reason.
const UNASKED: &[(&str, &str)] = &[
    ("changes", "compares an epoch with those before it, which a collector does not keep"),
    ("findings", "needs the times of packets, which snapshots do not store"),
];

/// A collector's configuration, checked.
pub struct Configuration {
    /// The collector's own part of the file.
    pub collect: CollectOptions,
    /// Where snapshots come from.
    pub kafka: SourceOptions,
    /// The measurements that are collected.
    pub measurements: BTreeMap<String, AskOptions>,
    /// Where reports go.
    pub sinks: Sinks,
    /// Files with labels of addresses.
    pub names: NamesOptions,
    /// The first digits of a hash of all settings, which reports carry.
    pub hash: String,
}

/// A collector's file, as `docs/collect.schema.json` describes it.
#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct File {
    /// The collector itself.
    collect: CollectOptions,
    /// Where snapshots come from.
    kafka: SourceOptions,
    /// Measurements by name, each with what its reports answer.
    measurements: BTreeMap<String, AskOptions>,
    /// Where reports go.
    #[serde(default)]
    sinks: Sinks,
    /// Files that tell of addresses, for reports as JSON and the console.
    #[serde(default)]
    names: NamesOptions,
}

/// The collector's own part of the file.
#[derive(Clone, Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct CollectOptions {
    /// Name in reports and messages.
    #[serde(default = "name")]
    pub name: String,
    /// User that the collector becomes, where root starts it; then it is no longer root.
    pub user: Option<String>,
    /// Folder of what it remembers.
    #[serde(default = "data")]
    pub data: PathBuf,
    /// File with the seed of all agents, which only its owner may read.
    pub seed: PathBuf,
    /// Agents that are expected to report, and no others are taken; by default those that did not long ago.
    pub agents: Option<BTreeSet<String>>,
    /// How long an agent is expected after its last snapshot, such as `1h`, where there is no list.
    #[serde(default = "expire")]
    pub expire: Time,
    /// Time from the end of an epoch to its report, while agents are missing, such as `30s`.
    #[serde(default = "delay")]
    pub delay: Time,
    /// Time from that report in which late snapshots correct it, such as `5m`.
    #[serde(default = "keep")]
    pub keep: Time,
    /// Memory of the summaries of all epochs that are kept, such as `1GiB`.
    #[serde(default = "memory")]
    pub memory: Size,
    /// How lines on standard error are written: `text`, the default, or `json`.
    #[serde(default)]
    pub log: log::Format,
}

fn name() -> String {
    "network".to_owned()
}

fn data() -> PathBuf {
    PathBuf::from("data")
}

fn expire() -> Time {
    Time(3_600_000_000_000)
}

fn delay() -> Time {
    Time(30_000_000_000)
}

fn keep() -> Time {
    Time(300_000_000_000)
}

fn memory() -> Size {
    Size(1 << 30)
}

/// A topic of Apache Kafka with snapshots of agents.
#[derive(Clone, Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct SourceOptions {
    /// Addresses of brokers, such as `127.0.0.1:9092`. One that answers names the others.
    pub brokers: Vec<String>,
    /// The topic that agents send snapshots to.
    pub topic: String,
    /// The consumer group. Collectors of one group share the partitions of the topic.
    #[serde(default = "group")]
    pub group: String,
    /// Encrypts the connections, and checks the brokers' certificates.
    pub tls: Option<Tls>,
    /// Credentials of the collector.
    pub sasl: Option<Sasl>,
}

fn group() -> String {
    "flowgauge".to_owned()
}

/// What the reports of a measurement answer.
#[derive(Clone, Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct AskOptions {
    /// Tasks such as `top`; by default those that the summary can answer.
    pub tasks: Option<Vec<String>>,
    /// Items of lists such as `top`.
    pub top: Option<usize>,
}

impl SourceOptions {
    /// The same settings as options of a Kafka sink, for the common checks.
    fn of_sink(&self) -> kafka::Options {
        let Self { brokers, topic, tls, sasl, .. } = self.clone();
        kafka::Options { brokers, topic, what: vec![What::Snapshot], anonymize: None, tls, sasl }
    }

    /// The files it names.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        self.of_sink().files().map(Path::to_owned).collect()
    }
}

impl Configuration {
    /// Reads a file. Environment variables and overrides replace its fields.
    ///
    /// # Errors
    /// When the file cannot be read or is invalid; the message names the line if it can.
    pub fn read(origin: &Origin) -> Result<Self, Failure> {
        config::read(&origin.path, &origin.sets, Self::checked)
    }

    fn checked(file: File, hash: String) -> Result<Self, String> {
        let File { collect, kafka, measurements, sinks, names } = file;
        kafka.of_sink().check(None).map_err(|reason| format!("kafka{reason}"))?;
        if kafka.group.is_empty() {
            return Err("kafka.group is empty; name one, such as flowgauge".to_owned());
        }
        if measurements.is_empty() {
            return Err("measurements is empty; name one that agents have".to_owned());
        }
        for (name, ask) in &measurements {
            for asked in ask.tasks.iter().flatten() {
                let refused = |reason: &str| format!("measurements.{name}.tasks: {reason}");
                task::find(asked).map_err(|error| refused(&error.to_string()))?;
                if let Some((_, reason)) = UNASKED.iter().find(|(task, _)| task == asked) {
                    return Err(refused(&format!("'{asked}' {reason}; leave it out")));
                }
            }
            if ask.top == Some(0) {
                return Err(format!("measurements.{name}.top: write 1 or more"));
            }
        }
        if collect.agents.as_ref().is_some_and(BTreeSet::is_empty) {
            return Err(
                "collect.agents is empty; name agents, or leave it out to learn them".to_owned()
            );
        }
        sinks.check()?;
        if let Some(to) = &sinks.kafka
            && to.what != [What::Report]
        {
            return Err("sinks.kafka.what: a collector sends only reports; write report".to_owned());
        }
        Ok(Self { collect, kafka, measurements, sinks, names, hash })
    }

    /// The seed that all agents share.
    ///
    /// # Errors
    /// When the file has none, or others may read it.
    pub fn seed(&self) -> Result<Seed, Failure> {
        let seed = seed::from_file(&self.collect.seed);
        seed.map_err(|error| Failure::Usage(format!("collect.seed: {error}")))
    }

    /// How long epochs are waited for and kept.
    pub fn limits(&self) -> Limits {
        let ns = |time: Time| i64::try_from(time.0).unwrap_or(i64::MAX);
        Limits {
            delay_ns: ns(self.collect.delay),
            keep_ns: ns(self.collect.keep),
            memory_bytes: usize::try_from(self.collect.memory.0).unwrap_or(usize::MAX),
        }
    }

    /// What reports answer, by measurement.
    pub fn asks(&self) -> impl Iterator<Item = (String, Ask)> {
        self.measurements.iter().map(|(name, AskOptions { tasks, top })| {
            (name.clone(), Ask { tasks: tasks.clone(), top: *top })
        })
    }

    /// The agents that reports wait for.
    pub fn known(&self) -> Known {
        match &self.collect.agents {
            Some(agents) => Known::Listed(agents.iter().map(|agent| Arc::from(&**agent)).collect()),
            None => Known::learned(i64::try_from(self.collect.expire.0).unwrap_or(i64::MAX)),
        }
    }
}

impl fmt::Display for Configuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { collect, kafka, measurements, .. } = self;
        let (topic, group) = (&kafka.topic, &kafka.group);
        writeln!(f, "snapshots  topic {topic} at {}, group {group}", kafka.brokers.join(","))?;
        let agents = match &collect.agents {
            Some(agents) => agents.iter().cloned().collect::<Vec<_>>().join(", "),
            None => {
                format!("those that reported within {}", units::duration(collect.expire.0.into()))
            }
        };
        writeln!(f, "agents     {agents}")?;
        let [delay, keep] =
            [collect.delay, collect.keep].map(|time| units::duration(time.0.into()));
        writeln!(f, "epochs     reported after {delay} at the latest, corrected for {keep}")?;
        let memory = units::memory(self.limits().memory_bytes);
        writeln!(f, "memory     {memory} of summaries at most")?;
        for (name, ask) in measurements {
            let tasks = ask
                .tasks
                .as_ref()
                .map_or_else(|| "what its summary answers".to_owned(), |tasks| tasks.join(", "));
            writeln!(f, "reports    {name}: {tasks}")?;
        }
        Ok(())
    }
}

/// Whether a file looks like that of a collector.
pub fn is_collector(path: &Path) -> bool {
    let text = fs::read_to_string(path).unwrap_or_default();
    let file: Option<Value> = serde_saphyr::from_str(&text).ok();
    file.is_some_and(|file| file.get("collect").is_some())
}

#[cfg(test)]
mod tests {
    #![cfg_attr(feature = "kafka", expect(clippy::unwrap_used, reason = "a test may panic"))]

    use super::*;

    #[test]
    fn the_schema_of_a_file_is_committed() {
        config::tests::is_committed("collect.schema.json", schemars::schema_for!(File));
    }

    /// The configuration of a file with these lines.
    #[cfg(feature = "kafka")]
    fn read(name: &str, lines: &[&str]) -> Result<Configuration, String> {
        let name = format!("flowgauge-collect-{name}-{}.yaml", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::write(&path, lines.join("\n")).unwrap();
        assert!(is_collector(&path));
        let read = Configuration::read(&Origin { path: path.clone(), sets: Vec::new() });
        fs::remove_file(path).unwrap();
        read.map_err(|error| error.to_string())
    }

    #[test]
    #[cfg(feature = "kafka")]
    fn invalid_values_are_refused_by_field() {
        let sound = [
            "collect: { seed: s }",
            "kafka: { brokers: ['127.0.0.1:9092'], topic: t }",
            "measurements: { flows: {} }",
        ];
        let read_with = |line: usize, other: &'static str| {
            let mut lines = sound.to_vec();
            lines[line] = other;
            read("refused", &lines)
        };
        let configuration = read("sound", &sound).unwrap();
        let text = configuration.to_string();
        for words in
            ["topic t at 127.0.0.1:9092, group flowgauge", "after 30", "1 GiB", "flows: what"]
        {
            assert!(text.contains(words), "{words}: {text}");
        }
        for (line, other, words) in [
            (0, "collect: {}", "seed"),
            (0, "collect: { seed: s, agents: [] }", "collect.agents is empty"),
            (0, "collect: { seed: s, dealy: 3s }", "dealy"),
            (1, "kafka: { brokers: [], topic: t }", "kafka.brokers is empty"),
            (1, "kafka: { brokers: ['a:1'], topic: '' }", "kafka.topic"),
            (1, "kafka: { brokers: ['a:1'], topic: t, group: '' }", "kafka.group is empty"),
            (2, "measurements: {}", "measurements is empty"),
            (2, "measurements: { a: { tasks: [tpo] } }", "'top'"),
            (2, "measurements: { a: { tasks: [top, changes] } }", "'changes' compares"),
            (2, "measurements: { a: { tasks: [findings] } }", "'findings' needs"),
            (2, "measurements: { a: { top: 0 } }", "measurements.a.top"),
        ] {
            let refused = read_with(line, other).map(drop);
            assert!(refused.as_ref().is_err_and(|reason| reason.contains(words)), "{refused:?}");
        }
        let sink = "sinks: { kafka: { brokers: ['a:1'], topic: t, what: [snapshot] } }";
        let refused = read("sink", &[sound[0], sound[1], sound[2], sink]).map(drop).unwrap_err();
        assert!(refused.contains("sinks.kafka.what"), "{refused}");
    }
}
