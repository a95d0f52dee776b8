//! An alert rule of the configuration.

use flowgauge_core::unknown::suggestion;
use flowgauge_engine::Config;
use flowgauge_options::values;
use serde::Deserialize;

use super::condition::Condition;
use super::notify::Target;
use super::state::Lasting;

/// Quiet time before an alert is cleared, unless its rule says another.
const CLEAR_AFTER_NS: u64 = 300_000_000_000;

/// One alert of the configuration.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Rule {
    /// When it is raised.
    #[cfg_attr(test, schemars(with = "String"))]
    pub when: Condition,
    /// How long the condition must match: `3 epochs`, or a time.
    #[serde(rename = "for", default = "one_epoch", deserialize_with = "lasting")]
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    pub lasting: Lasting,
    /// Quiet nanoseconds after which it is cleared.
    #[serde(rename = "clear-after", default = "clear_after", deserialize_with = "time")]
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    pub clear_after_ns: u64,
    /// A program with its arguments, split by spaces; there is no shell.
    #[serde(default)]
    pub run: Option<String>,
    /// Where changes are posted as JSON.
    #[serde(default)]
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    pub post: Option<Target>,
}

impl Rule {
    /// The rule that every agent has: packets were dropped in three consecutive epochs.
    ///
    /// # Panics
    /// Never: the condition is constant.
    pub fn loss() -> Self {
        let when = "account.dropped > 0".parse().expect("the condition is sound");
        let (lasting, clear_after_ns) = (Lasting::Epochs(3), CLEAR_AFTER_NS);
        Self { when, lasting, clear_after_ns, run: None, post: None }
    }

    /// Checks the rule against the configured measurements.
    ///
    /// # Errors
    /// One line with the problem and the remedy.
    pub fn check(&self, measurements: &[Config]) -> Result<(), String> {
        if self.run.as_ref().is_some_and(|run| run.split_whitespace().next().is_none()) {
            return Err("run is empty; name a program or leave it out".to_owned());
        }
        let Some(name) = self.when.measurement() else { return Ok(()) };
        let Some(config) = measurements.iter().find(|config| config.name == name) else {
            let known = measurements.iter().map(|config| config.name.as_str());
            return Err(format!("unknown measurement '{name}'; {}", suggestion(name, known)));
        };
        let asked = |task: super::condition::Task| match &config.tasks {
            Some(tasks) => tasks.iter().any(|asked| asked == task.name()),
            None => task.by_default(),
        };
        match self.when.tasks().find(|task| !asked(*task)) {
            Some(task) => Err(format!(
                "measurement '{name}' does not answer '{0}'; add '{0}' to its tasks",
                task.name()
            )),
            None => Ok(()),
        }
    }
}

fn one_epoch() -> Lasting {
    Lasting::Epochs(1)
}

fn clear_after() -> u64 {
    CLEAR_AFTER_NS
}

fn lasting<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Lasting, D::Error> {
    let text = String::deserialize(from)?;
    parse_lasting(&text).map_err(serde::de::Error::custom)
}

fn time<'de, D: serde::Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    let text = String::deserialize(from)?;
    values::time(&text).map_err(serde::de::Error::custom)
}

fn parse_lasting(text: &str) -> Result<Lasting, String> {
    let how = "write a number of epochs, such as 3 epochs, or a time such as 30s";
    let mut words = text.split_whitespace();
    match (words.next(), words.next(), words.next()) {
        (Some(number), Some("epoch" | "epochs"), None) => match number.parse() {
            Ok(epochs) if epochs > 0 => Ok(Lasting::Epochs(epochs)),
            _ => Err(format!("'{number}' is not a number of epochs (1 or more); {how}")),
        },
        (Some(time), None, None) => match values::time(time) {
            Ok(ns) => Ok(Lasting::Time(ns)),
            Err(_) => Err(format!("'{time}' is not a time; {how}")),
        },
        _ => Err(how.to_owned()),
    }
}
