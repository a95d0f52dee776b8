//! Options of the sink `kafka`.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::anonymize::Method;
use crate::has_port;

/// Maximum length of a topic name.
const TOPIC: usize = 249;

/// Reports and snapshots to a topic of Apache Kafka.
#[derive(Clone, Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Options {
    /// Addresses of brokers, such as `127.0.0.1:9092`. One that answers names the others.
    pub brokers: Vec<String>,
    /// The topic of all records.
    pub topic: String,
    /// `report`, `snapshot` or both; reports by default.
    #[serde(default = "reports")]
    pub what: Vec<What>,
    /// Makes addresses anonymous in reports. Snapshots hold the addresses themselves.
    #[serde(default)]
    pub anonymize: Option<Method>,
    /// Encrypts the connections, and checks the brokers' certificates.
    pub tls: Option<Tls>,
    /// Credentials of the agent.
    pub sasl: Option<Sasl>,
}

/// A kind of record.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum What {
    /// Each report as an object of JSON.
    Report,
    /// Each closed epoch as `flowgauge query` reads it.
    Snapshot,
}

/// Encrypted connections. Without a file the certificates of the system count.
#[derive(Clone, Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Tls {
    /// File with the certificates of authorities that sign those of brokers, as PEM.
    pub ca_file: Option<PathBuf>,
    /// File with the certificate of the agent, for brokers that ask for one, as PEM.
    pub certificate_file: Option<PathBuf>,
    /// File with the key of that certificate, as PEM, which only its owner may read.
    pub key_file: Option<PathBuf>,
}

/// A user of the brokers.
#[derive(Clone, Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Sasl {
    /// Name.
    pub user: String,
    /// File with the password, which only its owner may read.
    pub password_file: PathBuf,
    /// How it is proved; `plain` by default, which sends the password itself.
    #[serde(default)]
    pub mechanism: Mechanism,
}

/// How a user proves a password (RFC 4616, RFC 5802).
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Mechanism {
    /// By the password.
    #[default]
    Plain,
    /// By a salted hash of it.
    #[serde(rename = "scram-sha-256")]
    ScramSha256,
    /// By a longer one.
    #[serde(rename = "scram-sha-512")]
    ScramSha512,
}

#[cfg(feature = "kafka")]
impl Mechanism {
    /// Its name in Kafka.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Plain => "PLAIN",
            Self::ScramSha256 => "SCRAM-SHA-256",
            Self::ScramSha512 => "SCRAM-SHA-512",
        }
    }
}

fn reports() -> Vec<What> {
    vec![What::Report]
}

impl Options {
    /// The files it names.
    pub(crate) fn files(&self) -> impl Iterator<Item = &Path> {
        let password = self.sasl.iter().map(|sasl| &*sasl.password_file);
        let tls = self.tls.iter().flat_map(|tls| {
            let files = [&tls.ca_file, &tls.certificate_file, &tls.key_file];
            files.into_iter().flatten().map(PathBuf::as_path)
        });
        password.chain(tls)
    }

    /// Checks the options. Messages start with the path of the field below `sinks.kafka`.
    pub(crate) fn check(&self, anonymize: Option<Method>) -> Result<(), String> {
        if !cfg!(feature = "kafka") {
            return Err(
                ": this flowgauge was built without Kafka; build it with 'make agent', or \
                        with the feature 'kafka'"
                    .to_owned(),
            );
        }
        if self.brokers.is_empty() {
            return Err(".brokers is empty; name one, such as 127.0.0.1:9092".to_owned());
        }
        if let Some(broker) = self.brokers.iter().find(|broker| !has_port(broker)) {
            return Err(format!(
                ".brokers: invalid broker '{broker}'; write HOST:PORT, and an address of IPv6 in \
                 brackets"
            ));
        }
        let is_known = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        let is_short = (1..=TOPIC).contains(&self.topic.len());
        if !is_short || !self.topic.chars().all(is_known) || [".", ".."].contains(&&*self.topic) {
            return Err(format!(
                ".topic: invalid topic '{}'; write at most {TOPIC} of a-z, A-Z, 0-9, '.', '_' and '-'",
                self.topic
            ));
        }
        if anonymize.or(self.anonymize).is_some() && self.what.contains(&What::Snapshot) {
            return Err(".what: snapshots hold addresses, which 'anonymize' would hide; leave out one of them"
                .to_owned());
        }
        if let Some(tls) = &self.tls
            && tls.certificate_file.is_some() != tls.key_file.is_some()
        {
            return Err(".tls: a certificate and its key belong together; write both \
                        'certificate-file' and 'key-file', or neither"
                .to_owned());
        }
        if self.what.is_empty() {
            return Err(".what is empty; write report, snapshot or both".to_owned());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(not(feature = "kafka"))]
    fn a_build_without_kafka_names_the_build_to_make() {
        let (brokers, topic) = (vec!["127.0.0.1:9092".to_owned()], "flows".to_owned());
        let options =
            Options { brokers, topic, what: reports(), anonymize: None, tls: None, sasl: None };
        let refused = options.check(None);
        assert!(refused.as_ref().is_err_and(|reason| reason.contains("make agent")), "{refused:?}");
    }

    #[test]
    #[cfg(feature = "kafka")]
    fn invalid_values_are_refused_by_field() {
        let sound = || Options {
            brokers: vec!["127.0.0.1:9092".to_owned(), "[::1]:9092".to_owned()],
            topic: "flow.gauge_1-a".to_owned(),
            what: reports(),
            anonymize: None,
            tls: None,
            sasl: None,
        };
        assert_eq!(sound().check(None), Ok(()));
        let with = |broker: &str, topic: &str| Options {
            brokers: vec![broker.to_owned()],
            topic: topic.to_owned(),
            ..sound()
        };
        let certificate_file = Some(PathBuf::from("edge.pem"));
        let tls = Some(Tls { ca_file: None, certificate_file, key_file: None });
        let long = "t".repeat(TOPIC + 1);
        for (options, field) in [
            (Options { brokers: Vec::new(), ..sound() }, ".brokers"),
            (Options { what: Vec::new(), ..sound() }, ".what"),
            (
                Options { what: vec![What::Snapshot], anonymize: Some(Method::Prefix), ..sound() },
                ".what: snapshots",
            ),
            (Options { tls, ..sound() }, ".tls"),
            (with("host", "t"), ".brokers"),
            (with("host:0", "t"), ".brokers"),
            (with("a:1,b:2", "t"), ".brokers"),
            (with("ssl://a:1", "t"), ".brokers"),
            (with("a:1", ""), ".topic"),
            (with("a:1", ".."), ".topic"),
            (with("a:1", "a/b"), ".topic"),
            (with("a:1", &long), ".topic"),
        ] {
            let refused = options.check(None);
            assert!(refused.as_ref().is_err_and(|reason| reason.starts_with(field)), "{refused:?}");
        }
    }
}
